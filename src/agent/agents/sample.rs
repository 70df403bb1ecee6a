//! Sample call of a probe: the host's inputs for its hooks, and the host's interpretation of their output.

use std::path::Path;

use serde_json::{Value, json};

use crate::hosts::Host;

/// A call, from before its start to the end of its session.
#[derive(Debug)]
pub(super) struct Sample<'a> {
    pub(super) host: Host,
    /// Unique session of the probe.
    pub(super) session: &'a str,
    /// Existing file to read.
    pub(super) file: &'a Path,
    pub(super) folder: &'a Path,
}

/// Effect of a hook's output in the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HookEffect {
    /// The call continues as without a hook.
    Allowed,
    /// The call is refused, with a reason for the model.
    Refused(String),
    /// The hook failed.
    Broken(String),
}

impl Sample<'_> {
    /// Description of the call.
    pub(super) fn describe_call(&self) -> String {
        match self.host {
            Host::Codex => "`pwd`".to_owned(),
            _ => format!("reading {}", self.file.display()),
        }
    }

    /// Hook inputs: before the call, after it, at the end of the session.
    pub(super) fn inputs(&self) -> [(&'static str, String); 3] {
        let (file, call) = (self.file, format!("{}-call", self.session));
        let read = json!({"file_path": file});
        let (tool, input, names) = match self.host {
            Host::ClaudeCode => ("Read", read, ["PreToolUse", "PostToolUse", "SessionEnd"]),
            Host::Codex => ("Bash", json!({"command": "pwd"}), ["PreToolUse", "PostToolUse", "Stop"]),
            Host::Gemini => ("read_file", read, ["BeforeTool", "AfterTool", "SessionEnd"]),
            Host::Cursor => ("Read", read, ["preToolUse", "postToolUse", "sessionEnd"]),
        };
        let id = if self.host == Host::Cursor { "conversation_id" } else { "session_id" };
        let about_call = |event: &str| {
            let mut text =
                json!({"hook_event_name": event, "cwd": self.folder, "tool_name": tool, "tool_input": input});
            text[id] = self.session.into();
            // Gemini numbers no calls.
            if self.host != Host::Gemini {
                text["tool_use_id"] = call.as_str().into();
            }
            text
        };
        let mut after = about_call(names[1]);
        let result = if self.host == Host::Cursor { "tool_output" } else { "tool_response" };
        after[result] = match self.host {
            Host::Gemini => json!({"llmContent": "a test of callgate"}),
            _ => "a test of callgate".into(),
        };
        let mut end = json!({"hook_event_name": names[2], "cwd": self.folder, "reason": "other"});
        end[id] = self.session.into();
        let texts = [about_call(names[0]), after, end];
        [0, 1, 2].map(|at| (names[at], texts[at].to_string()))
    }
}

/// Effect of a command's output before a call.
pub(super) fn of_command(host: Host, code: Option<i32>, out: &str, error: &str) -> HookEffect {
    match code {
        Some(0) => of_output(host, out),
        Some(2) => HookEffect::Refused(to_one_line(error)),
        Some(code) => HookEffect::Broken(format!("exit code {code}: {}", to_one_line(error))),
        None => HookEffect::Broken(format!("it was killed: {}", to_one_line(error))),
    }
}

/// Effect of a server's response before a call.
pub(super) fn of_http(status: u16, body: &str) -> HookEffect {
    match status {
        200..300 => of_output(Host::ClaudeCode, body),
        _ => HookEffect::Broken(format!("the server returned HTTP status {status}: {}", to_one_line(body))),
    }
}

/// Effect of an output, which must be an object or empty: no host parses prose.
fn of_output(host: Host, out: &str) -> HookEffect {
    if out.trim().is_empty() {
        return HookEffect::Allowed;
    }
    let Ok(said) = serde_json::from_str::<Value>(out) else {
        return HookEffect::Broken(format!("its output is not JSON: {}", to_one_line(out)));
    };
    let (decision, reason) = match host {
        Host::ClaudeCode | Host::Codex => {
            ("/hookSpecificOutput/permissionDecision", "/hookSpecificOutput/permissionDecisionReason")
        }
        Host::Gemini => ("/decision", "/reason"),
        Host::Cursor => ("/permission", "/agent_message"),
    };
    let text = |pointer: &str| said.pointer(pointer).and_then(Value::as_str);
    match text(decision) {
        None | Some("allow") => HookEffect::Allowed,
        Some(decision) => HookEffect::Refused(to_one_line(text(reason).unwrap_or(decision))),
    }
}

/// The text in one line.
fn to_one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() { "no output".to_owned() } else { words.join(" ") }
}
