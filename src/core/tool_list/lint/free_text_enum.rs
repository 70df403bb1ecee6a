//! free_text_enum: a closed set of values that only the description tells.
//!
//! Reports a string without `enum`, `const`, `pattern` or `format` whose description lists its values (`one of a, b,
//! c`, `'asc' or 'desc'`, `open|closed`), and one whose name stands for a closed set everywhere (`priority`,
//! `currency`).
//!
//! Why: a list in prose is a suggestion. Models write `High`, `urgent` or `p1`, and each is another call to the eyes of
//! everything that looks for repeats. A provider's strict mode can enforce an enum, and prose it cannot.
//!
//! Known problems: examples (`e.g. a, b`) are taken as open and left alone; so are values that belong to another
//! argument (`required for 'add' and 'reply'`), or that are told for one case only (`for a checkbox, true or false`).

use std::sync::LazyLock;

use regex::Regex;

use super::{LintReport, ListFacts, prose};
use crate::tool_list::{is_bound, is_only, name_words};

/// Maximum number of values in a report.
const VALUES_MAX: usize = 20;
const REASON: &str = "a list in prose is a suggestion: models write variants of it, which fail or pass as new calls";

static OPEN: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(r"(?i)\be\.?g\.|\bsuch as\b|\bfor example\b|\bexamples?:|\blike ['`\x22]|\betc\b|\.\.\.|…")
});
/// Phrases that refer to another argument, or to one case.
static ABOUT_OTHERS: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(r"(?i)\b(for|when|if|unless|by|with|returned|use either|see|via|supports?)\b[^'`\x22:]*$")
});
static QUOTED: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r#"(?:['"`][\w.-]{1,40}['"`](?:\s*\([^)]*\))?(?:\s*,\s*(?:or|and)?\s*|\s*/\s*"#,
        r#"|\s*\|\s*|\s+(?:or|and)\s+))+['"`][\w.-]{1,40}['"`]"#,
    ))
});
static ONE_OF: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r"(?i)\b(?:one of|either|must be|options(?: are)?|allowed(?: values)?(?: are)?",
        r"|possible values(?: are)?|values)\s*:?\s*[\[({]?((?:[\w-]{1,30}(?:\s*,\s*(?:or ",
        r"|and )?|\s*/\s*|\s*\|\s*|\s+or\s+))+[\w-]{1,30})(?:[\])}.;]|$)",
    ))
});
static PIPES: LazyLock<Regex> =
    LazyLock::new(|| prose::pattern(r"(?:^|[\s(:\[])((?:[a-z][\w-]{0,30}\|)+[a-z][\w-]{0,30})(?:$|[\s).\],;])"));
/// A list item that starts with its value.
static ITEM: LazyLock<Regex> =
    LazyLock::new(|| prose::pattern(r#"(?m)^\s*[-*] ['"`]([\w.-]{1,40})['"`]\s*(?:[-:–—(]|$)"#));
static VALUE: LazyLock<Regex> = LazyLock::new(|| prose::pattern(r#"['"`]([\w.-]+)['"`]"#));

/// One report an argument.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in &facts.tools {
        for (node, field) in tool.properties() {
            let is_free = is_only(node.schema, "string")
                && !is_bound(node.schema, &["enum", "const", "pattern", "format", "contentEncoding"]);
            if !is_free {
                continue;
            }
            let others =
                |value: &&str| tool.properties().any(|(_, name)| name == *value) || facts.names.contains(*value);
            let values = values(tool.said_of(node.schema));
            let values = if values.iter().any(others) { Vec::new() } else { values };
            let (message, better) = match known_set(field) {
                _ if values.len() > 1 => {
                    let listed: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
                    (
                        format!("`{field}` is free text, and its description lists {} values", values.len()),
                        format!("`\"enum\": [{}]`", listed.join(", ")),
                    )
                }
                Some(better) => (format!("`{field}` is free text, and its values are a closed set"), better.to_owned()),
                None => continue,
            };
            reports.push(tool.report(&node.pointer, message, REASON, better));
        }
    }
    reports
}

/// The complete values in a description; fewer than two if it lists none.
fn values(said: &str) -> Vec<&str> {
    let items: Vec<&str> = ITEM.captures_iter(said).filter_map(first).collect();
    if items.len() > 1 {
        return items.into_iter().take(VALUES_MAX).collect();
    }
    for sentence in prose::sentences(said) {
        if OPEN.is_match(sentence) {
            continue;
        }
        let own = |list: &regex::Match<'_>| !ABOUT_OTHERS.is_match(&sentence[..list.start()]);
        let quoted = QUOTED
            .find(sentence)
            .filter(own)
            .map(|list| VALUE.captures_iter(list.as_str()).filter_map(first).collect());
        let bare = || {
            let list = ONE_OF.captures(sentence).or_else(|| PIPES.captures(sentence)).and_then(first)?;
            let words = list.split([',', '/', '|', ' ']).map(str::trim);
            Some(words.filter(|word| !word.is_empty() && !matches!(*word, "or" | "and")).collect())
        };
        let mut found: Vec<&str> = quoted.or_else(bare).unwrap_or_default();
        found.truncate(VALUES_MAX);
        if found.len() > 1 {
            return found;
        }
    }
    Vec::new()
}

fn first<'a>(captures: regex::Captures<'a>) -> Option<&'a str> {
    captures.get(1).map(|group| group.as_str())
}

