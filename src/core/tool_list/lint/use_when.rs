//! use_when: a description that does not say when to use the tool, and when not.
//!
//! Reports a tool whose description has no sentence like USE WHEN; in a list of two or more also one that has none like
//! DO NOT USE. Many wordings are known: `use this to`, `should be called after`, `instead`, `not for`. A way out
//! (`ask_user`) need not say when not; a tool whose description calls it deprecated need say nothing.
//!
//! Why: a model chooses by the description alone. Wrong choices come less from an unclear purpose than from unclear
//! conditions: when to use the tool, and which other one otherwise.
//!
//! Known problems: only English is read.

use super::{LintReport, ListFacts, ToolFacts, prose};

const REASON: &str =
    "a model chooses by the description alone: it must say when this tool is right, and what is right otherwise";

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in facts.tools.iter().filter(|tool| !tool.is_deprecated()) {
        let said = &tool.doc.description;
        let when = prose::says_when(said);
        let when_not = prose::says_when_not(said) || facts.tools.len() < 2 || tool.is_way_out();
        let problem = match (said.is_empty(), when, when_not) {
            (true, ..) => "has no description",
            (_, true, true) => continue,
            (_, false, false) => "says neither when to use it nor when not",
            (_, false, true) => "does not say when to use it",
            (_, true, false) => "does not say when not to use it",
        };
        let mut better = Vec::new();
        if !when {
            better.push(match tool.verb() {
                "" => "USE WHEN (the case, in the words of a user).".to_owned(),
                _ => format!("USE WHEN the user asks to {}.", tool.task()),
            });
        }
        if !when_not {
            better.push(not_for(facts, tool));
        }
        let better = format!("add: \"{}\"", better.join(" "));
        reports.push(tool.report("/description", problem.to_owned(), REASON, better));
    }
    reports
}

/// A sentence that refers to the most similar tool.
fn not_for(facts: &ListFacts<'_>, tool: &ToolFacts<'_>) -> String {
    let nouns = &tool.nouns;
    let effect = |tool: &ToolFacts<'_>| tool.told.as_ref().map(|told| told.effect);
    let is_other = |other: &&ToolFacts<'_>| other.index != tool.index && !other.is_way_out() && !other.is_deprecated();
    let nearness = |other: &ToolFacts<'_>| {
        let shared = other.nouns.iter().filter(|noun| nouns.contains(noun)).count();
        (shared, other.verb() == tool.verb(), effect(other) == effect(tool), usize::MAX - other.index)
    };
    let near = facts.tools.iter().filter(is_other).max_by_key(|other| nearness(other));
    let is_alike = |other: &&ToolFacts<'_>| nearness(other).0 > 0 && effect(other) == effect(tool);
    match near.filter(is_alike) {
        Some(other) => format!("DO NOT USE to {}: use `{}` instead.", other.task(), other.name()),
        None => "DO NOT USE when (the case that is mistaken for it): use (the right tool) instead.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn missing_guidance_is_reported_with_the_tools_names() {
        reports(
            "use_when",
            "
            - {name: cancel_order, description: Cancels an order.}
            - {name: refund_order, description: Use this to give money back.}
            - {name: think}
            ",
            "warning cancel_order /description: says neither when to use it nor when not
             better: add: \"USE WHEN the user asks to cancel order. \
             DO NOT USE to refund order: use `refund_order` instead.\"
             warning refund_order /description: does not say when not to use it
             better: add: \"DO NOT USE to cancel order: use `cancel_order` instead.\"
             warning think /description: has no description
             better: add: \"USE WHEN (the case, in the words of a user). \
             DO NOT USE when (the case that is mistaken for it): use (the right tool) instead.\"",
        );
    }

    #[test]
    fn both_sentences_suffice_and_one_where_nothing_can_be_mistaken() {
        silent(
            "use_when",
            "
            - {name: cancel_order, description: 'Cancels. USE WHEN asked. DO NOT USE to refund: use `refund`.'}
            - {name: stop_order, description: DEPRECATED}
            - {name: ask_user, description: Use when something is unclear.}
            ",
        );
        silent("use_when", "- {name: think, description: Use this tool to think.}");
    }
}
