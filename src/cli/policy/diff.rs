//! Two policies, key by key: order, comments and layout do not count.

use std::{collections::BTreeMap, path::Path};

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::stored;
use crate::{
    cli::{json::Form, read_policy, remote::Remote},
    policy,
};

pub(super) async fn diff(before: &str, after: &str, form: Form, remote: &Remote) -> anyhow::Result<u8> {
    let (before, after) = (keys(before, remote).await?, keys(after, remote).await?);
    if form.json {
        let changed = changed(&before, &after);
        for (key, old, new) in &changed {
            let value = |text: &Option<&String>| text.and_then(|text| serde_json::from_str::<Value>(text).ok());
            outln!("{}", json!({"key": key, "before": value(old), "after": value(new)}));
        }
        return Ok(u8::from(!changed.is_empty()));
    }
    let changes = changes(&before, &after);
    for change in &changes {
        let colour = match change.chars().next() {
            Some('+') => AnsiColor::Green,
            Some('-') => AnsiColor::Red,
            _ => AnsiColor::Yellow,
        };
        let style = Style::new().fg_color(Some(colour.into()));
        outln!("{style}{change}{style:#}");
    }
    if changes.is_empty() {
        outln!("the two policies say the same");
    }
    Ok(u8::from(!changes.is_empty()))
}

/// Every key with its value, of a file or of a stored policy.
async fn keys(named: &str, remote: &Remote) -> anyhow::Result<BTreeMap<String, String>> {
    let text = if Path::new(named).exists() {
        read_policy(Path::new(named))?
    } else {
        let hash = if named == "active" { "" } else { named };
        let found = stored::text(hash, remote).await;
        found.with_context(|| format!("there is no file {named}, and no stored policy has such a hash"))?
    };
    if let Err(errors) = policy::compile(&text) {
        bail!("{named} is not a valid policy, {} problem(s): see callgate policy check", errors.len());
    }
    let value: Value = serde_saphyr::from_str(&text).with_context(|| format!("{named} cannot be read as YAML"))?;
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

/// A key, and what was and is there.
type Changed<'a> = (&'a String, Option<&'a String>, Option<&'a String>);

fn changed<'a>(before: &'a BTreeMap<String, String>, after: &'a BTreeMap<String, String>) -> Vec<Changed<'a>> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let all = names.into_iter().map(|name| (name, before.get(name), after.get(name)));
    all.filter(|(_, old, new)| old != new).collect()
}

fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let line = |(name, old, new): Changed<'_>| match (old, new) {
        (Some(old), Some(new)) => format!("~ {name}: {old} -> {new}"),
        (Some(old), None) => format!("- {name}: {old}"),
        (None, new) => format!("+ {name}: {}", new.map_or("", String::as_str)),
    };
    changed(before, after).into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_counts() {
        let keys = |text: &str| {
            let mut keys = BTreeMap::new();
            flatten(String::new(), &serde_saphyr::from_str(text).expect("YAML"), &mut keys);
            keys
        };
        let before = keys("a: {b: 1, c: [x]}\ntiers: [{name: r, p: 1}, {name: w, p: 2}]\n");
        assert!(
            changes(&before, &keys("tiers: [{p: 1, name: r}, {name: w, p: 2}]\na:\n  c: [x]  # why\n  b: 1\n"))
                .is_empty()
        );
        let after = keys("a: {b: 2, d: 3}\ntiers: [{name: w, p: 2}]\n");
        assert_eq!(
            changes(&before, &after),
            ["~ a.b: 1 -> 2", "- a.c: [\"x\"]", "+ a.d: 3", "- tiers[r].name: \"r\"", "- tiers[r].p: 1"]
        );
    }
}
