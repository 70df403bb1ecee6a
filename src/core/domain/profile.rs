//! What a retry was: the facts that are stored with it, and the cells that profiles count it in
//! (docs/learning.md#failures-and-follow-ups).

use super::{failure::FailureKind, ids::ToolName, time::Timestamp};

/// How much later a call may come and still follow up on a failure, in milliseconds.
pub const FOLLOW_UP_MS: u64 = 600_000;
/// How many calls of the session may lie between a failure and its follow-up, the follow-up included.
pub const FOLLOW_UP_CALLS: usize = 5;
/// How fast counts are forgotten: half in this time, in milliseconds.
pub const HALF_LIFE_MS: u64 = 4 * 86_400_000;
/// How fast the recent level is forgotten: half in this time, in milliseconds.
pub const RECENT_HALF_LIFE_MS: u64 = 3 * 3_600_000;
/// Counts older than so many half-lives are left out.
pub const HALF_LIVES_KEPT: u32 = 10;
/// What each bucket of waits stands for, in milliseconds.
pub const WAITS_MS: [u64; 5] = [1_000, 4_000, 15_000, 60_000, 300_000];
/// Where each bucket but the last ends, in milliseconds.
const ENDS_MS: [u64; WAITS_MS.len() - 1] = [2_000, 8_000, 30_000, 120_000];
/// Attempts that are told apart; later ones count as the last of them.
pub const ATTEMPTS: usize = 3;
/// Cells of one tool and kind: wait by attempt by tool state.
pub const CELLS: usize = WAITS_MS.len() * ATTEMPTS * ToolState::ALL.len();

/// The bucket of a wait.
#[must_use]
pub fn bucket(wait_ms: u64) -> usize {
    ENDS_MS.iter().position(|end| wait_ms < *end).unwrap_or(ENDS_MS.len())
}

/// How a tool fares, over all sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ToolState {
    /// At most two failures in a row since its last success.
    #[default]
    Working,
    /// More, for less than a minute.
    Failing,
    /// More, for longer.
    Down,
}

impl ToolState {
    /// Every state, in the order of its stored code.
    pub const ALL: [Self; 3] = [Self::Working, Self::Failing, Self::Down];

    /// The name used in SQL and in texts for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Failing => "failing",
            Self::Down => "down",
        }
    }
}

/// How a call relates to the failed one that it follows up on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FollowUpKind {
    /// The same arguments: a retry.
    Same,
    /// Nearly the same arguments (docs/learning.md#near-duplicate-calls): a correction.
    Near,
    /// Other arguments: a correction.
    Changed,
}

/// Who decided to repeat a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecidedBy {
    /// The program, under the same `call_id`.
    Client,
    /// The model, by another call.
    Model,
    /// A person, whose approval the permit used.
    Person,
}

impl DecidedBy {
    /// Every one, in the order of its stored code.
    pub const ALL: [Self; 3] = [Self::Client, Self::Model, Self::Person];
}

impl FollowUpKind {
    /// Every kind, in the order of its stored code.
    pub const ALL: [Self; 3] = [Self::Same, Self::Near, Self::Changed];

    /// The name used in SQL and in texts for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Near => "near",
            Self::Changed => "changed",
        }
    }
}

/// How a tool fared when a call of it failed, that failure included: what a retry is advised on, and learned by.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Circumstances {
    /// How it fared.
    pub tool: ToolState,
    /// The share of its calls that failed in the last minutes, 0 to 1.
    pub failure_share: f32,
    /// Its failures in a row, over all sessions.
    pub failures: u32,
    /// For how long it had been failing, in milliseconds.
    pub failing_ms: u64,
}

/// Under what circumstances a retry is made: attempts counted so far, and how the tool fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryState {
    /// Which attempt failed, from 1.
    pub attempt: u32,
    /// How the tool fared.
    pub tool: ToolState,
}

impl Default for RetryState {
    /// A first failure of a tool that works.
    fn default() -> Self {
        Self { attempt: 1, tool: ToolState::Working }
    }
}

