//! The published JSON Schema of a policy file: the file's own keys, and the parts that rules read themselves.

use schemars::SchemaGenerator;
use serde_json::{Map, Value};

use super::{
    file::PolicyFile,
    form::{BUILT_IN, publish},
};
use crate::rules::{PolicySection, Rule};

/// The JSON Schema of a policy file.
#[must_use]
pub fn schema() -> Value {
    BUILT_IN.schema().clone()
}

/// The JSON Schema of a file with the parameters of these rules.
#[must_use]
pub fn schema_with(rules: &[Rule]) -> Value {
    let mut generator = SchemaGenerator::default();
    let mut parts = Vec::new();
    for rule in rules {
        for part in rule.defaults().policy_sections() {
            let mut schema = (part.schema)(&mut generator);
            if let Some(summary) = rule.summary().filter(|_| !part.is_shared) {
                schema.insert("description".to_owned(), summary.into());
            }
            parts.push((part.at, schema.to_value()));
        }
    }
    let mut schema = generator.into_root_schema_for::<PolicyFile>().to_value();
    parts.into_iter().for_each(|(at, part)| graft(&mut schema, &at, part));
    simplify(&mut schema);
    publish(&mut schema);
    schema
}

/// Adds a part to its enclosing section, or its keys to an existing section.
fn graft(root: &mut Value, at: &str, part: Value) {
    let mut section = "/$defs/PolicyEngine".to_owned();
    let mut keys = at.split('.').peekable();
    while let Some(key) = keys.next() {
        let place = format!("{section}/properties/{key}");
        let known = root.pointer(&place).map(|known| known.get("$ref").and_then(Value::as_str).map(str::to_owned));
        match known {
            Some(reference) => section = reference.map_or(place, |path| path.trim_start_matches('#').to_owned()),
            None => {
                let properties = root.pointer_mut(&format!("{section}/properties"));
                let Some(properties) = properties.and_then(Value::as_object_mut) else { return };
                let is_last = keys.peek().is_none();
                let value =
                    if is_last { part.clone() } else { serde_json::json!({"type": "object", "properties": {}}) };
                properties.insert(key.to_owned(), value);
                if is_last {
                    return;
                }
                section = place;
            }
        }
    }
    let more = part.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let known = root.pointer_mut(&format!("{section}/properties")).and_then(Value::as_object_mut);
    known.into_iter().for_each(|known| known.extend(more.clone()));
}

/// Removes a part from the policy and returns it, if present.
pub(super) fn take(engine: &mut Value, part: &PolicySection) -> Option<Value> {
    let (sections, last) = part.at.rsplit_once('.').map_or(("", part.at.as_str()), |(sections, last)| (sections, last));
    let around = sections.split('.').filter(|key| !key.is_empty()).try_fold(engine, |at, key| at.get_mut(key))?;
    if !part.is_shared {
        return around.as_object_mut()?.remove(last);
    }
    let section = around.get_mut(last)?.as_object_mut()?;
    let schema = (part.schema)(&mut SchemaGenerator::default()).to_value();
    let keys = schema.get("properties")?.as_object()?.keys();
    let taken: Map<String, Value> = keys.filter_map(|key| section.remove_entry(key)).collect();
    (!taken.is_empty()).then(|| taken.into())
}

/// Rejects keys without a value, and merges alternatives of words into one list.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let some = members
                .get("anyOf")
                .and_then(Value::as_array)
                .filter(|any| any.len() == 2 && any[1].get("type").and_then(Value::as_str) == Some("null"));
            if let Some(Value::Object(some)) = some.map(|any| any[0].clone()) {
                members.remove("anyOf");
                members.extend(some);
            }
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    members.insert("type".to_owned(), only);
                }
            }
            choices(members);
            members.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Merges individually described words into one list, with their texts in its description.
fn choices(members: &mut Map<String, Value>) {
    let Some(Value::Array(options)) = members.get("oneOf") else { return };
    let words: Option<Vec<Value>> = options.iter().map(|option| option.get("const").cloned()).collect();
    let Some(words) = words else { return };
    let explained = options.iter().zip(&words).filter_map(|(option, word)| {
        let what = option.get("description")?.as_str()?;
        Some(format!("{}: {what}", word.as_str().unwrap_or_default()))
    });
    let about = members.get("description").and_then(Value::as_str).map(str::to_owned);
    let text = about.into_iter().chain(explained).collect::<Vec<_>>().join(" ");
    members.remove("oneOf");
    members.extend([("description".to_owned(), text.into()), ("type".to_owned(), "string".into())]);
    members.insert("enum".to_owned(), words.into());
}
