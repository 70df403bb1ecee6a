//! A running `callgate serve`, ended with the test.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::Duration,
};

use callgate_proto::v1::gate_service_client::GateServiceClient;
use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};
use tempfile::TempDir;

use crate::common::{
    PATIENCE, STEP,
    postgres::{folder, seed, template},
    process::{is_alive, signal},
    until,
    wire::{self, Client},
};

/// Environment variables with an influence on the server.
const SETTINGS: &[&str] = &[
    "CALLGATE_SERVER",
    "CALLGATE_CONTEXT",
    "CALLGATE_CONFIG",
    "CALLGATE_BY",
    "CALLGATE_SESSION",
    "CALLGATE_AGENT",
    "CALLGATE_TOKEN",
    "CALLGATE_TOKEN_FILE",
    "CALLGATE_CA",
    "CALLGATE_CERT",
    "CALLGATE_KEY",
    "CALLGATE_AUTH",
    "CALLGATE_TLS_CERT",
    "CALLGATE_TLS_KEY",
    "CALLGATE_CLIENT_CA",
    "CALLGATE_CLIENT_CRL",
    "CALLGATE_LISTEN",
    "CALLGATE_SOCKET_MODE",
    "CALLGATE_SOCKET_OWNER",
    "CALLGATE_POLICY",
    "CALLGATE_APPROVALS_WEBHOOK",
    "CALLGATE_NOTIFICATIONS",
    "CALLGATE_THREADS",
    "CALLGATE_DATABASE_URL",
    "CALLGATE_DATA_DIR",
    "CALLGATE_PG_BIN",
    "CALLGATE_LOG",
    "CALLGATE_LOG_FORMAT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "RUST_LOG",
];

/// A data directory. Dropped, it waits for any server that still runs on it.
pub(crate) struct Home(TempDir);

impl Home {
    /// One in which a server was never started.
    pub(crate) fn empty() -> Self {
        Self(folder())
    }

    /// One with a migrated database without rows, which spares the time of making it.
    pub(crate) async fn with_cluster() -> Self {
        let home = Self::empty();
        seed(&template().await, &home.data_dir());
        home
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// For files of the test's own.
    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// A file of the test's own.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("writable");
        path
    }

    /// Pid of the database, while its pid file exists.
    pub(crate) fn postmaster(&self) -> Option<u32> {
        let text = fs::read_to_string(self.data_dir().join("pg/postmaster.pid")).ok()?;
        text.lines().next()?.parse().ok()
    }

    /// A connection past the server, by the socket in the data directory.
    pub(crate) async fn connect(&self) -> PgConnection {
        let password = fs::read_to_string(self.data_dir().join("password")).expect("a password");
        let options = PgConnectOptions::new_without_pgpass()
            .socket(self.data_dir().join("run"))
            .port(5432)
            .password(password.trim_end());
        let options = options.username("callgate").database("callgate").options([("search_path", "callgate")]);
        options.connect().await.expect("a connection")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for _ in 0..1_000 {
            let Some(pid) = self.postmaster().filter(|pid| is_alive(*pid)) else { return };
            signal(pid, "QUIT");
            std::thread::sleep(STEP);
        }
    }
}

/// The program, with nothing from the environment.
pub(crate) fn program() -> Command {
    // The bench's own tests run its program, which has every command of callgate too.
    let program = option_env!("CARGO_BIN_EXE_callgate").or(option_env!("CARGO_BIN_EXE_callgate-bench"));
    clean(program.expect("a program that the tests run"))
}

/// A program with nothing from the environment.
pub(crate) fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in SETTINGS {
        command.env_remove(name);
    }
    // No user's contexts file selects the server.
    command.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null());
    command
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = program();
    command.arg("serve").args(args);
    command
}

/// Output and exit code of a command that ends by itself.
pub(crate) async fn ran(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = program();
    command.args(args);
    run_to_end(command).await
}

