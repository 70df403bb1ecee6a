//! Store of call trees: Postgres with a cache. This crate owns SQL. Of [`callgate_core`] it knows the domain and
//! learned profiles, not rules, policies or the engine: it accepts or rejects a change without judging it. [`sealing`]
//! encrypts values with tenants' keys.
//!
//! Statements are plain queries with row types, each run by a test against a real server, instead of macros checked
//! from `.sqlx` data: the append is composed from its column lists, and a build needs neither a database nor its data.

#[cfg(feature = "break-invariants")]
mod broken;
mod cache;
mod decision_store;
mod error;
mod memory;
mod postgres;
pub mod sealing;

#[cfg(feature = "break-invariants")]
pub use broken::is_broken;
pub use cache::{LoadTurn, Slot, Slots};
pub use decision_store::{Answer, DecisionStore};
pub use error::{ConflictCause, OpenError, OverloadedPart, StoreError};
pub use memory::MemoryStore;
pub use postgres::{
    AuditBatch, AuditedEvent, BatchSpans, CONNECTIONS_MAX, CallRange, CarriedState, ClaimedNotification, Clocks,
    Commit, CommittedChange, ConnectionClass, Contents, CopyError, CountingRound, DESCRIPTIONS_MAX, DatabaseStatus,
    DecisionsPerMinute, DeletedRows, DescriptionKey, DistributionResult, DueTree, DueTrees, ExportSession, ExportedRow,
    FORGOTTEN_TREES, Forgetting, Inspection, Learn, ModelPrices, NewNotification, NotificationQueue, OpenCircuit,
    PARTS, Pending, Pool, Questions, QueueSlot, RETAIN_DAYS_MIN, Refusals, Reseal, RetentionResult, Rights,
    RolloutStep, SchemaState, SessionTree, SignedIn, Store, StoreLoad, StoreSettings, TenantActivity, TriedTree,
    UsagePeriod, Uses, analyze, audit, clocks, copy_calls, distribute, inspect, look_over, make_roles, namespace,
    parse_url, reached_at, read_carried_state, retain, set_prices,
};
