//! Messages about the form of a policy file, in place of library texts, which are for programmers.

use jsonschema::{ValidationError, error::ValidationErrorKind};
use serde_json::Value;

use super::{durations, nearest, renamed};

/// Synonyms of words, with the intended ones.
const SYNONYMS: [(&str, &[&str]); 16] = [
    ("tool_schemas", &["tools", "tool", "functions", "tool_definitions"]),
    ("schema", &["parameters", "input_schema", "inputschema", "json_schema", "arguments"]),
    ("effect", &["type", "kind", "side_effect"]),
    ("effects", &["cases"]),
    ("lease_ms", &["timeout", "timeout_ms"]),
    ("tools", &["pattern", "allowed_tools", "allow"]),
    ("pattern", &["tools", "tool", "match", "names"]),
    ("hitl", &["ask", "approve", "approval", "human", "confirm", "review"]),
    ("allowlist", &["allow", "permit", "pass"]),
    ("per_conversation_grant", &["grant", "limit"]),
    ("deny", &["block", "forbid", "refuse", "never"]),
    ("ask", &["hitl", "approve", "approval", "human"]),
    ("shadow", &["dry_run", "log", "monitor", "observe", "off", "warn"]),
    ("read", &["readonly", "read_only", "get", "query", "none"]),
    ("write", &["mutate", "update", "create", "delete", "modify", "destructive"]),
    ("full", &["all", "plain", "none"]),
];

/// The option that a synonym or a misspelled word means.
pub(super) fn find_meant_option<'a>(word: &str, options: &[&'a str]) -> Option<&'a str> {
    let plain = word.to_lowercase().replace('-', "_");
    let synonym = SYNONYMS.iter().find(|(name, words)| options.contains(name) && words.contains(&plain.as_str()));
    let synonym = synonym.and_then(|(name, _)| options.iter().find(|option| *option == name));
    if let Some(synonym) = synonym {
        return Some(synonym);
    }
    let timed = format!("{plain}_ms");
    let by_unit = options.iter().find(|option| **option == timed);
    let mut holding = options.iter().filter(|option| option.split('_').any(|part| part == plain));
    let by_part = holding.next().filter(|_| holding.next().is_none() && plain.len() > 3);
    by_unit.or(by_part).copied().or_else(|| nearest(word, options))
}

/// Message about an unknown name.
pub(in crate::policy) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    if let Some(new) = renamed::new_name(name, known) {
        return format!("the {what} `{name}` is now `{new}`");
    }
    let hint = match find_meant_option(name, known) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None if known.is_empty() => String::new(),
        None => format!("; it must be one of {}", known.join(", ")),
    };
    format!("unknown {what} `{name}`{hint}")
}

/// Message about an invalid value, by the kind of its error; empty for keys, whose positions are known better
/// elsewhere.
pub(super) fn of_value(path: &str, error: &ValidationError<'_>) -> String {
    let value = error.instance();
    match error.kind() {
        _ if durations::is_time(path) && !matches!(error.kind(), ValidationErrorKind::Minimum { .. }) => {
            let always = if path.ends_with(".fresh_ms") { ", or always" } else { "" };
            let units = "milliseconds, or with a unit like 500ms, 90s, 15m, 1h, 7d";
            format!("is {}; it must be a time: {units}{always}", render_value(value))
        }
        ValidationErrorKind::Enum { options } => {
            let options: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            no_member(value, &options)
        }
        ValidationErrorKind::Type { kind } => {
            let wanted = format!("{kind:?}").to_lowercase();
            let wanted = wanted.trim_start_matches("single(").trim_end_matches(')');
            format!("is {}; it must be {}", render_value(value), a_kind(wanted))
        }
        ValidationErrorKind::Minimum { limit } => format!("is {}; it must be {limit} or more", render_value(value)),
        ValidationErrorKind::Maximum { limit } => format!("is {}; it must be {limit} or less", render_value(value)),
        _ => format!("is {}, which is not allowed here", render_value(value)),
    }
}

fn no_member(value: &Value, options: &[&str]) -> String {
    let all = options.join(", ");
    match value.as_str().and_then(|text| find_meant_option(text, options)) {
        Some(meant) => format!("is {}; did you mean {meant}? It must be one of {all}", render_value(value)),
        None => format!("is {}; it must be one of {all}", render_value(value)),
    }
}

/// Message about invalid YAML.
pub(super) fn of_yaml(problem: &str) -> String {
    let quoted = |open: &str| problem.split_once(open).and_then(|(_, rest)| rest.chars().next());
    if let Some((_, rest)) = problem.split_once("duplicate mapping key: ") {
        let key = rest.split([',', ' ']).next().unwrap_or_default();
        return format!("the key `{key}` stands twice in one map: keep one of them");
    }
    match problem {
        _ if problem.contains("tabs") => "a tab stands where YAML wants spaces: indent with spaces".to_owned(),
        _ if problem.contains("unclosed quote") => "a quote is opened and never closed".to_owned(),
        _ if problem.contains("unclosed bracket") => {
            let bracket = quoted("unclosed bracket \'").unwrap_or('{');
            format!("a {bracket} is opened and never closed")
        }
        _ if problem.contains("expected ':'") => "a `:` is missing: write `key: value`".to_owned(),
        _ if problem.contains("multiple documents") => "there is a second document (`---`): keep one".to_owned(),
        _ => "this is not YAML: look at the indentation, the colons and the quotes on this line".to_owned(),
    }
}

pub(super) fn render_value(value: &Value) -> String {
    if value.is_null() {
        return "empty".to_owned();
    }
    let text = value.to_string();
    if text.chars().count() > 40 { format!("{}…", text.chars().take(40).collect::<String>()) } else { text }
}

/// A JSON Schema type in plain words.
pub(in crate::policy) fn a_kind(kind: &str) -> &str {
    match kind {
        "object" => "a map of keys",
        "array" => "a list",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "string" => "a text",
        other => other,
    }
}