fn known_set(field: &str) -> Option<&'static str> {
    match name_words::split_name(field).last()?.as_str() {
        "priority" | "severity" | "urgency" => {
            Some("`\"enum\": [\"low\", \"medium\", \"high\"]`, with the levels that you have")
        }
        "currency" => {
            Some("`\"enum\": [\"EUR\", \"USD\"]` with the currencies that you take, or `\"pattern\": \"^[A-Z]{3}$\"`")
        }
        _ => match name_words::split_name(field).join(" ").as_str() {
            "sort order" | "sort direction" | "order direction" => Some("`\"enum\": [\"asc\", \"desc\"]`"),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};
    use super::values;

    #[test]
    fn lists_in_prose_and_known_sets_are_reported() {
        reports(
            "free_text_enum",
            "
            - name: list_issues
              input_schema:
                properties:
                  state: {type: string, description: 'Filter by state: open|closed'}
                  order: {type: [string, 'null'], description: \"Either 'asc' or 'desc'.\"}
                  priority: {type: string}
            ",
            "warning list_issues /input_schema/properties/order: \
             `order` is free text, and its description lists 2 values
             better: `\"enum\": [\"asc\", \"desc\"]`
             warning list_issues /input_schema/properties/priority: \
             `priority` is free text, and its values are a closed set
             better: `\"enum\": [\"low\", \"medium\", \"high\"]`, with the levels that you have
             warning list_issues /input_schema/properties/state: \
             `state` is free text, and its description lists 2 values
             better: `\"enum\": [\"open\", \"closed\"]`",
        );
    }

    #[test]
    fn examples_and_bound_strings_are_left_alone() {
        silent(
            "free_text_enum",
            "
            - name: list_issues
              input_schema:
                properties:
                  state: {type: string, enum: [open, closed], description: open|closed}
                  city: {type: string, description: \"The city, e.g. 'Paris' or 'Rome'\"}
                  text: {type: string, description: 'Words in the title or the body, sorted by date or name'}
                  currency: {type: string, pattern: '^[A-Z]{3}$'}
                  order: {type: integer, description: \"'1' or '2'\"}
            ",
        );
    }

    #[test]
    fn values_are_read_from_lists_and_from_nothing_else() {
        for (said, expected) in [
            ("One of: low, medium or high.", "low medium high"),
            ("Trip type: 'one_way' / 'round_trip'", "one_way round_trip"),
            ("The cabin ('basic_economy', 'economy', 'business')", "basic_economy economy business"),
            ("Must be either a or b", "a b"),
            ("Where to look, or what to find", ""),
            ("Must be unique, and not empty", ""),
            ("Use `a`. Then `b`.", ""),
            ("Values such as 'a', 'b'", ""),
            ("The body (required for 'add', 'reply', and 'update' methods)", ""),
            ("For a checkbox, use \"true\" or \"false\".", ""),
            ("An ID, as returned by 'list_items' or 'add_item'.", ""),
            ("Words; supports `OR`, `NOT`.", ""),
            ("The direction. Possible values include `ascending` and `descending`.", "ascending descending"),
            ("Options are:\n- 'add' - adds it\n- 'move' - puts it elsewhere", "add move"),
        ] {
            assert_eq!(values(said).join(" "), expected, "{said}");
        }
    }
}
