//! Comparison of two policies by keys, regardless of order, comments and layout.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Every key of a policy's text with its value, as JSON.
///
/// # Errors
/// The problem of the text.
pub fn keys(text: &str) -> Result<BTreeMap<String, String>, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let mut keys = BTreeMap::new();
    flatten(String::new(), &value, &mut keys);
    Ok(keys)
}

fn flatten(path: String, value: &Value, keys: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(path, member, keys);
            }
        }
        // An entry that has a name keeps its path when others move.
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (i, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str).map_or_else(|| i.to_string(), str::to_owned);
                flatten(format!("{path}[{name}]"), item, keys);
            }
        }
        other => {
            keys.insert(path, other.to_string());
        }
    }
}

/// A differing key with its old and new value.
pub type KeyDifference<'a> = (&'a String, Option<&'a String>, Option<&'a String>);

/// The keys that differ.
#[must_use]
pub fn diff_keys<'a>(
    before: &'a BTreeMap<String, String>,
    after: &'a BTreeMap<String, String>,
) -> Vec<KeyDifference<'a>> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let all = names.into_iter().map(|name| (name, before.get(name), after.get(name)));
    all.filter(|(_, old, new)| old != new).collect()
}
