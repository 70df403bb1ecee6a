//! Identity arguments, and the resource that a tool's arguments name.

use super::{
    ToolDoc, forms,
    name_words::{self, Hint},
    nodes, types,
};

/// Maximum number of parts of a proposed resource.
const PARTS_MAX: usize = 4;

/// Nouns of a thing's view.
const ASPECTS: &[&str] = &["detail", "info", "status", "content", "history", "summary"];

/// An argument that identifies one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityArgument {
    /// The argument: `order_id`.
    pub field: String,
    /// Noun of the thing, singular: `order`; empty for a bare `id`.
    pub noun: String,
}

impl IdentityArgument {
    /// The identity by the argument's name: `order_id`, `orderId`, `issue_number`, `id`. None for other names.
    #[must_use]
    pub fn of(field: &str) -> Option<Self> {
        const ENDINGS: &[&str] = &["id", "ids", "uuid", "guid", "number", "key", "slug"];
        /// Names of other things that end in `number` or `key`.
        const OTHER: &[&str] =
            &["phone", "card", "page", "line", "api", "sort", "group", "idempotency", "partition", "public", "room"];
        let words = name_words::split_name(field);
        let (last, before) = words.split_last()?;
        let is_bare = before.is_empty() && matches!(last.as_str(), "id" | "uuid" | "guid");
        let is_sure = matches!(last.as_str(), "id" | "ids" | "uuid" | "guid");
        let names = ENDINGS.contains(&last.as_str()) && !before.is_empty();
        let other = !is_sure && before.last().is_some_and(|word| OTHER.contains(&word.as_str()));
        let noun = before.last().map(|word| name_words::singular(word)).unwrap_or_default();
        (is_bare || (names && !other)).then(|| Self { field: field.to_owned(), noun })
    }
}

/// The resource that the tool's required arguments name: `order/{order_id}`, `path/{path}`. None without an identity:
/// nothing uncertain is proposed, and a tool without a resource touches anything.
#[must_use]
pub fn proposed_resource(tool: &ToolDoc, words: &[String]) -> Option<String> {
    let nouns = name_words::nouns(words);
    let required = required_arguments(tool);
    if let Some(path) = path(tool, &required) {
        return path;
    }
    let named = required.into_iter().filter_map(|field| {
        let identity = IdentityArgument::of(field)?;
        let noun = if identity.noun.is_empty() {
            nouns.iter().rfind(|noun| !ASPECTS.contains(&noun.as_str()))?.clone()
        } else {
            identity.noun
        };
        Some((noun, identity.field))
    });
    let named: Vec<(String, String)> = named.collect();
    let own: Vec<&(String, String)> = named.iter().filter(|(noun, _)| nouns.contains(noun)).collect();
    let makes = name_words::verb(words).is_some_and(|(verb, hint)| {
        hint == Hint::Writes && matches!(verb, "create" | "add" | "insert" | "book" | "place" | "make" | "register")
    });
    let chosen = match (own.as_slice(), named.as_slice()) {
        (_, [only]) if nouns.is_empty() => vec![only],
        // A creation has no identity yet: the given one is that of its parent.
        (own, _) if makes && !own.iter().any(|(noun, _)| Some(noun) == nouns.first()) => Vec::new(),
        ([], [only]) if name_words::verb(words).is_some_and(|(_, hint)| hint == Hint::Writes) => vec![only],
        (own, _) => own.to_vec(),
    };
    if chosen.is_empty() {
        return None;
    }
    let parts = chosen.iter().take(PARTS_MAX).map(|(noun, field)| format!("{noun}/{{{field}}}"));
    Some(parts.collect::<Vec<_>>().join("/"))
}

/// The resource of a tool with a path: one form for all such tools, so that writes and reads overlap. One with several
/// or optional paths touches anything.
#[expect(clippy::option_option, reason = "no path at all, or one that names no single place")]
fn path(tool: &ToolDoc, required: &[&str]) -> Option<Option<String>> {
    let is_path = |field: &str| {
        let words = name_words::split_name(field);
        words
            .last()
            .is_some_and(|last| matches!(last.as_str(), "path" | "paths" | "filename" | "filepath" | "directory"))
            || matches!(field, "source" | "destination" | "src" | "dest" | "dst")
    };
    let all: Vec<&str> = nodes(&tool.input_schema)
        .iter()
        .filter(|node| node.top)
        .filter_map(|node| node.name)
        .filter(|f| is_path(f))
        .collect();
    let is_file = |field: &str| IdentityArgument::of(field).is_none();
    match all.as_slice() {
        [] => None,
        [only] if required.contains(only) && required.iter().all(|field| is_file(field)) => {
            Some(Some(format!("path/{{{only}}}")))
        }
        _ if required.iter().any(|field| !is_file(field)) => None,
        _ => Some(None),
    }
}

/// The required scalar arguments, in the schema's order.
fn required_arguments(tool: &ToolDoc) -> Vec<&str> {
    let is_single = |field: &str| {
        nodes(&tool.input_schema).into_iter().filter(|node| node.top && node.name == Some(field)).any(|node| {
            forms(node.schema).iter().all(|form| types(form).iter().all(|kind| matches!(*kind, "string" | "integer")))
        })
    };
    let listed = tool.input_schema.get("required").and_then(|names| names.as_array()).into_iter().flatten();
    listed.filter_map(|name| name.as_str()).filter(|name| is_single(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn arguments_that_name_a_thing_are_told_from_others() {
        for (field, expected) in [
            ("order_id", Some("order")),
            ("orderIds", Some("order")),
            ("id", Some("")),
            ("issue_number", Some("issue")),
            ("phone_number", None),
            ("idempotency_key", None),
            ("number", None),
            ("paid", None),
        ] {
            assert_eq!(IdentityArgument::of(field).map(|identity| identity.noun).as_deref(), expected, "{field}");
        }
    }

    #[test]
    fn a_resource_is_proposed_by_what_is_required() {
        for (name, required, expected) in [
            ("cancel_order", "order_id reason", "order/{order_id}"),
            ("get_order_details", "id", "order/{id}"),
            ("update_order_line", "order_id line_id", "order/{order_id}/line/{line_id}"),
            ("list_orders", "customer_id", "-"),
            ("create_order", "customer_id", "-"),
            ("add_order_line", "order_id", "order/{order_id}"),
            ("transfer_funds", "from_account_id to_account_id", "-"),
            ("think", "thought", "-"),
            ("read_text_file", "path", "path/{path}"),
            ("write_file", "path content", "path/{path}"),
            ("move_file", "source destination", "-"),
        ] {
            let fields: Vec<&str> = required.split(' ').collect();
            let properties: serde_json::Map<_, _> =
                fields.iter().map(|field| ((*field).to_owned(), serde_json::json!({"type": "string"}))).collect();
            let list =
                serde_json::json!([{"name": name, "input_schema": {"properties": properties, "required": fields}}]);
            let list = read("list", &list.to_string()).expect("a good list");
            assert_eq!(
                proposed_resource(&list.tools[0], &list.tool_name_words()[0]).as_deref().unwrap_or("-"),
                expected,
                "{name}"
            );
        }
    }
}
