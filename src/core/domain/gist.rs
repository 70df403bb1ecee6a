//! Gists: short summaries of arguments and results that distinguish calls after their texts are gone. They contain
//! nothing redacted: a result arrives as it is stored.

use std::borrow::Cow;

use super::{
    json::{self, Json},
    redaction::{REDACTED, Redaction, Secrets},
};

/// Maximum length of one value, in characters.
const VALUE_MAX: usize = 60;
/// Maximum number of names from a list.
const NAMES_MAX: usize = 3;
/// Maximum length of a plain text that is included whole, in characters.
const TEXT_MAX: usize = 80;
/// Keys of a thing's identity, the best first.
const IDENTITIES: [&str; 7] = ["id", "uuid", "key", "number", "name", "url", "path"];
/// Ids of the response, not of its subject.
const OF_THE_ANSWER: [&str; 4] = ["request_id", "trace_id", "correlation_id", "span_id"];

/// Summary of a success.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SuccessSummary {
    /// Names of possible creations: those of the result that its arguments do not hold.
    pub made: Option<String>,
    /// Summary of the result.
    pub says: String,
}

impl SuccessSummary {
    /// The gist of the result of a call with these canonical arguments. `read` is the result as JSON, if it parses.
    #[must_use]
    pub fn of(result: &str, read: Option<&Json>, arguments: Option<&str>) -> Self {
        let made = read.and_then(|value| new_identities(value, arguments));
        let says = match read {
            Some(Json::String(text)) => describe_text(text),
            Some(value) => of_value(value),
            None => describe_text(result.trim()),
        };
        Self { made, says }
    }
}

/// Arguments, `{title: Q3, pages: 4}`, in at most about `max` characters.
#[must_use]
pub fn arguments(canonical: &str, redaction: &Redaction, max: usize) -> String {
    let Ok(value) = json::parse(canonical) else {
        return truncate_line(&redaction.text(canonical, &mut Secrets::default()), max);
    };
    let value = redaction.json(&value, &mut Secrets::default()).unwrap_or(value);
    let Json::Object(members) = &value else { return truncate_line(&value.canonical(), max) };
    if matches!(members.as_slice(), [(key, _)] if key == "sha256") {
        return "(arguments not stored)".to_owned();
    }
    let full = braces(members, VALUE_MAX);
    if full.chars().count() <= max { full } else { truncate_line(&braces(members, VALUE_MAX / 3), max) }
}

/// `text` in one line of at most `max` characters.
#[must_use]
pub fn truncate_line(text: &str, max: usize) -> String {
    let line = in_one_line(text);
    if line.chars().count() <= max {
        return line.into_owned();
    }
    line.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// `text` with single spaces between its words.
fn in_one_line(text: &str) -> Cow<'_, str> {
    let is_one = !text.starts_with(' ') && !text.ends_with(' ') && !text.contains("  ");
    if is_one && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(text);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ").into()
}

/// True for an empty result: no text, or an object whose lists are all empty and that counts nothing. `read` is the
/// result as JSON, if it parses.
#[must_use]
pub fn is_empty(result: &str, read: Option<&Json>) -> bool {
    if matches!(result.trim(), "" | "null" | "[]" | "{}" | "\"\"") {
        return true;
    }
    let Some(Json::Object(members)) = read else { return false };
    let lists = members.iter().filter(|(_, value)| matches!(value, Json::Array(_))).count();
    let says = |(key, value): &(String, Json)| match value {
        Json::Array(items) => !items.is_empty(),
        Json::Object(members) => !members.is_empty(),
        Json::Number(number) => {
            number != "0" && ["count", "total"].iter().any(|word| key.to_ascii_lowercase().contains(word))
        }
        _ => false,
    };
    lists > 0 && !members.iter().any(says)
}

fn of_value(value: &Json) -> String {
    match value {
        Json::Null => "nothing".to_owned(),
        Json::Array(items) => list(items),
        Json::Object(members) if members.is_empty() => "nothing".to_owned(),
        Json::Object(members) => match only_list(members) {
            Some(items) => list(items),
            None => braces(best_first(members), VALUE_MAX / 2),
        },
        other => scalar(other, VALUE_MAX),
    }
}

