//! Subschemas of a tool's schema, with their pointers.

use serde_json::{Map, Value};

use super::NODES_MAX;

/// One schema.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaNode<'a> {
    /// JSON pointer in the tool's document: `/input_schema/properties/amount`.
    pub pointer: String,
    /// The schema.
    pub schema: &'a Value,
    /// Name of the property, for a property's own schema.
    pub name: Option<&'a str>,
    /// True for a required property.
    pub required: bool,
    /// True for an argument, false for nested properties.
    pub top: bool,
    /// True below `allOf`, whose parts describe one object together.
    pub partial: bool,
}

/// The schema and its subschemas, sorted by name; at most [`NODES_MAX`].
#[must_use]
pub fn nodes(schema: &Value) -> Vec<SchemaNode<'_>> {
    let root = SchemaNode {
        pointer: "/input_schema".to_owned(),
        schema,
        name: None,
        required: false,
        top: false,
        partial: false,
    };
    let mut found = Vec::new();
    visit(root, 0, &mut found);
    found
}

/// Non-null alternatives of a schema: itself, or the branches of its `anyOf` or `oneOf`.
#[must_use]
pub fn forms(schema: &Value) -> Vec<&Value> {
    let branches = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(key).and_then(Value::as_array));
    let Some(branches) = branches else {
        return vec![schema];
    };
    let branches = branches.iter().filter(|branch| branch.get("type").is_none_or(|kind| kind != "null"));
    branches.flat_map(forms).collect()
}

/// The types of a schema, without null.
#[must_use]
pub fn types(schema: &Value) -> Vec<&str> {
    let kinds = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind.as_str()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    kinds.into_iter().filter(|kind| *kind != "null").collect()
}

/// True when a schema admits only that type, and perhaps null.
#[must_use]
pub fn is_only(schema: &Value, kind: &str) -> bool {
    let forms = forms(schema);
    !forms.is_empty() && forms.iter().all(|form| types(form) == [kind])
}

/// True when each alternative of a schema has one of the keywords.
#[must_use]
pub fn is_bound(schema: &Value, keywords: &[&str]) -> bool {
    let is_bound = |form: &Value| keywords.iter().any(|keyword| form.get(keyword).is_some());
    is_bound(schema) || forms(schema).into_iter().all(is_bound)
}

fn visit<'a>(node: SchemaNode<'a>, depth: usize, found: &mut Vec<SchemaNode<'a>>) {
    let Value::Object(fields) = node.schema else { return };
    if found.len() >= NODES_MAX {
        return;
    }
    let (pointer, partial) = (node.pointer.clone(), node.partial);
    found.push(node);
    let required: Vec<&str> = fields
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for (name, schema) in members(fields, "properties") {
        let node = SchemaNode {
            pointer: format!("{pointer}/properties/{}", escape_name(name)),
            schema,
            name: Some(name),
            required: required.contains(&name),
            top: depth == 0,
            partial: false,
        };
        visit(node, depth + 1, found);
    }
    let part = |key: &str, schema, partial| SchemaNode {
        pointer: format!("{pointer}/{key}"),
        schema,
        name: None,
        required: false,
        top: false,
        partial,
    };
    for key in ["items", "additionalProperties"] {
        if let Some(schema) = fields.get(key) {
            visit(part(key, schema, false), depth + 1, found);
        }
    }
    for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        for (i, schema) in fields.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            visit(part(&format!("{key}/{i}"), schema, partial || key == "allOf"), depth + 1, found);
        }
    }
    for key in ["$defs", "definitions"] {
        for (name, schema) in members(fields, key) {
            visit(part(&format!("{key}/{}", escape_name(name)), schema, false), depth + 1, found);
        }
    }
}

fn members<'a>(fields: &'a Map<String, Value>, key: &str) -> Vec<(&'a str, &'a Value)> {
    let members = fields.get(key).and_then(Value::as_object).into_iter().flatten();
    let mut members: Vec<_> = members.map(|(name, schema)| (name.as_str(), schema)).collect();
    members.sort_by_key(|(name, _)| *name);
    members
}

/// A name as a part of a JSON pointer (RFC 6901).
fn escape_name(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_schema_is_found_where_it_stands() {
        let schema = json!({
            "properties": {
                "a/b": {"type": ["string", "null"]},
                "lines": {"type": "array", "items": {"properties": {"n": {}}, "required": ["n"]}},
                "when": {"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
            },
            "$defs": {"Zip": {"type": "string"}},
            "required": ["a/b"],
        });
        let found: Vec<String> = nodes(&schema)
            .into_iter()
            .map(|node| {
                let marks = [(node.required, " required"), (node.top, " top"), (node.partial, " partial")];
                let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
                format!("{}{marks}", node.pointer.trim_start_matches("/input_schema"))
            })
            .collect();
        assert_eq!(
            found,
            [
                "",
                "/properties/a~1b required top",
                "/properties/lines top",
                "/properties/lines/items",
                "/properties/lines/items/properties/n required",
                "/properties/when top",
                "/properties/when/anyOf/0",
                "/properties/when/anyOf/1",
                "/$defs/Zip",
            ]
        );
        assert_eq!(types(&schema["properties"]["a/b"]), ["string"]);
        assert_eq!(forms(&schema["properties"]["when"]), [&json!({"type": "string", "format": "date"})]);
    }

    #[test]
    fn a_schema_without_end_is_cut() {
        let wide: Map<String, Value> = (0..=NODES_MAX).map(|i| (format!("p{i}"), json!({}))).collect();
        assert_eq!(nodes(&json!({"properties": wide})).len(), NODES_MAX);
    }
}
