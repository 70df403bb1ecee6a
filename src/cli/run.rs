//! `callgate run`: a command as a call. It is judged before it runs, and the exit code is its own; unless refused, its
//! caller sees no difference.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    os::unix::process::ExitStatusExt as _,
    process::{ExitCode, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep},
};
use tonic::Request;

use super::evaluate::{AWAY, CallerArgs, GRACE, PAUSE, client, code, evaluate_with_waits};
use callgate_client::{
    process::{block_on, print_failure},
    remote::{AuthenticatedChannel, Remote, is_passing, refusal},
};
use callgate_net::clock::Clock;
use callgate_proto::{
    time::{duration, unix_ms},
    v1::{
        Caller, Decision, EvaluateRequest, OutcomeStatus, Permit, RecordRequest, ToolCall, ToolError, Verdict,
        gate_service_client::GateServiceClient,
    },
};

/// Exit codes of shells for a missing command, and for one that is not executable.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;
/// Offset of exit codes for signals.
const BY_SIGNAL: i32 = 128;
/// Number of renewals per lease, at most one per second.
const RENEWALS: u32 = 3;
const RENEWAL_MIN: Duration = Duration::from_secs(1);

/// Name and constructor of a signal, and whether terminals also send it to the command.
type ForwardedSignal = (&'static str, fn() -> SignalKind, bool);

/// Signals forwarded to the command.
const FORWARDED: [ForwardedSignal; 6] = [
    ("TERM", SignalKind::terminate, false),
    ("HUP", SignalKind::hangup, true),
    ("INT", SignalKind::interrupt, true),
    ("QUIT", SignalKind::quit, true),
    ("USR1", SignalKind::user_defined1, false),
    ("USR2", SignalKind::user_defined2, false),
];

/// Arguments of `callgate run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    who: CallerArgs,
    /// The tool's name in the policy
    #[arg(long, value_name = "NAME", default_value = "shell.exec")]
    tool: String,
    /// The call's id [default: a new one]
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
    /// The call's justification, where the policy requires one
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    justification: String,
    /// Declare that the repetition is intended
    #[arg(long)]
    repeat_intended: bool,
    /// Seconds to wait in all for the end of a WAIT and for an approval
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    max_wait: u64,
    #[command(flatten)]
    remote: Remote,
    /// The command with its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs it. The exit code is the command's, if it ran.
pub(super) fn main(args: RunArgs) -> ExitCode {
    block_on(run(args)).unwrap_or_else(|error| print_failure(&error))
}

async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let RunArgs { who, tool, call_id, justification, repeat_intended, max_wait, remote, command } = args;
    let words = command.iter().map(|word| word.to_str().context("the command is not UTF-8"));
    let words = words.collect::<anyhow::Result<Vec<&str>>>()?;
    let call_id = call_id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let call = ToolCall {
        call_id: call_id.clone(),
        tool,
        arguments_json: json!({ "argv": words }).to_string(),
        justification,
        repeat_intended,
        ..ToolCall::default()
    };
    let request = EvaluateRequest { caller: Some(who.caller()), call: Some(call), ..EvaluateRequest::default() };
    let client = client(remote.connect().await?);
    let answer = evaluate_with_waits(client.clone(), request, Duration::from_secs(max_wait)).await;
    let answer = answer
        .with_context(|| format!("nothing was run: call {call_id:?} got no decision; repeat it with --call-id"))?;
    let verdict = answer.verdict.context("the server gave no verdict")?;
    if verdict.decision() != Decision::Allow {
        return Ok(print_refusal(&verdict));
    }
    // From here on signals are the command's, also those that come before it has begun.
    let signals = Signals::subscribe()?;
    let Some(permit) = &verdict.permit else {
        // A read while the database is away, which the policy lets run unrecorded.
        errln!("callgate: {}", verdict.next_context_hint);
        let mut child = match start_command(&command, None) {
            Ok(child) => child,
            Err(error) => return Ok(print_start_failure(&command, &error)),
        };
        return Ok(exit_code(signals.wait_for_command(&mut child, std::future::pending()).await?));
    };
    let command = match permit.arguments_json.as_str() {
        "" => command,
        mended => command_of(mended)?,
    };
    let report = Report { client, session: who.session, call_id };
    Box::pin(report.follow(&command, permit, signals)).await
}

/// The command in arguments repaired by the policy.
fn command_of(arguments: &str) -> anyhow::Result<Vec<OsString>> {
    let arguments: Value = serde_json::from_str(arguments).context("cannot read the server's arguments")?;
    let words = arguments["argv"].as_array().into_iter().flatten().map(|word| word.as_str().map(OsString::from));
    match words.collect::<Option<Vec<_>>>() {
        Some(words) if !words.is_empty() => Ok(words),
        _ => bail!("nothing was run: the policy repaired argv to a value that is not a list of strings"),
    }
}

/// Prints the refusal for the caller.
fn print_refusal(verdict: &Verdict) -> ExitCode {
    let decision = verdict.decision();
    let name = decision.as_str_name().trim_start_matches("DECISION_");
    errln!("callgate: {name} {}", verdict.reason);
    if !verdict.approval_id.is_empty() {
        errln!("callgate: waiting for approval: callgate approvals show {}", verdict.approval_id);
    }
    if !verdict.tool_result_json.is_empty() {
        errln!("{}", verdict.tool_result_json);
    }
    ExitCode::from(code(decision))
}

/// Starts it with this process's standard streams.
fn start_command(command: &[OsString], permit: Option<&Permit>) -> io::Result<Child> {
    let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(args);
    if let Some(permit) = permit {
        command.env("CALLGATE_IDEMPOTENCY_KEY", &permit.idempotency_key);
    }
    command.spawn()
}

