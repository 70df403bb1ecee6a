//! date_format: a date or a time in a string without a format, or a time without its zone.
//!
//! Reports a string that is a date by its name or description and has no `format`, pattern or enum, and a `date-time`
//! whose example has no zone.
//!
//! Why: `03/04/2025` is two days, and `10:00` is twenty-four moments. A format is checked before the call; RFC 3339's
//! `date-time` has the zone in it.
//!
//! Known problems: `expires` and `due` are taken for days even where a tool means a number of seconds in a string; a
//! time that is local by intent (opening hours) needs a pattern such as `^[0-2][0-9]:[0-5][0-9]$`.

use std::sync::LazyLock;

use regex::Regex;

use super::{LintReport, ListFacts, prose};
use crate::tool_list::{forms, is_bound, is_only, name_words};

const REASON: &str = "03/04/2025 is two days and 10:00 is twenty-four moments; nothing checks what the model meant";

static SPEAKS: LazyLock<Regex> = LazyLock::new(|| {
    prose::pattern(r"(?i)\b(date|timestamp|iso[- ]?8601|rfc ?3339|yyyy-mm-dd|yyyy/mm/dd|mm/dd/yyyy|dd/mm/yyyy)\b")
});
static WITH_TIME: LazyLock<Regex> =
    LazyLock::new(|| prose::pattern(r"(?i)\btime(stamp)?\b|\bdatetime\b|\bhh:mm|T\d\d:\d\d|\b8601\b|\b3339\b"));
static WITHOUT_ZONE: LazyLock<Regex> =
    LazyLock::new(|| prose::pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(?:[^0-9:.Z+\-]|\.$|\.\s|$)"));

/// One report an argument.
pub(super) fn check(facts: &ListFacts<'_>) -> Vec<LintReport> {
    let mut reports = Vec::new();
    for tool in &facts.tools {
        for (node, field) in tool.properties().filter(|(node, _)| is_only(node.schema, "string")) {
            let said = tool.said_of(node.schema);
            let format = forms(node.schema).first().map_or("", |form| prose::text(form, "format"));
            if format == "date-time" && WITHOUT_ZONE.is_match(said) {
                let message = format!("`{field}` is a date-time, and the example in its description has no zone");
                let better = "an example with its zone: `2025-03-04T10:00:00Z` or `2025-03-04T10:00:00+02:00`";
                reports.push(tool.report(&node.pointer, message, REASON, better.to_owned()));
                continue;
            }
            let is_free = !is_bound(node.schema, &["format", "pattern", "enum", "const"]);
            let Some(kind) = string_kind(field, said).filter(|_| is_free) else { continue };
            let better = match kind {
                "date" => {
                    "`\"format\": \"date\"`, and in the description whose calendar day it is: 2025-03-04".to_owned()
                }
                kind => format!("`\"format\": \"{kind}\"`, which has the zone in it: 2025-03-04T10:00:00+02:00"),
            };
            reports.push(tool.report(&node.pointer, format!("`{field}` is a {kind} without a format"), REASON, better));
        }
    }
    reports
}

/// The kind of a string by its name, or by name and description.
fn string_kind(field: &str, said: &str) -> Option<&'static str> {
    /// Names that are days in any position.
    const DAYS: &[&str] = &[
        "check in",
        "check out",
        "checkin",
        "checkout",
        "valid from",
        "valid until",
        "valid to",
        "due",
        "due on",
        "expires",
        "expires on",
        "effective from",
        "pick up day",
        "arrival day",
        "departure day",
    ];
    const MAYBE: &[&str] =
        &["start", "end", "since", "until", "from", "to", "deadline", "when", "time", "departure", "arrival"];
    let words = name_words::split_name(field);
    let last = words.last()?.as_str();
    let with_time = WITH_TIME.is_match(said);
    if DAYS.contains(&words.join(" ").as_str()) {
        return Some(if with_time { "date-time" } else { "date" });
    }
    match last {
        "datetime" | "timestamp" => Some("date-time"),
        "at" if words.len() > 1 => Some("date-time"),
        "date" | "dob" | "birthday" | "birthdate" if !with_time => Some("date"),
        "date" => Some("date-time"),
        _ if MAYBE.contains(&last) && SPEAKS.is_match(said) => Some(if with_time { "date-time" } else { "date" }),
        "time" if matches!(words.first()?.as_str(), "start" | "end") => Some("date-time"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{reports, silent};

    #[test]
    fn dates_without_a_format_are_reported() {
        reports(
            "date_format",
            "
            - name: book
              input_schema:
                properties:
                  date: {type: string}
                  check_in: {type: string}
                  since: {type: string, description: Only after this ISO 8601 timestamp}
                  starts_at: {type: string, format: date-time, description: 'Like 2025-03-04T10:00:00.'}
            ",
            "warning book /input_schema/properties/check_in: `check_in` is a date without a format
             better: `\"format\": \"date\"`, and in the description whose calendar day it is: 2025-03-04
             warning book /input_schema/properties/date: `date` is a date without a format
             better: `\"format\": \"date\"`, and in the description whose calendar day it is: 2025-03-04
             warning book /input_schema/properties/since: `since` is a date-time without a format
             better: `\"format\": \"date-time\"`, which has the zone in it: 2025-03-04T10:00:00+02:00
             warning book /input_schema/properties/starts_at: \
             `starts_at` is a date-time, and the example in its description has no zone
             better: an example with its zone: `2025-03-04T10:00:00Z` or `2025-03-04T10:00:00+02:00`",
        );
    }

    #[test]
    fn formats_and_other_words_are_left_alone() {
        silent(
            "date_format",
            "
            - name: book
              input_schema:
                properties:
                  date: {anyOf: [{type: string, format: date}, {type: 'null'}]}
                  starts_at: {type: string, format: date-time, description: 'Like 2025-03-04T10:00:00Z.'}
                  ends_at: {type: string, format: date-time, description: 'Like 2025-03-04T10:00:00+02:00'}
                  since: {type: string, description: A commit}
                  to: {type: string, description: The address}
                  created_at: {type: integer}
                  candidate: {type: string}
                  update: {type: string}
            ",
        );
    }
}
