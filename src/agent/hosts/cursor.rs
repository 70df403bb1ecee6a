//! Cursor. (<https://cursor.com/docs/hooks>)
//!
//! Its own hooks; it also loads those of Claude Code, in their dialect. A denial has two texts: one for the user, one
//! for the model.

use serde_json::{Value, json};

use super::{
    CallResult, HostAnswer, HostEvent,
    input::{Input, text_of},
};

pub(super) fn event(input: &Input) -> Option<HostEvent> {
    Some(match input.hook_event_name.as_str() {
        "preToolUse" => HostEvent::Before(input.call()?),
        "postToolUse" => HostEvent::After(input.call()?, CallResult::Success(text_of(&input.tool_output))),
        "postToolUseFailure" => HostEvent::After(input.call()?, classify_failure(input)),
        "beforeSubmitPrompt" => HostEvent::Prompted,
        "stop" => HostEvent::TurnEnded,
        "sessionEnd" => HostEvent::Ended,
        "preCompact" => HostEvent::Compacted { restarts: false },
        _ => HostEvent::Other,
    })
}

fn classify_failure(input: &Input) -> CallResult {
    match (input.is_interrupt, input.failure_type.as_deref()) {
        (_, Some("permission_denied")) => CallResult::Cancelled { not_started: true },
        (Some(true), _) => CallResult::Cancelled { not_started: false },
        _ => CallResult::Error(input.error_message.clone().or_else(|| input.error.clone()).unwrap_or_default()),
    }
}

pub(super) fn render_answer(name: &str, answer: &HostAnswer) -> Option<Value> {
    match answer {
        HostAnswer::Run { grant: true, .. } => Some(json!({"permission": "allow"})),
        HostAnswer::Refuse(reason) | HostAnswer::Ask(reason) => {
            Some(json!({"permission": "deny", "user_message": reason, "agent_message": reason}))
        }
        HostAnswer::Tell(context) if name == "postToolUse" => Some(json!({"additional_context": context})),
        HostAnswer::Nothing | HostAnswer::Run { .. } | HostAnswer::Tell(_) => None,
    }
}
