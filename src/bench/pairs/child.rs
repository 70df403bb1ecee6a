//! Server process of a benchmark.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// Timeout of a server's start and shutdown.
const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(30);
/// Maximum number of reported log lines.
const TROUBLE_MAX: usize = 10;

/// A gRPC server process. Ended by [`Self::stop`]; killed when dropped, and by the system when this process dies (Linux
/// with util-linux).
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pub(super) pid: u32,
    pub(super) url: String,
    log: PathBuf,
}

impl Process {
    /// Starts `program` and waits until it prints its address. Secrets are environment variables, because command lines
    /// are visible to all users.
    pub(super) async fn start(
        program: &Path,
        args: &[&str],
        variables: &[(&str, String)],
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let mut command = command_tied_to_parent(program).await;
        clean(command.args(args)).envs(variables.iter().map(|(name, value)| (*name, value)));
        // Ctrl-C in a terminal goes to the whole foreground group; the bench decides when its servers stop.
        command.process_group(0).kill_on_drop(true);
        let stderr = File::create(&log).with_context(|| format!("{} cannot be written", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().with_context(|| format!("{} cannot be run", program.display()))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let pid = child.id().context("it ended at once")?;
        let mut lines = BufReader::new(stdout).lines();
        let address = async {
            while let Some(line) = lines.next_line().await? {
                if let Some((_, address)) = line.split_once("serves gRPC on ") {
                    return Ok(address.trim().to_owned());
                }
            }
            Err(anyhow!("{} ended: {}", program.display(), fs::read_to_string(&log).unwrap_or_default().trim()))
        };
        let address = timeout(START_MAX, address).await;
        let address = address.map_err(|_| anyhow!("{} has not started in time", program.display()))??;
        // Further output is drained, so that the pipe never fills.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let url = if address.starts_with("unix:") { address } else { format!("http://{address}") };
        Ok(Self { child, pid, url, log })
    }

    /// Number of warnings and errors in its log, and the first of them.
    pub(super) fn trouble(&self) -> (usize, Vec<String>) {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let is_trouble = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ") || line.contains("panicked");
        let lines: Vec<&str> = text.lines().filter(is_trouble).collect();
        (lines.len(), lines.iter().take(TROUBLE_MAX).map(|line| (*line).to_owned()).collect())
    }

    /// Shuts it down.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let asked = Command::new("kill").arg("-TERM").arg(self.pid.to_string()).status().await;
        asked.context("kill cannot be run")?;
        if timeout(STOP_MAX, self.child.wait()).await.is_err() {
            self.child.kill().await.context("a server cannot be killed")?;
            bail!("the server at {} did not stop within {} s, and was killed", self.url, STOP_MAX.as_secs());
        }
        Ok(())
    }
}

/// Removes the environment settings of servers and commands.
pub(super) fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CALLGATE_") || name.starts_with("OTEL_")) {
            command.env_remove(name);
        }
    }
    command.env_remove("RUST_LOG")
}

/// The program, tied to this process's life.
async fn command_tied_to_parent(program: &Path) -> Command {
    const TIE: [&str; 3] = ["--pdeathsig", "TERM", "--"];
    let tried = Command::new("setpriv").args(TIE).arg("true").stderr(Stdio::null()).status().await;
    if !tried.is_ok_and(|status| status.success()) {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(TIE).arg(program);
    command
}
