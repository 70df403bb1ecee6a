//! write_idempotency: a write of which nobody says what its repetition does.
//!
//! Reports a write that the policy declares neither `once`, `idempotent`, `key_honored` nor `repeatable`, that has no
//! `idempotentHint`, and whose description says nothing of repeating it. Where only its name says that it writes, it is
//! only advice.
//!
//! Why: every timeout asks whether the write may be sent again. Without an answer the gate must refuse (and the work
//! stops) or a model decides (and the payment runs twice).
//!
//! Known problems: what the backend does with an idempotency key cannot be seen from here.

use std::sync::LazyLock;

use regex::Regex;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::tool_list::name_words;

const REASON: &str = "after a timeout somebody has to know whether it may be sent again";

static SAYS: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r"(?i)idempoten|\b(safe|harmless|no effect|nothing) (to |if |when )?(repeat",
        r"|retry|call(ed)? (again|twice))|\b(twice|again|repeat(ed|ing)?|second (time",
        r"|call)|duplicates?|(two|both|each|every) calls?)\b",
    ))
});

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in &facts.tools {
        let Some(told) = tool.as_write() else { continue };
        let is_declared = tool.declared.is_some_and(|declared| {
            declared.once || declared.idempotent || declared.key_honoured || declared.repeatable
        });
        if is_declared || tool.doc.hints.idempotent.is_some() || SAYS.is_match(&tool.doc.description) {
            continue;
        }
        let message = format!("is a write ({}), and nobody says what its repetition does", told.by);
        reports.push(tool.report("", message, REASON, better(tool)).by(told));
    }
    reports
}

fn better(tool: &ToolFacts<'_>) -> String {
    let verb = tool.verb();
    let line = |key: &str| format!("`{}: {{effect: write, {key}: true}}`", tool.name());
    if name_words::harms(verb) {
        return format!("{} in the policy's tool_schemas: the gate then sends it once", line("once"));
    }
    if name_words::settles(verb) {
        let of_server = "`\"idempotentHint\": true` in its annotations";
        return format!("{} in the policy, or {of_server}, if twice is as once", line("idempotent"));
    }
    let noun = tool.subject().unwrap_or_else(|| "change".to_owned());
    format!("{} in the policy if a second {noun} would harm, else {}", line("once"), line("idempotent"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn a_write_of_which_nothing_is_said_is_reported_by_how_sure_it_is() {
        reports(
            "write_idempotency",
            "
            - {name: pay_invoice, policy: {effect: write}}
            - {name: set_status, annotations: {readOnlyHint: false}}
            - {name: create_order}
            ",
            "warning pay_invoice: is a write (the policy declares it), and nobody says what its repetition does
             better: `pay_invoice: {effect: write, once: true}` in the policy's tool_schemas: \
             the gate then sends it once
             warning set_status: is a write (its annotations say readOnlyHint: false), \
             and nobody says what its repetition does
             better: `set_status: {effect: write, idempotent: true}` in the policy, \
             or `\"idempotentHint\": true` in its annotations, if twice is as once
             note create_order: is a write (a guess from `create` in its name), and nobody says what its repetition does
             better: `create_order: {effect: write, once: true}` in the policy if a second order would harm, \
             else `create_order: {effect: write, idempotent: true}`",
        );
    }

    #[test]
    fn a_declaration_a_hint_or_a_sentence_suffices() {
        silent(
            "write_idempotency",
            "
            - {name: pay_invoice, policy: {effect: write, once: true}}
            - {name: set_status, annotations: {readOnlyHint: false, idempotentHint: false}}
            - {name: create_order, description: Calling it again makes a second order.}
            - {name: get_order}
            - {name: add_line, policy: {effect: write, key_honored: true}}
            - {name: append_row, policy: {effect: write, repeatable: true}}
            - {name: transfer_to_human, policy: {effect: write}}
            - {name: run_report}
            ",
        );
    }
}
