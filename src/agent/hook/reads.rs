//! Reads that may run without a server: built-in tools of the host, classified by the preset for coding agents.

use crate::hosts::Call;
use callgate_core::domain::{
    call::Request,
    effect::EffectKind,
    ids::{CallId, DEFAULT_TENANT, SessionId, ToolName},
    json,
};

/// Policy with the preset.
const POLICY: &str = "policy_engine: {presets: [coding_agents]}";

/// True for a known read.
pub(super) fn is_read(call: &Call) -> bool {
    let read = || {
        let policy = callgate_core::policy::compile(POLICY).ok()?;
        let arguments = json::parse(&serde_json::Value::from(call.arguments.clone()).to_string()).ok()?;
        let (session, id) = (SessionId::parse("session", "hook").ok()?, CallId::parse("call_id", "hook").ok()?);
        let tool = ToolName::parse("tool", &call.tool).ok()?;
        let proposal = policy.propose(Request::new(DEFAULT_TENANT, session, id, tool, arguments));
        // The effect of a shell line depends on variables, functions and folder, which are unknown here.
        let is_look = matches!(proposal.effect.kind, EffectKind::Read | EffectKind::Poll);
        Some(is_look && proposal.declared && !proposal.effect.in_steps)
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::{Event, Host};

    #[test]
    fn only_what_is_known_to_read_runs_unasked() {
        let reads = |tool: &str, input: &str| {
            let text = format!(
                r#"{{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"{tool}","tool_input":{input}}}"#
            );
            let Ok(seen) = Host::ClaudeCode.read(&text) else { panic!("readable") };
            let Event::Before(call) = seen.event else { panic!("a call") };
            is_read(&call)
        };
        assert!(reads("Read", r#"{"file_path":"/w/a"}"#));
        assert!(!reads("Bash", r#"{"command":"git status"}"#), "a line of a shell");
        assert!(!reads("Bash", r#"{"command":"git push"}"#));
        assert!(!reads("Write", r#"{"file_path":"/w/a","content":"x"}"#));
        assert!(!reads("mcp__mail__send", "{}"));
    }
}
