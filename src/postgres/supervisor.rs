//! Supervisor of the server: restarts it after a crash, a bounded number of times.

use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::error::{PrivatePostgresError, says_disk_full};
use super::postmaster::Postmaster;
use super::server::PreparedServer;

/// Failures without a calm period in between after which the server is given up.
const FAILURES_MAX: u32 = 6;

/// Uptime after which earlier failures are not counted.
const CALM: Duration = Duration::from_secs(60);

/// Interval of restarts of a server that ended because the disk is full.
const SPACE_EVERY: Duration = Duration::from_secs(5);

/// The wait before the first restart; it doubles with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// State of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabasePhase {
    /// The server accepts connections.
    Running {
        /// Its process id.
        pid: u32,
    },
    /// It died and is being started again; connections fail meanwhile.
    Restarting {
        /// Counts from 1; reset after a minute of calm.
        attempt: u32,
    },
    /// It ended because the disk is full, and is started again when there is space.
    DiskFull,
    /// It was stopped on request.
    Stopped,
    /// It died too often and is not started again.
    GaveUp {
        /// Deaths and failed starts without a calm period in between.
        failures: u32,
        /// The last failure.
        reason: String,
    },
}

/// Starts a server for the first time. A killed or crashed one is restarted, and a full disk is waited out; other
/// failures are final.
pub(super) async fn first_start(server: &PreparedServer) -> Result<Postmaster, PrivatePostgresError> {
    let (mut failures, mut is_told) = (0, false);
    loop {
        let error = match server.launch().await {
            Err(error) if error.is_disk_full() || error.is_crash() => error,
            outcome => return outcome,
        };
        if error.is_disk_full() {
            tell_disk_full(server, &mut is_told);
            tokio::time::sleep(SPACE_EVERY).await;
            continue;
        }
        failures += 1;
        if failures >= FAILURES_MAX {
            return Err(error);
        }
        tracing::error!(attempt = failures, %error, "PostgreSQL ended while it was started; starting it again");
        tokio::time::sleep(backoff(failures)).await;
    }
}

fn backoff(failures: u32) -> Duration {
    BACKOFF_FIRST * 2_u32.pow(failures - 1)
}

/// Logs a full disk once, not at each attempt.
fn tell_disk_full(server: &PreparedServer, is_told: &mut bool) {
    if !std::mem::replace(is_told, true) {
        tracing::error!(
            data_dir = %server.layout.root.display(),
            retry_s = SPACE_EVERY.as_secs(),
            "the disk is full, so PostgreSQL cannot run: free some space; it is started again as soon as there is any"
        );
    }
}

/// Watches one server until it is stopped or given up.
pub(super) struct Supervisor {
    pub(super) server: PreparedServer,
    pub(super) phase: watch::Sender<DatabasePhase>,
    /// Completes when the server should stop: by a message, or a dropped sender.
    pub(super) stop: oneshot::Receiver<()>,
}

impl Supervisor {
    pub(super) async fn run(mut self, mut postmaster: Postmaster) -> Result<(), PrivatePostgresError> {
        let mut failures = 0;
        loop {
            let status = tokio::select! {
                _ = &mut self.stop => return self.finish(Some(postmaster)).await,
                status = postmaster.ended() => status,
                () = tokio::time::sleep(CALM), if failures > 0 => {
                    failures = 0;
                    continue;
                }
            };
            let pid = postmaster.pid();
            tracing::error!(pid, %status, "PostgreSQL stopped unexpectedly");
            match self.restart(&mut failures, format!("it ended: {status}")).await? {
                Some(restarted) => postmaster = restarted,
                None => return Ok(()),
            }
        }
    }

    /// `None` when there is nothing more to watch.
    async fn restart(&mut self, failures: &mut u32, cause: String) -> Result<Option<Postmaster>, PrivatePostgresError> {
        let mut reason = cause;
        let (mut is_full, mut is_told) = (says_disk_full(&self.server.log_tail()), false);
        loop {
            let pause = if is_full {
                tell_disk_full(&self.server, &mut is_told);
                self.phase.send_replace(DatabasePhase::DiskFull);
                SPACE_EVERY
            } else {
                *failures += 1;
                if *failures >= FAILURES_MAX {
                    tracing::error!(failures = *failures, %reason, "PostgreSQL keeps failing and is not started again");
                    self.phase.send_replace(DatabasePhase::GaveUp { failures: *failures, reason });
                    return Ok(None);
                }
                self.phase.send_replace(DatabasePhase::Restarting { attempt: *failures });
                backoff(*failures)
            };
            let relaunch = async {
                tokio::time::sleep(pause).await;
                self.server.launch().await
            };
            let outcome = tokio::select! {
                _ = &mut self.stop => None,
                outcome = relaunch => Some(outcome),
            };
            match outcome {
                None => return self.finish(None).await.map(|()| None),
                Some(Ok(postmaster)) => {
                    let pid = postmaster.pid();
                    tracing::warn!(pid, "PostgreSQL runs again");
                    self.phase.send_replace(DatabasePhase::Running { pid });
                    return Ok(Some(postmaster));
                }
                Some(Err(error)) if error.is_disk_full() => is_full = true,
                Some(Err(error)) => {
                    is_full = false;
                    tracing::error!(attempt = *failures, %error, "PostgreSQL could not be started again");
                    reason = error.to_string();
                }
            }
        }
    }

    async fn finish(&mut self, postmaster: Option<Postmaster>) -> Result<(), PrivatePostgresError> {
        let data_dir = self.server.layout.root.clone();
        match postmaster {
            Some(postmaster) => {
                let pid = postmaster.pid();
                if !postmaster.stop().await {
                    return Err(PrivatePostgresError::StopTimedOut { data_dir, pid });
                }
            }
            // An aborted start was told to stop; this waits for that.
            None => drop(self.server.stop_orphan().await?),
        }
        tracing::info!(data_dir = %data_dir.display(), "the private PostgreSQL stopped");
        self.phase.send_replace(DatabasePhase::Stopped);
        Ok(())
    }
}
