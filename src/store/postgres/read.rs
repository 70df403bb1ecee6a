//! Connection pools for everything but appends: bounded waits for a connection, a time limit for the work, and closing
//! of a connection that exceeds it. sqlx has no query timeout, and its pool does not distinguish an unavailable server
//! from a busy pool.

use std::{pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout, timeout_at},
};

use super::{
    bind,
    connect::{Connector, reached_at},
    decode::LoadedRow,
    pulse::Pulse,
    stock::Pool,
};
use crate::error::{OverloadedPart, StoreError};
use callgate_core::domain::ids::TenantId;

/// Timeout of a free connection, and then of a new one from an unresponsive database.
const ACQUIRE: Duration = Duration::from_millis(300);
/// Idle time after which a connection is checked before use.
const TRUSTED: Duration = Duration::from_millis(100);
/// Maximum age of a connection, so that a new server gets its share.
const LIFE: Duration = Duration::from_secs(1_800);

/// Class of readers. Each has connections of its own, so that neither delays the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionClass {
    /// Agents: decisions, and the upkeep that they need.
    Agents,
    /// Operators: lists, reports, exports and watches, however many and however long.
    Operators,
}

/// A connection pool.
#[derive(Debug, Clone)]
pub(super) struct Readers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Application name of its connections.
    name: &'static str,
    max: usize,
    connector: Arc<Connector>,
    options: PgConnectOptions,
    seats: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    work: Duration,
    /// Health check that distinguishes an unavailable database from an overloaded replica; none for the health check
    /// itself.
    pulse: Option<Arc<Pulse>>,
    /// Timeout of a free connection, and its error.
    wait: Duration,
    busy: OverloadedPart,
    /// True where reads can be bound to their tenants.
    binds: bool,
}

#[derive(Debug)]
struct Idle {
    connection: PgConnection,
    made: Instant,
    used: Instant,
    /// Tenants of the session; none for unrestricted. Absent while unknown.
    whose: Option<Vec<TenantId>>,
}

impl Readers {
    /// A pool of at most `max` lazy connections with the application name `name`; each use is limited to `work`.
    pub(super) fn new(
        connector: Arc<Connector>,
        (name, options): (&'static str, PgConnectOptions),
        (max, work): (usize, Duration),
        pulse: Option<Arc<Pulse>>,
    ) -> Self {
        let options = options.application_name(name).options([("statement_timeout", work.as_millis().to_string())]);
        // The health check itself has the time of a response.
        let wait = if pulse.is_some() { ACQUIRE } else { work };
        Self(Arc::new(Shared {
            name,
            max,
            connector,
            options,
            seats: Arc::new(Semaphore::new(max)),
            idle: Mutex::default(),
            work,
            pulse,
            wait,
            busy: OverloadedPart::Readers,
            binds: false,
        }))
    }

    /// With restriction of reads to tenants, if possible. To be called before use.
    pub(super) fn binding(mut self, binds: bool) -> Self {
        if let Some(own) = Arc::get_mut(&mut self.0) {
            own.binds = binds;
        }
        self
    }

    /// These, but for operators, who wait longer than agents do. To be called before they are used.
    pub(super) fn of_operators(mut self, wait: Duration) -> Self {
        if let Some(own) = Arc::get_mut(&mut self.0) {
            (own.wait, own.busy) = (wait, OverloadedPart::People);
        }
        self
    }

    /// Does `work` for these tenants on a connection. Row level security hides the rows of other tenants. Every read of
    /// a tenant uses this function.
    ///
    /// # Errors
    /// As [`Readers::read`].
    pub(super) async fn read_of<T>(
        &self,
        whose: &[TenantId],
        work: impl AsyncFnOnce(&mut PgConnection) -> LoadedRow<T>,
    ) -> LoadedRow<T> {
        let whose = if self.0.binds { whose } else { &[] };
        self.read_for(whose, work).await
    }

    /// Runs `work` on an unrestricted connection, for jobs across tenants.
    ///
    /// # Errors
    /// [`StoreError::Overloaded`] when no connection was free, or the work took too long, and the database responds;
    /// [`StoreError::Timeout`] and [`StoreError::Unreachable`] when it does not.
    pub(super) async fn read<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> LoadedRow<T>) -> LoadedRow<T> {
        self.read_for(&[], work).await
    }

