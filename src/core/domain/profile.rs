//! Retry statistics: features stored with a retry, and the cells of profiles
//! (docs/learning.md#failures-and-follow-ups).

use super::{closed_set::closed_set, failure::FailureKind, ids::ToolName, time::Timestamp};

/// Maximum delay of a follow-up on a failure, in milliseconds.
pub const FOLLOW_UP_MS: u64 = 600_000;
/// Maximum distance of a follow-up from its failure, in calls of the session, itself included.
pub const FOLLOW_UP_CALLS: usize = 5;
/// Half-life of counts, in milliseconds.
pub const HALF_LIFE_MS: u64 = 4 * 86_400_000;
/// Half-life of the recent level, in milliseconds.
pub const RECENT_HALF_LIFE_MS: u64 = 3 * 3_600_000;
/// Age after which counts are dropped, in half-lives.
pub const HALF_LIVES_KEPT: u32 = 10;
/// Representative wait of each bucket, in milliseconds.
pub const WAITS_MS: [u64; 5] = [1_000, 4_000, 15_000, 60_000, 300_000];
/// Upper bound of each bucket but the last, in milliseconds.
const ENDS_MS: [u64; WAITS_MS.len() - 1] = [2_000, 8_000, 30_000, 120_000];
/// Number of distinguished attempts; later ones count as the last.
pub const ATTEMPTS: usize = 3;
/// Cells of one tool and kind: wait by attempt by tool state.
pub const CELLS: usize = WAITS_MS.len() * ATTEMPTS * ToolState::ALL.len();

/// The bucket of a wait.
#[must_use]
pub fn bucket(wait_ms: u64) -> usize {
    ENDS_MS.iter().position(|end| wait_ms < *end).unwrap_or(ENDS_MS.len())
}

closed_set! {
    /// State of a tool across all sessions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum ToolState {
        /// At most two failures in a row since its last success.
        #[default]
        Working = "working",
        /// Failing for less than a minute.
        Failing = "failing",
        /// Failing for longer.
        Down = "down",
    }
}

closed_set! {
    /// Relation of a follow-up's arguments to those of the failed call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum FollowUpKind {
        /// The same arguments: a retry.
        Same = "same",
        /// Nearly the same arguments (docs/learning.md#near-duplicate-calls): a correction.
        Near = "near",
        /// Other arguments: a correction.
        Changed = "changed",
    }
}

/// Party that decided to repeat a failed call.
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

/// Health of a tool at a failure, that failure included: input of retry advice and learning.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Circumstances {
    /// State.
    pub tool: ToolState,
    /// Share of failed calls in the last minutes, 0 to 1.
    pub failure_share: f32,
    /// Failure streak, across all sessions.
    pub failures: u32,
    /// Duration of the streak, in milliseconds.
    pub failing_ms: u64,
}

/// Conditions of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryState {
    /// Number of the failed attempt, from 1.
    pub attempt: u32,
    /// State of the tool.
    pub tool: ToolState,
}

impl Default for RetryState {
    /// The first failure of a working tool.
    fn default() -> Self {
        Self { attempt: 1, tool: ToolState::Working }
    }
}

impl RetryState {
    /// The state of that index; for the last attempt class, its first attempt.
    #[must_use]
    pub fn of_index(index: usize) -> Self {
        let states = ToolState::ALL.len();
        Self { attempt: (index / states).min(ATTEMPTS - 1) as u32 + 1, tool: ToolState::ALL[index % states] }
    }

    /// Index of the state's cell within one wait bucket.
    #[must_use]
    pub fn index(self) -> usize {
        let attempt = (self.attempt.max(1) as usize).min(ATTEMPTS) - 1;
        attempt * ToolState::ALL.len() + self.tool as usize
    }
}

/// Number of features of a retry in the logistic layer (docs/learning.md#the-logistic-layer), taken at its permit.
pub const FEATURES: usize = 10;

/// Number of weights of the layer per kind: the estimate's log odds, the constant, the features.
pub const WEIGHTS: usize = FEATURES + 2;

/// Stored state of the logistic layer for one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidualState {
    pub kind: FailureKind,
    /// Weights.
    pub weights: [f64; WEIGHTS],
    /// Sums of squared gradients.
    pub squares: [f64; WEIGHTS],
    /// Log losses of the estimate and of the layer for the last outcomes, oldest first.
    pub losses: Vec<(f32, f32)>,
}

/// Features of a permitted call that follows up on a failed one of its session.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowUp {
    /// The failed call, by the `seq` of its permit.
    pub of: u64,
    /// Same, near or changed arguments.
    pub kind: FollowUpKind,
    /// Deciding party; none if stored by an earlier build.
    pub decided_by: Option<DecidedBy>,
    /// Kind of the earlier failure.
    pub failure: FailureKind,
    /// Conditions.
    pub state: RetryState,
    /// Measured wait from the failure's report to this permit, in milliseconds.
    pub waited_ms: u64,
    /// The probability in the advice.
    pub p_predicted: f64,
    /// The advice.
    pub retryable_said: bool,
    /// True for an exploratory retry.
    pub probe: bool,
    /// The probability for the measured wait without the recent level: the baseline of the recent level.
    pub p_slow: f64,
    /// The probability for the measured wait.
    pub p: f64,
    /// Input of the logistic layer.
    pub features: [f32; FEATURES],
}

/// A follow-up with its outcome: the input of profiles.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub tool: ToolName,
    /// The follow-up.
    pub follow_up: FollowUp,
    /// True when it did not fail.
    pub ok: bool,
    /// Time of the outcome.
    pub at: Timestamp,
}

/// Decayed counts of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellCount {
    pub tool: ToolName,
    /// Kind of the earlier failure.
    pub failure: FailureKind,
    /// Same, near or changed arguments.
    pub kind: FollowUpKind,
    /// Bucket of the wait.
    pub wait: usize,
    /// Conditions.
    pub state: RetryState,
    /// Trials.
    pub n: f64,
    /// Successes.
    pub k: f64,
}

/// Decayed counts of the recent level of one tool and kind.
#[derive(Debug, Clone, PartialEq)]
pub struct RecentCount {
    pub tool: ToolName,
    /// Kind of the earlier failure.
    pub failure: FailureKind,
    /// Trials.
    pub n: f64,
    /// Successes.
    pub k: f64,
    /// Expected successes: the sum of `p_slow`.
    pub expected: f64,
}

/// Counts of a tenant at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileCounts {
    /// That time.
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
