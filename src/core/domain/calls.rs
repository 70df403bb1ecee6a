//! Call and session lists: filters, rows and details for people.

use super::{
    budget::Usage,
    closed_set::closed_set,
    failure::FailureKind,
    finding::{Decision, Finding},
    ids::SessionId,
    inbox::SessionPlace,
    outcome::{Advice, OutcomeStatus},
    profile::FollowUpKind,
    time::Timestamp,
    truncation::FullText,
};

/// Filter of calls; a field that is `None` matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallFilter {
    pub agent: Option<String>,
    pub tool: Option<String>,
    /// Decision of one of its judgments; likewise rule and reason.
    pub decision: Option<Decision>,
    pub rule: Option<String>,
    pub reason: Option<String>,
    /// Outcome.
    pub status: Option<OutcomeStatus>,
    pub failure: Option<FailureKind>,
    /// In its arguments or ids, in any case of letters.
    pub text: Option<String>,
    /// Judged first then or later.
    pub since: Option<Timestamp>,
    /// Judged first before.
    pub until: Option<Timestamp>,
    pub user: Option<String>,
    /// One of its judgments is REUSE, DENY or STOP.
    pub refused: bool,
    /// In the name of its agent, user or tool, in any case of ASCII letters.
    pub name: Option<String>,
}

impl CallFilter {
    /// True for the filter that matches every call.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

/// State of a session: the first variant that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStatus {
    /// Halted by an operator.
    Halted,
    /// An approval request is pending.
    Held,
    /// A call is running.
    Calling,
    /// Its last call was answered with STOP.
    Stopped,
    /// None of these.
    Quiet,
}

impl SessionStatus {
    /// Every one, in the order of its code in SQL.
    pub const ALL: [Self; 5] = [Self::Halted, Self::Held, Self::Calling, Self::Stopped, Self::Quiet];
}

/// Active halts that concern sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HaltedNames {
    /// Everything is.
    pub all: bool,
    pub sessions: Vec<String>,
    pub agents: Vec<String>,
}

/// Number of the newest calls that are read for their names, beside the stored names.
pub const NAMED_CALLS_MAX: u32 = 2_000;

/// Maximum number of judgments of a call tree that are counted for its totals.
pub const JUDGMENTS_COUNTED_MAX: u32 = 50_000;

closed_set! {
    /// Owner of a name in calls.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NameKind {
        Agent = "agent",
        User = "user",
        Tool = "tool",
    }
}

/// Names that contain a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePage {
    /// Those with the latest calls first.
    pub names: Vec<(NameKind, String)>,
    /// They begin with the text: no index finds it within names.
    pub is_prefix: bool,
}

/// Order of sessions, by a total of their call trees, descending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SessionOrder {
    /// Last activity.
    #[default]
    Latest,
    Cost,
    /// Permitted calls.
    Calls,
    /// From the first event to the last.
    Duration,
}

/// Query for sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only this one.
    pub id: Option<SessionId>,
    /// Sessions with a matching call.
    pub calls: CallFilter,
    /// State of the sessions.
    pub standing: Option<SessionStatus>,
    pub order: SessionOrder,
    /// Time after which the search stops between two statements, in milliseconds.
    pub time_ms: u64,
    /// Cursor: only those after it.
    pub after: Option<SessionPlace>,
    /// Maximum number of results.
    pub max: usize,
}

/// Query for calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallQuery {
    /// Of this session's call tree.
    pub session: Option<SessionId>,
    /// Of the session itself, not of its tree.
    pub alone: bool,
    pub filter: CallFilter,
    /// Oldest first instead of newest first; of one tree only.
    pub oldest_first: bool,
    /// Cursor: only those after it.
    pub after: Option<CallPlace>,
    /// Maximum number of results.
    pub max: usize,
}

/// Position of a call in a list: last activity of its call tree, then the `seq` of its first judgment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPlace {
    /// Microseconds since the Unix epoch; 0 in a list of one tree.
    pub last_us: i64,
    /// Root session of its call tree.
    pub root: String,
    pub seq: u64,
}

/// A page of results, with the extent of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPage<T, P> {
    pub found: Vec<T>,
    /// Cursor to the rest, where there may be more.
    pub next: Option<P>,
    /// Start of the searched activity, in microseconds since the Unix epoch; none: everything stored was searched.
    pub since_us: Option<i64>,
    /// Some arguments are encrypted, and were not searched.
    pub is_sealed: bool,
    /// Names were compared by their beginning.
    pub is_name_prefix: bool,
    /// Call trees that the filter leaves to search; 0 without one.
    pub trees_left: u64,
}

/// Summary of a call: its last judgment and its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct CallLine {
    /// Position by its first judgment.
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
    /// Arguments, possibly truncated; none after their retention period.
    pub arguments: Option<String>,
    pub first_at: Timestamp,
    pub rounds: u32,
    /// The last one.
    pub judgement: CallJudgment,
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

/// One judgment of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallJudgment {
    pub seq: u64,
    pub at: Timestamp,
    pub decision: Decision,
    /// Decision of the policy, without shadow mode.
    pub would: Decision,
    pub rule: Option<String>,
    pub reason: Option<String>,
    pub findings: Vec<Finding>,
    pub attempt: Option<u32>,
    pub lease_until: Option<Timestamp>,
    pub approval: Option<String>,
    /// Expiry of the approval request.
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
    /// The outcome was inferred from the expired lease.
    pub by_lease: bool,
    pub duration_ms: Option<u64>,
    pub advice: Option<Advice>,
    pub note: Option<String>,
    pub trace: Option<String>,
}

/// An operation of a person on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    pub at: Timestamp,
    /// As the events of sessions name it.
    pub kind: String,
    pub by: Option<String>,
    pub why: Option<String>,
    pub approved: bool,
    /// Approved with other arguments.
    pub edited: bool,
}

/// All stored details of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeCall {
    pub line: CallLine,
    pub arguments: Option<String>,
    pub justification: Option<String>,
    /// The answer of a success, as it is stored.
    pub result: Option<String>,
    /// Original size and digest of an answer that was truncated for storage.
    pub whole: Option<FullText>,
    /// The raw error of a failure.
    pub error: Option<String>,
    /// The newest judgments, oldest first.
    pub judgements: Vec<CallJudgment>,
    pub reports: Vec<CallReport>,
    pub answers: Vec<CallAnswer>,
    /// Calls of its session that follow up on it.
    pub followed_by: Vec<String>,
    /// Raw rows as JSON objects, if requested.
    pub rows: Vec<String>,
}