    async fn read_for<T>(
        &self,
        whose: &[TenantId],
        work: impl AsyncFnOnce(&mut PgConnection) -> LoadedRow<T>,
    ) -> LoadedRow<T> {
        let mut lent = match self.acquire(whose).await {
            Err(StoreError::Timeout(_)) => return Err(self.late(self.0.wait, self.0.busy).await),
            lent => lent?,
        };
        let work = async |idle: &mut Idle| {
            idle.bind(whose).await?;
            work(&mut idle.connection).await
        };
        let done = timeout(self.0.work, work(lent.idle_mut())).await;
        let done = done.unwrap_or_else(|_| Err(StoreError::timeout(self.0.work)));
        match &done {
            Err(error) if error.ends_connection() => lent.end = ConnectionReturn::Closed,
            _ => lent.end = ConnectionReturn::GivenBack,
        }
        if let Err(StoreError::Timeout(_)) = done {
            drop(lent);
            return Err(self.late(self.0.work, OverloadedPart::Statement).await);
        }
        done
    }

    /// An error with the address of the unresponsive database, for operators.
    pub(super) fn name_database(&self, error: StoreError) -> StoreError {
        let place = reached_at(&self.0.options);
        match error {
            StoreError::Unreachable(why) if !why.starts_with(&place) => {
                StoreError::Unreachable(format!("{place}: {why}"))
            }
            StoreError::Timeout(ms) => StoreError::Unreachable(format!("{place}: no answer within {ms} ms")),
            other => other,
        }
    }

    /// Counts of the connections.
    pub(super) fn pool(&self) -> Pool {
        let Shared { name, seats, max, idle, .. } = &*self.0;
        let used = max - seats.available_permits().min(*max);
        Pool { name, used, idle: idle.lock().len(), max: *max }
    }

    /// A new connection outside the pool.
    pub(super) async fn separate(&self) -> LoadedRow<PgConnection> {
        self.0.connector.connect(&self.0.options).await
    }

    /// Closes idle connections, and lends none any more.
    pub(super) async fn close(&self) {
        self.0.seats.close();
        let idle = std::mem::take(&mut *self.0.idle.lock());
        for Idle { connection, .. } in idle {
            let _ = timeout(ACQUIRE, connection.close()).await;
        }
    }

    /// Error of a timed-out read: overload of this replica, or an unavailable database.
    async fn late(&self, limit: Duration, busy: OverloadedPart) -> StoreError {
        if self.is_answered().await { StoreError::Overloaded(busy) } else { StoreError::timeout(limit) }
    }

    async fn acquire(&self, whose: &[TenantId]) -> LoadedRow<LentConnection> {
        let limit = self.0.wait;
        let seat = match timeout(limit, Arc::clone(&self.0.seats).acquire_owned()).await {
            Ok(Ok(seat)) => seat,
            Ok(Err(_)) => return Err(StoreError::Stopped),
            Err(_) => return Err(StoreError::timeout(limit)),
        };
        // A separate deadline: a caller that waited for a permit must not count untested connections as dead.
        let (idle, seat) = match self.0.take_responsive(Instant::now() + limit, whose).await {
            Some(idle) => (idle, seat),
            None => self.open_connection(seat).await?,
        };
        Ok(LentConnection {
            idle: Some(idle),
            end: ConnectionReturn::Abandoned,
            shared: Arc::clone(&self.0),
            seat: Some(seat),
        })
    }

    /// A new connection. A busy machine is slow to connect; the wait continues while the database responds on another
    /// connection.
    async fn open_connection(&self, seat: OwnedSemaphorePermit) -> LoadedRow<(Idle, OwnedSemaphorePermit)> {
        let limit = self.0.wait;
        let mut connecting = pin!(self.connect(seat));
        match timeout(limit, &mut connecting).await {
            Ok(connected) => connected,
            Err(_) if self.is_answered().await => {
                let late = || StoreError::Unreachable(self.unmade());
                timeout(self.0.work, connecting).await.unwrap_or_else(|_| Err(late()))
            }
            Err(_) => Err(StoreError::timeout(limit)),
        }
    }

    fn unmade(&self) -> String {
        format!("{}: no connection within {} ms", reached_at(&self.0.options), self.0.work.as_millis())
    }

