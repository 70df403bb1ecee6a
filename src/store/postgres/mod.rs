//! The store on Postgres: one writer, a small pool of readers, and the database's time.

mod append;
mod columns;
mod controls;
mod counters;
mod decode;
mod findings;
mod follow_up;
mod halts;
mod health;
mod inbox;
mod load;
mod maintain;
mod policies;
mod profiles;
mod quality;
mod row;
mod time;
mod writer;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions as _, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinHandle,
    time::{error::Elapsed, timeout},
};

use self::{counters::Counters, time::DbTime, writer::Job};
use super::{
    cache::Slot,
    error::{Lost, StoreError},
};
use crate::domain::{
    budget::CounterKey,
    event::{Append, Event},
    fingerprint::LedgerKey,
    ids::{CallId, SessionId, TenantId},
    ledger::LedgerRow,
    time::Timestamp,
    tree::CallTree,
};

pub use inbox::Wanted;
pub use maintain::ExpiredLease;
pub use profiles::{Counted, Learn};
pub use writer::Committed;

/// Connections for reading.
const READERS_MAX: u32 = 8;
/// Longest time for one read, its connection included.
const READ: Duration = Duration::from_millis(2_000);
/// Longest wait for a free connection.
const ACQUIRE: Duration = Duration::from_millis(300);
/// Longest wait for a slot in the writer's queue.
const QUEUE_WAIT: Duration = Duration::from_millis(200);
/// Longest pause in a transaction, in milliseconds, after which the server ends it: a replica that vanishes in the
/// middle of one would hold its locks until TCP notices. Shorter than a step of the writer, so that who waits for them
/// is in time.
const IDLE_MS: &str = "2000";
/// The schema that all tables live in.
const SCHEMA: &str = "callgate";

/// How to reach the database, and who wants to know about commits.
pub struct StoreSettings {
    /// The server and its credentials.
    pub options: PgConnectOptions,
    /// Called after every commit with the number of changes in it and its duration.
    pub on_commit: Arc<dyn Fn(usize, Duration) + Send + Sync>,
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSettings").field("host", &self.options.get_host()).finish_non_exhaustive()
    }
}

/// The database.
#[derive(Debug)]
pub struct Store {
    readers: PgPool,
    queue: mpsc::Sender<Job>,
    writer: Mutex<Option<JoinHandle<()>>>,
    time: Arc<DbTime>,
    counters: Arc<Counters>,
    /// Names this replica where only one may do a job.
    replica: String,
}

/// A slot in the writer's queue, taken before a tree is locked: whoever has one can send without waiting.
#[derive(Debug)]
pub struct QueueSlot(mpsc::OwnedPermit<Job>);

/// A change on its way to a commit.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<Committed, Lost>>);

impl QueueSlot {
    /// Sends a change that was decided on the tree of `slot`.
    #[must_use]
    pub fn send(self, append: Append, slot: &Arc<Slot>) -> Pending {
        let (reply, committed) = oneshot::channel();
        self.0.send(Job { append, slot: Arc::clone(slot), reply });
        Pending(committed)
    }
}

impl Pending {
    /// Waits for the commit.
    ///
    /// # Errors
    /// [`Lost`]: the change was not accepted, or nobody knows.
    pub async fn committed(self) -> Result<Committed, Lost> {
        self.0.await.unwrap_or(Err(Lost::Unreachable))
    }
}

/// A connection for one read. sqlx has no time limit for a query: a read that takes too long closes its connection
/// instead of giving it back with an answer still to come.
struct Reader(PoolConnection<Postgres>, End);

/// What becomes of a connection after its read.
enum End {
    GivenBack,
    Closed,
}

impl Reader {
    fn done<T>(mut self, read: Result<Result<T, StoreError>, Elapsed>) -> Result<T, StoreError> {
        read.unwrap_or_else(|_| {
            self.1 = End::Closed;
            Err(StoreError::Timeout(u64::try_from(READ.as_millis()).unwrap_or(u64::MAX)))
        })
    }
}

impl Drop for Reader {
    /// Before sqlx takes a connection back it waits for an answer, and has no time limit for that either: in a black
    /// hole, callers who go away would leave no place for others. Whoever gives up drops the connection and its place.
    fn drop(&mut self) {
        match self.1 {
            End::GivenBack => drop(tokio::spawn(timeout(READ, self.0.return_to_pool()))),
            End::Closed => self.0.close_on_drop(),
        }
    }
}

