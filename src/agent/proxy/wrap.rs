//! `callgate mcp wrap`: moves the servers in a host's settings behind the proxy, and back.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, FromArgMatches as _};

use super::{ProxyArgs, http};
use crate::{
    agents::{own_path, replace_file},
    mcp::config::{self, ConfigChange},
};
use callgate_client::remote::{Remote, TOKEN, into_response};
use callgate_proto::v1::{Caller, EvaluateRequest, ToolCall, gate_service_client::GateServiceClient};

#[derive(Debug, Args)]
pub(super) struct WrapArgs {
    /// The settings: claude_desktop_config.json, .mcp.json, .cursor/mcp.json, .gemini/settings.json
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Restore the original settings
    #[arg(long, conflicts_with = "options")]
    undo: bool,
    /// Show the change without writing
    #[arg(long)]
    dry_run: bool,
    /// Skip the test of callgate's server
    #[arg(long)]
    no_test: bool,
    #[command(flatten)]
    remote: Remote,
    /// Options of each proxy, after `--`, such as --fail-open reads
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// Rewrites the settings.
pub(super) async fn run(args: &WrapArgs) -> anyhow::Result<()> {
    let name = args.config.display();
    let text = fs::read_to_string(&args.config).with_context(|| format!("cannot read {name}"))?;
    let changed = if args.undo {
        config::unwrap(&text)
    } else {
        let (options, program) = (choose_options(args)?, program()?);
        let mut objections = HashMap::new();
        for url in config::list_addresses(&text).map_err(|problem| anyhow!("{name}: {problem}"))? {
            // An expansion of the host's hides the address, and the credential that may be in it.
            let objection = if url.contains('$') { None } else { http::find_objection(&url).await };
            objections.extend(objection.map(|objection| (url, objection)));
        }
        config::wrap(&text, &program, &options, |url| objections.get(url).copied())
    };
    let changed = changed.map_err(|problem| anyhow!("{name}: {problem}"))?;
    show(&text, &changed);
    if changed.servers.is_empty() {
        outln!("{name} is unchanged.");
    } else if args.dry_run {
        outln!("{name} would change: {}.", changed.servers.join(", "));
    } else {
        write(&args.config, &text, &changed.text)?;
        outln!("{name} has changed: {}. Restart its host.", changed.servers.join(", "));
    }
    if args.undo || args.dry_run {
        return Ok(());
    }
    if args.remote.needs_environment()? {
        outln!("note: the host must be started with the token in {TOKEN}");
    }
    if args.no_test { Ok(()) } else { test(&args.remote).await }
}

/// The options of each proxy, with the server and credential of this command: a host passes its own environment on only
/// in part. Everything is read as the proxy would.
fn choose_options(args: &WrapArgs) -> anyhow::Result<Vec<String>> {
    if args.options.iter().any(|option| option == "--") {
        bail!("-- is not an option of the proxy");
    }
    let words = args.options.iter().map(String::as_str).chain(["--", "command"]);
    let command = ProxyArgs::augment_args(clap::Command::new("mcp-proxy").no_binary_name(true));
    let matches = command.try_get_matches_from(["--server-name", "name"].into_iter().chain(words));
    let parsed = matches.and_then(|matches| ProxyArgs::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        anyhow!("options after --: {}", text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: "))
    })?;
    parsed.check().context("options after --")?;
    if parsed.remote.has_flags() {
        bail!("options after --: put the server and its credential before --, where they are tested");
    }
    args.remote.connect_later()?;
    Ok([args.options.clone(), args.remote.args()?].concat())
}

/// This program's path for a host, independent of its search path.
fn program() -> anyhow::Result<String> {
    let path = own_path()?;
    if !config::is_proxy_program(&path) {
        bail!("the servers could not be recognized later: the program must be named callgate");
    }
    path.into_os_string().into_string().map_err(|_| anyhow!("this program's own path is not UTF-8"))
}

/// Asks callgate about a call that nobody makes, with the proxies' credential. Nothing is stored.
async fn test(remote: &Remote) -> anyhow::Result<()> {
    let id = format!("callgate-wrap-test-{}", uuid::Uuid::now_v7());
    let call = ToolCall { call_id: id.clone(), tool: "callgate_wrap_test".into(), ..ToolCall::default() };
    let request = EvaluateRequest {
        caller: Some(Caller { session_id: id, ..Caller::default() }),
        call: Some(ToolCall { arguments_json: "{}".into(), ..call }),
        dry_run: true,
        ..EvaluateRequest::default()
    };
    let answer = async { into_response(GateServiceClient::new(remote.connect().await?).evaluate(request).await) };
    match answer.await {
        Ok(_) => outln!("test: callgate answers at {}", remote.server()?),
        Err(error) => bail!(
            "the proxies do not work yet: {error:#}; `callgate mcp wrap` tests again, and --undo restores the settings"
        ),
    }
    Ok(())
}

/// Prints the changed lines; their number stays.
fn show(before: &str, changed: &ConfigChange) {
    for (old, new) in before.lines().zip(changed.text.lines()).filter(|(old, new)| old != new) {
        outln!("- {old}\n+ {new}");
    }
    for (server, reason) in &changed.left {
        outln!("{server} is unchanged: {reason}.");
    }
}

/// Replaces the settings, unless their host has changed them meanwhile.
fn write(path: &Path, before: &str, text: &str) -> anyhow::Result<()> {
    if fs::read_to_string(path).ok().as_deref() != Some(before) {
        bail!("{}: another program changed it meanwhile; nothing was written, run the command again", path.display());
    }
    replace_file(path, text)
}
