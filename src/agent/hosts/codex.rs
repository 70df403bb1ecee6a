//! OpenAI's Codex CLI. (<https://developers.openai.com/codex/hooks>)
//!
//! Its events are Claude Code's, but its answers are validated by a schema: an unknown word, `ask`, or an `allow`
//! without changed arguments is a failed hook, and the tool runs. So a permission is an empty answer. There is no event
//! for a failure: an exit code is not shown, and success is inferred from a text that is no error.

use serde_json::{Value, json};

use super::{
    CallResult, HostAnswer, HostEvent, claude_code,
    input::{Input, text_of},
};

/// Prefixes of an error line.
const ERRORS: [&str; 10] = [
    "apply_patch verification failed",
    "error:",
    "Error:",
    "ERROR:",
    "fatal:",
    "panic:",
    "Traceback (most recent call last)",
    "command failed",
    "execution error",
    "failed to",
];
/// Suffixes of a shell's error line.
const REFUSALS: [&str; 3] = [": command not found", ": Permission denied", ": No such file or directory"];

pub(super) fn event(input: &Input) -> Option<HostEvent> {
    Some(match input.hook_event_name.as_str() {
        "PostToolUse" => HostEvent::After(input.call()?, classify(&input.tool_response)),
        "PostToolUseFailure" | "PermissionDenied" => HostEvent::Other,
        _ => claude_code::event(input)?,
    })
}

/// The outcome: an MCP server says itself that a call failed.
fn classify(response: &Value) -> CallResult {
    match response.get("isError").and_then(Value::as_bool) {
        Some(true) => CallResult::Error(text_of(response.get("content").unwrap_or(response))),
        Some(false) => CallResult::Success(text_of(response)),
        None => infer_outcome(text_of(response)),
    }
}

/// The outcome inferred from a text: an error if its last line, or all of it, is one.
fn infer_outcome(text: String) -> CallResult {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (first, last) = (lines.next(), lines.next_back());
    let is_error = |line: &str| {
        ERRORS.iter().any(|start| line.starts_with(start)) || REFUSALS.iter().any(|end| line.ends_with(end))
    };
    // A program that reads logs shows errors too, but begins and ends with other lines.
    let is_failure = match (first, last) {
        (Some(only), None) => is_error(only),
        (Some(first), Some(last)) => is_error(first) || is_error(last),
        _ => false,
    };
    if is_failure { CallResult::Error(text) } else { CallResult::Success(text) }
}

pub(super) fn render_answer(name: &str, answer: &HostAnswer) -> Option<Value> {
    let output = |output: Value| Some(json!({"hookSpecificOutput": output}));
    match answer {
        HostAnswer::Nothing => None,
        HostAnswer::Run { arguments: Some(arguments), .. } => {
            output(json!({"hookEventName": name, "permissionDecision": "allow", "updatedInput": arguments}))
        }
        // Without a permission decision, so that a version that rejects the field behaves as before.
        HostAnswer::Run { context, .. } => {
            output(json!({"hookEventName": name, "additionalContext": context.as_deref()?}))
        }
        HostAnswer::Refuse(reason) | HostAnswer::Ask(reason) => {
            output(json!({"hookEventName": name, "permissionDecision": "deny", "permissionDecisionReason": reason}))
        }
        HostAnswer::Tell(context) if ["PostToolUse", "UserPromptSubmit", "SessionStart"].contains(&name) => {
            output(json!({"hookEventName": name, "additionalContext": context}))
        }
        HostAnswer::Tell(_) => None,
    }
}