    /// True if the database responds. Boxed, because it is a read itself, which does not recurse further.
    async fn is_answered(&self) -> bool {
        match &self.0.pulse {
            Some(pulse) => Box::pin(pulse.ask()).await.is_ok(),
            None => false,
        }
    }

    /// A new connection, completed even if its caller is cancelled, for the next one. It holds its permit meanwhile,
    /// which bounds their number.
    async fn connect(&self, seat: OwnedSemaphorePermit) -> LoadedRow<(Idle, OwnedSemaphorePermit)> {
        let (give, connected) = oneshot::channel();
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let connected = shared.connector.connect(&shared.options).await;
            if let Err(Ok((unwanted, _seat))) = give.send(connected.map(|connection| (Idle::new(connection), seat))) {
                shared.put_back(unwanted);
            }
        });
        connected.await.unwrap_or(Err(StoreError::Stopped))
    }
}

impl Idle {
    fn new(connection: PgConnection) -> Self {
        Self { connection, made: Instant::now(), used: Instant::now(), whose: Some(Vec::new()) }
    }

    fn is_for(&self, whose: &[TenantId]) -> bool {
        self.whose.as_deref() == Some(whose)
    }

    /// Restricts the connection to these tenants, unless it already is: with one tenant, once per connection.
    async fn bind(&mut self, whose: &[TenantId]) -> LoadedRow<()> {
        if self.is_for(whose) {
            return Ok(());
        }
        // Cancelled in between, the state is unknown.
        self.whose = None;
        sqlx::raw_sql(AssertSqlSafe(bind::statement(whose))).execute(&mut self.connection).await?;
        self.whose = Some(whose.to_vec());
        Ok(())
    }
}

impl Shared {
    /// An idle connection, preferably of the same tenants.
    fn take_idle(&self, whose: &[TenantId]) -> Option<Idle> {
        let mut idle = self.idle.lock();
        match idle.iter().rposition(|idle| idle.is_for(whose)) {
            Some(place) => Some(idle.remove(place)),
            None => idle.pop(),
        }
    }

    /// An idle connection that still responds.
    async fn take_responsive(&self, by: Instant, whose: &[TenantId]) -> Option<Idle> {
        loop {
            let mut idle = self.take_idle(whose)?;
            if idle.used.elapsed() < TRUSTED {
                return Some(idle);
            }
            if let Ok(Ok(())) = timeout_at(by, idle.connection.ping()).await {
                return Some(idle);
            }
        }
    }

    fn put_back(&self, idle: Idle) {
        let mut others = self.idle.lock();
        if idle.made.elapsed() < LIFE && !self.seats.is_closed() {
            others.push(Idle { used: Instant::now(), ..idle });
        }
    }
}

/// State of a connection after use.
#[derive(Debug)]
enum ConnectionReturn {
    GivenBack,
    Closed,
    /// Cancelled during work.
    Abandoned,
}

/// A lent connection.
#[derive(Debug)]
struct LentConnection {
    idle: Option<Idle>,
    end: ConnectionReturn,
    shared: Arc<Shared>,
    seat: Option<OwnedSemaphorePermit>,
}

impl LentConnection {
    fn idle_mut(&mut self) -> &mut Idle {
        self.idle.as_mut().unwrap_or_else(|| unreachable!("only its end takes it away"))
    }
}

impl Drop for LentConnection {
    fn drop(&mut self) {
        let (Some(mut idle), seat) = (self.idle.take(), self.seat.take()) else { return };
        match self.end {
            ConnectionReturn::GivenBack => self.shared.put_back(idle),
            // The other idle connections are probably broken, too.
            ConnectionReturn::Closed => self.shared.idle.lock().clear(),
            // It may be in the middle of a response, or in a transaction unknown to sqlx: `begin` cannot be cancelled.
            // It keeps its permit until the server has confirmed neither.
            ConnectionReturn::Abandoned => {
                let shared = Arc::clone(&self.shared);
                tokio::spawn(async move {
                    let _seat = seat;
                    if let Ok(Ok(_)) = timeout(shared.work, idle.connection.execute("rollback")).await {
                        shared.put_back(idle);
                    }
                });
            }
        }
    }
}
