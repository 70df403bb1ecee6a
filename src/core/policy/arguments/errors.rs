//! Messages of violations: one line with the field, the problem, and the fix.

use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde_json::Value;

use super::{
    coerce::{as_kind, kinds, reach},
    messages::{
        OPTIONS_MAX, example, form_of, format_in_words, join_path, kinds_in_words, one_line, render_value, shown_text,
        to_dotted_path, unknown_field,
    },
    violation,
};
use crate::{
    domain::{json, json::Json, violation::Violation},
    rules::condition::nearest,
};

/// Violations of one schema error.
pub(super) fn violations(schema: &Value, arguments: &Json, error: &ValidationError<'_>, found: &mut Vec<Violation>) {
    let field = to_dotted_path(error.instance_path().as_str());
    let part = part_of(schema, error.schema_path().as_str());
    match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            branches(schema, arguments, error, context, found);
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = part.and_then(|part| part.get("properties")).and_then(Value::as_object);
            let known: Vec<&str> = known.into_iter().flat_map(|known| known.keys()).map(String::as_str).collect();
            for name in unexpected {
                found.push(unknown_field(&join_path(&field, name), nearest(name, &known)));
            }
        }
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let missing = join_path(&field, name);
            let of_it =
                part.and_then(|part| part.get("properties")?.get(name)).map(|of_it| follow_reference(schema, of_it));
            let what = of_it.and_then(|part| part.get("description")).and_then(Value::as_str);
            let what = what.map(|what| format!(" ({})", shown_text(what))).unwrap_or_default();
            let message = format!("{missing}: is missing{what}; give {}", form_of(of_it));
            found.push(violation(&missing, "required", message));
        }
        kind => {
            let (keyword, problem) = problem(kind, error, part);
            found.push(violation(&field, keyword, sentence(arguments, error, &problem)));
        }
    }
}

/// Shows the value as given: the validator's copy may have lost digits.
fn sentence(arguments: &Json, error: &ValidationError<'_>, problem: &str) -> String {
    let pointer = error.instance_path().as_str();
    let name = if pointer.is_empty() { "the arguments".to_owned() } else { to_dotted_path(pointer) };
    let value = reach(arguments, pointer)
        .map_or_else(|| render_value(error.instance()), |value| shown_text(&value.canonical()));
    format!("{name}: {value} {problem}")
}

/// The errors of the nearest branch; without one, what all branches require.
fn branches(
    schema: &Value,
    arguments: &Json,
    error: &ValidationError<'_>,
    context: &[Vec<ValidationError<'_>>],
    found: &mut Vec<Violation>,
) {
    let here = error.instance_path().as_str();
    let field = to_dotted_path(here);
    let nearest_first = by_nearness(context, here);
    let mut wanted: Vec<String> = Vec::new();
    let mut options: Vec<String> = Vec::new();
    for error in nearest_first.iter().flat_map(|errors| errors.iter()) {
        match error.kind() {
            _ if error.instance_path().as_str() != here => {}
            ValidationErrorKind::Type { kind } => wanted.extend(kinds(kind)),
            ValidationErrorKind::Constant { expected_value } => options.push(expected_value.to_string()),
            _ => {}
        }
    }
    let all = |is: fn(&ValidationErrorKind) -> bool| {
        context
            .iter()
            .all(|errors| errors.iter().any(|error| error.instance_path().as_str() == here && is(error.kind())))
    };
    if all(|kind| matches!(kind, ValidationErrorKind::Type { .. })) && !wanted.is_empty() {
        let problem = format!("must be {}", kinds_in_words(&wanted));
        found.push(violation(&field, "type", sentence(arguments, error, &problem)));
    } else if all(|kind| matches!(kind, ValidationErrorKind::Constant { .. })) && !options.is_empty() {
        options.sort();
        options.truncate(OPTIONS_MAX);
        let problem = format!("is not allowed; give one of {}", options.join(", "));
        found.push(violation(&field, "const", sentence(arguments, error, &problem)));
    } else if let Some(errors) = nearest_first.first() {
        errors.iter().for_each(|error| violations(schema, arguments, error, found));
    } else {
        let problem = "fits none of the allowed forms";
        found.push(violation(&field, "anyOf", sentence(arguments, error, problem)));
    }
}

/// The branches of an `anyOf` or `oneOf`, the nearest first: another type is far, other constants mean another variant,
/// then fewer errors are nearer.
pub(super) fn by_nearness<'a, 'b>(
    branches: &'a [Vec<ValidationError<'b>>],
    here: &str,
) -> Vec<&'a [ValidationError<'b>]> {
    let distance = |errors: &&[ValidationError<'b>]| {
        let is_far = errors.iter().any(|error| {
            error.instance_path().as_str() == here && matches!(error.kind(), ValidationErrorKind::Type { .. })
        });
        let is_fixed = |kind: &ValidationErrorKind| {
            matches!(kind, ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. })
        };
        (is_far, errors.iter().filter(|error| is_fixed(error.kind())).count(), errors.len())
    };
    let mut branches: Vec<&[ValidationError<'b>]> =
        branches.iter().filter(|errors| !errors.is_empty()).map(Vec::as_slice).collect();
    branches.sort_by_key(distance);
    branches
}

