//! Where a session stands, in one answer.

use super::{
    budget::{Left, Spent},
    call::{Call, Standing},
    finding::Level,
    health::Cooldown,
    history::PAST_MAX,
    ids::{SessionId, ToolName},
    time::Timestamp,
};

/// Calls given to a caller that names no number.
pub const LAST_CALLS_DEFAULT: usize = 20;

/// Tokens of a summary for a caller that names no number.
pub const SUMMARY_TOKENS_DEFAULT: usize = 1_500;
/// The most tokens of a summary.
pub const SUMMARY_TOKENS_MAX: usize = 8_000;
/// The fewest: less would leave out what is open.
pub const SUMMARY_TOKENS_MIN: usize = 300;

/// How much of a session's state is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// How many of its last calls.
    pub last_calls: usize,
    /// About how many tokens its summary may have.
    pub summary_tokens: usize,
    /// How many judgements the summary looks back on.
    pub past_calls: usize,
}

impl Default for Extent {
    fn default() -> Self {
        Self { last_calls: LAST_CALLS_DEFAULT, summary_tokens: SUMMARY_TOKENS_DEFAULT, past_calls: PAST_MAX }
    }
}

/// Where a call stands, for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// It was not let through.
    Refused,
    /// It waits for a person.
    Held,
    /// It may be running.
    InFlight,
    /// It may have happened.
    Unknown,
    /// It did what it should.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl CallState {
    /// Where `call` stands at `now`.
    #[must_use]
    pub fn of(call: &Call, now: Timestamp) -> Self {
        match call.standing(now) {
            Standing::Refused => Self::Refused,
            Standing::Held(_) => Self::Held,
            Standing::InFlight => Self::InFlight,
            Standing::Unknown => Self::Unknown,
            Standing::Succeeded(_) => Self::Succeeded,
            Standing::Failed(_) => Self::Failed,
            Standing::Cancelled => Self::Cancelled,
        }
    }
}

/// A call with what was asked for and what came of it, in short.
#[derive(Debug, Clone, PartialEq)]
pub struct CallTold {
    pub call: Call,
    /// Where it stands.
    pub state: CallState,
    /// What it was asked with; empty when that is not known any more.
    pub arguments: String,
    /// What a success gave; empty when it did not succeed.
    pub gist: String,
    /// Size of what it gave, in bytes.
    pub result_bytes: Option<u64>,
    /// Only the beginning of that is stored.
    pub is_cut: bool,
    /// The error in a line; empty when there was none.
    pub error: String,
}

/// A session at one point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionState {
    /// Its tree's root.
    pub root: SessionId,
    /// Who started it.
    pub parent: Option<SessionId>,
    /// Its current run.
    pub run: Option<String>,
    /// True when every call of the current run is refused (a way out apart): a loop broke the run or a budget is spent,
    /// and that holds for every tool.
    pub is_stopped: bool,
    /// What is left of each limit.
    pub left: Vec<Left>,
    /// What the current run has spent.
    pub run_spent: Spent,
    /// What the call tree has spent.
    pub tree_spent: Spent,
    /// The loops found in the current run: rule, level and count of the last warning, refusal or break of each.
    pub loops: Vec<(String, Level, u32)>,
    /// Its last calls, newest first; open and held ones are always among them.
    pub calls: Vec<CallTold>,
    /// Which of their tools everybody leaves alone for a while; known to the fleet, not to the tree.
    pub cooldowns: Vec<(ToolName, Cooldown)>,
    /// What was done and what not to do again.
    pub summary_for_model: String,
    /// When this was so.
    pub at: Timestamp,
}
