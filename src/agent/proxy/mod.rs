//! `callgate mcp-proxy` and `callgate mcp`: MCP servers behind the gate. [`crate::mcp`] holds the protocol's texts;
//! this module adds pipes, processes and files.

mod child;
mod http;
mod inventories;
mod judge;
mod lifting;
mod lines;
mod manage;
mod outcomes;
mod pipes;
mod plane;
mod state;
mod wrap;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use parking_lot::Mutex;
use uuid::Uuid;

use self::{
    http::HttpArgs,
    inventories::{InventoryFile, normalize_server_name},
    plane::{DescribedTools, ServerConnection},
    state::{MessageState, Proxy},
};
pub use self::{
    http::admission::{is_plain, takes},
    manage::{McpArgs, run},
};
use crate::{host::FailOpen, pending_call};
use callgate_client::{
    process::print_failure,
    remote::{AuthenticatedChannel, Remote},
};
use callgate_core::domain::digest;
use callgate_proto::v1::Caller;

/// Grace period for final output.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Arguments of `callgate mcp-proxy`.
#[derive(Debug, Args)]
pub struct ProxyArgs {
    #[command(flatten)]
    options: ProxyOptions,
    /// The session's id [default: Claude Code's, else one for each connection]
    #[arg(long, value_name = "NAME", env = "CALLGATE_SESSION")]
    session: Option<String>,
    /// The agent's name, for budgets and approvals
    #[arg(long, value_name = "NAME", env = "CALLGATE_AGENT", default_value = "")]
    agent: String,
    #[command(flatten)]
    remote: Remote,
    #[command(flatten)]
    http: HttpArgs,
    /// The MCP server's own command, after `--`
    #[arg(last = true, required_unless_present = "url", conflicts_with = "url", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Options of the proxy.
#[derive(Debug, Clone, Args)]
struct ProxyOptions {
    /// The server's name in the host's settings; names its tools mcp__NAME__TOOL in the policy [default: TOOL]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Run tools while callgate is unavailable: all of them, or only reads by --trust-annotations
    #[arg(long, value_name = "WHICH", num_args = 0..=1, default_missing_value = "all", value_enum)]
    fail_open: Option<FailOpen>,
    /// Trust the server's annotation that a tool only reads
    #[arg(long)]
    trust_annotations: bool,
    /// Refuse tools whose name, description or schema changed since they were first seen, until
    /// `callgate mcp approve NAME`
    #[arg(long, requires = "server_name")]
    refuse_drift: bool,
    /// Pass calls that Claude Code's own hook has judged: those with its id
    #[arg(long)]
    hooked: bool,
    /// Seconds that a call waits for approval; at most 50 for a client without progress notifications
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    max_wait_s: u64,
}

impl ProxyOptions {
    /// The tool's name in policies.
    fn tool(&self, tool: &str) -> String {
        match &self.server_name {
            Some(server) => qualify_tool_name(server, tool),
            None => tool.to_owned(),
        }
    }

    /// Prints to standard error, which hosts log.
    fn print_line(&self, text: &str) {
        match &self.server_name {
            Some(name) => errln!("callgate: mcp-proxy {name}: {text}"),
            None => errln!("callgate: mcp-proxy: {text}"),
        }
    }

    fn max_wait(&self) -> Duration {
        Duration::from_secs(self.max_wait_s)
    }
}

/// The name of a server's tool in coding agents.
#[must_use]
pub fn qualify_tool_name(server: &str, tool: &str) -> String {
    format!("mcp__{}__{tool}", normalize_server_name(server))
}

/// Runs the proxy. Its exit code is the server's.
pub fn proxy(args: ProxyArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime.context("cannot start the async runtime") {
        Ok(runtime) => runtime,
        Err(error) => return print_failure(&error),
    };
    let code = runtime.block_on(serve(args)).unwrap_or_else(|error| print_failure(&error));
    // A read of standard input, which has a thread of its own, cannot be called off.
    runtime.shutdown_background();
    code
}

/// Settings shared by proxies.
struct Setup {
    options: ProxyOptions,
    session: Option<String>,
    agent: String,
    wire: AuthenticatedChannel,
    /// Folder of pending calls.
    asked: Option<PathBuf>,
    described: DescribedTools,
}

impl Setup {
    /// A proxy for one connection.
    fn proxy(&self) -> anyhow::Result<Proxy> {
        let connection = Uuid::now_v7().to_string();
        let session_id = self.session.clone().unwrap_or_else(|| format!("mcp-{connection}"));
        let caller =
            Caller { session_id, agent_id: self.agent.clone(), host: "mcp-proxy".to_owned(), ..Caller::default() };
        let plane =
            Arc::new(ServerConnection::new(self.wire.clone(), caller, self.asked.clone(), self.described.clone()));
        plane.take_over();
        let seen = self.options.server_name.as_deref().map(InventoryFile::of).transpose()?;
        let inventory = seen.as_ref().map(InventoryFile::load).transpose()?.flatten().unwrap_or_default();
        let state = Mutex::new(MessageState::new(inventory));
        Ok(Proxy { options: self.options.clone(), plane, connection, seen, state })
    }
}

impl ProxyArgs {
    /// Fails for options that do not go together.
    fn check(&self) -> anyhow::Result<()> {
        if self.options.fail_open == Some(FailOpen::Reads) && !self.options.trust_annotations {
            bail!("--fail-open reads needs --trust-annotations: only the MCP server marks tools that read");
        }
        Ok(())
    }
}

async fn serve(args: ProxyArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    let ProxyArgs { options, session, agent, remote, http, command } = args;
    // A proxy with the same server and credential may cancel the pending calls of a killed one.
    let place = format!("{}\n{}", remote.server()?, remote.args().unwrap_or_default().join("\n"));
    let asked = pending_call::folder("mcp").map(|folder| folder.join("asked").join(&digest::of_text(&place)[..32]));
    let (wire, described) = (remote.connect_later()?, DescribedTools::default());
    let mut setup = Setup { options, session, agent, wire, asked, described };
    // Its hooks know the session by the same name, and its calls by the same ids.
    let own = || std::env::var("CLAUDE_CODE_SESSION_ID").ok().filter(|name| !name.is_empty());
    if http.url.is_some() {
        if http.stdio {
            // One for the host, whose first messages come before a session of the protocol.
            setup.session = setup.session.or_else(own).or_else(|| Some(format!("mcp-{}", Uuid::now_v7())));
        }
        return http::run(setup, &http).await;
    }
    setup.session = setup.session.or_else(own);
    pipes::run(setup.proxy()?, &command).await
}
