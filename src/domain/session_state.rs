//! Where a session stands, in one answer.

use super::{
    budget::{Left, Spent},
    call::{Call, Standing},
    finding::Level,
    health::Cooldown,
    ids::{SessionId, ToolName},
    time::Timestamp,
};

/// Calls given to a caller that names no number.
pub const LAST_CALLS_DEFAULT: usize = 20;

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

    /// In words, after the tool's name.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Refused => "was refused",
            Self::Held => "waits for a person's approval",
            Self::InFlight => "is running",
            Self::Unknown => "has no known outcome and may have happened",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "was cancelled",
        }
    }
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
    pub calls: Vec<(Call, CallState)>,
    /// Which of their tools everybody leaves alone for a while; known to the fleet, not to the tree.
    pub cooldowns: Vec<(ToolName, Cooldown)>,
    /// What was done and what not to do again.
    pub summary_for_model: String,
    /// When this was so.
    pub at: Timestamp,
}
