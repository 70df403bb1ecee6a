//! What is wrong with an argument, in one line that names the field, what was wrong, and the fix.

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::{Map, Value};

use super::{nearest_branch, violation};
use crate::{domain::violation::Violation, policy::form::nearest};

/// Longest value that is shown whole, in characters.
const SHOWN_MAX: usize = 60;
/// Allowed values that are listed.
const OPTIONS_MAX: usize = 20;

/// A JSON pointer as people write it: `items[0].sku`.
pub(super) fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit()) {
            path = format!("{path}[{step}]");
        } else {
            path = joined(&path, &step);
        }
    }
    path
}

pub(super) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

pub(super) fn near(name: &str, known: &Map<String, Value>) -> Option<String> {
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    nearest(name, &names).map(str::to_owned)
}

pub(super) fn unknown_field(field: &str, near: Option<&str>) -> Violation {
    let fix = near.map_or_else(|| "leave it out".to_owned(), |near| format!("did you mean {near}?"));
    violation(field, "unknown_field", format!("{field}: the tool takes no such field; {fix}"))
}

/// What an error of the schema means.
pub(super) fn violations(schema: &Value, error: &ValidationError<'_>, found: &mut Vec<Violation>) {
    let field = dotted(error.instance_path().as_str());
    let part = part_of(schema, error.schema_path().as_str());
    match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            match nearest_branch(context) {
                Some(errors) => errors.iter().for_each(|error| violations(schema, error, found)),
                None => found.push(violation(&field, "anyOf", format!("{field}: fits none of the allowed forms"))),
            }
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = part.and_then(|part| part.get("properties")).and_then(Value::as_object);
            for name in unexpected {
                let near = known.and_then(|known| near(name, known));
                found.push(unknown_field(&joined(&field, name), near.as_deref()));
            }
        }
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let missing = joined(&field, name);
            let of_it = part.and_then(|part| part.get("properties")?.get(name));
            let what = of_it.and_then(|part| part.get("description")).and_then(Value::as_str);
            let what = what.map(|what| format!(" ({})", shown_text(what))).unwrap_or_default();
            let message = format!("{missing}: is missing{what}; give {}", form_of(of_it));
            found.push(violation(&missing, "required", message));
        }
        kind => {
            let value = shown(error.instance());
            let name = if field.is_empty() { "the arguments" } else { &field };
            let (keyword, problem) = problem(kind, error, part);
            found.push(violation(&field, keyword, format!("{name}: {value} {problem}")));
        }
    }
}

fn problem(kind: &ValidationErrorKind, error: &ValidationError<'_>, part: Option<&Value>) -> (&'static str, String) {
    let example = part.and_then(example).map(|example| format!(", for example {example}")).unwrap_or_default();
    match kind {
        ValidationErrorKind::Type { kind } => ("type", format!("must be {}{example}", kinds(kind))),
        ValidationErrorKind::Enum { options } => {
            let all: Vec<&Value> = options.as_array().into_iter().flatten().collect();
            let list: Vec<String> = all.iter().take(OPTIONS_MAX).map(|option| option.to_string()).collect();
            let texts: Vec<&str> = all.iter().filter_map(|option| option.as_str()).collect();
            let meant = error.instance().as_str().and_then(|given| nearest(given, &texts));
            let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
            ("enum", format!("is not allowed; give one of {}{meant}", list.join(", ")))
        }
        ValidationErrorKind::Constant { expected_value } => ("const", format!("must be {expected_value}")),
        ValidationErrorKind::Format { format } => ("format", format!("is no {}", format_in_words(format, &example))),
        ValidationErrorKind::Pattern { pattern } => ("pattern", format!("must match {pattern}{example}")),
        ValidationErrorKind::Minimum { limit } => ("minimum", format!("is too small; give {limit} or more")),
        ValidationErrorKind::Maximum { limit } => ("maximum", format!("is too large; give {limit} or less")),
        ValidationErrorKind::ExclusiveMinimum { limit } => ("exclusiveMinimum", format!("must be above {limit}")),
        ValidationErrorKind::ExclusiveMaximum { limit } => ("exclusiveMaximum", format!("must be below {limit}")),
        ValidationErrorKind::MinLength { limit } => {
            ("minLength", format!("is too short; give {limit} characters or more"))
        }
        ValidationErrorKind::MaxLength { limit } => {
            ("maxLength", format!("is too long; give at most {limit} characters"))
        }
        ValidationErrorKind::MinItems { limit } => ("minItems", format!("has too few entries; give {limit} or more")),
        ValidationErrorKind::MaxItems { limit } => ("maxItems", format!("has too many entries; give at most {limit}")),
        ValidationErrorKind::UniqueItems => ("uniqueItems", "has an entry twice; give each once".to_owned()),
        _ => ("schema", format!("does not fit: {}", super::one_line(&error.to_string()))),
    }
}