impl RetryState {
    /// The state with that place, for later attempts the first of them that it stands for.
    #[must_use]
    pub fn of_index(index: usize) -> Self {
        let states = ToolState::ALL.len();
        Self { attempt: (index / states).min(ATTEMPTS - 1) as u32 + 1, tool: ToolState::ALL[index % states] }
    }

    /// The place of the state's cell among those of one wait.
    #[must_use]
    pub fn index(self) -> usize {
        let attempt = (self.attempt.max(1) as usize).min(ATTEMPTS) - 1;
        attempt * ToolState::ALL.len() + self.tool as usize
    }
}

/// Features of a retry for the logistic layer (docs/learning.md#the-logistic-layer), as they were when it was
/// permitted.
pub const FEATURES: usize = 10;

/// Weights of the layer for one kind: of the estimate's log odds, the constant, and the features.
pub const WEIGHTS: usize = FEATURES + 2;

/// What is stored of the logistic layer for one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidualState {
    pub kind: FailureKind,
    /// What it weighs.
    pub weights: [f64; WEIGHTS],
    /// Sums of squared gradients.
    pub squares: [f64; WEIGHTS],
    /// Log losses of the estimate and of the layer for the last outcomes, the newest last.
    pub losses: Vec<(f32, f32)>,
}

/// What is known of a permitted call that follows up on a failed one of its session.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowUp {
    /// The failed call, by the place of its permit among its tree's events.
    pub of: u64,
    /// Same, near or changed arguments.
    pub kind: FollowUpKind,
    /// Who decided to make it; none where an earlier build stored it.
    pub decided_by: Option<DecidedBy>,
    /// What had gone wrong.
    pub failure: FailureKind,
    /// Under what circumstances.
    pub state: RetryState,
    /// From the failure's report to this permit, in milliseconds: measured, not advised.
    pub waited_ms: u64,
    /// The chance that was told with the failure.
    pub p_predicted: f64,
    /// What was told with the failure.
    pub retryable_said: bool,
    /// It was told against the estimate, to learn.
    pub probe: bool,
    /// The chance for the wait that really was, before the recent level: what the recent level is measured against.
    pub p_slow: f64,
    /// The chance for the wait that really was.
    pub p: f64,
    /// For the logistic layer.
    pub features: [f32; FEATURES],
}

/// A follow-up and what came of it: what profiles learn from.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub tool: ToolName,
    /// What it was.
    pub follow_up: FollowUp,
    /// It did not fail.
    pub ok: bool,
    /// When that was known.
    pub at: Timestamp,
}

/// Decayed counts of one cell, read back.
#[derive(Debug, Clone, PartialEq)]
pub struct CellCount {
    pub tool: ToolName,
    /// What had gone wrong.
    pub failure: FailureKind,
    /// Same, near or changed arguments.
    pub kind: FollowUpKind,
    /// The bucket of the wait.
    pub wait: usize,
    /// Under what circumstances.
    pub state: RetryState,
    /// Trials.
    pub n: f64,
    /// Successes.
    pub k: f64,
}

/// Decayed counts of the recent level of one tool and kind, read back.
#[derive(Debug, Clone, PartialEq)]
pub struct RecentCount {
    pub tool: ToolName,
    /// What had gone wrong.
    pub failure: FailureKind,
    /// Trials.
    pub n: f64,
    /// Successes.
    pub k: f64,
    /// Successes expected: the sum of `p_slow`.
    pub expected: f64,
}

/// The counts of a tenant, as of a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// When they were so.
    pub as_of: Timestamp,
    pub cells: Vec<CellCount>,
    /// The recent levels.
    pub recent: Vec<RecentCount>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_holds_the_wait_it_stands_for() {
        for (at, wait) in WAITS_MS.into_iter().enumerate() {
            assert_eq!(bucket(wait), at);
        }
        assert_eq!([0, 1_999, 2_000, 7_999, 8_000, 119_999, 120_000, u64::MAX].map(bucket), [0, 0, 1, 1, 2, 3, 4, 4]);
    }

    #[test]
    fn states_have_cells_of_their_own() {
        let states = (0..=4).flat_map(|attempt| ToolState::ALL.map(|tool| RetryState { attempt, tool }));
        let cells: Vec<usize> = states.map(RetryState::index).collect();
        assert_eq!(cells, [0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8]);
    }
}
