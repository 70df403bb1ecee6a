//! Cursor. (<https://cursor.com/docs/hooks>)
//!
//! Its own hooks; it also loads those of Claude Code, in their dialect. A denial has two texts: one for the user, one
//! for the model.

use serde_json::{Value, json};

use super::{
    Answer, CallResult, Event,
    input::{Input, text_of},
};

pub(super) fn event(input: &Input) -> Option<Event> {
    Some(match input.hook_event_name.as_str() {
        "preToolUse" => Event::Before(input.call()?),
        "postToolUse" => Event::After(input.call()?, CallResult::Success(text_of(&input.tool_output))),
        "postToolUseFailure" => Event::After(input.call()?, failed(input)),
        "beforeSubmitPrompt" => Event::Prompted,
        "stop" => Event::TurnEnded,
        "sessionEnd" => Event::Ended,
        "preCompact" => Event::Compacted { restarts: false },
        _ => Event::Other,
    })
}

fn failed(input: &Input) -> CallResult {
    match (input.is_interrupt, input.failure_type.as_deref()) {
        (_, Some("permission_denied")) => CallResult::Cancelled { not_started: true },
        (Some(true), _) => CallResult::Cancelled { not_started: false },
        _ => CallResult::Error(input.error_message.clone().or_else(|| input.error.clone()).unwrap_or_default()),
    }
}

pub(super) fn said(name: &str, answer: &Answer) -> Option<Value> {
    match answer {
        Answer::Run { grant: true, .. } => Some(json!({"permission": "allow"})),
        Answer::Refuse(reason) | Answer::Ask(reason) => {
            Some(json!({"permission": "deny", "user_message": reason, "agent_message": reason}))
        }
        Answer::Tell(context) if name == "postToolUse" => Some(json!({"additional_context": context})),
        Answer::Nothing | Answer::Run { .. } | Answer::Tell(_) => None,
    }
}
