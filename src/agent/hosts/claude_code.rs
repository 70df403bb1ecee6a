//! Claude Code. (<https://code.claude.com/docs/en/hooks>)
//!
//! A denial reaches the model; no output leaves the host's own prompts as they are, and a bare `allow` skips them. A
//! refused call has no event after it.

use serde_json::{Map, Value, json};

use super::{
    CallResult, HostAnswer, HostEvent,
    input::{Input, text_of},
};

pub(super) fn event(input: &Input) -> Option<HostEvent> {
    Some(match input.hook_event_name.as_str() {
        "PreToolUse" => HostEvent::Before(input.call()?),
        "PostToolUse" => HostEvent::After(input.call()?, came(&input.tool_response)),
        "PostToolUseFailure" => HostEvent::After(input.call()?, classify_failure(input)),
        "PermissionRequest" => HostEvent::AtPrompt(input.call()?.tool),
        // It has no id where a human was asked.
        "PermissionDenied" => match input.call()? {
            call if call.id.is_some() => HostEvent::After(call, CallResult::Cancelled { not_started: true }),
            _ => HostEvent::Other,
        },
        "UserPromptSubmit" => HostEvent::Prompted,
        "Stop" | "StopFailure" | "SubagentStop" => HostEvent::TurnEnded,
        "SessionEnd" => HostEvent::Ended,
        "PreCompact" => HostEvent::Compacted { restarts: true },
        "SessionStart" if input.source.as_deref() == Some("compact") => HostEvent::Restarted,
        _ => HostEvent::Other,
    })
}

fn classify_failure(input: &Input) -> CallResult {
    match input.is_interrupt {
        Some(true) => CallResult::Cancelled { not_started: false },
        _ => CallResult::Error(input.error.clone().unwrap_or_default()),
    }
}

/// The result of a tool, with the parts that the model sees: a line's output, a file's text.
fn came(response: &Value) -> CallResult {
    let part = |name: &str| response.get(name).and_then(Value::as_str);
    if response.get("interrupted").and_then(Value::as_bool) == Some(true) {
        return CallResult::Cancelled { not_started: false };
    }
    CallResult::Success(match (part("stdout"), part("stderr")) {
        (Some(out), Some(error)) if !error.is_empty() => format!("{out}\n{error}"),
        (Some(out), _) => out.to_owned(),
        _ => match response.pointer("/file/content").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => text_of(&without_originals(response)),
        },
    })
}

/// Removes the original file from an edit's result.
fn without_originals(response: &Value) -> Value {
    let mut response = response.clone();
    response.as_object_mut().map(|parts| parts.remove("originalFile"));
    response
}

pub(super) fn render_answer(name: &str, answer: &HostAnswer) -> Option<Value> {
    let mut output = Map::from_iter([("hookEventName".to_owned(), Value::from(name))]);
    let mut say = |name: &str, value: Value| drop(output.insert(name.to_owned(), value));
    match answer {
        HostAnswer::Nothing | HostAnswer::Run { grant: false, context: None, arguments: None } => return None,
        HostAnswer::Run { grant, context, arguments } => {
            if *grant {
                say("permissionDecision", "allow".into());
            }
            context.iter().for_each(|context| say("additionalContext", context.as_str().into()));
            arguments.iter().for_each(|arguments| say("updatedInput", arguments.clone().into()));
        }
        HostAnswer::Refuse(reason) => {
            say("permissionDecision", "deny".into());
            say("permissionDecisionReason", reason.as_str().into());
        }
        HostAnswer::Ask(question) => {
            say("permissionDecision", "ask".into());
            say("permissionDecisionReason", question.as_str().into());
        }
        HostAnswer::Tell(context) => say("additionalContext", context.as_str().into()),
    }
    // These hear nothing: their output would be an error, or keep the agent from ending.
    let is_heard =
        ["PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"].contains(&name);
    is_heard.then(|| json!({"hookSpecificOutput": output}))
}
