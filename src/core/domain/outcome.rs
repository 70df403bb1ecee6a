//! Outcome of a permitted call, and the retry advice after it.

use std::sync::Arc;

use super::{
    answer::{ContentAmount, ResultMarkers},
    closed_set::closed_set,
    failure::FailureKind,
    fingerprint::ResultDigest,
    profile::Circumstances,
    time::Timestamp,
};

/// Maximum attempts with a possible effect of an undeclared call with content; none is permitted after them.
pub const OPEN_ATTEMPTS_MAX: u32 = 2;

closed_set! {
    /// Status of a permitted call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum OutcomeStatus {
        /// Still running: extends the lease.
        Running = "running",
        /// Succeeded.
        Success = "success",
        /// Failed without an effect.
        Error = "error",
        /// Cancelled before an effect.
        Cancelled = "cancelled",
        /// The effect is unknown.
        Unknown = "unknown",
    }
}

closed_set! {
    /// Evidence that an estimate rests on.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Basis {
        /// The prior for this kind of failure.
        Prior = "prior",
        /// Retries of other tools after the same kind of failure.
        Kind = "kind",
        /// Retries of this tool after the same kind of failure.
        Tool = "tool",
        /// Retries of this tool with the same wait, attempt and tool state.
        Cell = "cell",
    }
}

closed_set! {
    /// Amount of evidence behind an estimate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Confidence {
        /// Fewer than 8 trials.
        Low = "low",
        /// 8 to 29 trials.
        Medium = "medium",
        /// 30 trials or more.
        High = "high",
    }
}

impl Confidence {
    /// Minimum trials for `Medium`.
    pub const MEDIUM_TRIALS: f64 = 8.0;
    /// Minimum trials for `High`.
    pub const HIGH_TRIALS: f64 = 30.0;

    /// The confidence of this many (decayed) trials of one tool, kind and wait (docs/learning.md#the-estimate).
    #[must_use]
    pub fn of(trials: f64) -> Self {
        match trials {
            t if t >= Self::HIGH_TRIALS => Self::High,
            t if t >= Self::MEDIUM_TRIALS => Self::Medium,
            _ => Self::Low,
        }
    }
}

closed_set! {
    /// Limit that overrode the estimate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Guard {
        /// The call may have taken effect, and its repetition does harm.
        Unsafe = "unsafe",
        /// Too many consecutive rate-limit errors.
        RateLimitEscalation = "rate_limit_escalation",
        /// The policy's maximum number of attempts is reached.
        Attempts = "attempts",
        /// The tool's retry budget is exhausted.
        RetryBudget = "retry_budget",
    }
}

impl Guard {
    /// True for guards that concern one session or call tree only.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(self, Self::RateLimitEscalation | Self::Attempts)
    }
}

closed_set! {
    /// Party that may repeat a failed call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Repeat {
        /// The client, automatically: the call had no effect, or repeating it does no harm.
        ByClient = "by_client",
        /// The model; it may have taken effect, so a write has to be verified first.
        ByModel = "by_model",
        /// A person, after verifying whether it took effect.
        ByPerson = "by_person",
        /// None: a retry is not worthwhile.
        Never = "never",
    }
}

impl Repeat {
    /// Description with the wait: `retry after 2 s`.
    #[must_use]
    pub fn describe(self, wait: &str) -> String {
        match self {
            Self::ByClient => format!("retry after {wait}"),
            Self::ByModel => format!("may have taken effect; the model may retry after {wait}"),
            Self::ByPerson => "may have taken effect; a person decides".to_owned(),
            Self::Never => "do not retry".to_owned(),
        }
    }
}

/// Retry advice after a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advice {
    /// Is a retry with the same arguments worthwhile?
    pub retryable: bool,
    /// Wait before the retry, in milliseconds; 0 when not retryable.
    pub retry_after_ms: u64,
    /// Number of retries that may follow.
    pub max_retries_remaining: u32,
    /// Probability that the retry succeeds, 0 to 1.
    pub p_success: f64,
    /// 90 % interval of the probability.
    pub interval: (f64, f64),
    /// Amount of evidence.
    pub confidence: Confidence,
    /// Kind of evidence.
    pub basis: Basis,
    /// Decayed trials of this tool, kind and wait.
    pub trials: f64,
    /// Time of the counts; none before the first.
    pub as_of: Option<Timestamp>,
    /// Limit that overrode the estimate.
    pub guard: Option<Guard>,
    /// An exploratory retry: allowed against the estimate, to learn whether that still holds.
    pub probe: bool,
    /// Party that may repeat the call.
    pub repeat: Repeat,
}

impl Outcome {
    /// True for an empty result or a mere acknowledgment (`ok`, `sent`), which is the same for every effect.
    #[must_use]
    pub fn says_little(&self) -> bool {
        self.marks
            .as_deref()
            .is_some_and(|marks| matches!(marks.says, ContentAmount::Little | ContentAmount::NoMatches))
    }

    /// True where a later report of success is accepted: the effect was open, the success was inferred, or an operator,
    /// who knows less than the execution itself, settled it as not happened.
    #[must_use]
    pub fn allows_late_success(&self) -> bool {
        self.effect_open || self.is_inferred || self.is_by_operator && self.status != OutcomeStatus::Success
    }
}

/// Outcome of a call, as recorded in its tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Status; never `Running`.
    pub status: OutcomeStatus,
    /// Failure kind, for errors and unknown outcomes of errors.
    pub failure: Option<FailureKind>,
    /// Digest of the result.
    pub digest: Option<ResultDigest>,
    /// Marks for loop rules, for a success.
    pub marks: Option<Arc<ResultMarkers>>,
    /// True when it brought something new (docs/semantics.md#news-and-progress).
    pub news: bool,
    /// True when the news is more than another name or number in the previous result.
    pub progress: bool,
    /// Result size, in bytes; 0 if not reported, saturated at `u32::MAX`.
    pub result_bytes: u32,
    /// Time of its record.
    pub at: Timestamp,
    /// `seq` of its event.
    pub seq: u64,
    /// Retry advice.
    pub advice: Option<Box<Advice>>,
    /// For a failure: health of the tool at that time.
    pub circumstances: Option<Box<Circumstances>>,
    /// For a failure: its error in one line.
    pub error_line: Option<Arc<str>>,
    /// Not a success, and the effect may exist.
    pub effect_open: bool,
    /// A success that was reported after an outcome that left its effect open.
    pub is_late: bool,
    /// The execution received the idempotency key.
    pub key_sent: bool,
    /// The success was inferred: a later attempt was told that its creation exists already.
    pub is_inferred: bool,
    /// Another attempt of the occurrence has succeeded as well.
    pub is_double: bool,
    /// An operator settled it.
    pub is_by_operator: bool,
}