/// Standard error and exit code of a command with a closed standard output.
pub(crate) async fn unread(args: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = tokio::process::Command::from(program());
    let command = command.args(args).stdout(writer).stderr(Stdio::piped()).kill_on_drop(true);
    let output = crate::common::in_time("an end", command.output()).await.expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Waits for a command that should end by itself; otherwise it is killed with the test.
pub(crate) async fn run_to_end(command: Command) -> (Option<i32>, String, String) {
    let mut command = tokio::process::Command::from(command);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).output();
    let output = crate::common::in_time("an end", output).await.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Standard error and exit code of a server that fails to start.
pub(crate) async fn fail_to_start(args: &[&str]) -> (Option<i32>, String) {
    let (code, said, error) = run_to_end(command(args)).await;
    assert_eq!(said, "");
    (code, error)
}

/// The process, its address, and its start output.
pub(crate) struct Server {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
    pub(crate) greeting: String,
}

impl Server {
    /// One with a private database in the data directory of `home`.
    pub(crate) fn start(home: &Home, more: &[&str]) -> Self {
        let data_dir = home.data_dir();
        Self::with(&[&["--data-dir", path(&data_dir)], more].concat())
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        Self::spawn(args, Stdio::inherit())
    }

    /// A server that logs to a file in lines of JSON, its greeting too.
    pub(crate) fn logging_json(args: &[&str], log: &Path) -> Self {
        let args = [&["--listen", "127.0.0.1:0", "--log-format", "json"], args].concat();
        let stderr = fs::File::create(log).expect("writable");
        let mut child = command(&args).stdout(Stdio::piped()).stderr(stderr).spawn().expect("it runs");
        let stdout = child.stdout.take().map(BufReader::new);
        let mut server = Self { child, stdout, address: ([127, 0, 0, 1], 0).into(), greeting: String::new() };
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            server.greeting = fs::read_to_string(log).expect("a log");
            let address = server.greeting.split("serves gRPC on http://").nth(1).and_then(|rest| {
                let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c))).unwrap_or(rest.len());
                rest[..end].trim_end_matches('.').parse().ok()
            });
            if let Some(address) = address {
                server.address = address;
                return server;
            }
            std::thread::sleep(STEP);
        }
        panic!("no greeting in {log:?}");
    }

    /// A server that logs to a file.
    pub(crate) fn logging(args: &[&str], log: &Path) -> Self {
        Self::spawn(args, fs::File::create(log).expect("writable").into())
    }

    /// A server that logs to this end of a pipe.
    pub(crate) fn start_with_pipe(args: &[&str], log: std::io::PipeWriter) -> Self {
        Self::spawn(args, log.into())
    }

    fn spawn(args: &[&str], stderr: Stdio) -> Self {
        let args = [&["--listen", "127.0.0.1:0"], args].concat();
        let mut child = command(&args).stdout(Stdio::piped()).stderr(stderr).spawn().expect("it runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (said, greeting) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = String::new();
            // The last line of the greeting explains how to stop.
            while !lines.contains("stop ") && stdout.read_line(&mut lines).is_ok_and(|bytes| bytes > 0) {}
            let _ = said.send((lines, stdout));
        });
        let (greeting, stdout) = greeting.recv_timeout(PATIENCE).expect("a greeting");
        let address = greeting.split_whitespace().find_map(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {greeting:?}"));
        Self { child, stdout: Some(stdout), address, greeting }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) async fn channel(&self) -> tonic::transport::Channel {
        wire::channel(self.address).await
    }

    pub(crate) async fn client(&self) -> Client {
        GateServiceClient::new(self.channel().await)
    }

    /// Waits for the process to end by itself; returns its output since the greeting, too.
    pub(crate) async fn wait_for_end(mut self, limit: Duration) -> (ExitStatus, String) {
        let mut status = None;
        let exit = until("the end", async || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        crate::common::within(limit, "the end", exit).await;
        let mut rest = String::new();
        self.stdout.take().expect("read once").read_to_string(&mut rest).expect("UTF-8");
        (status.expect("it ended"), rest)
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
