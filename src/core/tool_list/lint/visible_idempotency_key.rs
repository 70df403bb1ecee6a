//! visible_idempotency_key: an idempotency key that the model can see and has to make up.
//!
//! Reports an argument of a tool that does not only look whose name says that it carries an idempotency key.
//!
//! Why: a model makes a new key for each try, and the payment runs twice; or it copies an old one, and a new payment is
//! taken for the old one. The gate makes the key of the call's content and keeps it over all attempts.
//!
//! Known problems: names are all there is to go by; a key under another name is not seen.

use super::{LintReport, ListFacts};
use crate::tool_list::name_words;

const REASON: &str =
    "a model makes a new key for each try, so a retry runs twice, or copies an old one, so a new call is lost";

/// One report an argument.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in facts.tools.iter().filter(|tool| !tool.is_reader()) {
        for (node, field) in tool.properties().filter(|(_, field)| is_key(field)) {
            let message = format!("`{field}` is an idempotency key, and the model is asked to make it up");
            let better = format!(
                "remove `{field}` from what the model sees and let the gate put in its own: \
                 `idempotency: {{inject_as: argument, argument: {field}}}`"
            );
            reports.push(tool.report(&node.pointer, message, REASON, better));
        }
    }
    reports
}

fn is_key(field: &str) -> bool {
    let words = name_words::split_name(field).join(" ");
    let known = ["client token", "client request token", "client request id", "request token"];
    words.contains("idempoten") || words.starts_with("dedup") || known.contains(&words.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn a_key_among_the_arguments_is_an_error() {
        reports(
            "visible_idempotency_key",
            "- {name: pay, input_schema: {properties: {idempotencyKey: {type: string}, invoice_id: {type: string}}}}",
            "error pay /input_schema/properties/idempotencyKey: \
             `idempotencyKey` is an idempotency key, and the model is asked to make it up
             better: remove `idempotencyKey` from what the model sees and let the gate put in its own: \
             `idempotency: {inject_as: argument, argument: idempotencyKey}`",
        );
    }

    #[test]
    fn other_keys_and_tools_that_look_are_left_alone() {
        silent(
            "visible_idempotency_key",
            "
            - {name: pay, input_schema: {properties: {request_id: {type: string}, key: {type: string}}}}
            - {name: get_payment, input_schema: {properties: {idempotency_key: {type: string}}}}
            ",
        );
    }
}
