//! Questions to people and sessions, as operators see them.

use super::{
    budget::Usage,
    calls::Standing,
    control::Edited,
    effect::{Effect, Resource},
    failure::FailureKind,
    finding::{Decision, Finding},
    fingerprint::ArgsDigest,
    ids::SessionId,
    outcome::{OutcomeStatus, Repeat},
    time::Timestamp,
    whole::Whole,
};

/// A question to a person, with its call and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Names it.
    pub approval_id: String,
    /// The session that asks.
    pub session: String,
    /// Its call tree's root.
    pub root: String,
    /// Where it was asked among the events of its call tree.
    pub seq: u64,
    /// The agent that asks.
    pub agent: Option<String>,
    /// Whose credential asked; none where nobody shows one.
    pub asked_by: Option<String>,
    /// In what program that agent runs, where it says so.
    pub host: Option<String>,
    pub call_id: String,
    pub tool: String,
    /// Its arguments, as they are stored.
    pub arguments: String,
    /// What an answer is bound to.
    pub args_digest: ArgsDigest,
    /// What the call does to the world.
    pub effect: Effect,
    /// Why the agent wants it.
    pub justification: Option<String>,
    /// What the rules had to say.
    pub findings: Vec<Finding>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it counts as denied.
    pub expires_at: Timestamp,
    /// The policy that asked.
    pub policy: String,
    /// Who has said yes, where another yes is needed.
    pub seconded_by: Vec<String>,
    /// What was approved instead, or is said yes to by who has said it.
    pub edited: Option<Edited>,
    /// What was answered, or that it was taken back.
    pub resolution: Option<Resolution>,
}

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionState {
    /// Nobody has answered.
    Pending,
    /// Yes.
    Approved,
    /// Yes, with other arguments.
    Edited,
    /// No.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// Who asked took it back.
    Withdrawn,
}

impl QuestionState {
    /// The name used in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Edited => "edited",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl Question {
    /// Where it stands at `now`.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> QuestionState {
        match &self.resolution {
            Some(resolution) => resolution.state,
            None if now >= self.expires_at => QuestionState::Expired,
            None => QuestionState::Pending,
        }
    }
}

/// How a question was closed: by an answer, or by who asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// Approved, edited, denied or withdrawn.
    pub state: QuestionState,
    /// Who answered, or took it back.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
    /// What else it lets through: calls on one thing, or all of the tool's, and until when.
    pub clears: Option<(Option<Resource>, Timestamp)>,
    /// Until when a yes to other arguments may be used.
    pub edited_until: Option<Timestamp>,
}

/// A stored call, as it was judged last, with what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    pub session: String,
    /// Its call tree's root.
    pub root: String,
    /// Its place among the events of its call tree.
    pub seq: u64,
    pub call_id: String,
    pub run: Option<String>,
    pub agent: Option<String>,
    pub tool: String,
    /// Its arguments, as they are stored.
    pub arguments: String,
    /// Why the agent wanted it.
    pub justification: Option<String>,
    /// When it was judged.
    pub at: Timestamp,
    /// What held.
    pub decision: Decision,
    /// What the rules had to say.
    pub findings: Vec<Finding>,
    /// The policy that judged.
    pub policy: String,
    /// What the model used before it, as it was reported with the question.
    pub usage: Usage,
    /// What came of it.
    pub status: Option<OutcomeStatus>,
    /// Of an error: its kind.
    pub failure: Option<FailureKind>,
    /// What it cost, and what the model used meanwhile, as it was reported with the outcome.
    pub reported: Usage,
    /// What was estimated of a retry: whether it was worth it, and after what wait, in milliseconds. None where a limit
    /// decided.
    pub estimated: Option<(bool, u64)>,
    /// Of a failure: who may repeat it.
    pub repeat: Option<Repeat>,
    /// The answer was all there is, as far as the report says.
    pub is_complete: Option<bool>,
    /// How many matches there are in all, as far as the report says.
    pub total_matches: Option<u64>,
    /// The answer of a success, or the error's text.
    pub result: Option<String>,
    /// Digests of the witness before and after, hexadecimal, where they were stored.
    pub witness: Option<String>,
    pub witness_after: Option<String>,
    /// What the answer was, where only its beginning is stored.
    pub whole: Option<Whole>,
    /// A person approved it.
    pub approved: bool,
    /// The trace in which it was judged, and that of the report, hexadecimal.
    pub trace: Option<String>,
    pub report_trace: Option<String>,
}

/// A session in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionLine {
    /// Which it is, and where it stands among the others.
    pub place: SessionPlace,
    /// When it was first heard of.
    pub created_at: Timestamp,
    /// Steps of its call tree.
    pub steps: u64,
    /// Permitted calls of its call tree.
    pub calls: u64,
    /// Calls of its call tree that have no outcome.
    pub open_calls: u32,
    /// What its call tree has cost, in micro-dollars.
    pub cost_micros: u64,
    pub parent: Option<String>,
    /// Where it stands.
    pub standing: Standing,
    /// The agent and tool of its last call, what was decided of it, and why.
    pub agent: Option<String>,
    pub last_tool: Option<String>,
    pub last_decision: Option<Decision>,
    pub last_reason: Option<String>,
}

/// A session's place among all, of which the last heard of come first, and of one call tree its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlace {
    /// When its call tree was last heard of, in microseconds since the Unix epoch.
    pub last_us: i64,
    /// Its call tree's root.
    pub root: String,
    /// How far below its root it is.
    pub depth: i32,
    pub session: String,
}

impl SessionPlace {
    /// When its call tree was last heard of.
    #[must_use]
    pub const fn last_at(&self) -> Timestamp {
        Timestamp::from_millis(self.last_us.div_euclid(1_000))
    }
}

/// Which questions are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only this one.
    pub approval_id: Option<String>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those in this state.
    pub state: Option<QuestionState>,
    /// Only those behind this one: when it was asked, and its id.
    pub after: Option<(Timestamp, String)>,
    /// At most so many.
    pub max: usize,
}
