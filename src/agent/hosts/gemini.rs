//! Google's Gemini CLI. (<https://github.com/google-gemini/gemini-cli/blob/main/docs/hooks/reference.md>)
//!
//! Decisions are top-level fields, and calls and turns have no ids. There is no restart event after a compression, and
//! the hook before it does not block: its text is sent with the next prompt, or after the next tool.

use serde_json::{Value, json};

use super::{
    Answer, CallResult, Event,
    input::{Input, text_of},
};

pub(super) fn event(input: &Input) -> Option<Event> {
    Some(match input.hook_event_name.as_str() {
        "BeforeTool" => Event::Before(input.call()?),
        "AfterTool" => Event::After(input.call()?, came(&input.tool_response)),
        "BeforeAgent" => Event::Prompted,
        "AfterAgent" => Event::TurnEnded,
        "SessionEnd" => Event::Ended,
        // Sent before each model request, as a check for compression.
        "PreCompress" if input.trigger.as_deref() == Some("auto") => Event::Other,
        "PreCompress" => Event::Compacted { restarts: false },
        _ => Event::Other,
    })
}

fn came(response: &Value) -> CallResult {
    match response.get("error").filter(|error| !error.is_null()) {
        Some(Value::Object(error)) => CallResult::Error(text_of(error.get("message").unwrap_or(&Value::Null))),
        Some(error) => CallResult::Error(text_of(error)),
        None => CallResult::Success(text_of(response.get("llmContent").unwrap_or(response))),
    }
}

pub(super) fn said(name: &str, answer: &Answer) -> Option<Value> {
    match answer {
        Answer::Nothing | Answer::Run { arguments: None, .. } => None,
        Answer::Run { arguments: Some(arguments), .. } => {
            Some(json!({"hookSpecificOutput": {"tool_input": arguments}}))
        }
        Answer::Refuse(reason) | Answer::Ask(reason) => Some(json!({"decision": "deny", "reason": reason})),
        Answer::Tell(context) => {
            let is_heard = ["BeforeAgent", "AfterTool", "SessionStart"].contains(&name);
            is_heard.then(|| json!({"hookSpecificOutput": {"hookEventName": name, "additionalContext": context}}))
        }
    }
}
