//! The ledger: for every permit of a declared write, a row that outlives its call tree's memory and, for `once` tools,
//! binds all trees of the tenant.

use super::{
    fingerprint::{Fingerprint, LedgerKey, ResultDigest},
    ids::{CallId, SessionId},
    outcome::Guard,
    time::Timestamp,
};

/// Where the last execution of a write stands.
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
    /// It may have happened.
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
    /// Counts the row's changes; an append must name the one it saw.
    pub revision: u64,
    /// Where it stands.
    pub state: LedgerState,
    /// The tree it belongs to.
    pub root: SessionId,
    pub session: SessionId,
    pub call_id: CallId,
    /// What it repeats if it is asked for again.
    pub fingerprint: Fingerprint,
    /// The place of its permit among its tree's events.
    pub seq: u64,
    pub occurrence: u64,
    pub attempt: u32,
    /// When it was permitted.
    pub permitted_at: Timestamp,
    /// When its outcome counts as unknown.
    pub lease_until: Timestamp,
    /// When its outcome was recorded.
    pub settled_at: Option<Timestamp>,
    /// What it answered.
    pub digest: Option<ResultDigest>,
    /// The execution received the idempotency key.
    pub key_sent: bool,
    /// Advice after a failure: is a retry worth it?
    pub retryable: bool,
    /// Advice after a failure: the wait, in milliseconds.
    pub retry_after_ms: u64,
    /// Advice after a failure: how many more tries.
    pub retries_remaining: u32,
    /// Advice after a failure: what overruled the estimate.
    pub guard: Option<Guard>,
}

/// A change of one ledger row, valid only for the revision it was decided on.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerChange {
    /// The row.
    pub key: LedgerKey,
    /// The revision it was decided on; the row's own becomes one more.
    pub expected: u64,
    /// The row from then on.
    pub row: LedgerRow,
}
