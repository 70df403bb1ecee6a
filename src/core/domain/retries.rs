//! What retries came to, for people: over time, beside what was predicted of them, and what they cost.

use super::{failure::FailureKind, ids::ToolName, time::Timestamp, violation::SelfCorrectionCount};

/// Retries that are looked at one by one, the newest.
pub const RETRIES_MAX: u32 = 20_000;
/// Fields of one answer.
pub const CORRECTIONS_MAX: usize = 100;

/// Which retries are told of.
#[derive(Debug, Clone, Copy)]
pub struct Retried<'a> {
    /// Only of this tool.
    pub tool: Option<&'a ToolName>,
    /// Only after this kind of failure.
    pub failure: Option<FailureKind>,
    /// How many days back.
    pub days: i32,
}

/// Retries of one UTC day that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialDay {
    /// When the day began.
    pub at: Timestamp,
    /// Retries with the same arguments.
    pub trials: u64,
    /// Those that did not fail.
    pub successes: u64,
}

/// Retries of one tool after one kind of failure that were predicted alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Retries {
    /// The tool.
    pub tool: ToolName,
    /// What it had failed with.
    pub failure: FailureKind,
    /// Advised against the estimate, to learn.
    pub probe: bool,
    /// The tenth that the chance lies in which was told with the failure, from 0; none where none was told.
    pub tenth: Option<u8>,
    /// How many.
    pub retries: u64,
    /// Those that did not fail.
    pub succeeded: u64,
    /// Those that failed again, or of which nobody knows.
    pub failed: u64,
    /// Failed ones that were made although the advice was against it.
    pub against_advice: u64,
    /// Those of which it is known whether they failed.
    pub known: u64,
    /// The chances that were told with these, added up.
    pub predicted: f64,
    /// What failed ones cost, in millionths of a US dollar.
    pub cost_micros: u64,
    /// Tokens that went with them.
    pub tokens: u64,
    /// Their waits and executions, in milliseconds.
    pub lost_ms: u64,
    /// When the last one was permitted.
    pub last_at: Timestamp,
}

/// What refusals for one field came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfCorrected {
    /// How often models were refused, and mended it.
    pub count: SelfCorrectionCount,
    /// So seldom mended that the user is asked instead.
    pub is_for_the_user: bool,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryHistory {
    /// By day, the oldest first; days without a retry are left out.
    pub days: Vec<TrialDay>,
    /// The newest retries.
    pub retries: Vec<Retries>,
    /// How far back those reach; none: as far as was asked.
    pub back_to: Option<Timestamp>,
    /// Of models' arguments, the most refused first.
    pub self_corrections: Vec<SelfCorrected>,
}
