//! Import of a tool list as a policy file, which its owner confirms line by line.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    Hints, IdentityArgument, SourcedEffect, ToolDoc, ToolList, forms, name_words, nodes, proposed_resource, types,
};
use crate::domain::effect::EffectKind;

/// Header above the tools.
const HEADER: &str = "\
# A line marked `# proposed` is not in force. Take away its first `#` when you know that it is true: guesses from names
# were wrong too often on recorded calls. Annotations are what a tool's author says, and nobody has checked them.
";

/// A policy file that names every tool of the list, in order, with its arguments' schema if `with_schemas`. Proposed
/// risks and effects are comments, without effect until the owner uncomments them. The file compiles if each schema
/// does.
#[must_use]
pub fn import(list: &ToolList, with_schemas: bool) -> String {
    write_policy(list, with_schemas, false)
}

/// [`import`] with the annotations' facts enabled: for servers whose owner trusts them.
#[must_use]
pub fn import_trusting(list: &ToolList, with_schemas: bool) -> String {
    write_policy(list, with_schemas, true)
}

fn write_policy(list: &ToolList, with_schemas: bool, trusts: bool) -> String {
    let mut text = String::new();
    let mut sources: Vec<&str> = list.tools.iter().map(|tool| tool.source.as_str()).collect();
    sources.dedup();
    let _ = writeln!(text, "# {} tools of {}.", list.tools.len(), one_line(&sources.join(", ")));
    text.push_str(HEADER);
    let _ = writeln!(text, "# In force as it stands: the names of the tools{}.", schemas(with_schemas));
    text.push_str("policy_engine:\n  tool_schemas:");
    text.push_str(if list.tools.is_empty() { " {}\n" } else { "\n" });
    for (tool, words) in list.tools.iter().zip(list.tool_name_words()) {
        let _ = writeln!(text, "    {}:", key(&tool.name));
        for proposal in proposals(tool, &words) {
            let Proposal { line, why } = proposal;
            if trusts && why.starts_with(ANNOTATED) {
                let _ = writeln!(text, "      {line}   # {why}");
            } else {
                let _ = writeln!(text, "      # {line}   # proposed: {why}");
            }
        }
        if with_schemas {
            let _ = writeln!(text, "      schema: {}", flow(&tool.input_schema));
        } else {
            text.push_str("      suggested_next: []\n");
        }
    }
    text
}

/// Prefix of a reason by annotation.
const ANNOTATED: &str = "its annotations say ";

fn schemas(with_schemas: bool) -> &'static str {
    if with_schemas { ", and the schemas of their arguments" } else { "" }
}

/// A line of the policy file, with its reason.
struct Proposal {
    line: String,
    why: String,
}

fn propose(line: impl Into<String>, why: impl Into<String>) -> Proposal {
    Proposal { line: line.into(), why: why.into() }
}

fn proposals(tool: &ToolDoc, words: &[String]) -> Vec<Proposal> {
    if name_words::is_way_out(words) {
        return vec![propose("terminal: true", "its name reads like a way out, which is never blocked nor charged")];
    }
    let told = SourcedEffect::of(tool, words);
    if let (Some(word), None | Some(EffectKind::Write)) =
        (name_words::repeats(words), told.as_ref().map(|told| told.effect))
    {
        let why = || format!("a guess from `{word}` in its name");
        return vec![
            propose("effect: write", why()),
            propose("repeatable: true", format!("{}: doing the same again is meant", why())),
        ];
    }
    let Some(told) = told else {
        let why = "declare read, write, check or poll; neither its name nor annotations tell";
        return vec![propose("effect: unknown", why)];
    };
    let (risk, why) = risk(words, tool.hints, &told);
    let mut lines = vec![
        propose(format!("risk_level: {risk}"), why),
        propose(format!("effect: {}", told.effect.as_str()), told.by.to_string()),
    ];
    if told.effect == EffectKind::Write {
        lines.extend(repetition(words, tool.hints));
    }
    let changes_nothing = told.effect == EffectKind::Check;
    let resource = proposed_resource(tool, words).filter(|resource| !changes_nothing && is_plain_template(resource));
    if let Some(resource) = resource {
        let why = "required, and its name reads like an identity or a path";
        lines.push(propose(format!("side_effect_resource: \"{resource}\""), why));
    }
    lines.extend(canonical(tool).filter(|_| told.effect == EffectKind::Write));
    lines
}

