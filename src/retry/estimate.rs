//! How likely a retry is to succeed (learning.md section 2). Until profiles are learned, the priors speak: the flags
//! that tool authors used to hard-code, as probabilities.

use crate::domain::{failure::FailureKind, outcome::Basis};

/// The waits that are weighed, in milliseconds: what the five buckets of measured waits stand for.
pub const WAITS_MS: [u64; 5] = [1_000, 4_000, 15_000, 60_000, 300_000];

/// The chance of a retry, by wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Odds {
    /// The chance after each of [`WAITS_MS`], 0 to 1.
    pub p: [f64; WAITS_MS.len()],
    /// Trials (decayed) behind each.
    pub trials: [f64; WAITS_MS.len()],
    /// Where they come from.
    pub basis: Basis,
}

/// The chance before anything was learned. `other` lies below break-even on purpose: of about 1,010 recorded identical
/// retries made right after an error of a deterministic tool, one succeeded.
#[must_use]
pub const fn prior(kind: FailureKind) -> f64 {
    match kind {
        FailureKind::Timeout => 0.50,
        FailureKind::RateLimited | FailureKind::Conflict => 0.60,
        FailureKind::Unavailable | FailureKind::Network | FailureKind::Internal => 0.55,
        FailureKind::NotFound => 0.08,
        FailureKind::Auth | FailureKind::Permission => 0.03,
        FailureKind::InvalidArgument => 0.01,
        FailureKind::QuotaExhausted => 0.02,
        FailureKind::Other => 0.12,
    }
}

/// The odds of a retry after a failure of that kind.
#[must_use]
pub fn odds(kind: FailureKind) -> Odds {
    Odds { p: [prior(kind); WAITS_MS.len()], trials: [0.0; WAITS_MS.len()], basis: Basis::Prior }
}
