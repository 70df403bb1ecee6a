//! Envelope of a call that was approved with edited arguments.

use serde_json::Value;

use super::envelope::{DISABLED, ToolResult, object};
use crate::domain::{control::EditedArguments, finding::Finding};

/// The envelope with the complete edited arguments.
pub(super) fn instead(winner: &Finding, disabled: bool, edited: Option<&EditedArguments>) -> ToolResult {
    let arguments = edited.and_then(|edited| edited.arguments.as_deref());
    let next = match (arguments, edited) {
        _ if disabled => DISABLED,
        (Some(_), _) => {
            "Call it again with exactly the arguments in approved_arguments, all of them and no other: any other ones \
             are asked about anew."
        }
        (None, Some(_)) => "They are no longer kept: call it as it is needed now, and a person is asked anew.",
        (None, None) => "They cannot be read at the moment: make this very call again to be told them.",
    };
    let members = vec![
        ("status", winner.reason.as_str().into()),
        ("message", format!("{} {next}", winner.message).into()),
        ("retryable", false.into()),
        ("reason", winner.rule.as_ref().into()),
        ("tools_disabled", if disabled { true.into() } else { Value::Null }),
        ("next_action_hint", next.into()),
    ];
    let raw = arguments.map(|arguments| ("approved_arguments", arguments.to_owned()));
    ToolResult { json: object(members, raw.into_iter().collect()), is_error: true }
}
