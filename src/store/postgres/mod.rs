//! Store on Postgres: one writer, a small pool of readers, and the database's clock.

mod append;
mod approval_notes;
pub mod audit;
mod audit_stream;
mod batch_reader;
mod bind;
mod bulkheads;
mod catch_up;
mod clocks;
mod codes;
mod columns;
mod commits;
mod connect;
mod console;
mod controls;
mod copied;
mod counters;
mod decisions;
mod decode;
mod distribute;
mod edits;
mod export;
mod findings;
mod fleet;
mod follow_up;
mod forget;
mod halts;
mod health;
mod hourly;
mod inbox;
mod indexes;
mod inspect;
mod leases;
mod load;
mod maintain;
mod marks;
mod migrations;
mod notifications;
mod owners;
mod point_queries;
mod policies;
mod prices;
mod problem;
mod profiles;
mod prune;
mod pulse;
mod quality;
mod queue;
mod read;
mod reads;
mod rebuild;
mod recall;
mod reseal;
mod retention;
mod retries;
mod rollouts;
mod row;
mod row_union;
mod sealed;
mod server_roles;
mod session_history;
mod stock;
mod tables;
mod tenants;
mod text_retention;
mod texts;
mod time;
mod tokens;
mod tool_descriptions;
mod traced;
mod trees;
mod usage;
mod usage_report;
mod verification;
mod writer;

use std::{fmt, sync::Arc, time::Duration};

use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{Mutex, Notify, mpsc},
    task::JoinHandle,
};

use self::{
    commits::Commits, connect::Connector, counters::Counters, pulse::Pulse, read::Readers, reads::GatheredReads,
    sealed::Opener, time::DbTime,
};
use super::error::{OpenError, StoreError};
use crate::sealing::Keyring;
use callgate_core::domain::{
    ids::{CallId, SessionId, TenantId},
    previous::StoredResult,
};

pub use audit_stream::AuditBatch;
pub use clocks::{Clocks, clocks};
pub use commits::Commit;
pub use connect::{parse_url, reached_at};
pub use console::SignedIn;
pub use copied::{CallRange, CopyError, copy_calls};
pub use distribute::{DistributionResult, distribute};
pub use export::{ExportSession, ExportedRow};
pub use fleet::{DecisionsPerMinute, Refusals};
pub use forget::{FORGOTTEN_TREES, Forgetting, PARTS};
pub use inbox::TriedTree;
pub use inspect::{DatabaseStatus, Inspection, Rights, inspect};
pub use leases::{DueTree, DueTrees};
pub use migrations::SchemaState;
pub use notifications::{
    AuditedEvent, ClaimedNotification, NewNotification, NotificationQueue, OpenCircuit, TenantActivity,
};
pub use point_queries::SessionTree;
pub use prices::{ModelPrices, set_prices};
pub use profiles::{CountingRound, Learn};
pub use prune::DeletedRows;
pub use queue::{Pending, QueueSlot};
pub use read::ConnectionClass;
pub use reseal::{Reseal, Uses};
pub use retention::{RETAIN_DAYS_MIN, RetentionResult, retain};
pub use rollouts::RolloutStep;
pub use server_roles::{CarriedState, analyze, make_roles, read_carried_state};
pub use stock::{Pool, Questions, StoreLoad};
pub use tool_descriptions::{DESCRIPTIONS_MAX, DescriptionKey};
pub use traced::{BatchSpans, namespace};
pub use usage_report::UsagePeriod;
pub use verification::{Contents, look_over};
pub use writer::CommittedChange;
pub(crate) use {
    leases::{TAKEN_MAX, TAKEN_MS},
    writer::{QUEUE_MAX, QueuedChange},
};

