//! `callgate hook`: converts a coding agent's event to its dialect's answer (docs/hooks.md#answers-to-the-host). It
//! starts once per event, so it does only the necessary.

mod give_up;
mod memory;
mod plane;
mod reads;
mod witness;

use std::{
    io::{Read as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use tokio::time::timeout;
use tonic::Status;

use self::{memory::SessionFiles, plane::GateConnection};
use crate::{
    hooks::{HookMemory as _, HookSettings, answer_event, is_away},
    host::FailOpen,
    hosts::{HookInput, HookOutput, Host, HostEvent, block_call},
};
use callgate_client::remote::{Remote, refusal};
use callgate_net::clock::Clock;
use callgate_proto::v1::RecordRequest;

/// Maximum size of a host's input, in bytes: more than the server accepts for one call.
const INPUT_BYTES_MAX: u64 = 16 << 20;
/// Margin before the host's timeout, in seconds.
const SOONER_S: u64 = 5;
/// Timeout of a connection to a running server.
const CONNECT: Duration = Duration::from_secs(5);

/// Arguments of `callgate hook`.
#[derive(Debug, Args)]
pub struct HookArgs {
    /// The host of the hook
    host: Host,
    /// The agent's name, for budgets and approvals
    #[arg(long, value_name = "NAME", env = "CALLGATE_AGENT", default_value = "")]
    agent: String,
    /// Run tools while the server is unavailable: all of them, or only reads
    #[arg(long, value_name = "WHICH", num_args = 0..=1, default_missing_value = "all", value_enum)]
    fail_open: Option<FailOpen>,
    /// Skip the host's own prompt for calls that callgate allows
    #[arg(long = "skip-host-prompt", alias = "grant")] // settings of earlier builds have `--grant`
    grant: bool,
    /// Seconds that the host waits for its hook [default: the host's own default]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
    /// Cancel a call that got no answer: a hook starts this itself
    #[arg(long, value_name = "FILE", hide = true)]
    give_up: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

/// Failure to get an answer.
enum AnswerFailure {
    /// No server was reachable.
    Away(String),
    /// The hook itself was rejected.
    Refused(String),
}

/// Runs the command; the host reads the exit code.
pub fn run(args: &HookArgs) -> ExitCode {
    if let Some(file) = &args.give_up {
        return give_up::call_off(args, file);
    }
    let said = run_hook(args);
    if !said.error.is_empty() {
        errln!("callgate: {}", said.error);
    }
    if !said.out.is_empty() {
        // Not by `outln`, of which a reader that is gone makes an end without a word.
        let written = std::io::stdout().write_all(said.out.as_bytes()).and_then(|()| std::io::stdout().flush());
        if written.is_err() {
            return ExitCode::from(2);
        }
    }
    ExitCode::from(said.code)
}

fn run_hook(args: &HookArgs) -> HookOutput {
    let host = args.host;
    let mut text = Vec::new();
    if let Err(error) = std::io::stdin().take(INPUT_BYTES_MAX).read_to_end(&mut text) {
        return block_call(&format!("cannot read the hook's input from {}: {error}", host.as_str()));
    }
    let seen = match host.read(&String::from_utf8_lossy(&text)) {
        Ok(seen) => seen,
        Err(unreadable) if unreadable.is_before => return block_call(&unreadable.problem),
        Err(unreadable) => return HookOutput { error: unreadable.problem, ..HookOutput::default() },
    };
    if seen.event == HostEvent::Other {
        return HookOutput::default();
    }
    let memory = SessionFiles::of(host);
    // A finished call is reported by its own outcome.
    let but = if let HostEvent::After(call, _) = &seen.event { call.id.as_deref() } else { None };
    memory.take_abandoned_calls(&seen.session, but).into_iter().for_each(|asked| give_up::start(args, asked));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime.context("cannot start the async runtime").map(|runtime| {
        let answer = runtime.block_on(ask(args, host, &memory, seen.clone()));
        // A pending name lookup is not awaited.
        runtime.shutdown_background();
        answer
    });
    match asked.unwrap_or_else(|error| Err(AnswerFailure::Refused(format!("{error:#}")))) {
        Ok(said) => said,
        Err(failed) => answer_without_server(args, &memory, &seen, failed),
    }
}

/// Asks the server within the host's timeout.
async fn ask(args: &HookArgs, host: Host, memory: &SessionFiles, seen: HookInput) -> Result<HookOutput, AnswerFailure> {
    let seconds = args.timeout.unwrap_or_else(|| host.patience_s());
    let patience = Duration::from_secs(seconds.saturating_sub(SOONER_S).max(1));
    let (clock, name) = (Clock::System, seen.name.clone());
    let began = clock.tick();
    let answer = async {
        let connecting = timeout(CONNECT, args.remote.connect());
        let wire = connecting.await.map_err(|_| AnswerFailure::Away("the server accepts no connection".to_owned()))?;
        let wire = wire.map_err(|error| match args.remote.is_named_by_credential() {
            Ok(_) => AnswerFailure::Away(format!("{error:#}")),
            Err(unusable) => AnswerFailure::Refused(format!("{unusable:#}")),
        })?;
        let (never_restarts, hears_before) = (matches!(host, Host::Gemini | Host::Cursor), host.hears_before());
        let (agent, grant) = (args.agent.clone(), args.grant);
        let left = patience.saturating_sub(clock.elapsed_since(began));
        let installed = HookSettings {
            host,
            agent,
            grant,
            never_restarts,
            hears_before,
            prompts: host.has_prompt(),
            patience: left,
        };
        answer_event(&GateConnection(wire), memory, &installed, seen).await.map_err(|status| classify_failure(&status))
    };
    let answer = timeout(patience, answer).await.map_err(|_| AnswerFailure::Away("no answer in time".to_owned()))??;
    Ok(host.to_output(&name, &answer))
}

fn classify_failure(status: &Status) -> AnswerFailure {
    let told = format!("{:#}", refusal(status));
    if is_away(status) { AnswerFailure::Away(told) } else { AnswerFailure::Refused(told) }
}

/// The answer without a server: before a tool, a refusal, unless the owner configured otherwise.
fn answer_without_server(
    args: &HookArgs,
    memory: &SessionFiles,
    seen: &HookInput,
    failed: AnswerFailure,
) -> HookOutput {
    let (problem, is_away) = match failed {
        AnswerFailure::Away(problem) => (problem, true),
        AnswerFailure::Refused(problem) => (problem, false),
    };
    let HostEvent::Before(call) = &seen.event else {
        // The event is past: the user is informed, and nothing is blocked.
        let code = u8::from(!(is_away && args.fail_open.is_some()));
        return HookOutput {
            error: format!("{} was not recorded: {problem}", seen.name),
            code,
            ..HookOutput::default()
        };
    };
    let opens = match args.fail_open {
        Some(FailOpen::All) => true,
        Some(FailOpen::Reads) => reads::is_read(call),
        None => false,
    };
    if is_away && opens {
        // It runs, and its outcome will be reported.
        memory.is_answered();
        return HookOutput {
            error: format!("{} runs without a decision (--fail-open): {problem}", call.tool),
            ..HookOutput::default()
        };
    }
    if let Some(mut asked) = memory.unanswered_call() {
        asked.add(&RecordRequest { not_started: true, ..RecordRequest::default() });
        give_up::start(args, asked);
    }
    block_call(&format!("{} was refused, because callgate is unavailable: {problem}", call.tool))
}
