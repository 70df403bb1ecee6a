//! Connector: while the server is unavailable, a replica retries with one attempt at a time, not one per caller. Each
//! connection enforces durable commits itself.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sqlx::{
    ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
    postgres::{PgConnectOptions, PgSslMode},
};
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::{OpenError, StoreError, cause};

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_millis(2_000);
/// Timeout of the first connection, which includes server detection.
const FIRST: Duration = Duration::from_secs(8);
/// First backoff after a failure; doubles up to [`PAUSE_MAX`], which is less than a reader's timeout.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Accepted values of `synchronous_commit`; lesser ones lose acknowledged rows when the server crashes.
pub(super) const DURABLE: [&str; 3] = ["on", "remote_apply", "remote_write"];

/// Connector of one replica: concurrent while attempts succeed, one at a time after a failure.
#[derive(Debug, Default)]
pub(super) struct Connector {
    /// True where the store is in memory: there is nothing to connect to.
    is_absent: bool,
    attempts: Mutex<Attempts>,
    one: tokio::sync::Mutex<()>,
}

/// Failed attempts since the last success.
#[derive(Debug, Default)]
struct Attempts {
    failed: u32,
    /// The last one: start, error, and earliest time of the next.
    last: Option<(Instant, StoreError, Instant)>,
}

impl Connector {
    /// The connector of a store in memory.
    pub(super) fn absent() -> Self {
        Self { is_absent: true, ..Self::default() }
    }

    /// A usable connection.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when there is none; [`StoreError::NeedsDatabase`] for a store in memory.
    pub(super) async fn connect(&self, options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
        if self.is_absent {
            return Err(StoreError::NeedsDatabase);
        }
        let asked = Instant::now();
        let is_well = self.attempts().last.is_none();
        let _one = if is_well { None } else { Some(self.one.lock().await) };
        let last = self.attempts().last.clone();
        match last {
            // The result of a concurrent attempt is shared with all waiters.
            Some((began, error, _)) if began >= asked => return Err(error),
            Some((_, _, not_before)) => sleep_until(not_before).await,
            None => {}
        }
        let began = Instant::now();
        let late = || {
            let (place, limit) = (reached_at(options), CONNECT.as_millis());
            StoreError::Unreachable(format!("{place}: no connection within {limit} ms"))
        };
        let connected = timeout(CONNECT, open(options)).await.unwrap_or_else(|_| Err(late()));
        let mut attempts = self.attempts();
        match &connected {
            Ok(_) => *attempts = Attempts::default(),
            Err(error) => {
                attempts.failed = attempts.failed.saturating_add(1);
                let pause = PAUSE.saturating_mul(1 << attempts.failed.min(10)).min(PAUSE_MAX);
                attempts.last = Some((began, error.clone(), Instant::now() + jitter_pause(pause)));
            }
        }
        connected
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock()
    }
}

/// A random time between half of `pause` and all of it, against synchronized reconnects.
pub(super) fn jitter_pause(pause: Duration) -> Duration {
    // The last bits of a UUID are random.
    let share = (uuid::Uuid::now_v7().as_u128() & 0xffff) as f64 / f64::from(0x1_0000);
    pause.mul_f64(0.5 + share / 2.0)
}

/// Address of a database for operators: host and port, or the folder of its socket; never the user.
#[must_use]
pub fn reached_at(options: &PgConnectOptions) -> String {
    let (host, port) = (options.get_host(), options.get_port());
    match options.get_socket() {
        Some(folder) => format!("{} (port {port})", folder.display()),
        None if host.starts_with('/') => format!("{host} (port {port})"),
        None if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        None => format!("{host}:{port}"),
    }
}

/// Error about an unavailable connection.
fn unreachable(options: &PgConnectOptions, error: &sqlx::Error) -> StoreError {
    StoreError::Unreachable(format!("{}: {}", reached_at(options), cause(error)))
}

/// Any rejection of a connection counts as unavailable.
async fn open(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let unreachable = |error: sqlx::Error| unreachable(options, &error);
    let mut connection = options.connect().await.map_err(unreachable)?;
    be_set(&mut connection, options).await.map_err(unreachable)?;
    let settings = be_durable(&mut connection).await.map_err(unreachable)?;
    match settings.unsafe_one() {
        None => Ok(connection),
        Some((setting, value)) => {
            Err(StoreError::Unreachable(format!("{} has {setting} = {value} now", reached_at(options))))
        }
    }
}

/// Durability settings of a server.
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

/// Sets `synchronous_commit` for the session, which overrides database, role and server configuration. Stronger values
/// stay.
pub(super) async fn be_durable(connection: &mut PgConnection) -> Result<Durability, sqlx::Error> {
    let row = sqlx::query(
        "select set_config('synchronous_commit', case when s = any($1) then s else 'on' end, false),
           current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes
         from current_setting('synchronous_commit') s",
    );
    let row = row.bind(&DURABLE[..]).fetch_one(connection).await?;
    Ok(Durability { fsync: row.try_get("fsync")?, full_page_writes: row.try_get("full_page_writes")? })
}

/// Sets the requested options that are not effective: session poolers drop start parameters.
async fn be_set(connection: &mut PgConnection, options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let (names, values): (Vec<&str>, Vec<&str>) = asked_for(options.get_options().unwrap_or_default()).unzip();
    let set = "select count(set_config(name, value, false)) from unnest($1::text[], $2::text[]) as x(name, value)
        where current_setting(name, true) is distinct from value";
    sqlx::query(set).bind(names).bind(values).execute(connection).await.map(drop)
}

