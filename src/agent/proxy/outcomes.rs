//! Reports on proxied calls.

use crate::{
    mcp::{message::Members, outcome::ResponseOutcome},
    proxy::state::RunningCall,
};
use callgate_core::domain::digest;
use callgate_proto::{
    time::duration,
    v1::{OutcomeStatus, RecordRequest, ToolError},
};

/// Maximum size of a result, in bytes.
const RESULT_BYTES_MAX: usize = 1 << 20;
/// Maximum size of an error, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The report on a call, by its response.
pub(super) fn report(running: &RunningCall, outcome: ResponseOutcome) -> RecordRequest {
    let base = |status| report_without_response(running, status);
    match outcome {
        ResponseOutcome::Success(text) if text.len() > RESULT_BYTES_MAX => RecordRequest {
            result_digest: digest::of_text(&text),
            result_bytes: Some(text.len() as u64),
            ..base(OutcomeStatus::Success)
        },
        // PostgreSQL's texts cannot contain NUL; the server rejects it.
        ResponseOutcome::Success(text) => {
            RecordRequest { result: Some(text.replace('\0', "\u{fffd}")), ..base(OutcomeStatus::Success) }
        }
        ResponseOutcome::Error { message, code } => {
            let message = message.replace('\0', "\u{fffd}");
            let message = message[..message.floor_char_boundary(ERROR_BYTES_MAX)].to_owned();
            let error = ToolError { message, provider_code: code.unwrap_or_default(), ..ToolError::default() };
            RecordRequest { error: Some(error), ..base(OutcomeStatus::Error) }
        }
        ResponseOutcome::Asks | ResponseOutcome::Task(_) => base(OutcomeStatus::Running),
    }
}

/// The report on a call without a response.
pub(super) fn report_without_response(running: &RunningCall, status: OutcomeStatus) -> RecordRequest {
    let took = u64::try_from(running.began.elapsed().as_millis()).unwrap_or(u64::MAX);
    RecordRequest {
        call_id: running.asked.call_id.clone(),
        status: status.into(),
        duration: (status != OutcomeStatus::Running).then(|| duration(took)),
        key_sent: running.key_sent,
        observed_call: running.is_unjudged.then(|| running.asked.clone()),
        ..RecordRequest::default()
    }
}

/// The task named in a request's parameters.
pub(super) fn task(params: &str) -> Option<String> {
    serde_json::from_str(Members::read(params)?.get("taskId")?).ok()
}
