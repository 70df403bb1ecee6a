//! Outcome of a permitted call, and the retry advice after it.

use std::sync::Arc;

use super::{
    answer::{ContentAmount, ResultMarkers},
    failure::FailureKind,
    fingerprint::ResultDigest,
    profile::Circumstances,
    time::Timestamp,
};

/// Maximum attempts with a possible effect of an undeclared call with content; none is permitted after them.
pub const OPEN_ATTEMPTS_MAX: u32 = 2;

/// Status of a permitted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutcomeStatus {
    /// Still running: extends the lease.
    Running,
    /// Succeeded.
    Success,
    /// Failed without an effect.
    Error,
    /// Cancelled before an effect.
    Cancelled,
    /// The effect is unknown.
    Unknown,
}

impl OutcomeStatus {
    /// Every status, in the order of its stored code.
    pub const ALL: [Self; 5] = [Self::Running, Self::Success, Self::Error, Self::Cancelled, Self::Unknown];

    /// The name used in the contract, in SQL and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }
}

/// Evidence that an estimate rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// The prior for this kind of failure.
    Prior,
    /// Retries of other tools after the same kind of failure.
    Kind,
    /// Retries of this tool after the same kind of failure.
    Tool,
    /// Retries of this tool with the same wait, attempt and tool state.
    Cell,
}

impl Basis {
    /// Every basis, in the order of its stored code.
    pub const ALL: [Self; 4] = [Self::Prior, Self::Kind, Self::Tool, Self::Cell];

    /// The name used in the contract and in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prior => "prior",
            Self::Kind => "kind",
            Self::Tool => "tool",
            Self::Cell => "cell",
        }
    }
}

/// Amount of evidence behind an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// Fewer than 8 trials.
    Low,
    /// 8 to 29 trials.
    Medium,
    /// 30 trials or more.
    High,
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

    /// The name used in the contract and in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Limit that overrode the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// The call may have taken effect, and its repetition does harm.
    Unsafe,
    /// Too many consecutive rate-limit errors.
    RateLimitEscalation,
    /// The policy's maximum number of attempts is reached.
    Attempts,
    /// The tool's retry budget is exhausted.
    RetryBudget,
}

impl Guard {
    /// Every guard, in the order of its stored code less one (0 is none).
    pub const ALL: [Self; 4] = [Self::Unsafe, Self::RateLimitEscalation, Self::Attempts, Self::RetryBudget];

    /// True for guards that concern one session or call tree only.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(self, Self::RateLimitEscalation | Self::Attempts)
    }

    /// The name used in the contract and in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unsafe => "unsafe",
            Self::RateLimitEscalation => "rate_limit_escalation",
            Self::Attempts => "attempts",
            Self::RetryBudget => "retry_budget",
        }
    }
}

/// Party that may repeat a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Repeat {
    /// The client, automatically: the call had no effect, or repeating it does no harm.
    ByClient,
    /// The model; it may have taken effect, so a write has to be verified first.
    ByModel,
    /// A person, after verifying whether it took effect.
    ByPerson,
    /// None: a retry is not worthwhile.
    Never,
}

impl Repeat {
    /// Every one, in the order of its stored code less one (0 is none).
    pub const ALL: [Self; 4] = [Self::ByClient, Self::ByModel, Self::ByPerson, Self::Never];

    /// The name used in the contract and in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ByClient => "by_client",
            Self::ByModel => "by_model",
            Self::ByPerson => "by_person",
            Self::Never => "never",
        }
    }

    /// The variant of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|repeat| repeat.as_str() == name)
    }

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
