//! Connections, made one at a time: while the server is away or recovers, a replica asks it again now and then, and not
//! once for each caller. Each connection says for itself that its commits are durable.

use std::time::Duration;

use sqlx::{
    ConnectOptions as _, PgConnection, Row as _,
    postgres::{PgConnectOptions, PgSslMode},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::store::error::{OpenError, StoreError, cause};

/// Longest time for making a connection.
const CONNECT: Duration = Duration::from_millis(2_000);
/// Pause after the first attempt that failed; doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What `synchronous_commit` may say; anything less loses acknowledged rows when the server crashes.
pub(super) const DURABLE: [&str; 3] = ["on", "remote_apply", "remote_write"];

/// Makes connections for one replica.
#[derive(Debug, Default)]
pub(super) struct Connector(Mutex<Attempts>);

#[derive(Debug, Default)]
struct Attempts {
    failed: u32,
    /// The last failure: when, what it was, and before when there is no use in trying again.
    last: Option<(Instant, StoreError, Instant)>,
}

impl Connector {
    /// A connection that is ready for use.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], at once while an attempt has just failed.
    pub(super) async fn connect(&self, options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
        let asked = Instant::now();
        let mut attempts = self.0.lock().await;
        if let Some((at, error, not_before)) = &attempts.last
            && (*at >= asked || *not_before > Instant::now())
        {
            return Err(error.clone());
        }
        // An attempt that its caller gives up counts as failed too.
        attempts.failed = attempts.failed.saturating_add(1);
        let given_up = StoreError::Unreachable("no connection in time".to_owned());
        attempts.last = Some((asked, given_up, Instant::now() + PAUSE));
        let attempt = timeout(CONNECT, open(options)).await;
        let late = || StoreError::Unreachable(format!("no connection within {} ms", CONNECT.as_millis()));
        match attempt.unwrap_or_else(|_| Err(late())) {
            Ok(connection) => {
                *attempts = Attempts::default();
                Ok(connection)
            }
            Err(error) => {
                let pause = PAUSE.saturating_mul(1 << attempts.failed.min(10)).min(PAUSE_MAX);
                let now = Instant::now();
                attempts.last = Some((now, error.clone(), now + jittered(pause)));
                Err(error)
            }
        }
    }
}

/// Between half of `pause` and all of it, so that replicas do not come back all at once.
pub(super) fn jittered(pause: Duration) -> Duration {
    // The last bits of a UUID are random.
    let share = (uuid::Uuid::now_v7().as_u128() & 0xffff) as f64 / f64::from(0x1_0000);
    pause.mul_f64(0.5 + share / 2.0)
}

/// Every way in which a server says no to a connection means that it cannot be reached.
async fn open(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let unreachable = |error: sqlx::Error| StoreError::Unreachable(cause(&error));
    let mut connection = options.connect().await.map_err(unreachable)?;
    let settings = be_durable(&mut connection).await.map_err(unreachable)?;
    match settings.unsafe_one() {
        None => Ok(connection),
        Some((setting, value)) => Err(StoreError::Unreachable(format!("it has {setting} = {value} now"))),
    }
}

/// What a server says of its durability.
#[derive(Debug)]
pub(super) struct Durability {
    fsync: String,
    pub(super) full_page_writes: String,
}

impl Durability {
    /// The setting that would lose acknowledged rows, with its value.
    pub(super) fn unsafe_one(&self) -> Option<(&'static str, String)> {
        (self.fsync != "on").then(|| ("fsync", self.fsync.clone()))
    }
}

/// Sets `synchronous_commit` for the session, where nothing overrules it: neither the database's, the role's nor the
/// server's configuration, whenever that changes. What is stronger stays.
pub(super) async fn be_durable(connection: &mut PgConnection) -> Result<Durability, sqlx::Error> {
    let row = sqlx::query(
        "select set_config('synchronous_commit', case when s = any($1) then s else 'on' end, false),
           current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes
         from current_setting('synchronous_commit') s",
    );
    let row = row.bind(&DURABLE[..]).fetch_one(connection).await?;
    Ok(Durability { fsync: row.try_get("fsync")?, full_page_writes: row.try_get("full_page_writes")? })
}

/// The options of a PostgreSQL URL.
///
/// # Errors
/// [`OpenError`]: another scheme, or no such URL. Its text does not hold the password.
pub fn parse_url(url: &str) -> Result<PgConnectOptions, OpenError> {
    match url.split_once("://") {
        Some(("postgres" | "postgresql", _)) => url.parse().map_err(|error| OpenError::Url(cause(&error))),
        Some((scheme, _)) => Err(OpenError::Scheme(scheme.to_owned())),
        None => Err(OpenError::Url("it has no scheme".to_owned())),
    }
}

/// The first connection, and the options for all others. `sslmode=prefer` means to encrypt if that works: with a
/// certificate that this build cannot read (X.509 before version 3), it goes on in the clear, as libpq does.
pub(super) async fn first(options: PgConnectOptions) -> Result<(PgConnection, PgConnectOptions), OpenError> {
    let error = match options.connect().await {
        Ok(connection) => return Ok((connection, options)),
        Err(error) if is_of_tls(&error) => error,
        Err(error) => return Err(StoreError::Unreachable(cause(&error)).into()),
    };
    let why = format!(
        "{}; the server needs a certificate of X.509 version 3, or sslmode=prefer or sslmode=disable in the URL",
        cause(&error)
    );
    if !matches!(options.get_ssl_mode(), PgSslMode::Prefer) {
        return Err(OpenError::Tls(why));
    }
    let options = options.ssl_mode(PgSslMode::Disable);
    let connection = options.connect().await.map_err(|_| OpenError::Tls(why))?;
    let error = cause(&error);
    tracing::warn!(%error, "the connection to the database is not encrypted: sslmode=prefer, and TLS failed");
    Ok((connection, options))
}

/// rustls tells of a failed handshake as invalid data.
fn is_of_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(io) => io.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}