/// Maximum connections for reading.
const READERS_MAX: usize = 8;
/// Timeout of a read.
const READ: Duration = Duration::from_millis(2_000);
/// Maximum connections for large reads.
const SLOW_MAX: usize = 2;
/// Timeout of a large read.
const SLOW: Duration = Duration::from_secs(30);
/// Connections for what operators read, and for what they read much of at once: as many statements as operators have
/// running at any time, on two cores a share of the database that agents hardly notice.
const OPERATORS_MAX: usize = 2;
const EXPORTS_MAX: usize = 1;
/// Time that a read of operators waits for a connection.
const OPERATORS_WAIT: Duration = Duration::from_secs(2);
/// Most connections that one server has to a database at a time: beside those above, the one that asks whether it
/// answers, the writer's, and one that comes and goes.
pub const CONNECTIONS_MAX: usize = READERS_MAX + reads::GATHERERS_MAX + SLOW_MAX + OPERATORS_MAX + EXPORTS_MAX + 3;
/// Longest time for the answer to whether the database answers.
const PULSE: Duration = Duration::from_secs(1);
/// Longest pause in a transaction, in milliseconds, after which the server ends it: a replica that vanishes in the
/// middle of one would hold its locks until TCP notices. Shorter than a step of the writer, so that who waits for them
/// is in time.
const IDLE_MS: &str = "2000";
/// Schema of all tables.
const SCHEMA: &str = "callgate";

/// Settings of the store.
pub struct StoreSettings {
    /// The server and its credentials.
    pub options: PgConnectOptions,
    /// Called after every commit.
    pub on_commit: Arc<dyn Fn(Commit) + Send + Sync>,
    /// Creates spans of batches; `Arc::new(())` creates none.
    pub traced: Arc<dyn BatchSpans>,
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSettings").field("host", &self.options.get_host()).finish_non_exhaustive()
    }
}

/// The database, read over the connections of one class: at first those of agents. Clones are one.
#[derive(Debug, Clone)]
pub struct Store {
    readers: Readers,
    /// For what takes longer, so that it keeps nobody from reading.
    slow: Readers,
    /// `readers` and `slow` of each class.
    connection_classes: [(Readers, Readers); 2],
    /// For what is read for many at once.
    gatherers: Readers,
    gathers: Arc<GatheredReads>,
    /// True when the trees are spread over many nodes, by their shards.
    is_distributed: bool,
    pulse: Arc<Pulse>,
    queue: mpsc::Sender<QueuedChange>,
    writer: Arc<Mutex<Option<JoinHandle<()>>>>,
    /// Tells the writer to end.
    closing: Arc<Notify>,
    time: Arc<DbTime>,
    counters: Arc<Counters>,
    commits: Arc<Commits>,
    /// Name of this replica, for exclusive jobs.
    replica: String,
    keyring: Arc<Keyring>,
    namespace: Arc<str>,
    console_key: Vec<u8>,
}