/// The settings of a text such as `-c jit=off -c search_path=callgate`; other forms are left to the server.
fn asked_for(options: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = options.split_whitespace().filter(|word| *word != "-c" && !word.contains('\\'));
    let settings = words.map(|word| word.strip_prefix("-c").or_else(|| word.strip_prefix("--")).unwrap_or(word));
    settings.filter_map(|setting| setting.split_once('=')).filter(|(name, _)| !name.starts_with('-'))
}

/// True behind a transaction pooler, where session settings, locks and names leak to other clients, including the
/// visible tenants.
async fn is_shared(connection: &mut PgConnection, options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let Ok(mut other) = options.connect().await else { return Ok(false) };
    let own = backend(connection).await?;
    // It keeps the backend that it is given. Poolers of statements refuse that.
    if let Err(sqlx::Error::Database(_)) = other.execute("begin").await {
        return Ok(true);
    }
    let held = backend(&mut other).await?;
    let again = backend(connection).await?;
    other.execute("rollback").await?;
    let _ = other.close().await;
    Ok(held == own || again != own)
}

/// Pid of the backend; unprepared, because old poolers lose prepared statements.
async fn backend(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    connection.fetch_one("select pg_backend_pid()").await?.try_get(0)
}

/// The options of a PostgreSQL URL.
///
/// # Errors
/// [`OpenError`]: another scheme, or an invalid URL. Its text does not contain the password.
pub fn parse_url(url: &str) -> Result<PgConnectOptions, OpenError> {
    match url.split_once("://") {
        Some(("postgres" | "postgresql", _)) => url.parse().map_err(|error| OpenError::Url(cause(&error))),
        Some((scheme, _)) => Err(OpenError::Scheme(scheme.to_owned())),
        None => Err(OpenError::Url("it has no scheme".to_owned())),
    }
}

/// The first connection, and the options of all others. `sslmode=prefer` falls back to plain text if TLS fails on a
/// certificate that this build cannot read (X.509 before version 3), as libpq does.
pub(super) async fn first(options: PgConnectOptions) -> Result<(PgConnection, PgConnectOptions), OpenError> {
    let late = |_| StoreError::Timeout(u64::try_from(FIRST.as_millis()).unwrap_or(u64::MAX));
    timeout(FIRST, connect_once(options)).await.map_err(late)?
}

async fn connect_once(options: PgConnectOptions) -> Result<(PgConnection, PgConnectOptions), OpenError> {
    let error = match options.connect().await {
        Ok(connection) => {
            warn_unverified(&options);
            return Ok((usable(connection, &options).await?, options));
        }
        Err(error) if is_of_tls(&error) => error,
        Err(error) => return Err(unreachable(&options, &error).into()),
    };
    let remedy = match options.get_ssl_mode() {
        PgSslMode::VerifyCa | PgSslMode::VerifyFull => {
            "sslrootcert in the URL has to name the authority that signed the server's certificate, and with \
             sslmode=verify-full the certificate has to name the host as the URL does"
        }
        _ => "the server needs a certificate of X.509 version 3, or sslmode=prefer or sslmode=disable in the URL",
    };
    let why = format!("{}; {remedy}", cause(&error));
    if !matches!(options.get_ssl_mode(), PgSslMode::Prefer) {
        return Err(OpenError::Tls(why));
    }
    let options = options.ssl_mode(PgSslMode::Disable);
    let error = cause(&error);
    let place = reached_at(&options);
    let both = |plain| StoreError::Unreachable(format!("{place}: {}; with TLS: {error}", cause(&plain)));
    let connection = usable(options.connect().await.map_err(both)?, &options).await?;
    tracing::warn!(%error, "the connection to the database is not encrypted: sslmode=prefer, and TLS failed");
    Ok((connection, options))
}

/// A dedicated connection with the requested settings.
async fn usable(mut connection: PgConnection, options: &PgConnectOptions) -> Result<PgConnection, OpenError> {
    if is_shared(&mut connection, options).await? {
        return Err(OpenError::Pooled);
    }
    be_set(&mut connection, options).await?;
    Ok(connection)
}

/// Warns about a remote database without a verified identity.
fn warn_unverified(options: &PgConnectOptions) {
    let is_verified = matches!(options.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    let host = options.get_host();
    let is_here = options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    if !is_verified && !is_here {
        tracing::warn!(host, "the database's certificate is not verified: set sslmode=verify-full in its URL");
    }
}

/// rustls reports a failed handshake as invalid data.
fn is_of_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(io) => io.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_by_where_it_is_and_never_by_its_password() {
        for (url, wanted) in [
            ("postgres://plane:s3cret@db.example:6432/callgate", "db.example:6432"),
            ("postgres://plane:s3cret@[::1]/callgate", "[::1]:5432"),
            ("postgres:///callgate?host=/run/postgresql&password=s3cret", "/run/postgresql (port 5432)"),
        ] {
            assert_eq!(reached_at(&parse_url(url).expect("a URL")), wanted);
        }
    }

    #[test]
    fn connection_settings_are_known_to_postgresql() {
        let options = PgConnectOptions::new_without_pgpass().options([("jit", "off"), ("statement_timeout", "3000")]);
        let asked: Vec<_> = asked_for(options.get_options().expect("some")).collect();
        assert_eq!(asked, [("jit", "off"), ("statement_timeout", "3000")]);
        let others: Vec<_> = asked_for("-cjit=off --work_mem=4MB -E -c a=b\\ c").collect();
        assert_eq!(others, [("jit", "off"), ("work_mem", "4MB")]);
    }
}
