//! write_without_reader: a write whose resource no tool of the list can look at.
//!
//! Reports a write when no tool that looks shares its resource: the first part of the declared resource
//! (`order/{order_id}`) where the policy declares both, else a noun of the name. Where only names tell, it is only
//! advice, and only for verbs whose effect can be looked at (`create`, `update`), when no tool that looks speaks of
//! it in its description or takes it by an argument.
//!
//! Why: after a timeout the write may have happened. Without a reader neither the model nor the gate can find out, and
//! all that is left is a person.
//!
//! Known problems: a reader with another word in its name (`get_basket` for `add_cart_line`) is not known as one until
//! the policy declares the resources of both.

use std::collections::BTreeSet;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::{domain::effect::EffectKind, tool_list::name_words};

/// Verbs whose effect on a thing can be read.
const LEAVES: &[&str] = &[
    "create", "add", "insert", "make", "register", "update", "edit", "modify", "change", "set", "book", "place", "send",
];
const REASON: &str = "after a timeout it may have happened, and nothing here can find out whether it did";

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let readers: Vec<&ToolFacts<'_>> = facts.tools.iter().filter(|tool| tool.is_reader()).collect();
    let seen: BTreeSet<String> = readers.iter().flat_map(|tool| touched_resources(tool)).collect();
    let mut reports = Vec::new();
    for tool in &facts.tools {
        let Some(told) = tool.as_write() else { continue };
        let mine = touched_resources(tool);
        if mine.is_empty() || mine.iter().any(|noun| seen.contains(noun)) {
            continue;
        }
        let declared = own_resource(tool);
        let is_plain =
            declared.is_none() && (!LEAVES.contains(&tool.verb()) || readers.iter().any(|r| speaks(r, &mine)));
        if is_plain {
            continue;
        }
        let noun = declared.clone().unwrap_or_else(|| mine[0].clone());
        let message = format!("is a write ({}), and no tool that looks is about `{noun}`", told.by);
        let better = format!(
            "a tool `get_{noun}` that reads {} by the identity that this write is given or returns",
            prose::article(&noun)
        );
        let is_guess = declared.is_none() || readers.iter().all(|reader| own_resource(reader).is_none());
        let report = tool.report("", message, REASON, better);
        reports.push(LintReport { guessed: is_guess, ..report });
    }
    reports
}

/// True when a reader's description or arguments mention one of these things.
fn speaks(reader: &ToolFacts<'_>, things: &[String]) -> bool {
    let said = name_words::split_name(&reader.doc.description)
        .into_iter()
        .chain(reader.properties().flat_map(|(_, name)| name_words::split_name(name)));
    said.map(|word| name_words::singular(&word)).any(|word| things.contains(&word))
}

/// The resources by declaration and by name.
fn touched_resources(tool: &ToolFacts<'_>) -> Vec<String> {
    own_resource(tool).into_iter().chain(tool.nouns.iter().cloned()).collect()
}

/// The first part of the declared resource.
fn own_resource(tool: &ToolFacts<'_>) -> Option<String> {
    let declared = tool.declared.filter(|declared| declared.effect != EffectKind::Unknown)?;
    let template = declared.resource.as_ref()?.to_string();
    template.split('/').next().filter(|part| !part.is_empty() && !part.contains('{')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn a_write_that_nothing_can_check_is_reported() {
        reports(
            "write_without_reader",
            "
            - {name: pay, policy: {effect: write, resource: 'payment/{id}'}}
            - {name: get_order, policy: {effect: read, resource: 'order/{id}'}}
            - {name: send_mail}
            - {name: get_user_details}
            - {name: set_price_details}
            ",
            "warning pay: is a write (the policy declares it), and no tool that looks is about `payment`
             better: a tool `get_payment` that reads a payment by the identity that this write is given or returns
             note send_mail: is a write (a guess from `send` in its name), and no tool that looks is about `mail`
             better: a tool `get_mail` that reads a mail by the identity that this write is given or returns
             note set_price_details: is a write (a guess from `set` in its name), \
             and no tool that looks is about `price`
             better: a tool `get_price` that reads a price by the identity that this write is given or returns",
        );
    }

    #[test]
    fn a_reader_by_resource_or_by_name_suffices() {
        silent(
            "write_without_reader",
            "
            - {name: charge, policy: {effect: write, resource: 'payment/{id}'}}
            - {name: look, policy: {effect: read, resource: payment}}
            - {name: add_order_line}
            - {name: get_user_details}
            - {name: set_user_language}
            - {name: list_orders}
            - {name: run_report}
            ",
        );
    }
}
