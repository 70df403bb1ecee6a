//! Everything needed to start the server on its cluster, once or again.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};

use super::account::{self, Account};
use super::binaries::{self, Binaries};
use super::cluster;
use super::error::PrivatePostgresError;
use super::layout::{DirLock, Layout, PORT, SocketDir};
use super::log::ServerLog;
use super::postmaster::Postmaster;
use super::process::{self, TOOL_MAX};
use super::{Settings, takeover};

/// How long the server may be silent before it accepts a connection, or says that it is starting up.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// How long it may go on starting up: after a crash it first repeats what its log says.
const RECOVERY_MAX: Duration = Duration::from_secs(300);

const PROBE_EVERY: Duration = Duration::from_millis(10);

/// One attempt to connect.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// Sessions of a killed server can outlive it for a moment, and keep the next one out.
const LINGERING_WAIT: Duration = Duration::from_millis(500);
const LINGERING_ATTEMPTS_MAX: u32 = 60;
const LINGERING_TEXT: &str = "pre-existing shared memory block";

/// SQLSTATEs that decide what a failed connection means.
const CANNOT_CONNECT_NOW: &str = "57P03";
const NO_SUCH_DATABASE: &str = "3D000";
const DATABASE_EXISTS: &str = "42P04";
const TOO_MANY_CONNECTIONS: &str = "53300";

/// What one attempt to connect told.
enum Probe {
    Ready,
    StartingUp,
    Silent,
}

/// A prepared data directory, held by this process.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) layout: Layout,
    pub(super) binaries: Binaries,
    account: Option<Account>,
    socket: SocketDir,
    log: Arc<ServerLog>,
    /// True when `setpriv` can tie the server's life to ours.
    pdeathsig: bool,
    _lock: DirLock,
}

impl Server {
    /// Takes the data directory, finds the programs, and creates the cluster where there is none.
    pub(super) async fn prepare(settings: &Settings) -> Result<Self, PrivatePostgresError> {
        let layout = Layout::prepare(&settings.data_dir)?;
        let lock = DirLock::take(&layout)?;
        let account = account::choose(&layout.pgdata).await?;
        let cluster = cluster::major_of(&layout.pgdata)?.map(|major| (layout.pgdata.as_path(), major));
        let binaries = binaries::find(settings.pg_bin.as_deref(), cluster, account.as_ref()).await?;
        let socket = layout.prepare_parts(account.as_ref())?;
        let log = Arc::new(ServerLog::open(&layout.log_dir)?);
        cluster::ensure(&layout, &binaries, account.as_ref()).await?;
        let pdeathsig = cfg!(target_os = "linux") && setpriv_works(account.as_ref()).await;
        Ok(Self { layout, binaries, account, socket, log, pdeathsig, _lock: lock })
    }

