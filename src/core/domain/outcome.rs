//! What came of a permitted call, and what is advised after it.

use std::sync::Arc;

use super::{
    answer::{Marks, Says},
    failure::FailureKind,
    fingerprint::ResultDigest,
    profile::Circumstances,
    time::Timestamp,
};

/// Attempts of an undeclared call with content that may have taken effect, after which none is let through.
pub const OPEN_ATTEMPTS_MAX: u32 = 2;

/// What came of a permitted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutcomeStatus {
    /// Still at it: extends the lease.
    Running,
    /// It did what it should.
    Success,
    /// It failed, and nothing happened.
    Error,
    /// It was called off before it did anything.
    Cancelled,
    /// It may have happened.
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

/// On what an estimate rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// What is known of this kind of failure before any retry was seen.
    Prior,
    /// Retries of other tools after the same kind of failure.
    Kind,
    /// Retries of this tool after the same kind of failure.
    Tool,
    /// Those with the same wait, attempt and tool state.
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

/// How much evidence stands behind an estimate.
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
    /// Trials from which on it is medium.
    pub const MEDIUM_TRIALS: f64 = 8.0;
    /// Trials from which on it is high.
    pub const HIGH_TRIALS: f64 = 30.0;

    /// The confidence that so many (decayed) trials of one tool, kind and wait give (docs/learning.md#the-estimate).
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

/// What overruled the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// The call may have taken effect, and its repetition harms.
    Unsafe,
    /// Too many rate-limit errors in a row.
    RateLimitEscalation,
    /// The policy's number of attempts is used up.
    Attempts,
    /// Retries of this tool take too large a share of its calls.
    RetryBudget,
}

impl Guard {
    /// Every guard, in the order of its stored code less one (0 is none).
    pub const ALL: [Self; 4] = [Self::Unsafe, Self::RateLimitEscalation, Self::Attempts, Self::RetryBudget];

    /// True for what ends the tries of one session or call tree alone.
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

/// Who may execute a failed call again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Repeat {
    /// The client, by itself: nothing was done, or doing it again does no harm.
    ByClient,
    /// The model, after it has checked where the call changes something: it may have taken effect.
    ByModel,
    /// A person who has looked whether it took effect.
    ByPerson,
    /// Nobody: it is not worth it.
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

    /// The one of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|repeat| repeat.as_str() == name)
    }

    /// For people, with how long to wait first: `retry after 2 s`.
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

/// The answer to a failure: retry or not, after how long, how often, with what chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advice {
    /// Is a retry with the same arguments worth it?
    pub retryable: bool,
    /// How long to wait first, in milliseconds; 0 when not retryable.
    pub retry_after_ms: u64,
    /// How many more tries may follow.
    pub max_retries_remaining: u32,
    /// The chance that the retry succeeds, 0 to 1.
    pub p_success: f64,
    /// A 90 % interval around the chance.
    pub interval: (f64, f64),
    /// The evidence behind it.
    pub confidence: Confidence,
    /// Where the estimate comes from.
    pub basis: Basis,
    /// Trials (decayed) behind it, of this tool, kind and wait.
    pub trials: f64,
    /// When they were counted; none before the first.
    pub as_of: Option<Timestamp>,
    /// What overruled it, if anything did.
    pub guard: Option<Guard>,
    /// The estimate says no, and a retry is allowed to learn whether that still holds.
    pub probe: bool,
    /// Who may execute the call again.
    pub repeat: Repeat,
}

impl Outcome {
    /// Nothing, or no more than an acknowledgement (`ok`, `sent`): it says as much whatever was done.
    #[must_use]
    pub fn says_little(&self) -> bool {
        self.marks.as_deref().is_some_and(|marks| matches!(marks.says, Says::Little | Says::NoMatches))
    }

    /// True where a success may still be reported: the effect was open, the success was inferred, or an operator, who
    /// cannot have seen more than the execution itself, said that it did not happen.
    #[must_use]
    pub fn allows_late_success(&self) -> bool {
        self.effect_open || self.is_inferred || self.is_by_operator && self.status != OutcomeStatus::Success
    }
}

/// What came of a call, as its tree remembers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What came of it; never `Running`.
    pub status: OutcomeStatus,
    /// What went wrong, for errors and unknown outcomes of errors.
    pub failure: Option<FailureKind>,
    /// What it answered.
    pub digest: Option<ResultDigest>,
    /// What loop rules read of it, for a success.
    pub marks: Option<Arc<Marks>>,
    /// True when it brought something new (docs/semantics.md#news-and-progress).
    pub news: bool,
    /// True when that was more than another name or number for what the call gave before.
    pub progress: bool,
    /// Size of its result in bytes; 0 where that was not reported, `u32::MAX` for all that is larger.
    pub result_bytes: u32,
    /// When it was recorded.
    pub at: Timestamp,
    /// Its place among the tree's events.
    pub seq: u64,
    /// What was advised.
    pub advice: Option<Box<Advice>>,
    /// For a failure: how the tool fared.
    pub circumstances: Option<Box<Circumstances>>,
    /// For a failure: its error in one line.
    pub error_line: Option<Arc<str>>,
    /// It did not succeed, and may have taken effect all the same.
    pub effect_open: bool,
    /// A success that was reported after an outcome that left its effect open.
    pub is_late: bool,
    /// The execution received the idempotency key.
    pub key_sent: bool,
    /// Nobody reported the success: a later attempt was told that what this one would make exists already.
    pub is_inferred: bool,
    /// Another attempt of the occurrence has succeeded as well.
    pub is_double: bool,
    /// An operator settled it.
    pub is_by_operator: bool,
}
