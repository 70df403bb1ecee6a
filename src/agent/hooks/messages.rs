//! Requests for an event, and interpretation of their responses.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::{HookSettings, v1};
use crate::hosts::{CallResult, HookInput, HostCall};
use callgate_proto::time::duration;

/// Maximum size of an unmodified result, in bytes: the server's own limit.
const RESULT_BYTES_MAX: usize = callgate_core::domain::json::BYTES_MAX;
/// Maximum size of an error text.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Builder of the requests of one event, with the caller's identity.
pub(super) struct Messages<'a> {
    pub(super) seen: &'a HookInput,
    pub(super) installed: &'a HookSettings,
}

impl Messages<'_> {
    fn caller(&self) -> v1::Caller {
        v1::Caller {
            session_id: self.seen.session.clone(),
            parent_session_id: self.seen.parent.clone().unwrap_or_default(),
            run_id: self.seen.run.clone().unwrap_or_default(),
            agent_id: self.installed.agent.clone(),
            host: self.installed.host.as_str().to_owned(),
            ..v1::Caller::default()
        }
    }

    fn call(call: &HostCall, witness: Option<String>) -> v1::ToolCall {
        v1::ToolCall {
            call_id: call.id.clone().unwrap_or_default(),
            tool: call.tool.clone(),
            arguments_json: serde_json::Value::from(call.arguments.clone()).to_string(),
            justification: call.justification.clone().unwrap_or_default(),
            witness: witness.unwrap_or_default(),
            ..v1::ToolCall::default()
        }
    }

    /// The evaluation request.
    pub(super) fn question(&self, call: &HostCall, witness: Option<String>, wait: Duration) -> v1::EvaluateRequest {
        v1::EvaluateRequest {
            caller: Some(self.caller()),
            call: Some(Self::call(call, witness)),
            max_wait: Some(duration(wait.as_millis() as u64)),
            ..v1::EvaluateRequest::default()
        }
    }

    /// The report on a call; for an unrequested one, with the call itself.
    pub(super) fn report(
        &self,
        id: &str,
        call: Option<&HostCall>,
        came: CallResult,
        host_approved: bool,
    ) -> v1::RecordRequest {
        use v1::OutcomeStatus::{Cancelled, Error, Success};
        let ran = call.filter(|_| host_approved || !matches!(came, CallResult::Cancelled { .. }));
        let report = v1::RecordRequest {
            caller: Some(self.caller()),
            call_id: id.to_owned(),
            observed_call: ran.map(|call| Self::call(call, None)),
            host_approved,
            ..v1::RecordRequest::default()
        };
        match came {
            CallResult::Success(text) if text.len() > RESULT_BYTES_MAX => v1::RecordRequest {
                status: Success.into(),
                result_digest: hex::encode(Sha256::digest(&text)),
                result_bytes: Some(text.len() as u64),
                ..report
            },
            CallResult::Success(text) => v1::RecordRequest { status: Success.into(), result: Some(text), ..report },
            CallResult::Error(text) => {
                let message = text[..text.floor_char_boundary(ERROR_BYTES_MAX)].to_owned();
                let error = Some(v1::ToolError { message, ..v1::ToolError::default() });
                v1::RecordRequest { status: Error.into(), error, ..report }
            }
            CallResult::Cancelled { not_started } => {
                v1::RecordRequest { status: Cancelled.into(), not_started, ..report }
            }
        }
    }

    /// Prefix of generated ids, for hosts without call ids: by tool and arguments within the run.
    pub(super) fn stem(&self, call: &HostCall) -> String {
        let told = serde_json::json!([self.seen.run, call.tool, call.arguments]).to_string();
        format!("hook-{}-", &hex::encode(Sha256::digest(told))[..16])
    }
}

/// Hint for the model beside an outcome: a warning, or retry advice for a known failure kind.
pub(super) fn hint(answer: &v1::RecordResponse) -> Option<String> {
    use v1::FailureKind::{Other, Unspecified};
    if !answer.next_context_hint.is_empty() {
        return Some(answer.next_context_hint.clone());
    }
    if matches!(answer.failure(), Unspecified | Other) {
        return None;
    }
    let told: serde_json::Value = serde_json::from_str(&answer.tool_result_json).ok()?;
    told.get("next_action_hint")?.as_str().map(str::to_owned)
}
