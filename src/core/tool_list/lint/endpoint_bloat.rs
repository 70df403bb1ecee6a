//! endpoint_bloat: one tool for each endpoint of an API, instead of one for each task.
//!
//! Reports three signs: names made of a method and a path (`get_api_v1_users_by_id`); four or more tools that look at
//! parts of one thing by the same single identity (`get_order_items`, `get_order_status`, …); and a list of more than
//! fifty tools.
//!
//! Why: what a person does in one step becomes a chain of calls, each a chance to lose the thread; and the more tools
//! there are, the more often a model picks a wrong one.
//!
//! Known problems: what belongs together is known by its owner alone; the parts of one thing may be large or have
//! different readers.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::tool_list::IdentityArgument;

/// Minimum size of a long list, in tools.
const TOOLS_MANY: usize = 50;
/// Minimum number of parts of one thing that should be one tool.
const PARTS_MIN: usize = 4;
/// Maximum number of tools named in a report.
const NAMED_MAX: usize = 8;
const REASON: &str =
    "one step of a person becomes a chain of calls, and the longer the list, the more often a wrong one is picked";

static PATH: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r"(?i)(^|_)(api_)?v\d+_|^(get|post|put|patch|delete)_api_|_by_id$|^(get|post",
        r"|put|patch|delete)__|_(get|post|put|patch|delete)$",
    ))
});

/// One report per sign.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let paths = facts.tools.iter().filter(|tool| PATH.is_match(tool.name()));
    let paths: Vec<&ToolFacts<'_>> = paths.collect();
    let mut reports = Vec::new();
    if paths.len() >= PARTS_MIN {
        let message = format!("{} tools are named by method and path: {}", paths.len(), names(&paths));
        let better = "one tool for each task of the user, named by it: `find_customer`, not `get_api_v1_customers`";
        reports.push(facts.report(message, REASON, better.to_owned()));
    }
    for ((noun, field), parts) in group_readers(facts).into_iter().filter(|(_, parts)| parts.len() >= PARTS_MIN) {
        let message = format!("{} tools look at parts of one {noun} by `{field}`: {}", parts.len(), names(&parts));
        let included: Vec<String> = parts.iter().filter_map(|tool| part_of(tool, &noun)).collect();
        let better = format!(
            "one `get_{noun}` with `\"include\": {{\"type\": \"array\", \"items\": {{\"enum\": [{}]}}}}`",
            included.iter().map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(", ")
        );
        reports.push(facts.report(message, REASON, better));
    }
    if facts.tools.len() > TOOLS_MANY {
        let message = format!("there are {} tools", facts.tools.len());
        let better = format!("show the model at most {TOOLS_MANY} at a time: choose by agent or phase, or merge");
        reports.push(facts.report(message, REASON, better));
    }
    reports
}

fn names(tools: &[&ToolFacts<'_>]) -> String {
    let names: Vec<&str> = tools.iter().take(NAMED_MAX).map(|tool| tool.name()).collect();
    let more = tools.len() - names.len();
    if more == 0 { prose::list_names(&names) } else { format!("{} and {more} more", prose::list_names(&names)) }
}

/// Tools that read one thing by its identity alone, by that thing.
fn group_readers<'a, 'b>(facts: &'b ListFacts<'a>) -> BTreeMap<(String, &'a str), Vec<&'b ToolFacts<'a>>> {
    let mut parts: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for tool in facts.tools.iter().filter(|tool| tool.is_reader()) {
        let mut arguments = tool.properties().filter(|(node, _)| node.top);
        let (Some((node, field)), None) = (arguments.next(), arguments.next()) else { continue };
        let Some(identity) = IdentityArgument::of(field).filter(|_| node.required) else { continue };
        if tool.nouns.contains(&identity.noun) {
            parts.entry((identity.noun, field)).or_default().push(tool);
        }
    }
    parts
}

/// The part of the thing that a tool reads: `items` of `get_order_items`.
fn part_of(tool: &ToolFacts<'_>, noun: &str) -> Option<String> {
    let rest = tool.words.iter().filter(|word| *word != tool.verb() && *word != noun && *word != "details");
    let rest: Vec<&str> = rest.map(String::as_str).collect();
    (!rest.is_empty()).then(|| rest.join("_"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    fn getters(names: &[&str]) -> String {
        let tool = |name: &&str| {
            format!("- {{name: {name}, input_schema: {{properties: {{order_id: {{}}}}, required: [order_id]}}}}\n")
        };
        names.iter().map(tool).collect()
    }

    #[test]
    fn paths_parts_and_long_lists_are_noted() {
        reports(
            "endpoint_bloat",
            "[{name: get_api_v1_users}, {name: post_api_v1_users}, {name: users_delete}, {name: get_user_by_id}]",
            "note -: 4 tools are named by method and path: \
             `get_api_v1_users`, `post_api_v1_users`, `users_delete` and `get_user_by_id`
             better: one tool for each task of the user, named by it: `find_customer`, not `get_api_v1_customers`",
        );
        reports(
            "endpoint_bloat",
            &getters(&["get_order", "get_order_items", "get_order_status", "list_order_notes"]),
            "note -: 4 tools look at parts of one order by `order_id`: \
             `get_order`, `get_order_items`, `get_order_status` and `list_order_notes`
             better: one `get_order` with `\"include\": {\"type\": \"array\", \"items\": \
             {\"enum\": [\"items\", \"status\", \"notes\"]}}`",
        );
        let many: String = (0..=50).map(|n| format!("- {{name: t{n}}}\n")).collect();
        reports(
            "endpoint_bloat",
            &many,
            "note -: there are 51 tools
             better: show the model at most 50 at a time: choose by agent or phase, or merge",
        );
    }

    #[test]
    fn a_few_tools_by_task_are_left_alone() {
        silent("endpoint_bloat", &getters(&["get_order", "get_order_items", "get_user", "cancel_order"]));
        silent("endpoint_bloat", "[{name: find_user_by_email}, {name: get_user_by_id}, {name: users_list}]");
    }
}
