//! One run of the server process: start, supervision, shutdown.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::account::Account;
use super::binaries::Binaries;
use super::error::PrivatePostgresError;
use super::log::ServerLog;
use super::process::{self, TOOL_MAX};

/// Shutdown signals with their timeouts: a fast shutdown writes a checkpoint.
const STOP_SIGNALS: [(&str, Duration); 3] =
    [("INT", Duration::from_secs(30)), ("QUIT", Duration::from_secs(10)), ("KILL", Duration::from_secs(5))];

/// Timeout of the log's last lines after the process ended: its children may keep the pipe open.
const LAST_WORDS_MAX: Duration = Duration::from_millis(300);

/// Sender of signals to the server: `pg_ctl kill`, as the account that may do it.
#[derive(Debug, Clone)]
struct Signals {
    pg_ctl: PathBuf,
    account: Option<Account>,
}

impl Signals {
    fn command(&self, name: &str, pid: u32) -> Command {
        let mut command = process::command(&self.pg_ctl, self.account.as_ref());
        command.args(["kill", name, &pid.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A running server. Dropped while it runs, it is shut down in the background.
#[derive(Debug)]
pub(super) struct Postmaster {
    pid: u32,
    exit: oneshot::Receiver<io::Result<ExitStatus>>,
    /// Its exit status in words, once it has ended.
    ended: Option<String>,
    last_words: oneshot::Receiver<()>,
    signals: Signals,
}

impl Postmaster {
    /// Spawns `command`, whose error stream goes to `log`.
    ///
    /// The process is the child of a thread of its own that lives as long as the process does, because the kernel sends
    /// the parent-death signal when the *thread* that forked ends, not the whole process.
    pub(super) async fn spawn(
        mut command: Command,
        log: Arc<ServerLog>,
        binaries: &Binaries,
        account: Option<&Account>,
    ) -> Result<Self, PrivatePostgresError> {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let program = PathBuf::from(command.get_program());
        let (started, has_started) = oneshot::channel();
        let (ended, exit) = oneshot::channel();
        let (said, last_words) = oneshot::channel();
        let keeper = move || {
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            if let Err(error) = read_log(&mut child, log, said) {
                end_at_once(&mut child);
                let _ = started.send(Err(error));
            } else if started.send(Ok(child.id())).is_err() {
                // This start was cancelled, so its server must be stopped here.
                end_at_once(&mut child);
            } else {
                let _ = ended.send(child.wait());
            }
        };
        let io = |error| PrivatePostgresError::Io { action: "run", path: program.clone(), error };
        thread::Builder::new().name("callgate-postgres".to_owned()).spawn(keeper).map_err(io)?;
        let pid = has_started.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())).map_err(io)?;
        let signals = Signals { pg_ctl: binaries.program("pg_ctl"), account: account.cloned() };
        Ok(Self { pid, exit, ended: None, last_words, signals })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the process's end and returns its status. Idempotent, and safe to cancel.
    pub(super) async fn ended(&mut self) -> String {
        if let Some(how) = &self.ended {
            return how.clone();
        }
        let how = match (&mut self.exit).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => format!("its end could not be observed: {error}"),
            Err(_) => "its end was not observed".to_owned(),
        };
        self.ended = Some(how.clone());
        let _ = tokio::time::timeout(LAST_WORDS_MAX, &mut self.last_words).await;
        how
    }

    /// Ends the server: with a fast shutdown, then an immediate one, at last by force. False when it is still there.
    pub(super) async fn stop(mut self) -> bool {
        for (signal, limit) in STOP_SIGNALS {
            if !self.runs() {
                return true;
            }
            if let Err(error) = process::output(self.signals.command(signal, self.pid), TOOL_MAX).await {
                tracing::warn!(pid = self.pid, signal, %error, "could not signal PostgreSQL");
            }
            if tokio::time::timeout(limit, self.ended()).await.is_ok() {
                return true;
            }
            tracing::warn!(pid = self.pid, signal, waited_s = limit.as_secs(), "PostgreSQL has not stopped in time");
        }
        false
    }

    fn runs(&mut self) -> bool {
        self.ended.is_none() && matches!(self.exit.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        if self.runs()
            && let Err(error) = self.signals.command("INT", self.pid).status()
        {
            tracing::warn!(pid = self.pid, %error, "could not send PostgreSQL the signal to stop");
        }
    }
}

/// Starts the thread that reads the server's error stream until every process that has it open is gone.
fn read_log(child: &mut Child, log: Arc<ServerLog>, said: oneshot::Sender<()>) -> io::Result<()> {
    let Some(stream) = child.stderr.take() else {
        return Ok(());
    };
    let reader = move || {
        log.copy_from(stream);
        let _ = said.send(());
    };
    thread::Builder::new().name("callgate-postgres-log".to_owned()).spawn(reader).map(drop)
}

fn end_at_once(child: &mut Child) {
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        tracing::warn!(pid = child.id(), %error, "could not end a PostgreSQL that was no longer wanted");
    }
}
