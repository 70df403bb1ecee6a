//! id_pattern: an identity that any string passes for.
//!
//! Reports a string, or an array of strings, whose name ends in `id` or `uuid` and which has no pattern, format, enum
//! or constant. When the description gives an example (`e.g. 'ORD-1234'`), the pattern is made of it.
//!
//! Why: a model that has no id makes one up, or sends a name or an e-mail address instead. A pattern catches it before
//! the backend answers "not found", which models take for "does not exist".
//!
//! Known problems: identities that the owner does not form (of other systems) may have no pattern; give a length then.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{LintReport, ListFacts, ToolFacts, prose};
use crate::tool_list::{IdentityArgument, SchemaNode, is_bound, is_only, name_words};

/// Maximum length of an example for a pattern, in characters.
const EXAMPLE_CHARS_MAX: usize = 40;
const REASON: &str = "a model that has no id makes one up, or sends a name; \"not found\" is then taken for an answer";

static EXAMPLE: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r#"(?i)(?:e\.?g\.?|such as|example|like|for instance)[:,]?\s*['"`]?"#,
        r"(#?[a-z0-9][a-z0-9_.:-]*[0-9][a-z0-9_.:-]*|#[a-z0-9-]+)",
    ))
});

/// One report an argument.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    facts.tools.iter().flat_map(|tool| tool.properties().filter_map(|(node, field)| of(tool, node, field))).collect()
}

fn of(tool: &ToolFacts<'_>, node: &SchemaNode<'_>, field: &str) -> Option<LintReport> {
    let ends = name_words::split_name(field).pop()?;
    let identity = IdentityArgument::of(field).filter(|_| matches!(ends.as_str(), "id" | "ids" | "uuid" | "guid"))?;
    let items = node.schema.get("items").filter(|_| is_only(node.schema, "array"));
    let (schema, pointer) = match items {
        Some(items) => (items, format!("{}/items", node.pointer)),
        None => (node.schema, node.pointer.clone()),
    };
    if !is_only(schema, "string") || is_bound(schema, &["pattern", "format", "enum", "const", "$ref"]) {
        return None;
    }
    let said = format!("{} {} {}", tool.said_of(node.schema), prose::text(schema, "description"), example(schema));
    let noun = if identity.noun.is_empty() { "thing".to_owned() } else { identity.noun };
    let better = match EXAMPLE.captures(&said).and_then(|found| found.get(1)) {
        _ if ends == "uuid" || ends == "guid" => "`\"format\": \"uuid\"`".to_owned(),
        Some(example) => {
            format!("`\"pattern\": \"{}\"`, made of its example: try it on real ones", pattern_of(example.as_str()))
        }
        None => format!(
            "`\"pattern\": \"^[A-Za-z0-9_-]{{1,64}}$\"`, or the real form of {} id, and an example of one",
            prose::article(&noun)
        ),
    };
    Some(tool.report(&pointer, format!("`{field}` is an identity, and any string passes for one"), REASON, better))
}

fn example(schema: &Value) -> String {
    let first = schema.get("examples").and_then(Value::as_array).and_then(|examples| examples.first());
    first.and_then(Value::as_str).map(|example| format!("e.g. {example}")).unwrap_or_default()
}

/// A prefix before the only separator stays (`ORD-`); letters followed by digits keep their lengths; mixed parts become
/// one class.
fn pattern_of(example: &str) -> String {
    let is_separator = |c: char| !c.is_ascii_alphanumeric();
    let example: String = example.trim_end_matches(['.', ':', '-']).chars().take(EXAMPLE_CHARS_MAX).collect();
    let parts: Vec<&str> = example.split_inclusive(is_separator).collect();
    let mut pattern = String::from("^");
    for (i, part) in parts.iter().enumerate() {
        let word = part.trim_end_matches(is_separator);
        let is_prefix = i == 0 && parts.len() == 2 && word.chars().all(|c| c.is_ascii_alphabetic());
        pattern.push_str(&if is_prefix { word.to_owned() } else { pattern_of_word(word, parts.len() < 3) });
        match &part[word.len()..] {
            "." => pattern.push_str("\\\\."),
            separator => pattern.push_str(separator),
        }
    }
    pattern + "$"
}

/// The character classes of a word; with their lengths if `counted`.
fn pattern_of_word(word: &str, counted: bool) -> String {
    let class = |word: &str| {
        let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
        let ranges = [
            (has(char::is_ascii_uppercase), "A-Z"),
            (has(char::is_ascii_lowercase), "a-z"),
            (has(char::is_ascii_digit), "0-9"),
        ];
        let ranges: String = ranges.iter().filter(|(has, _)| *has).map(|(_, range)| *range).collect();
        let count = word.len();
        match (word.is_empty(), counted, count) {
            (true, ..) => String::new(),
            (_, false, _) => format!("[{ranges}]+"),
            (_, true, 1) => format!("[{ranges}]"),
            (_, true, _) => format!("[{ranges}]{{{count}}}"),
        }
    };
    let digits = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
    let (letters, rest) = word.split_at(digits);
    if rest.chars().all(|c| c.is_ascii_digit()) { class(letters) + &class(rest) } else { class(word) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};
    use super::pattern_of;

    #[test]
    fn identities_without_a_form_are_reported() {
        reports(
            "id_pattern",
            "
            - name: get
              input_schema:
                properties:
                  order_id: {type: string, description: \"The order id, such as '#W0000000'. Keep the '#'.\"}
                  item_ids: {type: array, items: {type: string}}
                  uuid: {type: string}
            ",
            "warning get /input_schema/properties/item_ids/items: \
             `item_ids` is an identity, and any string passes for one
             better: `\"pattern\": \"^[A-Za-z0-9_-]{1,64}$\"`, or the real form of an item id, and an example of one
             warning get /input_schema/properties/order_id: `order_id` is an identity, and any string passes for one
             better: `\"pattern\": \"^#[A-Z][0-9]{7}$\"`, made of its example: try it on real ones
             warning get /input_schema/properties/uuid: `uuid` is an identity, and any string passes for one
             better: `\"format\": \"uuid\"`",
        );
    }

    #[test]
    fn formed_identities_and_other_strings_are_left_alone() {
        silent(
            "id_pattern",
            "
            - name: get
              input_schema:
                properties:
                  order_id: {type: string, pattern: '^O'}
                  user_id: {anyOf: [{type: string, format: uuid}, {type: 'null'}]}
                  row_id: {type: integer}
                  address: {$ref: '#/$defs/Id'}
                  item_ids: {type: array, items: {enum: [a, b]}}
                  paid: {type: string}
                  issue_number: {type: string}
            ",
        );
    }

    #[test]
    fn a_pattern_is_made_of_an_example() {
        for (example, expected) in [
            ("ORD-1234", "^ORD-[0-9]{4}$"),
            ("cus_9f", "^cus_[a-z0-9]{2}$"),
            ("sara_doe_496", "^[a-z]+_[a-z]+_[0-9]+$"),
            ("8JX2WO", "^[A-Z0-9]{6}$"),
            ("HAT001", "^[A-Z]{3}[0-9]{3}$"),
            ("#W0000000", "^#[A-Z][0-9]{7}$"),
            ("a1.b2.", "^[a-z][0-9]\\\\.[a-z][0-9]$"),
        ] {
            assert_eq!(pattern_of(example), expected, "{example}");
        }
    }
}
