//! Errors of the gate: a rejection of the caller's request, one type an operation, or a cause that may pass.

use std::time::Duration;

use callgate_core::domain::{
    rejection::{CommandRejection, EvaluateRejection, RecordRejection, SessionUnknown},
    tenant::{Quota, TenantState},
};
use callgate_store::StoreError;

/// Errors of any operation that may pass: nothing was decided. The caller may send the same again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The database is healthy, and overloaded.
    #[error("the server is overloaded: {0}")]
    Overloaded(String),
    /// Load shedding: the estimated wait exceeds the caller's time, and is this long.
    #[error("requests are shed: too many to answer in time")]
    Crowded(Duration),
    /// Other requests changed the same call tree each time.
    #[error("the call tree changed repeatedly during this request")]
    Contention,
    /// The database is unavailable, or does not respond in time.
    #[error("the database is unavailable: {0}")]
    OutOfReach(String),
    /// The server stores everything in memory, and this needs a database.
    #[error("this needs a database, and the server stores everything in memory")]
    NeedsDatabase,
    /// The server ends.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The tenant is not served: it was suspended, or deleted.
    #[error("the tenant is not served: it is {}", .0.as_str())]
    NotServed(TenantState),
    /// A quota of the tenant is used up.
    #[error("the tenant's quota is used up: {}", .0.as_str())]
    Quota(Quota),
    /// No tenant of that number is known here.
    #[error("the tenant is not known")]
    TenantUnknown,
    /// The tenant's policy is one that this build cannot read, and it has judged by none before.
    #[error("the tenant's active policy cannot be read by this build")]
    PolicyUnreadable,
    /// The tenant's values are encrypted with a key that is not on this server.
    #[error("{0}")]
    KeyMissing(String),
    /// An impossible answer of the database: a fault of callgate, or of a change of its tables by hand.
    #[error("{0}")]
    Fault(String),
}

/// Errors of an operation; `R` is the rejection of its caller's request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError<R> {
    /// A fault of the request: nothing was decided or stored.
    #[error("{0:?}")]
    Rejected(R),
    /// Nothing was decided, and the same may be sent again.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// Errors of an Evaluate.
pub type EvaluateError = GateError<EvaluateRejection>;
/// Errors of a Record.
pub type RecordError = GateError<RecordRejection>;
/// Errors of a command.
pub type CommandError = GateError<CommandRejection>;
/// Errors of a read of a session.
pub type SessionError = GateError<SessionUnknown>;

impl From<StoreError> for NoAnswer {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Overloaded(busy) => Self::Overloaded(busy.as_str().to_owned()),
            StoreError::Timeout(_) => Self::OutOfReach(error.to_string()),
            StoreError::Unreachable(why) => Self::OutOfReach(why),
            StoreError::NeedsDatabase => Self::NeedsDatabase,
            StoreError::Stopped => Self::ShuttingDown,
            StoreError::KeyMissing { .. } => Self::KeyMissing(error.to_string()),
            StoreError::Rejected(_) | StoreError::Corrupt(_) | StoreError::Refused(_) => Self::Fault(error.to_string()),
        }
    }
}

impl<R> From<StoreError> for GateError<R> {
    fn from(error: StoreError) -> Self {
        Self::NoAnswer(error.into())
    }
}
