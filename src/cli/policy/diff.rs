//! Comparison of two policies by keys, regardless of order, comments and layout.

use std::{collections::BTreeMap, path::Path};

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use super::stored;
use callgate_client::{json::OutputFormat, remote::Remote};
use callgate_core::policy::{
    self,
    differences::{self, KeyDifference, diff_keys},
};
use callgate_server::policy_file::read_policy;

pub(super) async fn diff(before: &str, after: &str, form: OutputFormat, remote: &Remote) -> anyhow::Result<u8> {
    let (before, after) = (keys(before, remote).await?, keys(after, remote).await?);
    if form.json {
        let changed = diff_keys(&before, &after);
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
        outln!("the policies are equal");
    }
    Ok(u8::from(!changes.is_empty()))
}

/// All keys with their values, of a file or of a stored policy.
async fn keys(named: &str, remote: &Remote) -> anyhow::Result<BTreeMap<String, String>> {
    let text = if Path::new(named).exists() {
        read_policy(Path::new(named))?
    } else {
        let hash = if named == "active" { "" } else { named };
        let found = stored::text(hash, remote).await;
        found.with_context(|| format!("{named} is neither a file nor the hash of a stored policy"))?
    };
    if let Err(errors) = policy::compile(&text) {
        bail!("{named} is not a valid policy, {} problem(s): run callgate policy check", errors.len());
    }
    differences::keys(&text).map_err(|error| anyhow!("{named} is not valid YAML: {error}"))
}

fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let line = |(name, old, new): KeyDifference<'_>| match (old, new) {
        (Some(old), Some(new)) => format!("~ {name}: {old} -> {new}"),
        (Some(old), None) => format!("- {name}: {old}"),
        (None, new) => format!("+ {name}: {}", new.map_or("", String::as_str)),
    };
    diff_keys(before, after).into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_counts() {
        let keys = |text: &str| differences::keys(text).expect("YAML");
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
