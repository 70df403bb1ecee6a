//! id_pattern: an identity that any string passes for.
//!
//! Reports a string, or an array of strings, whose name ends in `id` or `uuid` and which has no pattern, format, enum or
//! constant. When the description gives an example (`e.g. 'ORD-1234'`), the pattern is made of it.
//!
//! Why: a model that has no id makes one up, or sends a name or an e-mail address instead. A pattern catches it before
//! the backend answers "not found", which models take for "does not exist".
//!
//! Known problems: identities that the owner does not form (of other systems) may have no pattern; give a length then.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{Facts, Report, Tool, prose};
use crate::policy::tools::{Identity, Node, is_bound, is_only, words};

/// Characters of an example from which a pattern is made.
const EXAMPLE_CHARS_MAX: usize = 40;
const REASON: &str = "a model that has no id makes one up, or sends a name; \"not found\" is then taken for an answer";

static EXAMPLE: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(
        r#"(?i)(?:e\.?g\.?|such as|example|like|for instance)[:,]?\s*['"`]?(#?[A-Za-z0-9][A-Za-z0-9_.:-]*[0-9][A-Za-z0-9_.:-]*|#[A-Za-z0-9-]+)"#,
    )
});

/// One report an argument.
pub(super) fn check(facts: &Facts<'_>) -> Vec<Report> {
    facts.tools.iter().flat_map(|tool| tool.properties().filter_map(|(node, field)| of(tool, node, field))).collect()
}

fn of(tool: &Tool<'_>, node: &Node<'_>, field: &str) -> Option<Report> {
    let ends = words::words(field).pop()?;
    let identity = Identity::of(field).filter(|_| matches!(ends.as_str(), "id" | "ids" | "uuid" | "guid"))?;
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
        Some(example) => format!("`\"pattern\": \"{}\"`, made of its example", pattern_of(example.as_str())),
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

/// Runs of capitals, small letters and digits become classes; what stands between stays.
fn pattern_of(example: &str) -> String {
    let class = |c: char| match c {
        'A'..='Z' => "[A-Z]",
        'a'..='z' => "[a-z]",
        '0'..='9' => "[0-9]",
        _ => "",
    };
    let example: Vec<char> = example.trim_end_matches(['.', ':', '-']).chars().take(EXAMPLE_CHARS_MAX).collect();
    let mut pattern = String::from("^");
    // A prefix before a separator is the same in every identity: ORD-1234.
    let prefix = example
        .iter()
        .position(|c| matches!(c, '-' | '_' | ':'))
        .filter(|at| example[..*at].iter().all(char::is_ascii_alphabetic));
    let fixed = prefix.map_or(0, |at| at + 1);
    pattern.extend(&example[..fixed]);
    for run in example[fixed..].chunk_by(|a, b| class(*a) == class(*b) && !class(*a).is_empty()) {
        match (class(run[0]), run.len()) {
            ("", _) if run[0] == '.' => pattern.push_str("\\\\."),
            ("", _) => pattern.push(run[0]),
            (class, 1) => pattern.push_str(class),
            (class, count) => pattern.push_str(&format!("{class}{{{count}}}")),
        }
    }
    pattern + "$"
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
             better: `\"pattern\": \"^#[A-Z][0-9]{7}$\"`, made of its example
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
            ("cus_9f", "^cus_[0-9][a-z]$"),
            ("sara_doe_496", "^sara_[a-z]{3}_[0-9]{3}$"),
            ("ZFA04Y", "^[A-Z]{3}[0-9]{2}[A-Z]$"),
            ("a1.b2.", "^[a-z][0-9]\\\\.[a-z][0-9]$"),
        ] {
            assert_eq!(pattern_of(example), expected, "{example}");
        }
    }
}