/// The only list of an answer: `{"results": […], "total": 2}`.
fn only_list(members: &[(String, Json)]) -> Option<&[Json]> {
    let mut lists = members.iter().filter_map(|(_, value)| match value {
        Json::Array(items) => Some(items.as_slice()),
        _ => None,
    });
    let has_identity = members.iter().any(|(key, _)| identity(key).is_some());
    lists.next().filter(|_| lists.next().is_none() && !has_identity)
}

fn list(items: &[Json]) -> String {
    let count = match items.len() {
        0 => return "nothing found".to_owned(),
        1 => "1 item".to_owned(),
        n => format!("{n} items"),
    };
    let names: Vec<String> = items.iter().filter_map(name).take(NAMES_MAX).collect();
    let more = if names.len() < items.len() { ", …" } else { "" };
    if names.is_empty() { count } else { format!("{count}: {}{more}", names.join(", ")) }
}

/// Rank of a key among those of an identity.
fn identity(key: &str) -> Option<usize> {
    if OF_THE_ANSWER.iter().any(|name| name.eq_ignore_ascii_case(key)) {
        return None;
    }
    let known = IDENTITIES.iter().position(|name| name.eq_ignore_ascii_case(key));
    let end = key.len().checked_sub(3).and_then(|at| key.get(at..));
    known.or_else(|| end.is_some_and(|end| end.eq_ignore_ascii_case("_id")).then_some(IDENTITIES.len()))
}

fn best_first(members: &[(String, Json)]) -> Vec<&(String, Json)> {
    let mut members: Vec<&(String, Json)> = members.iter().collect();
    members.sort_by_key(|(key, _)| identity(key).unwrap_or(usize::MAX));
    members
}

fn name(item: &Json) -> Option<String> {
    match item {
        Json::Object(members) => {
            let named = members.iter().filter(|(_, value)| is_scalar(value));
            let best = named.filter_map(|(key, value)| Some((identity(key)?, value))).min_by_key(|(place, _)| *place);
            best.map(|(_, value)| scalar(value, VALUE_MAX / 2))
        }
        Json::Array(_) | Json::Null => None,
        other => Some(scalar(other, VALUE_MAX / 2)),
    }
}

fn is_scalar(value: &Json) -> bool {
    matches!(value, Json::Bool(_) | Json::Number(_) | Json::String(_))
}

/// The identities in an answer that the arguments did not hold.
fn new_identities(value: &Json, arguments: Option<&str>) -> Option<String> {
    let Json::Object(members) = value else { return None };
    let about = |members: &[(String, Json)]| {
        let ids = members.iter().filter(|(_, value)| matches!(value, Json::Number(_) | Json::String(_)));
        ids.filter_map(|(key, value)| Some((identity(key)?, value.clone()))).min_by_key(|(place, _)| *place)
    };
    let nested = || match members.as_slice() {
        [(_, Json::Object(inner))] => about(inner),
        _ => None,
    };
    let (_, id) = about(members).or_else(nested)?;
    let asked = arguments.and_then(|arguments| json::parse(arguments).ok());
    (!asked.is_some_and(|asked| holds(&asked, &id))).then(|| scalar(&id, VALUE_MAX / 2))
}

fn holds(value: &Json, sought: &Json) -> bool {
    match value {
        Json::Array(items) => items.iter().any(|item| holds(item, sought)),
        Json::Object(members) => members.iter().any(|(_, value)| holds(value, sought)),
        other => other == sought || scalar(other, usize::MAX) == scalar(sought, usize::MAX),
    }
}

fn braces<'j>(members: impl IntoIterator<Item = &'j (String, Json)>, value_max: usize) -> String {
    let mut text = String::from("{");
    for (key, value) in members {
        text.push_str(if text.len() > 1 { ", " } else { "" });
        text.push_str(key);
        text.push_str(": ");
        text.push_str(&short(value, value_max));
    }
    text.push('}');
    text
}

fn short(value: &Json, max: usize) -> String {
    match value {
        Json::Array(items) if items.len() > NAMES_MAX => match items.first() {
            Some(first) => format!("[{}, … {} in all]", short(first, max / 2), items.len()),
            None => "[]".to_owned(),
        },
        Json::Array(items) => {
            format!("[{}]", items.iter().map(|item| short(item, max / 2)).collect::<Vec<_>>().join(", "))
        }
        Json::Object(members) => truncate_line(&braces(members, max / 2), max),
        other => scalar(other, max),
    }
}

