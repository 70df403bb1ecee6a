//! optional_parameters: a tool with more optional arguments than required ones.
//!
//! Reports a tool of which four or more arguments, paging left out, are optional or may be null, and more than are
//! required.
//!
//! Why: each optional argument doubles the ways to call a tool. Models fill some in with guesses and leave out the one
//! that mattered; the same wish is sent in many forms, which no recognition of repeats can see through.
//!
//! Known problems: a search with many filters may need them; then give each a default, and say in the description which
//! ones belong together.

use serde_json::Value;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::tool_list::name_words;

/// Number of optional arguments that any tool may have.
const OPTIONAL_MIN: usize = 4;
/// Maximum number of arguments named in a report.
const NAMED_MAX: usize = 6;
const REASON: &str = "each optional argument doubles the ways to say the same; models fill some in with guesses";

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    facts.tools.iter().filter_map(of_tool).collect()
}

fn of_tool(tool: &ToolFacts<'_>) -> Option<LintReport> {
    let arguments = tool.properties().filter(|(node, field)| node.top && !is_paging(field));
    let (required, optional): (Vec<_>, Vec<_>) =
        arguments.partition(|(node, _)| node.required && !may_be_null(node.schema));
    if optional.len() < OPTIONAL_MIN || optional.len() <= required.len() {
        return None;
    }
    let names: Vec<&str> = optional.iter().map(|(_, field)| *field).collect();
    let message = format!("has {} optional arguments and {} required", optional.len(), required.len());
    let better = format!(
        "require what every call needs, make one tool for each way of use, and drop what nobody sets, among {}",
        prose::list_names(&names[..names.len().min(NAMED_MAX)])
    );
    Some(tool.report("/input_schema/required", message, REASON, better))
}

fn may_be_null(schema: &Value) -> bool {
    let is_null = |kind: &Value| kind == "null";
    let branches = ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(key).and_then(Value::as_array)).flatten();
    schema.get("type").and_then(Value::as_array).is_some_and(|kinds| kinds.iter().any(is_null))
        || branches.filter_map(|branch| branch.get("type")).any(is_null)
}

fn is_paging(field: &str) -> bool {
    const PAGING: &[&str] = &["page", "limit", "offset", "cursor", "per", "token", "size", "after", "before"];
    name_words::split_name(field).iter().all(|word| PAGING.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn more_optional_than_required_is_noted() {
        reports(
            "optional_parameters",
            "
            - name: search
              input_schema:
                properties:
                  {q: {}, a: {}, b: {type: [string, 'null']}, c: {anyOf: [{type: 'null'}, {}]}, d: {}, limit: {}}
                required: [q, b]
            ",
            "note search /input_schema/required: has 4 optional arguments and 1 required
             better: require what every call needs, make one tool for each way of use, and drop what nobody sets, \
             among `a`, `b`, `c` and `d`",
        );
    }

    #[test]
    fn few_options_and_paging_are_left_alone() {
        silent(
            "optional_parameters",
            "
            - name: list
              input_schema: {properties: {a: {}, b: {}, c: {}, page: {}, per_page: {}, cursor: {}, pageToken: {}}}
            - name: put
              input_schema:
                properties: {a: {}, b: {}, c: {}, d: {}, e: {}, f: {}, g: {}, h: {}}
                required: [a, b, c, d]
            ",
        );
    }
}
