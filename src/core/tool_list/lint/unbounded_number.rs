//! unbounded_number: a number without a least and a greatest value.
//!
//! Reports a number that lacks a lower or an upper bound. Identities, enums and constants are left alone; so are places
//! (a page, an offset, a line), times and coordinates, which do no harm or have bounds of their own.
//!
//! Why: `limit: 1000000` fetches a table, `quantity: -1` refunds, `hours: 999999` books a century. A bound turns each
//! into a refusal that names the field, before anything runs.
//!
//! Known problems: what is too much depends on the arguments together; the policy's conditions can say so.

use serde_json::Value;

use super::{LintReport, ListFacts};
use crate::tool_list::{IdentityArgument, forms, is_only, name_words, types};

const REASON: &str = "a slip of a digit or a sign runs as it stands; a bound refuses it and names the field";

/// One report an argument.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in &facts.tools {
        for (node, field) in tool.properties() {
            if !is_only(node.schema, "integer") && !is_only(node.schema, "number")
                || IdentityArgument::of(field).is_some()
            {
                continue;
            }
            let has =
                |keys: &[&str]| forms(node.schema).iter().all(|form| keys.iter().any(|key| form.get(key).is_some()));
            if has(&["enum", "const"]) || is_left_alone(field) {
                continue;
            }
            let low = has(&["minimum", "exclusiveMinimum"]);
            let high = has(&["maximum", "exclusiveMaximum"]);
            let (missing, better) = match (low, high) {
                (true, true) => continue,
                (false, false) => ("bounds", "`\"minimum\": 1, \"maximum\": …`".to_owned()),
                (false, true) => ("a lower bound", "`\"minimum\": 1`".to_owned()),
                (true, false) => ("an upper bound", "`\"maximum\": …`".to_owned()),
            };
            let kind = forms(node.schema).first().and_then(|form| types(form).first().copied()).unwrap_or("number");
            let better = format!("`\"{field}\": {{\"type\": \"{kind}\", …}}` with {better}{}", default_of(node.schema));
            reports.push(tool.report(&node.pointer, format!("`{field}` lacks {missing}"), REASON, better));
        }
    }
    reports
}

/// The default, as a hint at the bounds.
fn default_of(schema: &Value) -> String {
    schema
        .get("default")
        .filter(|value| value.is_number())
        .map(|value| format!(" around its default of {value}"))
        .unwrap_or_default()
}

fn is_left_alone(field: &str) -> bool {
    const ALONE: &[&str] = &[
        "timestamp",
        "epoch",
        "year",
        "time",
        "since",
        "until",
        "latitude",
        "longitude",
        "lat",
        "lon",
        "lng",
        "seed",
        "port",
        "version",
        "code",
        "page",
        "offset",
        "skip",
        "index",
        "line",
        "position",
        "cursor",
        "start",
        "end",
        "number",
    ];
    name_words::split_name(field).last().is_some_and(|word| ALONE.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn missing_bounds_are_named() {
        reports(
            "unbounded_number",
            "
            - name: list
              input_schema:
                properties:
                  limit: {type: integer, default: 20, minimum: 1}
                  hours: {type: integer, maximum: 24}
                  quantity: {type: [integer, 'null']}
            ",
            "warning list /input_schema/properties/hours: `hours` lacks a lower bound
             better: `\"hours\": {\"type\": \"integer\", …}` with `\"minimum\": 1`
             warning list /input_schema/properties/limit: `limit` lacks an upper bound
             better: `\"limit\": {\"type\": \"integer\", …}` with `\"maximum\": …` around its default of 20
             warning list /input_schema/properties/quantity: `quantity` lacks bounds
             better: `\"quantity\": {\"type\": \"integer\", …}` with `\"minimum\": 1, \"maximum\": …`",
        );
    }

    #[test]
    fn bound_numbers_and_identities_are_left_alone() {
        silent(
            "unbounded_number",
            "
            - name: list
              input_schema:
                properties:
                  limit: {anyOf: [{type: integer, minimum: 1, exclusiveMaximum: 101}, {type: 'null'}]}
                  page: {type: number}
                  user_id: {type: integer}
                  issue_number: {type: number}
                  level: {type: integer, enum: [1, 2]}
                  lat: {type: number}
                  title: {type: string}
            ",
        );
    }
}
