//! Names of fields, types, formats and values in messages.

use serde_json::Value;

use super::violation;
use crate::domain::violation::Violation;

/// Keyword of the violation by an unknown field.
pub(super) const UNKNOWN: &str = "unknown_field";
/// Maximum number of listed options.
pub(super) const OPTIONS_MAX: usize = 20;
/// Maximum length of a value that is shown whole, in characters.
const SHOWN_MAX: usize = 60;

/// A JSON pointer as a path: `items[0].sku`.
pub(super) fn to_dotted_path(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit()) {
            path = format!("{path}[{step}]");
        } else {
            path = join_path(&path, &step);
        }
    }
    path
}

pub(super) fn join_path(path: &str, name: &str) -> String {
    let name = shown_text(name);
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

pub(super) fn unknown_field(field: &str, near: Option<&str>) -> Violation {
    let fix = near.map_or_else(|| "leave it out".to_owned(), |near| format!("did you mean {near}?"));
    violation(field, UNKNOWN, format!("{field}: the tool takes no such field; {fix}"))
}

pub(super) fn format_in_words(format: &str, example: &str) -> String {
    let (what, give) = match format {
        "date" => ("date", "YYYY-MM-DD, for example 2026-11-20"),
        "date-time" => ("date and time", "RFC 3339 with a zone, for example 2026-11-20T08:00:00Z"),
        "time" => ("time", "HH:MM:SS with a zone, for example 08:00:00Z"),
        "duration" => ("duration", "ISO 8601, for example PT15M"),
        "email" | "idn-email" => ("e-mail address", "name@example.com"),
        "hostname" | "idn-hostname" => ("host name", "it without scheme and port, for example www.example.com"),
        "uri" | "iri" => ("URL", "it whole, for example https://example.com/a"),
        "uuid" => ("UUID", "36 characters like 123e4567-e89b-12d3-a456-426614174000"),
        "ipv4" => ("IPv4 address", "it in numbers, for example 192.0.2.1"),
        "ipv6" => ("IPv6 address", "it in numbers, for example 2001:db8::1"),
        "regex" => ("regular expression", "one that compiles"),
        "json-pointer" => ("JSON pointer", "one like /items/0/sku"),
        other => return format!("{other}{example}"),
    };
    // The owner's example is nearer than ours.
    let give = if example.is_empty() { give } else { give.split(", for example").next().unwrap_or(give) };
    format!("{what}; give {give}{example}")
}

/// Expected form of a missing field.
pub(super) fn form_of(part: Option<&Value>) -> String {
    let Some(part) = part else { return "it".to_owned() };
    if let Some(options) = part.get("enum").and_then(Value::as_array) {
        let options: Vec<String> = options.iter().take(OPTIONS_MAX).map(render_value).collect();
        return format!("one of {}", options.join(", "));
    }
    let own = example(part).map(|example| format!(", for example {example}"));
    let example = own.clone().unwrap_or_default();
    let kinds: Vec<String> = match part.get("type") {
        Some(Value::String(kind)) => vec![kind.clone()],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let (form, usual) = match part.get("format").and_then(Value::as_str) {
        Some("date") => ("a date", "2026-11-20"),
        Some("date-time") => ("an instant", "2026-11-20T08:00:00Z"),
        Some("email") => ("an e-mail address", "name@example.com"),
        _ if !kinds.is_empty() => return format!("{}{example}", kinds_in_words(&kinds)),
        _ => return format!("it{example}"),
    };
    format!("{form}{}", own.unwrap_or_else(|| format!(", for example {usual}")))
}

pub(super) fn kinds_in_words(kinds: &[String]) -> String {
    let mut words: Vec<&str> = Vec::new();
    for kind in kinds {
        let word = match kind.as_str() {
            "integer" => "a whole number (not a text)",
            "number" => "a number (not a text)",
            "boolean" => "true or false",
            "string" => "a text",
            "array" => "a list",
            "object" => "an object",
            other => other,
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(" or ")
}

/// An example from the schema.
pub(super) fn example(part: &Value) -> Option<String> {
    let first = part.get("examples").and_then(Value::as_array).and_then(|examples| examples.first());
    first.or(part.get("default").filter(|default| !default.is_null())).map(render_value)
}

pub(super) fn render_value(value: &Value) -> String {
    shown_text(&value.to_string())
}

/// In one line, truncated.
pub(super) fn shown_text(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
