//! Private PostgreSQL of callgate, used without `--database-url`.
//!
//! This module knows programs, processes, files and accounts; it must not know the contents of the database, and
//! connects to it no more than `pg_ctl` does.
//!
//! Its data directory contains the cluster (`pg`), the socket (`run`), the server's log (`log`), the lock against a
//! second callgate (`callgate.lock`), and the password (`password`). The server listens on no network. Started as root,
//! it runs as the system user `callgate`, created if possible, otherwise as `postgres` or `nobody`.
//!
//! When callgate is killed, the server shuts down by itself (Linux with util-linux), and the next start stops any that
//! still runs on the cluster. When the server dies, it is restarted.
mod access;
mod account;
mod binaries;
mod cluster;
mod dump;
mod error;
mod layout;
mod log;
mod postmaster;
mod process;
mod scram;
mod server;
mod supervisor;
mod takeover;
mod unfinished;

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

pub use access::ConnectionParams;
pub use account::open_folder;
pub use binaries::ServerVersion;
pub use dump::DumpTools;
pub use error::PrivatePostgresError;
pub use supervisor::DatabasePhase;
pub use unfinished::{clear, is_vacant};

use layout::Layout;
use server::PreparedServer;
use supervisor::Supervisor;

/// Data directory when callgate runs as root: the database's account cannot enter root's home.
const ROOT_DATA_DIR: &str = "/var/lib/callgate";

/// Settings of a private PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// The data directory, created if missing. See [`default_data_dir`].
    pub data_dir: PathBuf,
    /// The directory of PostgreSQL's programs; searched for when `None`.
    pub pg_bin: Option<PathBuf>,
}

/// The data directory used when none is given: `/var/lib/callgate` as root, otherwise `callgate` in the user's data
/// home (`$XDG_DATA_HOME`, or `~/.local/share`).
///
/// # Errors
///
/// [`PrivatePostgresError::NoDataHome`] when no home directory is known.
pub fn default_data_dir() -> Result<PathBuf, PrivatePostgresError> {
    if account::is_root() {
        return Ok(PathBuf::from(ROOT_DATA_DIR));
    }
    let strategy = etcetera::choose_base_strategy().map_err(|_| PrivatePostgresError::NoDataHome)?;
    Ok(strategy.data_dir().join("callgate"))
}

/// A server that some process runs.
#[derive(Debug)]
pub struct RunningServer {
    /// Connection parameters of its database.
    pub connection: ConnectionParams,
    /// The directory of its programs.
    pub bin_dir: PathBuf,
}

/// Finds the server that runs on a data directory.
///
/// # Errors
///
/// [`PrivatePostgresError::NotRunning`], or a missing permission.
pub async fn find_running(data_dir: &Path) -> Result<RunningServer, PrivatePostgresError> {
    let not_running = || PrivatePostgresError::NotRunning { data_dir: data_dir.to_owned() };
    if !data_dir.is_dir() {
        return Err(not_running());
    }
    let layout = Layout::open(data_dir)?;
    let (socket_dir, bin_dir) = takeover::running(&layout.pgdata).await?.ok_or_else(not_running)?;
    Ok(RunningServer { connection: ConnectionParams::read(&layout, &socket_dir)?, bin_dir })
}

/// State of a data directory. See [`examine`].
#[derive(Debug)]
pub struct DataDirectory {
    /// The major version of the cluster, if it exists.
    pub cluster_major: Option<u32>,
    /// The programs to use, as version and directory, or the error that rules all out.
    pub programs: Result<String, PrivatePostgresError>,
    /// The server that runs on it, if any.
    pub running: Option<RunningServer>,
}

/// Examines a data directory for [`PrivatePostgres::start`] without changes.
///
/// # Errors
///
/// A permission problem, or a directory that is not callgate's.
pub async fn examine(settings: &PostgresSettings) -> Result<DataDirectory, PrivatePostgresError> {
    let data_dir = &settings.data_dir;
    let (cluster, running) = if data_dir.is_dir() {
        let layout = Layout::open(data_dir)?;
        let major = cluster::major_of(&layout.pgdata)?;
        let running = match find_running(data_dir).await {
            Ok(running) => Some(running),
            Err(PrivatePostgresError::NotRunning { .. }) => None,
            Err(error) => return Err(error),
        };
        (major.map(|major| (layout.pgdata, major)), running)
    } else {
        (None, None)
    };
    let wanted = cluster.as_ref().map(|(pgdata, major)| (pgdata.as_path(), *major));
    let programs = binaries::find(settings.pg_bin.as_deref(), wanted, None).await;
    let programs = programs.map(|found| format!("PostgreSQL {} in {}", found.version, found.dir.display()));
    Ok(DataDirectory { cluster_major: cluster.map(|(_, major)| major), programs, running })
}

