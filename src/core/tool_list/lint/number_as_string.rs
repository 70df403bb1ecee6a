//! number_as_string: a string where a number belongs.
//!
//! Reports a string without enum, pattern or format that is a count or a measure by its name (`quantity`,
//! `max_results`, `latitude`), or by its description (`number of …`).
//!
//! Why: models write `"two"`, `"2 "` or `"2,5"`; the backend parses some of it, refuses some, and compares the rest as
//! text. A number has one form, and bounds.
//!
//! Known problems: identities and money have lints of their own (`id_pattern`, `money_minor_units`).

use std::sync::LazyLock;

use regex::Regex;

use super::{LintReport, ListFacts, prose};
use crate::tool_list::{IdentityArgument, is_bound, is_only, name_words};

const REASON: &str = "models write \"two\" or \"2,5\", which some code parses and some does not; a number has one form";

static COUNTS: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(concat!(
        r"(?i)^(the |a |maximum |minimum |max |min |total |optional )*number of\b",
        r"|^(an? )?(positive |non-negative )?(integer|whole number)\b|\((an? )?(integer",
        r"|number)\)",
    ))
});

/// One report an argument.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in &facts.tools {
        for (node, field) in tool.properties() {
            let is_free = is_only(node.schema, "string")
                && !is_bound(node.schema, &["enum", "const", "pattern", "format"])
                && IdentityArgument::of(field).is_none();
            let said = tool.said_of(node.schema);
            if !is_free || !(is_number(field) || COUNTS.is_match(said)) || said.contains("ISO 8601") {
                continue;
            }
            let kind = if is_fraction(field) { "number" } else { "integer" };
            let better = format!("`\"{field}\": {{\"type\": \"{kind}\", \"minimum\": …, \"maximum\": …}}`");
            reports.push(tool.report(&node.pointer, format!("`{field}` is a number in a string"), REASON, better));
        }
    }
    reports
}

fn last_word(field: &str) -> String {
    name_words::split_name(field).pop().unwrap_or_default()
}

fn is_fraction(field: &str) -> bool {
    matches!(
        last_word(field).as_str(),
        "latitude" | "longitude" | "lat" | "lon" | "lng" | "percent" | "percentage" | "rating" | "score" | "weight"
    )
}

fn is_number(field: &str) -> bool {
    const COUNTS: &[&str] = &[
        "quantity", "qty", "count", "limit", "offset", "age", "width", "height", "seconds", "minutes", "hours", "days",
        "ms", "millis", "attempts", "retries",
    ];
    let words = name_words::split_name(field);
    let is_count = words.first().is_some_and(|word| word == "num") && words.len() > 1;
    let is_most = words.len() == 2
        && matches!(words[0].as_str(), "max" | "min")
        && matches!(words[1].as_str(), "results" | "items" | "tokens" | "rows" | "guests" | "passengers");
    COUNTS.contains(&last_word(field).as_str()) || is_fraction(field) || is_count || is_most
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn counts_and_measures_in_strings_are_reported() {
        reports(
            "number_as_string",
            "
            - name: book
              input_schema:
                properties:
                  guests: {type: string, description: Number of guests}
                  lat: {type: string}
                  max_results: {type: string}
            ",
            "warning book /input_schema/properties/guests: `guests` is a number in a string
             better: `\"guests\": {\"type\": \"integer\", \"minimum\": …, \"maximum\": …}`
             warning book /input_schema/properties/lat: `lat` is a number in a string
             better: `\"lat\": {\"type\": \"number\", \"minimum\": …, \"maximum\": …}`
             warning book /input_schema/properties/max_results: `max_results` is a number in a string
             better: `\"max_results\": {\"type\": \"integer\", \"minimum\": …, \"maximum\": …}`",
        );
    }

    #[test]
    fn numbers_patterns_and_other_strings_are_left_alone() {
        silent(
            "number_as_string",
            "
            - name: book
              input_schema:
                properties:
                  guests: {type: integer, description: Number of guests}
                  phone_number: {type: string}
                  issue_number: {type: string, description: Number of the issue}
                  max_date: {type: string}
                  quantity: {type: string, pattern: '^[0-9]+ (kg|g)$'}
                  duration_days: {type: string, description: 'ISO 8601, P3D'}
                  note: {type: string, description: 'Anything, with the number of guests'}
            ",
        );
    }
}
