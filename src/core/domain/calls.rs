//! Calls as people look for them and at them.

use super::{
    budget::Usage,
    failure::FailureKind,
    finding::{Decision, Finding},
    ids::SessionId,
    inbox::SessionPlace,
    outcome::{Advice, OutcomeStatus},
    profile::FollowUpKind,
    time::Timestamp,
    whole::Whole,
};

/// Which calls are meant; what is none lets all through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFilter {
    pub agent: Option<String>,
    pub tool: Option<String>,
    /// What was decided, by which rule and why: at one of its judgements.
    pub decision: Option<Decision>,
    pub rule: Option<String>,
    pub reason: Option<String>,
    /// What came of it.
    pub status: Option<OutcomeStatus>,
    pub failure: Option<FailureKind>,
    /// In its arguments or ids, in any case of letters.
    pub text: Option<String>,
    /// Judged first then or later.
    pub since: Option<Timestamp>,
    /// Judged first before.
    pub until: Option<Timestamp>,
}

impl CallFilter {
    /// True where every call is let through.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

/// Where a session stands; the first that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Somebody stopped it.
    Halted,
    /// It waits for a person.
    Held,
    /// A call of it is running.
    Calling,
    /// Its last call was answered with STOP.
    Stopped,
    /// None of these.
    Quiet,
}

impl Standing {
    /// Every one, in the order of its code in SQL.
    pub const ALL: [Self; 5] = [Self::Halted, Self::Held, Self::Calling, Self::Stopped, Self::Quiet];
}

/// What is halted of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HaltedNames {
    /// Everything is.
    pub all: bool,
    pub sessions: Vec<String>,
    pub agents: Vec<String>,
}

/// Which sessions are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionsWanted {
    /// With a call like that.
    pub calls: CallFilter,
    /// That stand so.
    pub standing: Option<Standing>,
    /// Only those behind this one.
    pub after: Option<SessionPlace>,
    /// At most so many.
    pub max: usize,
}

/// Which calls are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallsWanted {
    /// Of this session's call tree.
    pub session: Option<SessionId>,
    /// Of the session itself, not of its tree.
    pub alone: bool,
    pub filter: CallFilter,
    /// In their order, not the newest first. Of one tree alone.
    pub oldest_first: bool,
    /// Only those behind this one.
    pub after: Option<CallPlace>,
    /// At most so many.
    pub max: usize,
}

/// A call's place among all: by when its call tree was last heard of, and in it by where it was judged first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPlace {
    /// In microseconds since the Unix epoch; 0 in a list of one tree.
    pub last_us: i64,
    /// Its call tree's root.
    pub root: String,
    pub seq: u64,
}

/// A part of a list, and what was looked through for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked<T, P> {
    pub found: Vec<T>,
    /// Behind which place the rest is, where there may be more.
    pub next: Option<P>,
    /// What was heard of since then was looked through, in microseconds since the Unix epoch; none: all that is stored.
    pub since_us: Option<i64>,
    /// Some arguments are sealed, and were not looked into.
    pub is_sealed: bool,
}

/// A call in short, as it was judged last, with what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallLine {
    /// Where it was judged first.
    pub place: CallPlace,
    pub session: String,
    pub parent: Option<String>,
    pub depth: u32,
    /// The seq of the first call of the same model turn.
    pub batch: u64,
    pub call_id: String,
    pub run: Option<String>,
    pub agent: Option<String>,
    pub tool: String,
    /// Its arguments, or their beginning; none when they are past their term.
    pub arguments: Option<String>,
    pub first_at: Timestamp,
    pub rounds: u32,
    /// The last one.
    pub judgement: Judgement,
    pub status: Option<OutcomeStatus>,
    pub failure: Option<FailureKind>,
    /// In one line.
    pub error: Option<String>,
    pub gist: Option<String>,
    pub recorded_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
    pub usage: Usage,
    /// The call that it follows up on, and how.
    pub retry_of: Option<(String, FollowUpKind)>,
    pub waited_ms: Option<u64>,
    pub observed: bool,
    pub fingerprint: String,
    pub report_trace: Option<String>,
    /// By its name in SQL.
    pub effect: &'static str,
    pub resource: Option<String>,
    pub result_bytes: Option<u64>,
}

/// One judgement of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub seq: u64,
    pub at: Timestamp,
    pub decision: Decision,
    /// What the policy would have decided.
    pub would: Decision,
    pub rule: Option<String>,
    pub reason: Option<String>,
    pub findings: Vec<Finding>,
    pub attempt: Option<u32>,
    pub lease_until: Option<Timestamp>,
    pub approval: Option<String>,
    /// When the question expires.
    pub approval_until: Option<Timestamp>,
    pub policy: String,
    pub trace: Option<String>,
}

/// One report on a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    pub seq: u64,
    pub at: Timestamp,
    pub status: OutcomeStatus,
    pub failure: Option<FailureKind>,
    /// In one line.
    pub error: Option<String>,
    /// Nobody reported; the lease ran out.
    pub by_lease: bool,
    pub duration_ms: Option<u64>,
    pub advice: Option<Advice>,
    pub note: Option<String>,
    pub trace: Option<String>,
}

/// What a person said of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    pub at: Timestamp,
    /// As the events of sessions name it.
    pub kind: String,
    pub by: Option<String>,
    pub why: Option<String>,
    pub approved: bool,
    /// Yes, with other arguments.
    pub edited: bool,
}

/// Everything that is stored of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeCall {
    pub line: CallLine,
    pub arguments: Option<String>,
    pub justification: Option<String>,
    /// The answer of a success, as it is stored.
    pub result: Option<String>,
    /// What the answer was, where only its beginning is stored.
    pub whole: Option<Whole>,
    /// The raw error of a failure.
    pub error: Option<String>,
    /// The newest of them, oldest first.
    pub judgements: Vec<Judgement>,
    pub reports: Vec<CallReport>,
    pub answers: Vec<CallAnswer>,
    /// Calls of its session that follow up on it.
    pub followed_by: Vec<String>,
    /// As JSON objects, where they were asked for.
    pub rows: Vec<String>,
}