/// The major version of the server's programs in a directory.
///
/// # Errors
///
/// [`PrivatePostgresError`] when they cannot be run.
pub async fn major_of_programs(dir: &Path) -> Result<u32, PrivatePostgresError> {
    Ok(binaries::version_of(&dir.join("postgres"), None).await?.major)
}

/// A running PostgreSQL, held by this process alone.
///
/// End it with [`Self::stop`]. Dropped instead, it shuts down in the background, and the data directory stays locked
/// until it has.
#[derive(Debug)]
pub struct PrivatePostgres {
    data_dir: PathBuf,
    bin_dir: PathBuf,
    version: ServerVersion,
    connection: ConnectionParams,
    phase: watch::Receiver<DatabasePhase>,
    stop: oneshot::Sender<()>,
    supervisor: JoinHandle<Result<(), PrivatePostgresError>>,
}

impl PrivatePostgres {
    /// Starts the server, creating the cluster and the database `callgate` on the first run, and returns once it
    /// accepts connections. After a crash this includes the recovery, five minutes at most.
    ///
    /// Must be called within a tokio runtime. Cancelled, it stops what it started.
    ///
    /// # Errors
    ///
    /// Every [`PrivatePostgresError`] about finding, creating or starting; its text contains advice.
    pub async fn start(settings: &PostgresSettings) -> Result<Self, PrivatePostgresError> {
        let server = PreparedServer::prepare(settings).await?;
        let postmaster = supervisor::first_start(&server).await?;
        let pid = postmaster.pid();
        let (phase_sender, phase) = watch::channel(DatabasePhase::Running { pid });
        let (stop, stopped) = oneshot::channel();
        let data_dir = server.layout.root.clone();
        let bin_dir = server.binaries.dir.clone();
        let version = server.binaries.version.clone();
        let connection = server.connection()?;
        tracing::info!(pid, %version, data_dir = %data_dir.display(), "the private PostgreSQL runs");
        let supervisor = Supervisor { server, phase: phase_sender, stop: stopped };
        let supervisor = tokio::spawn(supervisor.run(postmaster));
        Ok(Self { data_dir, bin_dir, version, connection, phase, stop, supervisor })
    }

    /// Connection parameters of the owner of the database `callgate`. They stay valid when the server is restarted.
    #[must_use]
    pub fn connection(&self) -> &ConnectionParams {
        &self.connection
    }

    /// The data directory, absolute and free of links.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The directory of the programs in use.
    #[must_use]
    pub fn bin_dir(&self) -> &Path {
        &self.bin_dir
    }

    /// The server's version.
    #[must_use]
    pub fn server_version(&self) -> &ServerVersion {
        &self.version
    }

    /// The state of the database, and its changes.
    #[must_use]
    pub fn phase(&self) -> watch::Receiver<DatabasePhase> {
        self.phase.clone()
    }

    /// Waits until the server is down permanently, after several failed restarts in short order; returns the reason. A
    /// single crash is not reported: the server is restarted, and [`Self::phase`] shows it.
    pub async fn wait_for_exit(&mut self) -> PrivatePostgresError {
        let gave_up = self.phase.wait_for(|phase| matches!(phase, DatabasePhase::GaveUp { .. })).await;
        match gave_up.as_deref() {
            Ok(DatabasePhase::GaveUp { failures, reason }) => PrivatePostgresError::GaveUp {
                data_dir: self.data_dir.clone(),
                failures: *failures,
                reason: reason.clone(),
            },
            _ => PrivatePostgresError::Supervisor("it ended without being told to".to_owned()),
        }
    }

    /// Shuts the server down: fast first (open transactions are rolled back), after 30 s at once, after 10 s more by
    /// force. Returns when it is gone and the data directory is free for the next.
    ///
    /// # Errors
    ///
    /// [`PrivatePostgresError::StopTimedOut`] when it is still there after all that.
    pub async fn stop(self) -> Result<(), PrivatePostgresError> {
        // A supervisor that has given up listens no more, and its server is gone.
        let _ = self.stop.send(());
        self.supervisor.await.unwrap_or_else(|error| Err(PrivatePostgresError::Supervisor(error.to_string())))
    }
}