fn problem(kind: &ValidationErrorKind, error: &ValidationError<'_>, part: Option<&Value>) -> (&'static str, String) {
    let example = part.and_then(example).map(|example| format!(", for example {example}")).unwrap_or_default();
    let counted = |limit: u64, one: &str, many: &str| format!("{limit} {}", if limit == 1 { one } else { many });
    match kind {
        ValidationErrorKind::Type { kind } => {
            let wanted = kinds(kind);
            let read = readable(error.instance(), &wanted).map(|read| format!("; give {read}"));
            ("type", format!("must be {}{}", kinds_in_words(&wanted), read.unwrap_or(example)))
        }
        ValidationErrorKind::Enum { options } => {
            let all: Vec<&Value> = options.as_array().into_iter().flatten().collect();
            let list: Vec<String> = all.iter().take(OPTIONS_MAX).map(|option| render_value(option)).collect();
            let texts: Vec<&str> = all.iter().filter_map(|option| option.as_str()).collect();
            let meant = error.instance().as_str().and_then(|given| nearest(given, &texts));
            let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
            let rest = if all.len() > OPTIONS_MAX { ", …" } else { "" };
            ("enum", format!("is not allowed; give one of {}{rest}{meant}", list.join(", ")))
        }
        ValidationErrorKind::Constant { expected_value } => {
            ("const", format!("must be {}", render_value(expected_value)))
        }
        ValidationErrorKind::Format { format } => ("format", format!("is no {}", format_in_words(format, &example))),
        ValidationErrorKind::Pattern { pattern } => ("pattern", format!("must match {}{example}", shown_text(pattern))),
        ValidationErrorKind::Minimum { limit } => ("minimum", format!("is too small; give {limit} or more")),
        ValidationErrorKind::Maximum { limit } => ("maximum", format!("is too large; give {limit} or less")),
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            ("exclusiveMinimum", format!("is too small; give more than {limit}"))
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => {
            ("exclusiveMaximum", format!("is too large; give less than {limit}"))
        }
        ValidationErrorKind::MultipleOf { multiple_of } => {
            ("multipleOf", format!("is no multiple of {multiple_of}; give one"))
        }
        ValidationErrorKind::MinLength { limit } => {
            ("minLength", format!("is too short; give {} or more{example}", counted(*limit, "character", "characters")))
        }
        ValidationErrorKind::MaxLength { limit } => {
            ("maxLength", format!("is too long; give at most {}", counted(*limit, "character", "characters")))
        }
        ValidationErrorKind::MinItems { limit } => ("minItems", format!("has too few entries; give {limit} or more")),
        ValidationErrorKind::MaxItems { limit } => ("maxItems", format!("has too many entries; give at most {limit}")),
        ValidationErrorKind::MinProperties { limit } => {
            ("minProperties", format!("has too few fields; give {limit} or more"))
        }
        ValidationErrorKind::MaxProperties { limit } => {
            ("maxProperties", format!("has too many fields; give at most {limit}"))
        }
        ValidationErrorKind::UniqueItems => ("uniqueItems", "has an entry twice; give each once".to_owned()),
        ValidationErrorKind::FalseSchema => ("falseSchema", "is not allowed here; leave it out".to_owned()),
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            ("oneOf", "fits several of the allowed forms; give the fields of one of them only".to_owned())
        }
        ValidationErrorKind::BacktrackLimitExceeded { .. } | ValidationErrorKind::RegexEngineFailure { .. } => {
            ("pattern", format!("is too complex for the pattern; give a shorter text{example}"))
        }
        _ => ("schema", format!("does not fit: {}", one_line(&error.masked_with("it").to_string()))),
    }
}

/// The value converted to a wanted type, if obvious.
fn readable(value: &Value, wanted: &[String]) -> Option<String> {
    let json = json::parse(&value.to_string()).ok()?;
    let read = wanted.iter().find_map(|kind| as_kind(&json, kind))?;
    matches!(read, Json::Number(_) | Json::Bool(_) | Json::String(_)).then(|| read.canonical())
}

/// The subschema of an error.
fn part_of<'a>(schema: &'a Value, schema_path: &str) -> Option<&'a Value> {
    schema.pointer(schema_path.rsplit_once('/')?.0)
}

/// The subschema, or the target of its reference.
fn follow_reference<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    let named = part.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
    named.and_then(|to| schema.pointer(to)).unwrap_or(part)
}