impl Store {
    /// Connects, brings the schema up to date, checks that acknowledged rows are safe, and starts the writer.
    ///
    /// # Errors
    /// [`StoreError`] when the server cannot be reached, is set up unsafely, or a migration fails.
    pub async fn open(settings: StoreSettings) -> Result<Self, StoreError> {
        let options = settings
            .options
            .options([("search_path", SCHEMA), ("client_min_messages", "warning"), ("jit", "off")])
            .options([("idle_in_transaction_session_timeout", IDLE_MS)])
            .log_statements(log::LevelFilter::Off)
            .log_slow_statements(log::LevelFilter::Off, Duration::ZERO);
        let mut conn = options.clone().connect().await?;
        maintain::prepare(&mut conn).await?;
        let now = maintain::now(&mut conn).await?;
        let replica = sqlx::query_scalar("select gen_random_uuid()::text").fetch_one(&mut conn).await?;
        let readers = options.clone().application_name("callgate reader").options([("statement_timeout", "2000")]);
        let readers =
            PgPoolOptions::new().max_connections(READERS_MAX).acquire_timeout(ACQUIRE).connect_lazy_with(readers);
        let (time, counters) = (Arc::new(DbTime::new(now)), Arc::new(Counters::default()));
        let (queue, jobs) = mpsc::channel(writer::QUEUE_MAX);
        let writer = writer::Writer {
            options: writer::writer_options(options),
            time: Arc::clone(&time),
            counters: Arc::clone(&counters),
            on_commit: settings.on_commit,
        };
        let writer = Mutex::new(Some(tokio::spawn(writer.run(jobs))));
        Ok(Self { readers, queue, writer, time, counters, replica })
    }

    /// The database's time, carried forward.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// A slot in the writer's queue.
    ///
    /// # Errors
    /// [`StoreError::Overloaded`] when there is none for 200 ms.
    pub async fn queue_slot(&self) -> Result<QueueSlot, StoreError> {
        match timeout(QUEUE_WAIT, self.queue.clone().reserve_owned()).await {
            Ok(Ok(permit)) => Ok(QueueSlot(permit)),
            Ok(Err(_)) => Err(StoreError::Stopped),
            Err(_) => Err(StoreError::Overloaded),
        }
    }

    /// The root of a session; none for a session that nobody has heard of.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn root(&self, tenant: TenantId, session: &SessionId) -> Result<Option<SessionId>, StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, load::root(&mut reader.0, tenant, session)).await;
        reader.done(read)
    }

    /// A tree as it was last committed; none when it has no event yet.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tree(&self, tenant: TenantId, root: &SessionId) -> Result<Option<CallTree>, StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, load::tree(&mut reader.0, tenant, root)).await;
        reader.done(read)
    }

    /// The version of a tree as it was last committed; 0 when it has no event yet.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn version(&self, tenant: TenantId, root: &SessionId) -> Result<u64, StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, load::version(&mut reader.0, tenant, root)).await;
        reader.done(read)
    }

    /// The ledger's row of a write; none when there was no permit yet.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn ledger(&self, tenant: TenantId, key: LedgerKey) -> Result<Option<LedgerRow>, StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, load::ledger(&mut reader.0, tenant, &key)).await;
        reader.done(read)
    }

    /// All events of one call_id, oldest first; empty for one that nobody has heard of.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn call(
        &self,
        tenant: TenantId,
        epoch: i32,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<Vec<Event>, StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, load::call(&mut reader.0, tenant, epoch, session, call_id)).await;
        reader.done(read)
    }

    /// The result that was recorded with the last success of a call; none when it was not given.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn result(
        &self,
        tenant: TenantId,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<Option<String>, StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, load::result(&mut reader.0, tenant, session, call_id)).await;
        reader.done(read)
    }

    /// The canonical arguments of a call, as it was judged last; none for one that nobody has heard of.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn arguments(
        &self,
        tenant: TenantId,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<Option<String>, StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, load::arguments(&mut reader.0, tenant, session, call_id)).await;
        reader.done(read)
    }

    /// Shared counters as last seen, read where none was seen.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn counters(
        &self,
        tenant: TenantId,
        keys: &[CounterKey],
    ) -> Result<BTreeMap<CounterKey, u64>, StoreError> {
        if let Some(known) = self.counters.known(tenant, keys) {
            return Ok(known);
        }
        let mut reader = self.reader().await?;
        let read = timeout(READ, counters::read(&mut reader.0, tenant, keys)).await;
        let used = reader.done(read)?;
        let all: Vec<_> = keys.iter().map(|key| (tenant, key.clone())).collect();
        self.counters.learn(&all, &used);
        Ok(keys.iter().cloned().zip(used.iter().map(|used| u64::try_from(*used).unwrap_or(0))).collect())
    }

    /// Calls whose lease ran out in the given stretch of time and that nobody reported on, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn expired_leases(&self, since: Timestamp, until: Timestamp) -> Result<Vec<ExpiredLease>, StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, maintain::expired_leases(&mut reader.0, since, until)).await;
        reader.done(read)
    }

    /// Makes the partitions of this month and the next two.
    ///
    /// # Errors
    /// [`StoreError`] when the database refuses.
    pub async fn make_partitions(&self) -> Result<(), StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, maintain::make_partitions(&mut reader.0)).await;
        reader.done(read)
    }

    /// Asks the database for its time: proof that it answers.
    ///
    /// # Errors
    /// [`StoreError`] when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let mut reader = self.reader().await?;
        let read = timeout(READ, maintain::now(&mut reader.0)).await;
        let now = reader.done(read)?;
        self.time.observe(now);
        Ok(())
    }

    /// Writes what is queued, then closes all connections. To be called when nobody asks any more.
    pub async fn close(self) {
        drop(self.queue);
        if let Some(writer) = self.writer.into_inner() {
            let _ = writer.await;
        }
        self.readers.close().await;
    }

    async fn reader(&self) -> Result<Reader, StoreError> {
        Ok(Reader(self.readers.acquire().await?, End::GivenBack))
    }
}
