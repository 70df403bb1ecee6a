//! Reads that may run without a server: built-in tools of the host, classified by the preset for coding agents.

use crate::hosts::HostCall;

/// True for a known read. The preset's list alone is read: a compiled policy would triple the size of `callgate-hook`.
pub(super) fn is_read(call: &HostCall) -> bool {
    callgate_core::policy::is_coding_agent_read(&call.tool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::{Host, HostEvent};

    #[test]
    fn only_what_is_known_to_read_runs_unasked() {
        let reads = |tool: &str, input: &str| {
            let text = format!(
                r#"{{"hook_event_name":"PreToolUse","session_id":"s","tool_name":"{tool}","tool_input":{input}}}"#
            );
            let Ok(seen) = Host::ClaudeCode.read(&text) else { panic!("readable") };
            let HostEvent::Before(call) = seen.event else { panic!("a call") };
            is_read(&call)
        };
        assert!(reads("Read", r#"{"file_path":"/w/a"}"#));
        assert!(!reads("Bash", r#"{"command":"git status"}"#), "a line of a shell");
        assert!(!reads("Bash", r#"{"command":"git push"}"#));
        assert!(!reads("Write", r#"{"file_path":"/w/a","content":"x"}"#));
        assert!(!reads("mcp__mail__send", "{}"));
    }
}
