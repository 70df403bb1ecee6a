//! read_and_write: one tool that both looks and changes.
//!
//! Reports an argument whose closed list of actions mixes verbs that look with verbs that change (`get`, `delete`), a
//! name that joins both (`get_or_create_user`), and annotations that say read-only on a tool whose name says that it
//! destroys.
//!
//! Why: such a tool has one risk, one approval and one repetition for both: either each look asks a person, or a
//! deletion passes as a look. It cannot be repeated safely after a timeout either.
//!
//! Known problems: a tool that takes a statement (`execute_sql`) does both too, and is not reported: the policy's
//! `effects` tell its statements apart by their text.

use serde_json::Value;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::tool_list::name_words::{self, Hint};

const REASON: &str = "it gets one risk, one approval and one rule of repetition, which is wrong for half of its calls";

/// One report an argument or name.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    facts.tools.iter().flat_map(|tool| actions(tool).into_iter().chain(name(tool))).collect()
}

fn actions(tool: &ToolFacts<'_>) -> Vec<LintReport> {
    const ACTIONS: &[&str] = &["action", "actions", "operation", "op", "method", "command", "mode", "verb"];
    let mut reports = Vec::new();
    for (node, field) in tool.properties() {
        let is_action = name_words::split_name(field).last().is_some_and(|word| ACTIONS.contains(&word.as_str()));
        let choices = node.schema.get("enum").and_then(Value::as_array).filter(|_| node.top && is_action);
        let choices: Vec<&str> = choices.into_iter().flatten().filter_map(Value::as_str).collect();
        let of = |hint| {
            let is = |choice: &&str| {
                name_words::verb(&name_words::split_name(choice)).is_some_and(|(_, known)| known == hint)
            };
            choices.iter().copied().filter(is).collect::<Vec<_>>()
        };
        let (looks, changes) = (of(Hint::Reads), of(Hint::Writes));
        if looks.is_empty() || changes.is_empty() {
            continue;
        }
        let message = format!(
            "`{field}` mixes looking ({}) with changing ({})",
            prose::list_names(&looks),
            prose::list_names(&changes)
        );
        let noun = tool.nouns.join("_");
        let noun = if noun.is_empty() { tool.name().to_owned() } else { noun };
        let names: Vec<String> = looks.iter().chain(&changes).map(|choice| one_name(choice, &noun)).collect();
        let better = format!("one tool an action: {}", prose::list_names(&names));
        reports.push(tool.report(&node.pointer, message, REASON, better));
    }
    reports
}

fn one_name(choice: &str, noun: &str) -> String {
    if name_words::split_name(choice).len() > 1 { choice.to_owned() } else { format!("{choice}_{noun}") }
}

fn name(tool: &ToolFacts<'_>) -> Option<LintReport> {
    let told = tool.told.as_ref()?;
    let (verb, hint) = name_words::verb(&tool.words)?;
    if tool.doc.hints.read_only == Some(true) && name_words::destroys(verb) && !told.is_declared() {
        let message = format!("its annotations say readOnlyHint: true, and its name says `{verb}`");
        let better = format!(
            "`\"annotations\": {{\"readOnlyHint\": false, \"destructiveHint\": true}}`, \
             or a name that says what `{}` looks at",
            tool.name()
        );
        return Some(tool.report("/annotations/readOnlyHint", message, REASON, better));
    }
    let at = tool.words.iter().position(|word| matches!(word.as_str(), "or" | "and"))?;
    let other = tool.words.get(at + 1)?;
    let (_, other_hint) = name_words::verb(std::slice::from_ref(other))?;
    if hint == other_hint || at == 0 {
        return None;
    }
    let noun = tool.words[at + 2..].join("_");
    let better = format!("two tools: `{verb}_{noun}` and `{other}_{noun}`");
    Some(tool.report("/name", format!("is `{verb}` and `{other}` in one"), REASON, better))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn mixed_actions_names_and_annotations_are_reported() {
        reports(
            "read_and_write",
            "
            - {name: manage_orders, input_schema: {properties: {action: {enum: [get, list, cancel]}}}}
            - {name: get_or_create_user}
            - {name: delete_file, annotations: {readOnlyHint: true}}
            ",
            "warning manage_orders /input_schema/properties/action: \
             `action` mixes looking (`get` and `list`) with changing (`cancel`)
             better: one tool an action: `get_order`, `list_order` and `cancel_order`
             warning get_or_create_user /name: is `get` and `create` in one
             better: two tools: `get_user` and `create_user`
             warning delete_file /annotations/readOnlyHint: \
             its annotations say readOnlyHint: true, and its name says `delete`
             better: `\"annotations\": {\"readOnlyHint\": false, \"destructiveHint\": true}`, \
             or a name that says what `delete_file` looks at",
        );
    }

    #[test]
    fn actions_of_one_kind_are_left_alone() {
        silent(
            "read_and_write",
            "
            - {name: issue_read, input_schema: {properties: {method: {enum: [get, get_comments, list_labels]}}}}
            - {name: set_mode, input_schema: {properties: {mode: {enum: [read, fast]}}}}
            - {name: search_and_rank}
            - {name: create_or_update_file}
            - {name: update_terms_and_conditions}
            ",
        );
    }
}
