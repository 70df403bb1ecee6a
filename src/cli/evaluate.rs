//! `callgate evaluate`: decision on a call for scripts, with the decision as exit code.

use std::{io::Read as _, process::ExitCode, time::Duration};

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, bail};
use clap::Args;
use tokio::time::{Instant, sleep};
use tonic::Request;

use super::server_args::ReadArgs;
use callgate_client::remote::{AuthenticatedChannel, at, is_passing, refusal};
use callgate_core::domain::time::wait_in_words;
use callgate_proto::{
    time::{duration, millis},
    v1::{
        Caller, Decision, EvaluateRequest, EvaluateResponse, ToolCall, Verdict, gate_service_client::GateServiceClient,
    },
};

/// Maximum wait of one request.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Grace period of a response, beyond the requested wait.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// Default time of retries while the server is unavailable.
pub(super) const AWAY: Duration = Duration::from_secs(5);
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// Maximum size of an input file: more than the server accepts.
const INPUT_BYTES_MAX: u64 = 4 << 20;

/// Arguments of `callgate evaluate`.
#[derive(Debug, Args)]
pub(super) struct EvaluateArgs {
    #[command(flatten)]
    who: CallerArgs,
    /// The tool's name
    #[arg(long, value_name = "NAME")]
    tool: String,
    /// The call's arguments, one JSON object: text, a file (@FILE), or standard input (-)
    #[arg(long, value_name = "JSON", default_value = "{}")]
    arguments: String,
    /// The call's id [default: a new one, which is printed]
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
    /// The call's justification, where the policy requires one
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    justification: String,
    /// Declare that the repetition is intended
    #[arg(long)]
    repeat_intended: bool,
    /// Estimated cost, in millionths of a dollar
    #[arg(long, value_name = "MICROS")]
    cost_estimate: Option<u64>,
    /// Dry run: stores nothing, and permits nothing
    #[arg(long)]
    dry_run: bool,
    /// Seconds to wait in all for the end of a WAIT and for an approval
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
    #[command(flatten)]
    server: ReadArgs,
}

/// Caller of the call.
#[derive(Debug, Args)]
pub(super) struct CallerArgs {
    /// The session's id
    #[arg(long, value_name = "ID", env = "CALLGATE_SESSION")]
    pub(super) session: String,
    /// The parent session's id
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    parent_session: String,
    /// The agent's name, for budgets and approvals
    #[arg(long, value_name = "NAME", env = "CALLGATE_AGENT", default_value = "", hide_default_value = true)]
    agent: String,
    /// The run's id within the session
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    run: String,
    /// The id of the agent's user
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    user: String,
}

impl CallerArgs {
    pub(super) fn caller(&self) -> Caller {
        Caller {
            session_id: self.session.clone(),
            parent_session_id: self.parent_session.clone(),
            run_id: self.run.clone(),
            agent_id: self.agent.clone(),
            user_id: self.user.clone(),
            ..Caller::default()
        }
    }
}

/// The exit code of a decision; refusals differ from failures (1, 2).
pub(super) const fn code(decision: Decision) -> u8 {
    match decision {
        Decision::Allow => 0,
        Decision::Ask => 10,
        Decision::Wait => 11,
        Decision::Reuse => 12,
        Decision::Deny => 13,
        Decision::Stop => 14,
        Decision::Unspecified => 1,
    }
}

/// Text of an argument, a file, or standard input.
pub(super) fn text(flag: &str, given: &str) -> anyhow::Result<String> {
    let (name, mut from): (&str, Box<dyn std::io::Read>) = match given.strip_prefix('@') {
        Some(path) => {
            let file = std::fs::File::open(path).with_context(|| format!("{flag}: cannot open {path}"))?;
            (path, Box::new(file))
        }
        None if given == "-" => ("standard input", Box::new(std::io::stdin().lock())),
        None => return Ok(given.to_owned()),
    };
    let mut text = String::new();
    let read = from.by_ref().take(INPUT_BYTES_MAX + 1).read_to_string(&mut text);
    read.with_context(|| format!("{flag}: cannot read {name} as text"))?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        bail!("{flag}: {name} exceeds the server's limit of {INPUT_BYTES_MAX} bytes");
    }
    Ok(text)
}

pub(super) fn client(wire: AuthenticatedChannel) -> GateServiceClient<AuthenticatedChannel> {
    // A previous result may be as large as the original, with escapes.
    GateServiceClient::new(wire).max_decoding_message_size(16 << 20)
}

/// Runs `callgate evaluate`; returns the decision's exit code.
pub(super) async fn evaluate(args: EvaluateArgs) -> anyhow::Result<ExitCode> {
    let call = ToolCall {
        call_id: args.call_id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string()),
        tool: args.tool.clone(),
        arguments_json: text("--arguments", &args.arguments)?,
        cost_estimate_micros: args.cost_estimate,
        justification: args.justification.clone(),
        repeat_intended: args.repeat_intended,
        ..ToolCall::default()
    };
    let request = EvaluateRequest {
        caller: Some(args.who.caller()),
        call: Some(call),
        dry_run: args.dry_run,
        ..EvaluateRequest::default()
    };
    let client = client(args.server.remote.connect().await?);
    let call_id = request.call.as_ref().map(|call| call.call_id.clone()).unwrap_or_default();
    let answer = evaluate_with_waits(client, request, Duration::from_secs(args.wait)).await;
    // The call may have been stored; a retry needs its id, else it counts as another call.
    let answer = answer.with_context(|| format!("call {call_id:?} got no decision; repeat it with --call-id"))?;
    let decision = answer.verdict.as_ref().context("the server gave no verdict")?.decision();
    args.server.form.print_item(&answer, |answer| answer.verdict.iter().for_each(print_verdict))?;
    Ok(ExitCode::from(code(decision)))
}

