//! Compared values of a condition, as text: `amount is 50, refundable of get_order is 5`.

use crate::domain::json::Json;

use super::render_value;

/// The values behind the names of a condition, in order, each once. Its text was compiled, so every apparent name is
/// one.
pub(super) fn list_compared_values<'a>(
    condition: &str,
    arguments: &'a Json,
    last: &dyn Fn(&str) -> Option<&'a Json>,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = condition;
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let (before, from) = rest.split_at(at);
        let is_whole = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '.' || c == '\'' || c == '"');
        let (value, length) = match is_whole {
            true => find_named_value(from, arguments, last),
            false => (None, word(from).len()),
        };
        found.extend(value.filter(|value| !found.contains(value)));
        rest = &from[length.max(1)..];
    }
    found
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The value of the name at the start of `text`, and the name's length.
fn find_named_value<'a>(
    text: &str,
    arguments: &'a Json,
    last: &dyn Fn(&str) -> Option<&'a Json>,
) -> (Option<String>, usize) {
    if let Some(path) = text.strip_prefix("args.") {
        let (fields, length) = path_of(path);
        let value = value_at(arguments, &fields);
        return (Some(format!("{} is {}", fields.join("."), describe_value(value))), "args.".len() + length);
    }
    let Some(inner) = text.strip_prefix("last(") else { return (None, word(text).len()) };
    let Some((tool, path)) = inner.get(1..).and_then(|inner| inner.split_once(['\'', '"'])) else {
        return (None, "last(".len());
    };
    let skipped = text.len() - path.len();
    let Some(path) = path.strip_prefix(").") else { return (None, skipped) };
    let (fields, length) = path_of(path);
    let value = last(tool).and_then(|result| value_at(result, &fields));
    (Some(format!("{} of {tool} is {}", fields.join("."), describe_value(value))), skipped + ").".len() + length)
}

/// The names up to a function call: `items.size()` is `items`.
fn path_of(text: &str) -> (Vec<&str>, usize) {
    let (mut fields, mut length) = (Vec::new(), 0);
    loop {
        let field = word(&text[length..]);
        let after = &text[length + field.len()..];
        if !after.starts_with('(') {
            fields.push(field);
        }
        length += field.len();
        if field.is_empty() || !after.starts_with('.') {
            return (fields, length);
        }
        length += 1;
    }
}

fn value_at<'a>(value: &'a Json, fields: &[&str]) -> Option<&'a Json> {
    fields.iter().try_fold(value, |value, field| value.get(field))
}

fn describe_value(value: Option<&Json>) -> String {
    value.map_or_else(|| "missing".to_owned(), render_value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::parse;

    #[test]
    fn the_values_that_were_compared_are_named() {
        let arguments = parse(r#"{"amount":50,"who":{"name":"Anna"},"lines":[1,2]}"#).expect("good JSON");
        let order = parse(r#"{"refundable":5,"owner":"Ben"}"#).expect("good JSON");
        let last = |tool: &str| (tool == "get_order").then_some(&order);
        for (condition, expected) in [
            ("args.amount <= last('get_order').refundable", "amount is 50, refundable of get_order is 5"),
            ("args.who.name == last(\"get_order\").owner", "who.name is 'Anna', owner of get_order is 'Ben'"),
            ("args.amount > 0 && args.amount < 10", "amount is 50"),
            ("last('get_order').state == 'args.amount'", "state of get_order is missing"),
            ("args.lines.size() < 2", "lines is [1,2]"),
            ("now > date('2026-01-01')", ""),
        ] {
            assert_eq!(list_compared_values(condition, &arguments, &last).join(", "), expected, "{condition}");
        }
    }
}
