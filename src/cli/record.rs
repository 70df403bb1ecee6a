//! `callgate record`: report on a call, for scripts.

use clap::{Args, ValueEnum};
use tokio::time::{Instant, sleep};
use tonic::Request;

use super::{
    evaluate::{AWAY, GRACE, PAUSE, client, text},
    server_args::ReadArgs,
};
use callgate_client::remote::{into_response, is_passing, member_name};
use callgate_core::domain::{outcome::Repeat, time::wait_in_words};
use callgate_proto::{
    time::{duration, millis},
    v1::{AdviceGuard, Caller, OutcomeStatus, RecordRequest, RecordResponse, ToolError, Usage},
};

/// Arguments of `callgate record`.
#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// The evaluated call's id
    call_id: String,
    /// The outcome
    outcome: OutcomeArg,
    /// The session's id
    #[arg(long, value_name = "ID", env = "CALLGATE_SESSION")]
    session: String,
    /// The result of a success: text, a file (@FILE), or standard input (-)
    #[arg(long, value_name = "TEXT")]
    result: Option<String>,
    /// The result is complete, or with false a part
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    complete: Option<bool>,
    /// The error message of an error or an unknown outcome
    #[arg(long, value_name = "TEXT", required_if_eq("outcome", "error"))]
    error: Option<String>,
    /// The tool's name for the error, such as TimeoutError
    #[arg(long, value_name = "NAME", requires = "error", default_value = "", hide_default_value = true)]
    error_type: String,
    /// The error's HTTP status
    #[arg(long, value_name = "STATUS", requires = "error")]
    http_status: Option<u32>,
    /// The provider's error code
    #[arg(long, value_name = "CODE", requires = "error", default_value = "", hide_default_value = true)]
    error_code: String,
    /// The error's Retry-After header
    #[arg(long, value_name = "TEXT", requires = "error", default_value = "", hide_default_value = true)]
    retry_after: String,
    /// The cancelled call never started
    #[arg(long)]
    not_started: bool,
    /// The provider received the idempotency key
    #[arg(long)]
    key_sent: bool,
    /// The progress of a running call
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    progress: String,
    /// Duration in milliseconds
    #[arg(long, value_name = "MS")]
    duration_ms: Option<u64>,
    /// Cost, in millionths of a dollar
    #[arg(long, value_name = "MICROS")]
    cost: Option<u64>,
    #[command(flatten)]
    server: ReadArgs,
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutcomeArg {
    /// The call succeeded
    Success,
    /// The call failed
    Error,
    /// The call was cancelled
    Cancelled,
    /// The call may have taken effect
    Unknown,
    /// The call still runs: extends its lease
    Running,
}

/// Runs `callgate record`.
pub(super) async fn record(args: RecordArgs) -> anyhow::Result<()> {
    let status = match args.outcome {
        OutcomeArg::Success => OutcomeStatus::Success,
        OutcomeArg::Error => OutcomeStatus::Error,
        OutcomeArg::Cancelled => OutcomeStatus::Cancelled,
        OutcomeArg::Unknown => OutcomeStatus::Unknown,
        OutcomeArg::Running => OutcomeStatus::Running,
    };
    let error = args.error.map(|message| ToolError {
        message,
        r#type: args.error_type,
        http_status: args.http_status,
        provider_code: args.error_code,
        retry_after_header: args.retry_after,
        ..ToolError::default()
    });
    let request = RecordRequest {
        caller: Some(Caller { session_id: args.session, ..Caller::default() }),
        call_id: args.call_id,
        status: status.into(),
        error,
        result: args.result.map(|given| text("--result", &given)).transpose()?,
        is_complete: args.complete,
        not_started: args.not_started,
        key_sent: args.key_sent,
        progress: args.progress,
        usage: args.cost.map(|cost_micros| Usage { cost_micros, ..Usage::default() }),
        duration: args.duration_ms.map(duration),
        ..RecordRequest::default()
    };
    let mut client = client(args.server.remote.connect().await?);
    let began = Instant::now();
    let answer = loop {
        let mut message = Request::new(request.clone());
        message.set_timeout(GRACE);
        match client.record(message).await {
            Err(status) if is_passing(&status) && began.elapsed() < AWAY => sleep(PAUSE).await,
            answer => break into_response(answer)?,
        }
    };
    args.server.form.print_item(&answer, print_outcome)
}

fn print_outcome(answer: &RecordResponse) {
    let replayed = if answer.replayed { " (already recorded)" } else { "" };
    outln!("recorded   {}{replayed}", member_name(answer.status().as_str_name(), "OUTCOME_STATUS_"));
    if let Some(advice) = &answer.advice {
        let kind = member_name(answer.failure().as_str_name(), "FAILURE_KIND_");
        let repeat = Repeat::from_name(&member_name(advice.repeat().as_str_name(), "REPEAT_")).unwrap_or(Repeat::Never);
        let retry = repeat.describe(&wait_in_words(millis(advice.retry_after.as_ref())));
        let why = match advice.guard() {
            AdviceGuard::Unspecified => format!("a retry succeeds with p = {:.2}", advice.p_success),
            guard => member_name(guard.as_str_name(), "ADVICE_GUARD_"),
        };
        outln!("  failure    {kind}: {retry} ({why})");
    }
    if !answer.next_context_hint.is_empty() {
        outln!("  warning    {}", answer.next_context_hint);
    }
    if !answer.tool_result_json.is_empty() {
        outln!("{}", answer.tool_result_json);
    }
}