fn format_in_words(format: &str, example: &str) -> String {
    let (what, give) = match format {
        "date" => ("date", "YYYY-MM-DD, for example 2026-11-20"),
        "date-time" => ("date and time", "RFC 3339 with a zone, for example 2026-11-20T08:00:00Z"),
        "time" => ("time", "HH:MM:SS with a zone, for example 08:00:00Z"),
        "duration" => ("duration", "ISO 8601, for example PT15M"),
        "email" | "idn-email" => ("e-mail address", "name@example.com"),
        "uri" | "iri" => ("URL", "it whole, for example https://example.com/a"),
        "uuid" => ("UUID", "36 characters like 123e4567-e89b-12d3-a456-426614174000"),
        "ipv4" | "ipv6" => ("IP address", "it in numbers"),
        other => return format!("{other}{example}"),
    };
    format!("{what}; give {give}")
}

/// What a missing field should hold.
fn form_of(part: Option<&Value>) -> String {
    let Some(part) = part else { return "it".to_owned() };
    if let Some(options) = part.get("enum").and_then(Value::as_array) {
        let options: Vec<String> = options.iter().take(OPTIONS_MAX).map(ToString::to_string).collect();
        return format!("one of {}", options.join(", "));
    }
    let example = example(part).map(|example| format!(", for example {example}")).unwrap_or_default();
    match (part.get("format").and_then(Value::as_str), part.get("type").and_then(Value::as_str)) {
        (Some("date"), _) => "a date, for example 2026-11-20".to_owned(),
        (Some("date-time"), _) => "an instant, for example 2026-11-20T08:00:00Z".to_owned(),
        (_, Some(kind)) => format!("{}{example}", kind_in_words(kind)),
        _ => format!("it{example}"),
    }
}

fn kinds(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => kind_in_words(&kind.to_string()).to_owned(),
        TypeKind::Multiple(kinds) => {
            let kinds: Vec<String> = kinds.iter().map(|kind| kind_in_words(&kind.to_string()).to_owned()).collect();
            kinds.join(" or ")
        }
    }
}

fn kind_in_words(kind: &str) -> &str {
    match kind {
        "integer" => "a whole number (not a text)",
        "number" => "a number (not a text)",
        "boolean" => "true or false",
        "string" => "a text",
        "array" => "a list",
        "object" => "an object",
        "null" => "null",
        other => other,
    }
}

/// The part of the schema that an error is about.
fn part_of<'a>(schema: &'a Value, schema_path: &str) -> Option<&'a Value> {
    schema.pointer(schema_path.rsplit_once('/')?.0)
}

fn example(part: &Value) -> Option<String> {
    let first = part.get("examples").and_then(Value::as_array).and_then(|examples| examples.first());
    first.or(part.get("default")).map(shown)
}

fn shown(value: &Value) -> String {
    shown_text(&value.to_string())
}

fn shown_text(text: &str) -> String {
    let text = super::one_line(text);
    if text.chars().count() > SHOWN_MAX {
        format!("{}…", text.chars().take(SHOWN_MAX).collect::<String>())
    } else {
        text
    }
}
