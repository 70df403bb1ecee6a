//! The seam: load, decide, append, try again. This room knows the engine, the policy and the store, and puts them
//! together; it must not know SQL or gRPC. The decision is a closure over an old state, run again when the race is
//! lost.

mod batch;
mod control;
mod decide;
mod evaluate;
mod halts;
mod health;
mod inbox;
mod learned;
mod policies;
mod profiles;
mod record;
mod state;
mod trees;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::{halts::Halts, health::ToolHealth, learned::Learned, policies::ActivePolicy};
use crate::{
    clock::Clock,
    domain::{time::Timestamp, tool::InjectAs, verdict::Verdict},
    engine::envelope::ToolResult,
    policy::Policy,
    store::{Slots, Store, StoreError},
    telemetry::Metrics,
};

pub use policies::{Activated, Applied, Apply, Author};
pub use profiles::{NearPair, QualityReport};
pub use record::RecordAnswer;
// What callers of the gate handle, so that the edges need no other room.
pub use crate::{
    engine::{CallState, CallerError, Command, LAST_CALLS_DEFAULT, Operation, Report, SessionState},
    policy::PolicyError,
    retry::{classify::retry_after_ms, profiles::Profile},
    store::Wanted,
};

/// A new name for something: a prefix and a UUID, which sorts by time.
#[must_use]
pub fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}

/// Calls of one batch.
pub const BATCH_MAX: usize = 64;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The caller's own fault.
    #[error("{0:?}")]
    CallerError(CallerError),
    /// No such session.
    #[error("no such session")]
    SessionUnknown,
    /// More is asked than can be stored.
    #[error("more is asked than can be stored")]
    Overloaded,
    /// Others kept changing the same call tree.
    #[error("the call tree kept changing")]
    Contention,
    /// The database is out of reach.
    #[error("the database is out of reach: {0}")]
    StoreUnavailable(String),
}

impl From<CallerError> for GateError {
    fn from(caller_error: CallerError) -> Self {
        Self::CallerError(caller_error)
    }
}

impl From<StoreError> for GateError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Overloaded(_) => Self::Overloaded,
            error => Self::StoreUnavailable(error.to_string()),
        }
    }
}

/// An answer to a question, stored before it is given.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateAnswer {
    /// What holds.
    pub verdict: Verdict,
    /// What to tell the model; none for ALLOW.
    pub text: Option<ToolResult>,
    /// Where the policy wants the idempotency key.
    pub inject_as: Option<InjectAs>,
    /// The arguments to execute instead of those that were asked for.
    pub executes: Option<String>,
}

/// What stands between the callers and the store.
#[derive(Debug)]
pub struct Gate {
    store: Store,
    slots: Slots,
    tools: Arc<ToolHealth>,
    learned: Learned,
    halts: Halts,
    policy: ActivePolicy,
    metrics: Metrics,
    clock: Clock,
}

impl Gate {
    /// A gate over an open store.
    #[must_use]
    pub fn new(policy: Arc<Policy>, store: Store, metrics: Metrics, clock: Clock) -> Self {
        Self {
            store,
            slots: Slots::default(),
            tools: Arc::default(),
            learned: Learned::default(),
            halts: Halts::default(),
            policy: ActivePolicy::new(policy),
            metrics,
            clock,
        }
    }

    /// Does the database answer?
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when it does not.
    pub async fn ping(&self) -> Result<(), GateError> {
        Ok(self.store.ping().await?)
    }

    /// The database's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.store.now()
    }

    /// Makes the partitions that the next weeks need.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when the database refuses.
    pub async fn make_partitions(&self) -> Result<(), GateError> {
        Ok(self.store.make_partitions().await?)
    }

    /// Writes what is on its way and closes the store.
    pub async fn close(self) {
        self.store.close().await;
    }
}

/// No lock here is held over a panic: what it guards is whole whatever happened.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