/// Quoted only where ambiguous without.
fn scalar(value: &Json, max: usize) -> String {
    match value {
        Json::String(text) if text == REDACTED => text.clone(),
        Json::String(text) if text.is_empty() => "\"\"".to_owned(),
        Json::String(text) if text.contains([',', '{', '}', '[', ']', ':', '"']) => {
            let is_link = !text.contains([',', '{', '}', '[', ']', '"', ' ']);
            if is_link { truncate_line(text, max) } else { format!("\"{}\"", truncate_line(text, max)) }
        }
        Json::String(text) => truncate_line(text, max),
        other => truncate_line(&other.canonical(), max),
    }
}

fn describe_text(text: &str) -> String {
    match text.trim() {
        "" => "nothing".to_owned(),
        text if text.chars().count() <= TEXT_MAX => format!("\"{}\"", truncate_line(text, TEXT_MAX)),
        text => {
            let lines = text.lines().count();
            let lines = if lines > 1 { format!(", {lines} lines") } else { String::new() };
            format!("text of {}{lines}: \"{}\"", size(text.len() as u64), truncate_line(text, VALUE_MAX))
        }
    }
}

/// A size in words: `812 bytes`, `12 KB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} KB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_told_in_short() {
        for (given, told) in [
            (r#"{"pages":4,"title":"Q3"}"#, "{pages: 4, title: Q3}"),
            ("{}", "{}"),
            (r#"{"to":"a, b","url":"https://x.io/a?b=1"}"#, r#"{to: "a, b", url: https://x.io/a?b=1}"#),
            (r#"{"ids":[1,2,3,4,5]}"#, "{ids: [1, … 5 in all]}"),
            (r#"{"iban":"DE02","n":1}"#, "{iban: [redacted], n: 1}"),
            (r#"{"sha256":"00"}"#, "(arguments not stored)"),
            ("not json", "not json"),
        ] {
            assert_eq!(arguments(given, &Redaction::new(["IBAN"], [], Vec::new()), 120), told);
        }
        let long = format!(r#"{{"content":"{}","path":"a.txt"}}"#, "word ".repeat(400));
        let told = arguments(&long, &Redaction::default(), 80);
        assert!(told.chars().count() <= 80 && told.ends_with("path: a.txt}"), "{told}");
    }

    #[test]
    fn empty_result_has_many_forms() {
        for nothing in ["", "null", "[]", "{}", r#"{"results":[]}"#, r#"{"items":[],"total":0,"query":"x","page":1}"#] {
            assert!(is_empty(nothing, json::parse(nothing).ok().as_ref()), "{nothing}");
        }
        for something in [r#"{"results":[1]}"#, r#"{"results":[],"total":4}"#, r#"{"ok":true}"#, "no rows", "0"] {
            assert!(!is_empty(something, json::parse(something).ok().as_ref()), "{something}");
        }
    }

    #[test]
    fn results_are_told_by_what_they_are_about() {
        let asked = Some(r#"{"order_id":17,"title":"Q3"}"#);
        let gist = |result: &str| SuccessSummary::of(result, json::parse(result).ok().as_ref(), asked);
        for (result, says, made) in [
            (r#"{"id":"doc_1","status":"open"}"#, "{id: doc_1, status: open}", Some("doc_1")),
            (r#"{"document":{"id":"doc_1"}}"#, "{document: {id: doc_1}}", Some("doc_1")),
            (r#"{"order_id":"17","total":5,"pin":"0000"}"#, "{order_id: 17, pin: 0000, total: 5}", None),
            (r#"{"request_id":"r1","ok":true}"#, "{ok: true, request_id: r1}", None),
            (r#"{"results":[{"id":1},{"id":2}],"total":2}"#, "2 items: 1, 2", None),
            (r#"[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}]"#, "4 items: a, b, c, …", None),
            ("[]", "nothing found", None),
            ("null", "nothing", None),
            ("", "nothing", None),
            ("sent", "\"sent\"", None),
            ("42", "42", None),
        ] {
            let expected = SuccessSummary { made: made.map(str::to_owned), says: says.to_owned() };
            assert_eq!(gist(result), expected, "{result}");
        }
        let file = "fn main() {}\n".repeat(100);
        assert!(gist(&file).says.starts_with("text of 1299 bytes, 100 lines: \"fn main() {}"), "{}", gist(&file).says);
    }
}