fn risk(words: &[String], hints: Hints, told: &SourcedEffect) -> (&'static str, String) {
    let verb = name_words::verb(words).map_or("", |(verb, _)| verb);
    match told.effect {
        EffectKind::Read | EffectKind::Poll => ("LOW", told.by.to_string()),
        _ if hints.destructive == Some(true) => ("HIGH", "its annotations say destructiveHint: true".to_owned()),
        _ if hints.destructive == Some(false) => ("MEDIUM", "its annotations say destructiveHint: false".to_owned()),
        _ if name_words::destroys(verb) => ("HIGH", format!("a guess from `{verb}` in its name: nothing may be left")),
        _ if name_words::harms(verb) => {
            ("HIGH", format!("a guess from `{verb}` in its name: it may not be taken back"))
        }
        _ => ("MEDIUM", told.by.to_string()),
    }
}

/// The behavior of a repeated write.
fn repetition(words: &[String], hints: Hints) -> Option<Proposal> {
    let verb = name_words::verb(words).map_or("", |(verb, _)| verb);
    if hints.idempotent == Some(true) {
        return Some(propose("idempotent: true", "its annotations say idempotentHint: true"));
    }
    if name_words::harms(verb) {
        return Some(propose("once: true", format!("a guess from `{verb}` in its name: doing it twice harms")));
    }
    let settles = hints.idempotent.is_none() && name_words::settles(verb);
    settles.then(|| propose("idempotent: true", format!("a guess from `{verb}` in its name: twice is as once")))
}

/// The arguments without free text.
fn canonical(tool: &ToolDoc) -> Option<Proposal> {
    const WORDING: &[&str] =
        &["reason", "justification", "explanation", "thought", "rationale", "request_id", "trace_id"];
    let nodes = nodes(&tool.input_schema);
    let fields: Vec<&str> = nodes.iter().filter(|node| node.top).filter_map(|node| node.name).collect();
    let is_free = |field: &str| {
        let node = nodes.iter().find(|node| node.top && node.name == Some(field));
        node.is_some_and(|node| {
            forms(node.schema).iter().all(|form| form.get("enum").is_none() && types(form) == ["string"])
        })
    };
    let (wording, rest): (Vec<&str>, Vec<&str>) =
        fields.into_iter().partition(|field| WORDING.contains(field) && is_free(field));
    let names_a_thing = rest.iter().any(|field| IdentityArgument::of(field).is_some());
    if wording.is_empty() || !names_a_thing || !rest.iter().all(|field| is_plain(field)) {
        return None;
    }
    let why = format!("without {}, whose wording changes from call to call", wording.join(" and "));
    Some(propose(format!("canonical_fields: [{}]", rest.join(", ")), why))
}

/// True for a text that needs no quotes in any version of YAML.
fn is_plain(word: &str) -> bool {
    const SPECIAL: &[&str] = &["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(is_name)
        && !SPECIAL.contains(&word.to_ascii_lowercase().as_str())
}

fn is_plain_template(template: &str) -> bool {
    template.chars().all(|c| c.is_ascii_alphanumeric() || "_-/{}".contains(c))
}

fn key(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { flow(&Value::String(name.to_owned())) }
}

/// JSON as YAML, with the characters escaped that YAML requires; they occur in strings only.
fn flow(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '\u{2028}' || c == '\u{2029}' { ' ' } else { c }).collect()
}

#[cfg(test)]
#[path = "import/tests.rs"]
mod tests;
