//! Ledger: one row per permit of a declared write. It outlives its call tree's memory and, for `once` tools, is shared
//! by all trees of the tenant.

use super::{
    fingerprint::{Fingerprint, LedgerKey, ResultDigest},
    ids::{CallId, SessionId},
    outcome::Guard,
    time::Timestamp,
};

/// State of the last execution of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerState {
    /// There was none.
    Vacant,
    /// It may be running.
    Permitted,
    /// It happened.
    Succeeded,
    /// It failed, and nothing happened.
    Failed,
    /// The outcome is unknown.
    Unknown,
    /// It was called off.
    Cancelled,
}

impl LedgerState {
    /// Every state, in the order of its stored code.
    pub const ALL: [Self; 6] =
        [Self::Vacant, Self::Permitted, Self::Succeeded, Self::Failed, Self::Unknown, Self::Cancelled];
}

/// The last execution of one write.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRow {
    /// Version for compare-and-set: an append must name the one it read.
    pub revision: u64,
    /// State.
    pub state: LedgerState,
    /// Call tree.
    pub root: SessionId,
    pub session: SessionId,
    pub call_id: CallId,
    /// Fingerprint of the call.
    pub fingerprint: Fingerprint,
    /// `seq` of its permit.
    pub seq: u64,
    pub occurrence: u64,
    pub attempt: u32,
    /// Time of the permit.
    pub permitted_at: Timestamp,
    /// Expiry of the lease, after which the outcome is unknown.
    pub lease_until: Timestamp,
    /// Time of the outcome.
    pub settled_at: Option<Timestamp>,
    /// Digest of the result.
    pub digest: Option<ResultDigest>,
    /// The execution received the idempotency key.
    pub key_sent: bool,
    /// Advice after a failure: is a retry worth it?
    pub retryable: bool,
    /// Advice after a failure: the wait, in milliseconds.
    pub retry_after_ms: u64,
    /// Advice after a failure: retries remaining.
    pub retries_remaining: u32,
    /// Advice after a failure: guard that overrode the estimate.
    pub guard: Option<Guard>,
}

/// Compare-and-set of one ledger row.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerChange {
    /// The row.
    pub key: LedgerKey,
    /// Required revision; the new one is one higher.
    pub expected: u64,
    /// New row.
    pub row: LedgerRow,
}