impl Store {
    /// Connects, migrates the schema, checks durability settings, and starts the writer.
    ///
    /// # Errors
    /// [`OpenError`] when the server is unavailable or unsafe, or a migration fails.
    pub async fn open(settings: StoreSettings) -> Result<Self, OpenError> {
        let (mut conn, options) = connect::first(usual(settings.options)).await?;
        maintain::prepare(&mut conn).await?;
        let is_distributed = distribute::is_distributed(&mut conn).await?;
        let is_bound = bind::is_bound(&mut conn, is_distributed).await?;
        let cut = if is_distributed { load::ShardSplit::ByShard } else { load::ShardSplit::Not };
        let now = maintain::now(&mut conn).await?;
        let replica = sqlx::query_scalar("select gen_random_uuid()::text").fetch_one(&mut conn).await?;
        let console_key = console::key(&mut conn).await?;
        let namespace = namespace(&options).into();
        let connector = Arc::new(Connector::default());
        let of = |options: &PgConnectOptions, name: &'static str, limits, pulse| {
            // A cancelled connection is rolled back, in a transaction or not.
            let options = options.clone().options([("client_min_messages", "error")]);
            Readers::new(Arc::clone(&connector), (name, options), limits, pulse).binding(is_bound)
        };
        let readers = |name: &'static str, limits, pulse| of(&options, name, limits, pulse);
        let (counters, old_counters) = Counters::new();
        let (time, counters) = (Arc::new(DbTime::new(now)), Arc::new(counters));
        let pulse = Arc::new(Pulse::new(readers("callgate health", (1, PULSE), None), Arc::clone(&time)));
        let commits = Arc::new(Commits::default());
        let (queue, jobs) = mpsc::channel(writer::QUEUE_MAX);
        let closing = Arc::new(Notify::new());
        let writer = writer::Writer {
            options: writer::writer_options(options.clone(), is_distributed),
            connector: Arc::clone(&connector),
            time: Arc::clone(&time),
            counters: Arc::clone(&counters),
            commits: Arc::clone(&commits),
            closing: Arc::clone(&closing),
            on_commit: settings.on_commit,
            traced: settings.traced,
            is_distributed,
        };
        let writer = Arc::new(Mutex::new(Some(tokio::spawn(writer.run(jobs)))));
        let reads = |name, max, work| readers(name, (max, work), Some(Arc::clone(&pulse)));
        let operators = |name, max, work| reads(name, max, work).of_operators(OPERATORS_WAIT);
        let connection_classes = [
            (reads("callgate reader", READERS_MAX, READ), reads("callgate slow reader", SLOW_MAX, SLOW)),
            (operators("callgate people", OPERATORS_MAX, READ), operators("callgate export", EXPORTS_MAX, SLOW)),
        ];
        let (readers, slow) = connection_classes[ConnectionClass::Agents as usize].clone();
        tokio::spawn(build_indexes(slow.clone()));
        let gatherers = reads::gatherer_options(options.clone(), is_distributed);
        let gatherers = of(&gatherers, "callgate gatherer", (reads::GATHERERS_MAX, READ), Some(Arc::clone(&pulse)));
        tokio::spawn(counters::refresh(Arc::downgrade(&counters), gatherers.clone(), cut, old_counters));
        Ok(Self {
            gathers: Arc::new(GatheredReads::new(&gatherers, cut)),
            is_distributed,
            gatherers,
            readers,
            slow,
            connection_classes,
            pulse,
            queue,
            writer,
            closing,
            time,
            counters,
            commits,
            replica,
            keyring: Arc::default(),
            namespace,
            console_key,
        })
    }

    /// The same store, read over the connections of another class.
    #[must_use]
    pub fn on(&self, class: ConnectionClass) -> Self {
        let (readers, slow) = self.connection_classes[class as usize].clone();
        Self { readers, slow, ..self.clone() }
    }

    /// The keys with which tenants' values are sealed.
    #[must_use]
    pub const fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    /// The database and its schema, as `callgate|callgate`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Opener of a tenant's values.
    fn opener(&self, tenant: TenantId) -> Opener {
        Opener::new(tenant, self.keyring.of(tenant))
    }

    /// The result of the last success of a call, if there was one.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn result(
        &self,
        tenant: TenantId,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<Option<StoredResult>, StoreError> {
        let opener = self.opener(tenant);
        self.readers
            .read_of(&[tenant], async |conn| session_history::result(conn, tenant, session, call_id, &opener).await)
            .await
    }

    /// Makes the partitions of this month and the next two.
    ///
    /// # Errors
    /// [`StoreError`] when the database rejects it.
    pub async fn make_partitions(&self) -> Result<(), StoreError> {
        let make = async |conn: &mut PgConnection| {
            maintain::make_partitions(conn).await?;
            // Before they are first read, a month later.
            if self.is_distributed { Ok(()) } else { bind::prepare(conn).await.map(drop) }
        };
        self.readers.read(make).await
    }

    /// Health check: reads the database's time, and fails while commits fail.
    ///
    /// # Errors
    /// [`StoreError`] when it does not respond, or cannot store.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.pulse.ask().await?;
        self.commits.check(self.pulse.connections()).await
    }

    /// Takes no more changes, writes what is queued, then closes all connections.
    pub async fn close(&self) {
        self.closing.notify_one();
        if let Some(writer) = self.writer.lock().await.take() {
            let _ = writer.await;
        }
        for readers in
            self.connection_classes.iter().flat_map(|(readers, slow)| [readers, slow]).chain([&self.gatherers])
        {
            readers.close().await;
        }
        self.pulse.close().await;
    }
}

/// Options of every connection.
fn usual(options: PgConnectOptions) -> PgConnectOptions {
    options
        .options([("search_path", SCHEMA), ("client_min_messages", "warning"), ("jit", "off")])
        .options([("idle_in_transaction_session_timeout", IDLE_MS)])
        .log_statements(log::LevelFilter::Off)
        .log_slow_statements(log::LevelFilter::Off, Duration::ZERO)
}

/// Runs in the background: without an index, queries are only slower.
async fn build_indexes(slow: Readers) {
    let built = async {
        let mut conn = slow.separate().await?;
        let built = indexes::build(&mut conn).await;
        append::tidy(&mut conn).await?;
        built
    };
    if let Err(error) = built.await {
        tracing::warn!(
            %error,
            "maintenance at start failed (indexes of partitions, old functions); the next start retries it"
        );
    }
}