fn print_start_failure(command: &[OsString], error: &io::Error) -> ExitCode {
    let program = command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    errln!("callgate: cannot start {program}: {error}");
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE })
}

/// Received signals to forward, by name.
struct Signals(Vec<(&'static str, Signal)>);

impl Signals {
    fn subscribe() -> anyhow::Result<Self> {
        let is_on_terminal = io::stdin().is_terminal();
        let heard = |(name, kind, is_of_terminal): ForwardedSignal| {
            let heard = signal(kind()).context("cannot handle signals")?;
            // The command gets the signals of a terminal itself. Here they are caught only so that this process stays.
            Ok((if is_on_terminal && is_of_terminal { "0" } else { name }, heard))
        };
        FORWARDED.into_iter().map(heard).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Waits for the command's end while forwarding signals; runs `beside` meanwhile.
    async fn wait_for_command(self, child: &mut Child, beside: impl Future<Output = ()>) -> anyhow::Result<ExitStatus> {
        let pid = child.id().unwrap_or_default().to_string();
        let mut forwarding = tokio::task::JoinSet::new();
        for (name, mut heard) in self.0 {
            let pid = pid.clone();
            forwarding.spawn(async move {
                while heard.recv().await.is_some() {
                    let mut kill = Command::new("kill");
                    let _ = kill.args(["-s", name, "--", &pid]).stderr(Stdio::null()).status().await;
                }
            });
        }
        tokio::pin!(beside);
        let ended = tokio::select! {
            ended = child.wait() => ended,
            () = &mut beside => child.wait().await,
        };
        ended.context("cannot wait for the command")
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Target of the report.
struct Report {
    client: GateServiceClient<AuthenticatedChannel>,
    session: String,
    call_id: String,
}

impl Report {
    /// Runs the command, renews its lease, and records the outcome.
    async fn follow(self, command: &[OsString], permit: &Permit, signals: Signals) -> anyhow::Result<ExitCode> {
        let began = Instant::now();
        let mut child = match start_command(command, Some(permit)) {
            Ok(child) => child,
            Err(error) => {
                let cancelled = OutcomeStatus::Cancelled.into();
                self.record_outcome(RecordRequest { status: cancelled, not_started: true, ..RecordRequest::default() })
                    .await;
                return Ok(print_start_failure(command, &error));
            }
        };
        let status = signals.wait_for_command(&mut child, self.renew_lease(permit)).await?;
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        // The command has it in its environment.
        let outcome = RecordRequest { duration: Some(duration(took)), key_sent: true, ..outcome(status) };
        self.record_outcome(outcome).await;
        Ok(exit_code(status))
    }

    /// Renews the lease while the command runs; after SIGKILL the lease expires.
    async fn renew_lease(&self, permit: &Permit) {
        let left = unix_ms(permit.lease_expire_time.as_ref()) - Clock::System.now().as_millis();
        let lease = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        let pause = (lease / RENEWALS).max(RENEWAL_MIN);
        loop {
            sleep(pause).await;
            let running = RecordRequest { status: OutcomeStatus::Running.into(), ..RecordRequest::default() };
            // A server that is away hears it the next time.
            let _ = self.send(running).await;
        }
    }

    /// Records the outcome; an error does not change that the command has run.
    async fn record_outcome(&self, outcome: RecordRequest) {
        let (began, id) = (Instant::now(), &self.call_id);
        loop {
            match self.send(outcome.clone()).await {
                Ok(()) => return,
                Err(status) if is_passing(&status) && began.elapsed() < AWAY => sleep(PAUSE).await,
                Err(status) => {
                    let error = refusal(&status);
                    let word = if outcome.error.is_some() { "error --error TEXT" } else { "success" };
                    errln!("callgate: the outcome of call {id} was not recorded: {error}");
                    errln!("callgate: record it with `callgate record {id} {word} --session {}`", self.session);
                    return;
                }
            }
        }
    }

    async fn send(&self, outcome: RecordRequest) -> Result<(), tonic::Status> {
        let caller = Some(Caller { session_id: self.session.clone(), ..Caller::default() });
        let outcome = RecordRequest { caller, call_id: self.call_id.clone(), ..outcome };
        let mut message = Request::new(outcome);
        message.set_timeout(GRACE);
        self.client.clone().record(message).await.map(drop)
    }
}

/// The outcome of an exit status.
fn outcome(status: ExitStatus) -> RecordRequest {
    let error = |message: String, code: String| RecordRequest {
        status: OutcomeStatus::Error.into(),
        error: Some(ToolError { message, provider_code: code, ..ToolError::default() }),
        ..RecordRequest::default()
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => RecordRequest {
            status: OutcomeStatus::Success.into(),
            result: Some(json!({"exit_code": 0}).to_string()),
            ..RecordRequest::default()
        },
        (Some(code), _) => error(format!("the command ended with exit code {code}"), format!("exit_{code}")),
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            error(format!("the command was ended by signal {signal}"), format!("signal_{signal}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_command_is_told_as_it_was() {
        let of = |raw| outcome(ExitStatus::from_raw(raw));
        assert_eq!(of(0).status(), OutcomeStatus::Success);
        let failed = of(3 << 8).error.expect("an error");
        assert_eq!(
            (failed.message.as_str(), failed.provider_code.as_str()),
            ("the command ended with exit code 3", "exit_3")
        );
        assert_eq!(of(15).error.expect("an error").provider_code, "signal_15");
    }

    #[test]
    fn a_mended_command_is_a_list_of_words() {
        assert_eq!(command_of("{\"argv\": [\"ls\", \"-l\"]}").expect("words"), ["ls", "-l"]);
        for bad in ["{\"argv\": []}", "{\"argv\": [1]}", "{}"] {
            assert!(command_of(bad).is_err(), "{bad}");
        }
    }
}