/// Evaluates, and again while it must wait and may.
pub(super) async fn evaluate_with_waits(
    mut client: GateServiceClient<AuthenticatedChannel>,
    mut request: EvaluateRequest,
    patience: Duration,
) -> anyhow::Result<EvaluateResponse> {
    let (began, mut is_said) = (Instant::now(), false);
    loop {
        let limit = millis(request.max_wait.as_ref());
        let mut message = Request::new(request.clone());
        message.set_timeout(Duration::from_millis(limit) + GRACE);
        let answer = match client.evaluate(message).await {
            Ok(answer) => answer.into_inner(),
            // The same request gets the same answer, also from the server that comes after this one.
            Err(status) if is_passing(&status) && began.elapsed() < patience.max(AWAY) => {
                sleep(PAUSE).await;
                continue;
            }
            Err(status) => return Err(refusal(&status)),
        };
        let Some(verdict) = &answer.verdict else { return Ok(answer) };
        let left = patience.saturating_sub(began.elapsed());
        let waits = matches!(verdict.decision(), Decision::Wait | Decision::Ask);
        if !waits || left.is_zero() || request.dry_run {
            return Ok(answer);
        }
        let pause = Duration::from_millis(millis(verdict.retry_after.as_ref()));
        if verdict.decision() == Decision::Wait && pause > left {
            return Ok(answer);
        }
        if !std::mem::replace(&mut is_said, true) && verdict.decision() == Decision::Ask {
            errln!("waiting for approval: callgate approvals approve {}", verdict.approval_id);
        }
        // A pause that is longer than a server waits is waited out here.
        if verdict.decision() == Decision::Wait && pause > WAIT_MAX {
            sleep(pause).await;
        }
        let most = u64::try_from(left.min(WAIT_MAX).as_millis()).unwrap_or(u64::MAX);
        request.max_wait = Some(duration(most));
    }
}

/// The decision of a verdict, and how it looks on a terminal.
pub(super) fn style_decision(verdict: &Verdict) -> (&'static str, Style) {
    let (word, color) = match verdict.decision() {
        Decision::Allow | Decision::Unspecified => ("ALLOW", AnsiColor::Green),
        Decision::Ask => ("ASK", AnsiColor::Magenta),
        Decision::Wait => ("WAIT", AnsiColor::Yellow),
        Decision::Reuse => ("REUSE", AnsiColor::Cyan),
        Decision::Deny => ("DENY", AnsiColor::Red),
        Decision::Stop => ("STOP", AnsiColor::BrightRed),
    };
    (word, Style::new().bold().fg_color(Some(color.into())))
}

/// A verdict for people; what the model is to see comes last, as it is.
fn print_verdict(verdict: &Verdict) {
    let (word, style) = style_decision(verdict);
    let why = if verdict.reason.is_empty() { String::new() } else { format!(" {}", verdict.reason) };
    outln!("{style}{word}{style:#}{why}");
    outln!("  call       {}", verdict.call_id);
    if let Some(permit) = &verdict.permit {
        outln!("  attempt    {}, until {}", permit.attempt, at(permit.lease_expire_time.as_ref()));
        outln!("  key        {}", permit.idempotency_key);
        if !permit.arguments_json.is_empty() {
            outln!("  execute    {}", permit.arguments_json);
        }
    }
    if let Some(wait) = &verdict.retry_after {
        outln!("  retry      after {}", wait_in_words(millis(Some(wait))));
    }
    if !verdict.approval_id.is_empty() {
        let until = at(verdict.approval_expire_time.as_ref());
        outln!("  approval   {}, until {until}", verdict.approval_id);
    }
    if !verdict.next_context_hint.is_empty() {
        outln!("  warning    {}", verdict.next_context_hint);
    }
    if !verdict.tool_result_json.is_empty() {
        outln!("{}", verdict.tool_result_json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decision_has_a_code_of_its_own() {
        use Decision::{Allow, Ask, Deny, Reuse, Stop, Wait};
        assert_eq!([Allow, Ask, Wait, Reuse, Deny, Stop].map(code), [0, 10, 11, 12, 13, 14]);
    }

    #[test]
    fn arguments_are_text_or_of_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("args.json");
        std::fs::write(&path, "{\"a\": 1}").expect("writable");
        assert_eq!(text("--arguments", &format!("@{}", path.display())).expect("read"), "{\"a\": 1}");
        assert_eq!(text("--arguments", "{}").expect("as it is"), "{}");
        let missing = text("--arguments", "@/nonexistent").expect_err("no file");
        assert!(missing.to_string().contains("--arguments: cannot open /nonexistent"), "{missing}");
    }
}
