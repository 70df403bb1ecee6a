//! additional_properties: an object that takes arguments which nobody has described.
//!
//! Reports the objects of a tool's schema that have no `additionalProperties: false`, all in one report: the arguments
//! themselves, and what lies deeper when it describes properties. `unevaluatedProperties: false` counts as well, and a
//! schema for further properties is taken as meant.
//!
//! Why: a model that misspells an optional argument, or makes one up, is told that all went well while its wish was
//! ignored. Strict modes of providers refuse such schemas.
//!
//! Known problems: an object put together by `allOf` is left alone, since no part of it may be closed.

use serde_json::Value;

use super::{LintReport, ListFacts, ToolFacts};
use crate::tool_list::{SchemaNode, types};

const REASON: &str = "a misspelt or invented argument is dropped without a word, and the call does something else";

/// One report a tool.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    facts.tools.iter().filter_map(of_tool).collect()
}

fn of_tool(tool: &ToolFacts<'_>) -> Option<LintReport> {
    let open: Vec<&str> = tool.nodes.iter().filter(|node| is_open(node)).map(|node| node.pointer.as_str()).collect();
    let [first, deeper @ ..] = open.as_slice() else { return None };
    let message = match deeper.len() {
        0 => "takes properties that nobody has described".to_owned(),
        more => format!("takes properties that nobody has described, here and in {more} more object(s)"),
    };
    let better = match open.len() {
        1 => format!("`\"additionalProperties\": false` at {first}"),
        _ => format!("`\"additionalProperties\": false` at {}", open.join(", ")),
    };
    Some(tool.report(first, message, REASON, better))
}

fn is_open(node: &SchemaNode<'_>) -> bool {
    let schema = node.schema;
    let says = |key: &str| schema.get(key);
    let is_root = node.pointer == "/input_schema";
    let is_object = is_root || types(schema).contains(&"object") || says("type").is_none();
    let describes = says("properties").and_then(Value::as_object).is_some_and(|fields| !fields.is_empty());
    let is_composed = ["allOf", "anyOf", "oneOf", "$ref"].iter().any(|key| says(key).is_some());
    let is_closed = says("additionalProperties").is_some_and(|closed| closed != &Value::Bool(true))
        || says("unevaluatedProperties") == Some(&Value::Bool(false));
    is_object && (describes || is_root) && !is_composed && !node.partial && !is_closed
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn open_objects_are_reported_together() {
        reports(
            "additional_properties",
            "
            - {name: ping}
            - name: book
              input_schema:
                properties: {guests: {type: array, items: {type: object, properties: {name: {type: string}}}}}
                additionalProperties: true
            ",
            "warning ping /input_schema: takes properties that nobody has described
             better: `\"additionalProperties\": false` at /input_schema
             warning book /input_schema: takes properties that nobody has described, here and in 1 more object(s)
             better: `\"additionalProperties\": false` at /input_schema, /input_schema/properties/guests/items",
        );
    }

    #[test]
    fn closed_objects_maps_and_parts_are_left_alone() {
        silent(
            "additional_properties",
            "
            - name: set_labels
              input_schema:
                additionalProperties: false
                properties:
                  labels: {type: object, additionalProperties: {type: string}}
                  free: {type: object}
                  all: {allOf: [{properties: {a: {type: string}}}, {properties: {b: {type: string}}}]}
            - {name: put, input_schema: {unevaluatedProperties: false, properties: {a: {type: string}}}}
            ",
        );
    }
}
