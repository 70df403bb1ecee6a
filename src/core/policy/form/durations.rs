//! Durations with units (`90s`, `1h30m`), for all keys in milliseconds.

use serde_json::{Map, Value, json};

/// Part of a key's name that marks milliseconds: `ttl_ms`, `recheck_ms_max`.
const PART: &str = "ms";
/// Units, in milliseconds.
const UNITS: [(&str, f64); 12] = [
    ("ms", 1.0),
    ("s", 1e3),
    ("sec", 1e3),
    ("m", 6e4),
    ("min", 6e4),
    ("h", 3.6e6),
    ("hour", 3.6e6),
    ("hours", 3.6e6),
    ("d", 8.64e7),
    ("day", 8.64e7),
    ("days", 8.64e7),
    ("w", 6.048e8),
];

/// True for a key that counts milliseconds.
pub(super) fn is_time(path: &str) -> bool {
    path.rsplit('.').next().is_some_and(|key| key.contains('_') && key.split('_').any(|part| part == PART))
}

/// Replaces durations with units by milliseconds; other texts stay.
pub(super) fn resolve(value: &mut Value) {
    match value {
        Value::Object(members) => {
            // A tool's own JSON Schema is not ours to read.
            for (key, member) in members.iter_mut().filter(|(key, _)| *key != "schema") {
                match member.as_str().filter(|_| is_time(key)).and_then(millis) {
                    Some(millis) => *member = millis.into(),
                    None => resolve(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(resolve),
        _ => {}
    }
}

/// Allows texts for durations in the published schema; `keys` are the members of its `properties`.
pub(super) fn allow(keys: &mut Map<String, Value>) {
    for (_, key) in keys.iter_mut().filter(|(name, _)| is_time(name)) {
        let Some(key) = key.as_object_mut().filter(|key| key.get("type").is_some_and(|kind| kind == "integer")) else {
            continue;
        };
        let about = key.get("description").and_then(Value::as_str).unwrap_or_default();
        let about = format!("{about} In milliseconds, or with a unit: 500ms, 90s, 15m, 1h30m, 7d.");
        key.insert("description".to_owned(), about.trim().into());
        key.insert("type".to_owned(), json!(["integer", "string"]));
        key.insert("pattern".to_owned(), r"^\s*([0-9]+(\.[0-9]+)?\s*[a-z]+\s*)+$".into());
    }
}

fn millis(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut sum = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (amount, after) = rest.split_at(number);
        let after = after.trim_start();
        let (unit, after) = after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let of = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        sum += amount.parse::<f64>().ok()? * of;
        rest = after.trim_start();
    }
    (!text.trim().is_empty() && sum < 1e15).then(|| sum.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        let read = ["1h", "90s", "500ms", "1h30m", "1.5h", "15 min", "7d", " 2 days "].map(millis);
        let expected = [3_600_000, 90_000, 500, 5_400_000, 5_400_000, 900_000, 604_800_000, 172_800_000].map(Some);
        assert_eq!(read, expected);
        for text in ["", "1", "h", "1x", "-1h", "1h of rest", "1e9h", "9999999999999999h"] {
            assert_eq!(millis(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_tools_own_schema_is_left_alone() {
        let mut value = json!({"ttl_ms": "1h", "schema": {"default": {"wait_ms": "1h"}}, "note_ms": "soon"});
        resolve(&mut value);
        assert_eq!(value, json!({"ttl_ms": 3_600_000, "schema": {"default": {"wait_ms": "1h"}}, "note_ms": "soon"}));
    }
}
