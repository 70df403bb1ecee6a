//! Where call trees live: Postgres, a cache in front of it, and a Postgres of our own for who has none. This room owns
//! SQL and knows the nouns; it must not know rules, policies, the engine or gRPC: it accepts a change or refuses it,
//! and has no opinion on it.
//!
//! Statements are plain queries with row types, each run by a test against a real server, instead of macros checked
//! from `.sqlx` data: the append is composed from its column lists, and a build needs neither a database nor its data.

#[cfg(feature = "break-invariants")]
mod broken;
mod cache;
mod error;
mod postgres;

#[cfg(feature = "break-invariants")]
pub use broken::is_broken;
pub use cache::{Slot, Slots, Turn};
pub use error::{Busy, Lost, OpenError, StoreError};
pub use postgres::{
    CONNECTIONS_MAX, Carried, Claimed, Claims, Clocks, Commit, Committed, Contents, Counted, Deleted, Distributed,
    DueTree, DueTrees, Exported, FORGOTTEN_TREES, Forgetting, Found, Inspection, Judged, Learn, Load, PARTS, Pending,
    Place, Pool, Questions, QueueSlot, RETAIN_DAYS_MIN, Refusals, Reseal, Retained, Rights, SchemaState, SignedIn,
    State, Store, StoreSettings, Traced, TriedTree, Uses, audit, carried, clocks, distribute, for_all, for_people,
    inspect, look_over, make_roles, namespace, parse_url, reached_at, retain, settle_in,
};
