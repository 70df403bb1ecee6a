//! Server process of the proxy: started in a process group of its own, and shut down in order.

use std::{
    ffi::OsString,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// Time for a server to exit after its input is closed.
const IN_ORDER: Duration = Duration::from_secs(5);
/// Time for a server to exit after SIGTERM.
const ASKED: Duration = Duration::from_secs(2);

/// Environment variables removed for the server: callgate's address and credentials.
const OURS: [&str; 7] = [
    "CALLGATE_TOKEN",
    "CALLGATE_TOKEN_FILE",
    "CALLGATE_SERVER",
    "CALLGATE_CONTEXT",
    "CALLGATE_CONFIG",
    "CALLGATE_CERT",
    "CALLGATE_KEY",
];

/// A running server process.
#[derive(Debug)]
pub(super) struct ChildServer {
    child: Child,
    pid: u32,
}

impl ChildServer {
    /// Starts it; returns both pipes. Its standard error is the proxy's.
    pub(super) fn start(command: &[OsString]) -> anyhow::Result<(Self, ChildStdin, ChildStdout)> {
        let (program, args) = command.split_first().context("the command is empty")?;
        let mut command = Command::new(program);
        // Ctrl-C in a terminal goes to the whole foreground group; the proxy decides when its server stops.
        command.args(args).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        for name in OURS {
            command.env_remove(name);
        }
        let failed = || format!("cannot start the MCP server {}", program.to_string_lossy());
        let mut child = command.spawn().with_context(failed)?;
        let (stdin, stdout, pid) = (child.stdin.take(), child.stdout.take(), child.id());
        let (stdin, stdout) = (stdin.context("it has no input")?, stdout.context("it has no output")?);
        Ok((Self { child, pid: pid.with_context(failed)? }, stdin, stdout))
    }

    /// Waits for its exit after its input was closed, and signals it after a while. Its process group ends with it.
    pub(super) async fn end(&mut self) -> Option<ExitStatus> {
        if let Ok(status) = timeout(IN_ORDER, self.child.wait()).await {
            return status.ok();
        }
        self.signal("-TERM").await;
        if let Ok(status) = timeout(ASKED, self.child.wait()).await {
            return status.ok();
        }
        self.signal("-KILL").await;
        self.child.wait().await.ok()
    }

    /// Waits for its exit without signals.
    pub(super) async fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Signals its process group, while it runs.
    async fn signal(&self, name: &str) {
        let group = format!("-{}", self.pid);
        let _ = Command::new("kill").args([name, "--", &group]).stderr(Stdio::null()).status().await;
    }
}
