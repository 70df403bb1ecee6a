//! destructive_confirmation: a destructive tool that one slip of the model sets off.
//!
//! Reports a tool whose name has a verb behind which nothing is left (`delete`, `cancel`, `purge`), or whose
//! annotations say `destructiveHint` while its name or description tell of a loss, and which requires no argument with
//! a closed set of values. By its name alone, and
//! with no word of the policy that it writes, it is only advice.
//!
//! Why: a model that fills in an id by mistake still has to choose, from a closed list, to say what will be destroyed;
//! a rule or a person can then judge by that choice.
//!
//! Known problems: any required enum counts, also one that was made for something else. `remove` is not taken for
//! destructive: most removals (of a label, from a cart) are harmless. The annotation alone says little: it is true by
//! default, and many servers give it to every write.

use std::sync::LazyLock;

use regex::Regex;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::tool_list::{EffectSource, SourcedEffect, is_bound, name_words};

const REASON: &str =
    "one wrong id is enough to destroy something; a choice from a closed list has to be made on purpose";

static LOSS: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r"(?i)\b(permanent(ly)?|irrevers\w+|irrevocabl\w+|cannot be (undone|recovered|restored)|can't be undone)\b",
        r"|^\W*(delete|erase|destroy|wipe|purge)s?\b",
    ))
});

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in &facts.tools {
        let Some(told) = destructive(tool) else { continue };
        let mut required = tool.properties().filter(|(node, _)| node.top && node.required);
        if required.any(|(node, _)| is_bound(node.schema, &["enum", "const"])) {
            continue;
        }
        let why = match &told.by {
            EffectSource::Policy => format!("`{}`, and the policy declares it a write", tool.verb()),
            by => by.to_string(),
        };
        let message = format!("destroys ({why}), and no required argument is a choice from a closed list");
        let better = format!(
            "require `\"confirm\": {{\"type\": \"string\", \"enum\": [\"{}\"], \"description\": \
             \"Only after the user has confirmed it\"}}`, or a `reason` with an enum of the cases you allow",
            tool.name()
        );
        reports.push(tool.report("/input_schema/required", message, REASON, better).by(&told));
    }
    reports
}

/// Things whose loss is cheap: recreated, or temporary.
const SHORT_LIVED: &[&str] = &["cache", "cookie", "draft", "localstorage", "sessionstorage", "storage"];
/// Objects of a destructive `drop`.
const DROPPED: &[&str] = &["collection", "column", "database", "index", "partition", "schema", "table", "view"];

/// Source of the destructive effect, if any.
fn destructive(tool: &ToolFacts<'_>) -> Option<SourcedEffect> {
    let is_among = |things: &[&str]| tool.nouns.iter().any(|noun| things.contains(&noun.as_str()));
    if is_among(SHORT_LIVED) || (tool.verb() == "drop" && !is_among(DROPPED)) {
        return None;
    }
    let loses = name_words::destroys(tool.verb()) || tool.verb() == "clear" || LOSS.is_match(&tool.doc.description);
    if tool.doc.hints.destructive == Some(true) && tool.doc.hints.read_only != Some(true) && loses {
        let told = tool.as_write()?;
        return Some(SourcedEffect { effect: told.effect, by: EffectSource::Annotation("destructiveHint: true") });
    }
    let destroys = name_words::destroys(tool.verb()) && tool.doc.hints.destructive.is_none();
    // A write by annotation is not yet destructive.
    tool.as_write().filter(|_| destroys).map(|told| match told.by {
        EffectSource::Policy => told.clone(),
        _ => SourcedEffect { effect: told.effect, by: EffectSource::Name(tool.verb().to_owned()) },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn a_destructive_tool_without_a_choice_is_reported_by_how_sure_it_is() {
        let better = |tool: &str| {
            format!(
                "better: require `\"confirm\": {{\"type\": \"string\", \"enum\": [\"{tool}\"], \"description\": \
                 \"Only after the user has confirmed it\"}}`, or a `reason` with an enum of the cases you allow"
            )
        };
        let expected = format!(
            "warning drop_table /input_schema/required: destroys (its annotations say destructiveHint: true), \
             and no required argument is a choice from a closed list\n{}
             warning cancel_order /input_schema/required: destroys (`cancel`, and the policy declares it a write), \
             and no required argument is a choice from a closed list\n{}
             note delete_user /input_schema/required: destroys (a guess from `delete` in its name), \
             and no required argument is a choice from a closed list\n{}",
            better("drop_table"),
            better("cancel_order"),
            better("delete_user")
        );
        reports(
            "destructive_confirmation",
            "
            - {name: drop_table, annotations: {destructiveHint: true}}
            - {name: cancel_order, policy: {effect: write}, input_schema: {properties: {why: {enum: [a]}}}}
            - {name: delete_user}
            ",
            &expected,
        );
    }

    #[test]
    fn a_required_choice_or_a_word_that_it_is_harmless_suffices() {
        silent(
            "destructive_confirmation",
            "
            - {name: cancel_order, input_schema: {properties: {reason: {enum: [late, wrong]}}, required: [reason]}}
            - {name: delete_draft, annotations: {destructiveHint: false, readOnlyHint: false}}
            - {name: remove_label}
            - {name: delete_preview, policy: {effect: read}}
            - {name: get_deleted}
            - {name: delete_cookie, description: Delete a cookie, annotations: {destructiveHint: true}}
            - {name: drop, description: Drop files onto an element, annotations: {destructiveHint: true}}
            - {name: press_key, annotations: {destructiveHint: true}}
            ",
        );
    }
}
