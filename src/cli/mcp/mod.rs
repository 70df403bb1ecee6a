//! `callgate mcp-proxy` and `callgate mcp`: MCP servers behind the gate. The texts of the protocol are the room of
//! [`crate::mcp`]; this is its pipes, its processes and its files.

mod child;
mod judge;
mod lines;
mod manage;
mod outcomes;
mod plane;
mod proxy;
mod seen;
mod wrap;

use std::{
    ffi::OsString,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::{
    io::{AsyncRead, stdin, stdout},
    process::ChildStdout,
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};
use uuid::Uuid;

pub(super) use self::manage::{McpArgs, run};
use self::{
    child::Server,
    lines::{LINE_BYTES_MAX, Lines, Out, Piece, WAITING_MAX},
    plane::Plane,
    proxy::{Proxy, State, Work},
    seen::{Seen, normalized},
};
use super::{failed, host::FailOpen, remote::Remote, signal};
use crate::grpc::v1::Caller;

/// How long what is left to be said has to be read.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What `callgate mcp-proxy` takes.
#[derive(Debug, Args)]
pub(super) struct ProxyArgs {
    #[command(flatten)]
    options: ProxyOptions,
    /// The session that the calls are of [default: Claude Code's, else one for each connection]
    #[arg(long, value_name = "NAME", env = "CALLGATE_SESSION")]
    session: Option<String>,
    /// The agent's name, for its budget and its approvals
    #[arg(long, value_name = "NAME", env = "CALLGATE_AGENT", default_value = "")]
    agent: String,
    #[command(flatten)]
    remote: Remote,
    /// The MCP server's own command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How the proxy behaves.
#[derive(Debug, Clone, Args)]
struct ProxyOptions {
    /// The server's name in the host's settings: the policy knows its tools as mcp__NAME__TOOL [default: as TOOL]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Let tools run while callgate is out of reach: all of them, or only what reads, by --trust-annotations
    #[arg(long, value_name = "WHICH", num_args = 0..=1, default_missing_value = "all", value_enum)]
    fail_open: Option<FailOpen>,
    /// Believe the server when it says that a tool only reads
    #[arg(long)]
    trust_annotations: bool,
    /// Refuse tools whose name, description or schema is not as it was first seen, until `callgate mcp approve NAME`
    #[arg(long, requires = "server_name")]
    refuse_drift: bool,
    /// Let pass what Claude Code's own hook has judged: calls that carry its id
    #[arg(long)]
    hooked: bool,
    /// How long a call waits for a person, in seconds; a client that takes no progress waits 50 at most
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    max_wait_s: u64,
}

impl ProxyOptions {
    /// A tool as the policy names it.
    fn tool(&self, tool: &str) -> String {
        match &self.server_name {
            Some(server) => named(server, tool),
            None => tool.to_owned(),
        }
    }

    fn max_wait(&self) -> Duration {
        Duration::from_secs(self.max_wait_s)
    }
}

/// A server's tool by the name that coding agents call it by.
fn named(server: &str, tool: &str) -> String {
    format!("mcp__{}__{tool}", normalized(server))
}

/// Runs the proxy. Its server's exit code is its own.
pub(super) fn proxy(args: ProxyArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime.context("cannot start the async runtime") {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let code = runtime.block_on(serve(args)).unwrap_or_else(|error| failed(&error));
    // A read of standard input, which has a thread of its own, cannot be called off.
    runtime.shutdown_background();
    code
}

/// Who ended it.
enum End {
    Server,
    Client,
    Signal,
}

async fn serve(args: ProxyArgs) -> anyhow::Result<ExitCode> {
    let ProxyArgs { options, session, agent, remote, command } = args;
    if options.fail_open == Some(FailOpen::Reads) && !options.trust_annotations {
        bail!("--fail-open reads needs --trust-annotations: what reads is known from the MCP server alone");
    }
    let connection = Uuid::now_v7().to_string();
    // Its hooks know the session by the same name, and its calls by the same ids.
    let session = session.or_else(|| std::env::var("CLAUDE_CODE_SESSION_ID").ok().filter(|name| !name.is_empty()));
    let session_id = session.unwrap_or_else(|| format!("mcp-{connection}"));
    let caller = Caller { session_id, agent_id: agent, ..Caller::default() };
    let plane = Arc::new(Plane::new(remote.connect_later()?, caller));
    let seen = options.server_name.as_deref().map(Seen::of).transpose()?;
    let inventory = seen.as_ref().map(Seen::load).transpose()?.flatten().unwrap_or_default();

    let (server, input, output) = Server::start(&command)?;
    let (to_client, for_client) = mpsc::channel(WAITING_MAX);
    let (to_server, for_server) = mpsc::channel(WAITING_MAX);
    let (to_judge, for_judge) = mpsc::channel(WAITING_MAX);
    let state = Mutex::new(State::new(inventory));
    let proxy = Proxy { options, plane, connection, seen, to_client, to_server, to_judge, state };
    let proxy = Arc::new(proxy);
    let writers = Writers {
        client: tokio::spawn(lines::write(stdout(), for_client)),
        server: tokio::spawn(lines::write(input, for_server)),
    };
    let judge = tokio::spawn(Arc::clone(&proxy).judge(for_judge));
    between(proxy, server, writers, judge, output).await
}

/// The tasks that write.
struct Writers {
    client: JoinHandle<std::io::Result<()>>,
    server: JoinHandle<std::io::Result<()>>,
}

/// Forwards until one side ends, or a signal comes; then ends the other in order.
async fn between(
    proxy: Arc<Proxy>,
    mut server: Server,
    mut writers: Writers,
    judge: JoinHandle<()>,
    output: ChildStdout,
) -> anyhow::Result<ExitCode> {
    let mut up = tokio::spawn(up(Arc::clone(&proxy)));
    let mut down = tokio::spawn(down(Arc::clone(&proxy), output));
    let stop = signal::stop();
    tokio::pin!(stop);
    let mut end = tokio::select! {
        _ = &mut down => End::Server,
        _ = server.ended() => End::Server,
        _ = &mut up => End::Client,
        _ = &mut writers.client => End::Client,
        () = &mut stop => End::Signal,
    };
    if matches!(end, End::Client) {
        // What the client has asked before it left is still done, as without the proxy.
        let _ = proxy.to_judge.send(Work::End).await;
        let _ = judge.await;
        for (_, off) in proxy.state().held.drain(..) {
            off.send_replace(true);
        }
        let _ = proxy.to_server.send(Out::End).await;
        tokio::select! {
            _ = &mut down => {}
            _ = server.ended() => {}
            () = &mut stop => end = End::Signal,
        }
    }
    if matches!(end, End::Signal) {
        // Dropping its writer closes its input, also where it does not read.
        writers.server.abort();
    }
    let status = server.end().await;
    // What it has said before its end is read to the end.
    if !down.is_finished() {
        let _ = timeout(LAST_WORDS, &mut down).await;
    }
    let code = status.and_then(|status| status.code());
    let how = code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with exit code {code}"));
    if matches!(end, End::Server) {
        proxy.say(&format!("the MCP server {how}"));
    }
    proxy.gone(&format!("The MCP server {how}, and answers no more.")).await;
    let _ = proxy.to_client.send(Out::End).await;
    if !writers.client.is_finished() {
        let _ = timeout(LAST_WORDS, writers.client).await;
    }
    proxy.plane.reported(LAST_WORDS).await;
    let own = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(if matches!(end, End::Server) { ExitCode::from(own) } else { ExitCode::SUCCESS })
}

/// From the client to its server, until the client has no more.
async fn up(proxy: Arc<Proxy>) {
    let mut lines = Lines::new(stdin(), LINE_BYTES_MAX);
    let mut is_within = false;
    while let Ok(Some(piece)) = lines.next().await {
        match piece {
            Piece::Line(line) => proxy.client_says(line).await,
            Piece::Part { is_last, .. } => {
                if !is_within {
                    let problem = format!("it is longer than {} MiB", LINE_BYTES_MAX >> 20);
                    proxy.refuse_unreadable(&problem).await;
                }
                is_within = !is_last;
            }
        }
    }
}

/// From the server to its client. A line that is too long to be read passes all the same; what it answers is not known.
async fn down(proxy: Arc<Proxy>, output: impl AsyncRead + Unpin) {
    let mut lines = Lines::new(output, LINE_BYTES_MAX);
    let mut parts: Option<mpsc::Sender<Vec<u8>>> = None;
    while let Ok(Some(piece)) = lines.next().await {
        match piece {
            Piece::Line(line) => proxy.server_says(line).await,
            Piece::Part { bytes, is_last } => {
                if parts.is_none() {
                    let (sender, receiver) = mpsc::channel(1);
                    let _ = proxy.to_client.send(Out::Parts(receiver)).await;
                    parts = Some(sender);
                }
                if let Some(sender) = &parts {
                    let _ = sender.send(bytes).await;
                }
                if is_last {
                    parts = None;
                }
            }
        }
    }
}