    /// Starts the server and waits until it accepts connections to its database.
    pub(super) async fn launch(&self) -> Result<Postmaster, PrivatePostgresError> {
        for attempt in 1.. {
            let stranger = self.stop_orphan().await?;
            self.socket.clear()?;
            self.log.forget_tail();
            let command = self.command(stranger);
            let account = self.account.as_ref();
            let mut postmaster = Postmaster::spawn(command, Arc::clone(&self.log), &self.binaries, account).await?;
            match self.wait_ready(&mut postmaster).await {
                Ok(()) => return Ok(postmaster),
                Err(PrivatePostgresError::StartFailed { tail, .. })
                    if tail.contains(LINGERING_TEXT) && attempt < LINGERING_ATTEMPTS_MAX =>
                {
                    tracing::warn!(attempt, "sessions of the former PostgreSQL still run; waiting for them to end");
                    tokio::time::sleep(LINGERING_WAIT).await;
                }
                Err(error) => {
                    postmaster.stop().await;
                    return Err(error);
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Ends a server of this cluster that is not our child. See [`takeover::stop_orphan`].
    pub(super) async fn stop_orphan(&self) -> Result<Option<u32>, PrivatePostgresError> {
        takeover::stop_orphan(&self.layout, &self.binaries, self.account.as_ref()).await
    }

    /// How to reach the database. The user's own `PG*` variables have no say in it, save `PGOPTIONS`: sqlx always
    /// adds it.
    pub(super) fn connect_options(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(self.socket.path())
            .port(PORT)
            .username(cluster::NAME)
            .database(cluster::NAME)
            .application_name(cluster::NAME)
            .ssl_mode(PgSslMode::Disable)
    }

    fn command(&self, stranger: Option<u32>) -> Command {
        let postgres = self.binaries.program("postgres");
        let mut command = if self.pdeathsig {
            // INT is PostgreSQL's fast shutdown, should callgate die without saying so. The account is changed before:
            // the kernel forgets the setting when credentials change.
            let mut command = process::command("setpriv", self.account.as_ref());
            command.args(["--pdeathsig", "INT", "--"]).arg(postgres);
            command
        } else {
            process::command(postgres, self.account.as_ref())
        };
        command.arg("-D").arg(&self.layout.pgdata);
        for setting in fixed_settings(self.socket.path()) {
            command.arg("-c").arg(setting);
        }
        if let Some(pid) = stranger {
            // pg_ctl's own way to say that a pid in postmaster.pid is not a server's. It leaves the file in place, and
            // with it the check that no session of a former server is attached to its shared memory.
            command.env("PG_GRANDPARENT_PID", pid.to_string());
        }
        command
    }

    async fn wait_ready(&self, postmaster: &mut Postmaster) -> Result<(), PrivatePostgresError> {
        let ready = tokio::time::timeout(RECOVERY_MAX, self.poll_ready());
        tokio::select! {
            biased;
            status = postmaster.ended() => Err(PrivatePostgresError::StartFailed {
                data_dir: self.layout.root.clone(),
                status,
                log: self.log.path().to_owned(),
                tail: self.log.tail(),
            }),
            outcome = ready => outcome.unwrap_or_else(|_| Err(self.timed_out(RECOVERY_MAX))),
        }
    }

    async fn poll_ready(&self) -> Result<(), PrivatePostgresError> {
        let mut silent = Duration::ZERO;
        loop {
            match self.probe().await {
                Ok(Probe::Ready) => return Ok(()),
                Ok(Probe::StartingUp) => silent = Duration::ZERO,
                Ok(Probe::Silent) if silent >= SILENT_MAX => return Err(self.timed_out(SILENT_MAX)),
                Ok(Probe::Silent) => silent += PROBE_EVERY,
                Err(source) => {
                    let source = Box::new(source);
                    return Err(PrivatePostgresError::Connect { data_dir: self.layout.root.clone(), source });
                }
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
    }

    async fn probe(&self) -> Result<Probe, sqlx::Error> {
        let options = self.connect_options();
        let Ok(attempt) = tokio::time::timeout(PROBE_MAX, PgConnection::connect_with(&options)).await else {
            return Ok(Probe::StartingUp);
        };
        match attempt {
            Ok(connection) => connection.close().await.map(|()| Probe::Ready),
            Err(sqlx::Error::Database(error)) => match error.code().as_deref() {
                Some(CANNOT_CONNECT_NOW) => Ok(Probe::StartingUp),
                Some(TOO_MANY_CONNECTIONS) => Ok(Probe::Ready),
                Some(NO_SUCH_DATABASE) => self.create_database().await.map(|()| Probe::Ready),
                _ => Err(sqlx::Error::Database(error)),
            },
            // No socket yet, or the connection broke under us: whether the server lives is watched elsewhere.
            Err(sqlx::Error::Io(_) | sqlx::Error::Protocol(_)) => Ok(Probe::Silent),
            Err(error) => Err(error),
        }
    }

    /// Not part of initdb, so it is made when first missed.
    async fn create_database(&self) -> Result<(), sqlx::Error> {
        let mut connection = self.connect_options().database("postgres").connect().await?;
        match sqlx::query("create database callgate").execute(&mut connection).await {
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(DATABASE_EXISTS) => {}
            outcome => {
                outcome?;
            }
        }
        connection.close().await
    }

    fn timed_out(&self, limit: Duration) -> PrivatePostgresError {
        PrivatePostgresError::StartTimedOut {
            data_dir: self.layout.root.clone(),
            seconds: limit.as_secs(),
            log: self.log.path().to_owned(),
            tail: self.log.tail(),
        }
    }
}

/// The settings that no configuration file overrides: what the data's safety and the server's privacy rest on.
fn fixed_settings(socket_dir: &Path) -> Vec<OsString> {
    // A list of directories: quoted, since a path may have a comma in it.
    let mut socket = OsString::from("unix_socket_directories=\"");
    socket.push(socket_dir.as_os_str());
    socket.push("\"");
    let port = format!("port={PORT}");
    let settings = [
        "listen_addresses=",
        &port,
        "unix_socket_permissions=0700",
        "ssl=off",
        "fsync=on",
        "full_page_writes=on",
        "synchronous_commit=on",
        "logging_collector=off",
        "log_destination=stderr",
        "cluster_name=callgate",
    ];
    settings.iter().map(OsString::from).chain([socket]).collect()
}

/// True when util-linux' setpriv is here; busybox has one that cannot do this.
async fn setpriv_works(account: Option<&Account>) -> bool {
    let mut command = process::command("setpriv", account);
    command.args(["--pdeathsig", "INT", "--", "true"]);
    process::output(command, TOOL_MAX).await.is_ok_and(|output| output.status.success())
}
