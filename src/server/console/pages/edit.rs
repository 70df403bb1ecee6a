//! Approval with edited arguments: the form, and its confirmation.

use std::fmt::Write as _;

use super::call::pretty;
use crate::console::arguments::{self, ArgumentChange, SHOWN_BYTES};
use callgate_core::domain::{
    json::{self, Json},
    redaction,
    visible::is_visible,
};
use callgate_proto::v1::{Approval, ApprovalState};

/// Fields that are named.
const NAMED_MAX: usize = 20;

/// Edited arguments, compared with the call's own.
pub(super) struct EditForm {
    pub(super) json: String,
    pub(super) digest: String,
    /// Changed arguments, and the count of equal ones; none where they cannot be compared.
    pub(super) other: Option<(Vec<ArgumentChange>, usize)>,
    /// All of them.
    pub(super) tree: String,
}

impl EditForm {
    /// The edited arguments of a request; none where it has none.
    pub(super) fn of(question: &Approval) -> Option<Self> {
        (!question.edited_args_digest.is_empty()).then(|| Self {
            json: question.edited_arguments_json.clone(),
            digest: question.edited_args_digest.clone(),
            other: arguments::difference(&question.arguments_json, &question.edited_arguments_json),
            tree: arguments::tree(&question.edited_arguments_json).0,
        })
    }
}

/// Reason why the arguments of a request cannot be edited in a page.
pub(super) fn why_not_editable(question: &Approval) -> Option<String> {
    if question.state() != ApprovalState::Pending {
        return None;
    }
    let text = question.arguments_json.as_str();
    if text.len() > SHOWN_BYTES {
        let command = "callgate approvals approve --arguments @FILE";
        return Some(format!("Too long to edit here. Use the command “{command}”, which reads a file."));
    }
    let left_out = redaction::missing(text, NAMED_MAX);
    let is_hash = match json::parse(text) {
        Ok(Json::Object(members)) => {
            matches!(members.as_slice(), [(key, Json::String(hash))] if &**key == "sha256" && hash.len() == 64)
        }
        _ => true,
    };
    match (left_out.as_slice(), is_hash) {
        (_, true) => Some("Cannot be edited here: the policy redacts the arguments.".to_owned()),
        ([], false) => None,
        (fields, false) => Some(format!("Cannot be edited here: the policy redacts {}.", fields.join(", "))),
    }
}

/// Arguments for the editor: a member a line, with invisible characters escaped.
pub(super) fn editable(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for char in pretty(text).chars() {
        if char == '\n' || is_visible(char) {
            out.push(char);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval_of(arguments: &str) -> Approval {
        let state = ApprovalState::Pending.into();
        Approval { arguments_json: arguments.to_owned(), state, ..Approval::default() }
    }

    #[test]
    fn hidden_arguments_cannot_be_edited() {
        assert_eq!(why_not_editable(&approval_of(r#"{"to":"anna","sha256":"x"}"#)), None);
        let hash = format!(r#"{{"sha256":"{}"}}"#, "0".repeat(64));
        let secret = format!(r#"{{"to":"anna","login":{{"password":"{}"}}}}"#, redaction::REDACTED);
        for (arguments, why) in [(hash, "the arguments"), (secret, "login.password"), ("x".repeat(20_001), "FILE")] {
            assert!(why_not_editable(&approval_of(&arguments)).is_some_and(|told| told.contains(why)), "{why}");
        }
    }

    #[test]
    fn invisible_character_is_edited_as_its_escape() {
        let text = "{\"a\":\"x\u{202e}y\u{e0041}\",\"n\":1.50}";
        let edited = editable(text);
        assert_eq!(edited, "{\n  \"a\": \"x\\u202ey\\udb40\\udc41\",\n  \"n\": 1.50\n}");
        assert_eq!(json::parse(&edited), json::parse(text));
    }
}
