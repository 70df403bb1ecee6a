//! The seam: load, decide, append, try again. This room knows the engine, the policy and the store, and puts them
//! together; it must not know SQL or gRPC. The decision is a closure over an old state, run again when the race is
//! lost.

mod admission;
mod approvals;
mod audit;
mod backtest;
mod batch;
#[cfg(feature = "break-invariants")]
mod broken;
mod console;
mod control;
mod creations;
mod credentials;
mod decide;
mod edits;
mod error;
mod evaluate;
mod explain;
mod failures;
mod fair_semaphore;
mod fleet;
mod halts;
mod hashed;
mod health;
mod inbox;
mod jwts;
mod keys;
mod learned;
mod leases;
mod notices;
mod owners;
mod policies;
mod policy_check;
mod privacy;
mod profiles;
mod quality;
mod quotas;
mod record;
mod reseal;
mod retention;
mod savings;
mod seen;
mod state;
mod stock;
mod tenants;
mod tokens;
mod trees;

mod waiting;

use std::sync::Arc;

use self::{
    admission::Door, approvals::OpenQuestions, backtest::Trials, creations::Creations, credentials::Credentials,
    fair_semaphore::FairSemaphore, fleet::Fleets, halts::Halts, health::ToolHealth, learned::Learned, owners::Owners,
    policies::ActivePolicy, privacy::Forgotten, quality::Qualities, quotas::Used, seen::Sight, tenants::Tenants,
};
use crate::telemetry::{Metrics, Waits};
use callgate_core::{
    domain::{control::Edited, time::Timestamp, tool::InjectAs, verdict::Verdict},
    engine::envelope::ToolResult,
    policy::Policy,
    retry::classify,
};
use callgate_net::clock::Clock;
use callgate_store::{Slots, Store};

pub use approvals::{LOOK_EVERY, OPEN_MAX, Reply};
pub use backtest::{BacktestError, BacktestSlot, BacktestTold, BacktestWanted, Backtested, Compared};
pub use credentials::{Refused, Shown};
pub use edits::Choice;
pub use error::{CommandError, EvaluateError, GateError, NoAnswer, RecordError, SessionError};
pub use explain::{BEFORE_MAX, CallExplained, RuleExplained};
pub use fleet::PlaneHealth;
pub use inbox::Told;
pub use owners::WorkError;
pub use policies::{Activated, Applied, Apply, Author, compiled};
pub use policy_check::{CheckedPolicy, PolicyProblem};
pub use privacy::{PrivacyError, Row};
pub use profiles::{RetryChance, RetryLayer, RetryProfile};
pub use quality::{QualityReport, UNKNOWN_TOOLS_MAX};
pub use record::RecordAnswer;
pub use reseal::Resealed;
pub use tenants::TenantChange;
pub use tokens::TokenError;

/// Does `work` for a person: what it reads by itself, it reads over connections that are there for people.
pub async fn for_people<T>(work: impl Future<Output = T>) -> T {
    callgate_store::for_people(work).await
}

/// A new name for something: a prefix and a UUID, which sorts by time.
#[must_use]
pub fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}

/// How long a provider asks to wait with the text of a `Retry-After`, in milliseconds from `now`.
#[must_use]
pub fn retry_after_ms(text: &str, now: i64) -> Option<u64> {
    classify::retry_after_ms(text, now)
}

/// Calls of one batch.
pub const BATCH_MAX: usize = 64;

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
    /// For ASK: the user of the agent's host may answer, at the host's own prompt.
    pub host_may_approve: bool,
    /// What a person has approved instead of the call.
    pub edited: Option<Edited>,
}

/// What stands between the callers and the store.
#[derive(Debug)]
pub struct Gate {
    store: Store,
    slots: Slots,
    door: Arc<Door>,
    long_texts: FairSemaphore,
    tools: Arc<ToolHealth>,
    learned: Learned,
    creations: Creations,
    halts: Halts,
    fleets: Fleets,
    sight: Sight,
    qualities: Qualities,
    forgotten: Forgotten,
    tenants: Tenants,
    used: Used,
    credentials: Credentials,
    owners: Owners,
    policy: ActivePolicy,
    trials: Trials,
    open: OpenQuestions,
    key_problems: keys::KeyProblems,
    waits: Waits,
    metrics: Metrics,
    clock: Clock,
}

impl Gate {
    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// A gate over an open store. `policy` judges the plane's own tenant until another one is read; every other tenant
    /// begins with the built-in one.
    #[must_use]
    pub fn new(policy: Arc<Policy>, store: Store, metrics: Metrics, clock: Clock) -> Self {
        Self {
            store,
            slots: Slots::default(),
            door: Door::new(clock.clone(), metrics.clone()),
            long_texts: FairSemaphore::of_cores(),
            waits: Waits::default(),
            tools: Arc::default(),
            learned: Learned::default(),
            creations: Creations::default(),
            halts: Halts::default(),
            fleets: Fleets::default(),
            sight: Sight::default(),
            qualities: Qualities::default(),
            forgotten: Forgotten::default(),
            tenants: Tenants::default(),
            used: Used::default(),
            credentials: Credentials::default(),
            owners: Owners::default(),
            policy: ActivePolicy::new(policy),
            trials: Trials::default(),
            open: OpenQuestions::default(),
            key_problems: keys::KeyProblems::default(),
            metrics,
            clock,
        }
    }

    /// Does the database answer, and store what it is given?
    ///
    /// # Errors
    /// [`NoAnswer`] when it does not.
    pub async fn ping(&self) -> Result<(), NoAnswer> {
        let found = self.store.ping().await;
        self.metrics.store_up(found.is_ok());
        Ok(found?)
    }

    /// The database's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.store.now()
    }

    /// The time that ends leases: a forward step of the database's clock ends none before its time.
    #[must_use]
    pub fn now_of_leases(&self) -> Timestamp {
        self.store.now_of_leases()
    }

    /// Steps the database's clock forward, as this replica sees it, in milliseconds: for tests.
    pub fn step(&self, ms: u64) {
        self.store.step(ms);
    }

    /// Lets time pass, in milliseconds: for tests of what takes hours.
    pub fn skip(&self, ms: u64) {
        self.store.skip(ms);
    }

    /// Makes the partitions that the next weeks need.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database refuses.
    pub async fn make_partitions(&self) -> Result<(), NoAnswer> {
        Ok(self.store.make_partitions().await?)
    }

    /// Writes what is on its way and closes the store.
    pub async fn close(self) {
        self.store.close().await;
    }
}
