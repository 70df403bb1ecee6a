//! Retry report for people: outcomes over time, compared with the predictions, and their cost.

use super::{failure::FailureKind, ids::ToolName, time::Timestamp, violation::SelfCorrectionCount};

/// Maximum number of single retries read, newest first.
pub const RETRIES_MAX: u32 = 20_000;
/// Maximum number of fields in a report.
pub const CORRECTIONS_MAX: usize = 100;

/// Filter of retries.
#[derive(Debug, Clone, Copy)]
pub struct RetryFilter<'a> {
    /// Only of this tool.
    pub tool: Option<&'a ToolName>,
    /// Only after this kind of failure.
    pub failure: Option<FailureKind>,
    /// Period, in days.
    pub days: i32,
}

/// Retries of one UTC day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialDay {
    /// Start of the day.
    pub at: Timestamp,
    /// Retries with the same arguments.
    pub trials: u64,
    /// Number that did not fail.
    pub successes: u64,
}

/// Retries of one tool after one kind of failure, with similar predictions.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryGroup {
    /// The tool.
    pub tool: ToolName,
    /// Kind of the earlier failure.
    pub failure: FailureKind,
    /// Exploratory: advised against the estimate.
    pub probe: bool,
    /// Decile of the predicted probability, from 0; none without a prediction.
    pub tenth: Option<u8>,
    /// Number of retries.
    pub retries: u64,
    /// Number that did not fail.
    pub succeeded: u64,
    /// Number that failed again or have no known outcome.
    pub failed: u64,
    /// Number of failed ones made against the advice.
    pub against_advice: u64,
    /// Number with a known outcome.
    pub known: u64,
    /// Sum of the predictions of those in `known`.
    pub predicted: f64,
    /// Cost of failed ones, in millionths of a US dollar.
    pub cost_micros: u64,
    /// Tokens of failed ones.
    pub tokens: u64,
    /// Waits and executions of failed ones, in milliseconds.
    pub lost_ms: u64,
    /// Time of the last permit.
    pub last_at: Timestamp,
}

/// Self-corrections after refusals for one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldCorrections {
    /// Refusals and corrections.
    pub count: SelfCorrectionCount,
    /// True when corrections are so rare that the user is asked instead.
    pub is_for_the_user: bool,
}

/// Retry report.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryHistory {
    /// By day, oldest first; days without a retry are omitted.
    pub days: Vec<TrialDay>,
    /// The newest retries.
    pub retries: Vec<RetryGroup>,
    /// Start of the covered period of `retries`; none: the whole requested period.
    pub back_to: Option<Timestamp>,
    /// Self-corrections of models, the most refused first.
    pub self_corrections: Vec<FieldCorrections>,
}
