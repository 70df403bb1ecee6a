//! Server preparation, start and restart on its cluster.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::access::{self, ConnectionParams};
use super::account::{self, Account, AccountChoice};
use super::binaries::{self, Binaries};
use super::cluster;
use super::error::PrivatePostgresError;
use super::layout::{self, DirLock, Layout, PORT, SocketDir};
use super::log::ServerLog;
use super::postmaster::Postmaster;
use super::process::{self, TOOL_MAX};
use super::{PostgresSettings, takeover};

/// Timeout of a server's start, which includes crash recovery from its log.
const RECOVERY_MAX: Duration = Duration::from_secs(300);
/// The same of a base backup, which replays an archived log.
const REPLAY_MAX: Duration = Duration::from_secs(24 * 3_600);
/// File that an operator puts into a restored base backup. PostgreSQL removes it once the log is replayed.
const REPLAYS: &str = "recovery.signal";

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Sessions of a killed server can outlive it for a moment, and keep the next one out.
const LINGERING_WAIT: Duration = Duration::from_millis(500);
const LINGERING_ATTEMPTS_MAX: u32 = 60;
const LINGERING_TEXT: &str = "pre-existing shared memory block";

/// A prepared data directory, held by this process.
#[derive(Debug)]
pub(super) struct PreparedServer {
    pub(super) layout: Layout,
    pub(super) binaries: Binaries,
    account: Option<Account>,
    socket: SocketDir,
    log: Arc<ServerLog>,
    /// True when `setpriv` can tie the server's life to ours.
    pdeathsig: bool,
    _lock: DirLock,
}

impl PreparedServer {
    /// Takes the data directory, finds the programs, and creates the cluster where there is none.
    pub(super) async fn prepare(settings: &PostgresSettings) -> Result<Self, PrivatePostgresError> {
        if !settings.data_dir.exists() {
            // Where there are no programs, as in a container, nothing is made either: it may not be allowed.
            binaries::find(settings.pg_bin.as_deref(), None, None).await?;
        }
        let layout = Layout::prepare(&settings.data_dir)?;
        let lock = DirLock::take(&layout)?;
        let AccountChoice { account, former } = account::choose(&layout.pgdata).await?;
        let cluster = cluster::major_of(&layout.pgdata)?.map(|major| (layout.pgdata.as_path(), major));
        let binaries = binaries::find(settings.pg_bin.as_deref(), cluster, account.as_ref()).await?;
        let account = take_over_account(&layout, &binaries, account, former).await?;
        access::write_rules(&layout)?;
        let socket = layout.prepare_parts(account.as_ref())?;
        let log = Arc::new(ServerLog::open(&layout.log_dir)?);
        cluster::ensure(&layout, &binaries, account.as_ref()).await?;
        let pdeathsig = cfg!(target_os = "linux") && setpriv_works(account.as_ref()).await;
        Ok(Self { layout, binaries, account, socket, log, pdeathsig, _lock: lock })
    }

