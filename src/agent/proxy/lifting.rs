//! Commands in a refusal by which a person lifts a limit.

use serde_json::Value;

use crate::hosts;

/// A refusal with the commands by which a person lifts it, for the user of the host.
pub(super) fn with_lifting(tool_result_json: &str, session: &str, tool: &str) -> String {
    let said = serde_json::from_str(tool_result_json).unwrap_or_default();
    let lifting = hosts::describe_lifting(&said, session, tool);
    match (lifting, tool_result_json.trim_end().strip_suffix('}')) {
        (Some(lifting), Some(members)) => format!(r#"{members},"for_the_user":{}}}"#, Value::from(lifting)),
        _ => tool_result_json.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_tells_the_user_how_to_lift_it() {
        let text = with_lifting(r#"{"status":"approval_required","approval_id":"apr_1"}"#, "s", "drop");
        let said: Value = serde_json::from_str(&text).expect("JSON");
        let lifting = said["for_the_user"].as_str().expect("a text");
        assert!(lifting.starts_with("For the user alone, in a terminal: `callgate approvals approve apr_1`"), "{text}");
        let reuse = r#"{"status":"duplicate_call_blocked","previous_result":1.50}"#;
        assert_eq!(with_lifting(reuse, "s", "look"), reuse);
        assert_eq!(with_lifting("no JSON", "s", "look"), "no JSON");
    }
}
