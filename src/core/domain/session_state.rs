//! Session state: the response to a state query.

use super::{
    budget::{BudgetSpend, RemainingBudget},
    call::{Call, CallStatus},
    finding::Level,
    health::Cooldown,
    history::PAST_MAX,
    ids::{SessionId, ToolName},
    time::Timestamp,
};

/// Default number of last calls.
pub const LAST_CALLS_DEFAULT: usize = 20;

/// Default size of a summary, in tokens.
pub const SUMMARY_TOKENS_DEFAULT: usize = 1_500;
/// Maximum size of a summary, in tokens.
pub const SUMMARY_TOKENS_MAX: usize = 8_000;
/// Minimum size of a summary, in tokens; less would omit open calls.
pub const SUMMARY_TOKENS_MIN: usize = 300;

/// Requested extent of a session's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Number of last calls.
    pub last_calls: usize,
    /// Approximate size of the summary, in tokens.
    pub summary_tokens: usize,
    /// Maximum number of judgments that the summary covers.
    pub past_calls: usize,
}

impl Default for Extent {
    fn default() -> Self {
        Self { last_calls: LAST_CALLS_DEFAULT, summary_tokens: SUMMARY_TOKENS_DEFAULT, past_calls: PAST_MAX }
    }
}

/// State of a call, for callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// Refused.
    Refused,
    /// Waits for approval.
    Held,
    /// It may be running.
    InFlight,
    /// The outcome is unknown.
    Unknown,
    /// Succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl CallState {
    /// The state of `call` at `now`.
    #[must_use]
    pub fn of(call: &Call, now: Timestamp) -> Self {
        match call.standing(now) {
            CallStatus::Refused => Self::Refused,
            CallStatus::Held(_) => Self::Held,
            CallStatus::InFlight => Self::InFlight,
            CallStatus::Unknown => Self::Unknown,
            CallStatus::Succeeded(_) => Self::Succeeded,
            CallStatus::Failed(_) => Self::Failed,
            CallStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// Summary of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallTold {
    pub call: Call,
    /// State.
    pub state: CallState,
    /// Arguments; empty when no longer known.
    pub arguments: String,
    /// Gist of a success; empty otherwise.
    pub gist: String,
    /// Result size, in bytes.
    pub result_bytes: Option<u64>,
    /// The stored result is truncated.
    pub is_cut: bool,
    /// The error in one line; empty without one.
    pub error: String,
}

/// State of a session at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionState {
    /// Its tree's root.
    pub root: SessionId,
    /// Parent session.
    pub parent: Option<SessionId>,
    /// Its current run.
    pub run: Option<String>,
    /// True when every call of the current run is refused except terminal ones: a loop broke the run, or a budget of
    /// all tools is exhausted.
    pub is_stopped: bool,
    /// Remainder of each limit.
    pub left: Vec<RemainingBudget>,
    /// Spending of the current run.
    pub run_spent: BudgetSpend,
    /// Spending of the call tree.
    pub tree_spent: BudgetSpend,
    /// Loops in the current run: rule, level and count of the last warning, refusal or break of each.
    pub loops: Vec<(String, Level, u32)>,
    /// Last calls, newest first, including all open and held ones.
    pub calls: Vec<CallTold>,
    /// Tools among them with an open circuit, which is known to the fleet and not to the tree.
    pub cooldowns: Vec<(ToolName, Cooldown)>,
    /// Summary for the model of completed work and of calls not to repeat.
    pub summary_for_model: String,
    /// Time of the state.
    pub at: Timestamp,
}