    /// Starts the server and waits until it accepts connections to its database.
    pub(super) async fn launch(&self) -> Result<Postmaster, PrivatePostgresError> {
        for attempt in 1.. {
            match self.launch_once().await {
                Err(PrivatePostgresError::StartFailed { tail, .. })
                    if tail.contains(LINGERING_TEXT) && attempt < LINGERING_ATTEMPTS_MAX =>
                {
                    tracing::warn!(attempt, "sessions of the former PostgreSQL still run; waiting for them to end");
                    tokio::time::sleep(LINGERING_WAIT).await;
                }
                outcome => return outcome,
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn launch_once(&self) -> Result<Postmaster, PrivatePostgresError> {
        let stranger = self.stop_orphan().await?;
        let account = self.account.as_ref();
        access::ensure(&self.layout, &self.binaries, account, stranger).await?;
        self.socket.clear()?;
        self.log.forget_tail();
        let command = self.command(stranger);
        let mut postmaster = Postmaster::spawn(command, Arc::clone(&self.log), &self.binaries, account).await?;
        match self.wait_ready(&mut postmaster).await {
            Ok(()) => Ok(postmaster),
            Err(error) => {
                postmaster.stop().await;
                Err(error)
            }
        }
    }

    /// Ends a server of this cluster that is not our child. See [`takeover::stop_orphan`].
    pub(super) async fn stop_orphan(&self) -> Result<Option<u32>, PrivatePostgresError> {
        takeover::stop_orphan(&self.layout, &self.binaries, self.account.as_ref()).await
    }

    /// Connection parameters of the database.
    pub(super) fn connection(&self) -> Result<ConnectionParams, PrivatePostgresError> {
        ConnectionParams::read(&self.layout, self.socket.path())
    }

    /// The end of the server's log since the last start.
    pub(super) fn log_tail(&self) -> String {
        self.log.tail()
    }

    fn command(&self, stranger: Option<u32>) -> Command {
        let postgres = self.binaries.program("postgres");
        let mut command = if self.pdeathsig {
            // INT is PostgreSQL's fast shutdown, in case callgate dies. The account is changed first: the kernel drops
            // the setting when credentials change.
            let mut command = process::command("setpriv", self.account.as_ref());
            command.args(["--pdeathsig", "INT", "--"]).arg(postgres);
            command
        } else {
            process::command(postgres, self.account.as_ref())
        };
        command.arg("-D").arg(&self.layout.pgdata);
        for setting in fixed_settings(self.socket.path(), &self.layout.rules) {
            command.arg("-c").arg(setting);
        }
        if let Some(pid) = stranger {
            // pg_ctl's own way to mark a pid in postmaster.pid as no server's. It leaves the file in place, and with it
            // the check that no session of a former server is attached to its shared memory.
            command.env("PG_GRANDPARENT_PID", pid.to_string());
        }
        command
    }

    async fn wait_ready(&self, postmaster: &mut Postmaster) -> Result<(), PrivatePostgresError> {
        let pid = postmaster.pid();
        let limit = if self.layout.pgdata.join(REPLAYS).exists() { REPLAY_MAX } else { RECOVERY_MAX };
        let ready = tokio::time::timeout(limit, self.poll_ready(pid));
        tokio::select! {
            biased;
            status = postmaster.ended() => Err(PrivatePostgresError::StartFailed {
                data_dir: self.layout.root.clone(),
                status,
                log: self.log.path().to_owned(),
                tail: self.log.tail(),
            }),
            outcome = ready => outcome.map_err(|_| PrivatePostgresError::StartTimedOut {
                data_dir: self.layout.root.clone(),
                seconds: limit.as_secs(),
                log: self.log.path().to_owned(),
                tail: self.log.tail(),
            }),
        }
    }

    /// Waits until the server's pid file reports readiness, as pg_ctl does.
    async fn poll_ready(&self, pid: u32) {
        while !takeover::is_ready(&self.layout.pgdata, pid) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Transfers the cluster of a shared account to callgate's own, if nothing runs on it and nothing needs recovery:
/// surviving sessions could not be distinguished from a stranger's.
async fn take_over_account(
    layout: &Layout,
    binaries: &Binaries,
    account: Option<Account>,
    former: Option<Account>,
) -> Result<Option<Account>, PrivatePostgresError> {
    let (Some(account), Some(former)) = (&account, former) else { return Ok(account) };
    takeover::stop_orphan(layout, binaries, Some(&former)).await?;
    if layout.pgdata.join("postmaster.pid").exists() {
        return Ok(Some(former));
    }
    tracing::info!(from = former.name, to = account.name, "giving the private PostgreSQL an account of its own");
    layout::hand_over_all(&layout.pgdata, account)?;
    Ok(Some(account.clone()))
}

/// Settings that configuration files cannot override, for the data's safety and the server's privacy.
fn fixed_settings(socket_dir: &Path, rules: &Path) -> Vec<OsString> {
    // A list of directories: quoted, since a path may have a comma in it.
    let mut socket = OsString::from("unix_socket_directories=\"");
    socket.push(socket_dir.as_os_str());
    socket.push("\"");
    let mut hba_file = OsString::from("hba_file=");
    hba_file.push(rules.as_os_str());
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
    settings.iter().map(OsString::from).chain([socket, hba_file]).collect()
}

/// True when util-linux' setpriv is here; busybox has one that cannot do this.
async fn setpriv_works(account: Option<&Account>) -> bool {
    let mut command = process::command("setpriv", account);
    command.args(["--pdeathsig", "INT", "--", "true"]);
    process::output(command, TOOL_MAX).await.is_ok_and(|output| output.status.success())
}
