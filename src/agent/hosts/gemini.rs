//! Google's Gemini CLI. (<https://github.com/google-gemini/gemini-cli/blob/main/docs/hooks/reference.md>)
//!
//! Decisions are top-level fields, and calls and turns have no ids. There is no restart event after a compression, and
//! the hook before it does not block: its text is sent with the next prompt, or after the next tool.

use serde_json::{Value, json};

use super::{
    CallResult, HostAnswer, HostEvent,
    input::{Input, text_of},
};

pub(super) fn event(input: &Input) -> Option<HostEvent> {
    Some(match input.hook_event_name.as_str() {
        "BeforeTool" => HostEvent::Before(input.call()?),
        "AfterTool" => HostEvent::After(input.call()?, came(&input.tool_response)),
        "BeforeAgent" => HostEvent::Prompted,
        "AfterAgent" => HostEvent::TurnEnded,
        "SessionEnd" => HostEvent::Ended,
        // Sent before each model request, as a check for compression.
        "PreCompress" if input.trigger.as_deref() == Some("auto") => HostEvent::Other,
        "PreCompress" => HostEvent::Compacted { restarts: false },
        _ => HostEvent::Other,
    })
}

fn came(response: &Value) -> CallResult {
    match response.get("error").filter(|error| !error.is_null()) {
        Some(Value::Object(error)) => CallResult::Error(text_of(error.get("message").unwrap_or(&Value::Null))),
        Some(error) => CallResult::Error(text_of(error)),
        None => CallResult::Success(text_of(response.get("llmContent").unwrap_or(response))),
    }
}

pub(super) fn render_answer(name: &str, answer: &HostAnswer) -> Option<Value> {
    match answer {
        HostAnswer::Nothing | HostAnswer::Run { arguments: None, .. } => None,
        HostAnswer::Run { arguments: Some(arguments), .. } => {
            Some(json!({"hookSpecificOutput": {"tool_input": arguments}}))
        }
        HostAnswer::Refuse(reason) | HostAnswer::Ask(reason) => Some(json!({"decision": "deny", "reason": reason})),
        HostAnswer::Tell(context) => {
            let is_heard = ["BeforeAgent", "AfterTool", "SessionStart"].contains(&name);
            is_heard.then(|| json!({"hookSpecificOutput": {"hookEventName": name, "additionalContext": context}}))
        }
    }
}
