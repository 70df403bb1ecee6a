//! Test helper of lints: a list in, its reports out.
//!
//! The list is YAML. A tool may carry `policy: {effect: write, once: true, idempotent: true, resource: "order/{id}"}`.
//! A report is written `severity tool pointer: message`, and a second line `  better: …`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{LINTS, LintFinding, ListFacts, SeverityOverrides, ToolDeclaration, check};
use crate::{
    domain::effect::{EffectKind, ResourceTemplate},
    tool_list,
};

/// Fails unless `lint` reports exactly `expected`.
#[track_caller]
pub(super) fn reports(lint: &str, list: &str, expected: &str) {
    let others = LINTS.iter().map(|other| other.id.to_owned()).filter(|id| id != lint);
    let found = run(list, &SeverityOverrides { allowed: others.collect(), ..SeverityOverrides::default() });
    let told: Vec<String> = found.into_iter().filter(|(found, _)| found == lint).map(|(_, text)| text).collect();
    let lines = |text: &str| text.lines().map(|line| format!("{}\n", line.trim())).collect::<String>();
    let (told, expected) = (lines(told.join("\n").trim()), lines(expected.trim()));
    assert!(told == expected, "{list}\ngave\n{told}\nnot\n{expected}");
}

/// Fails if `lint` reports anything.
#[track_caller]
pub(super) fn silent(lint: &str, list: &str) {
    reports(lint, list, "");
}

/// Each report with its lint, as text.
pub(super) fn run(list: &str, levels: &SeverityOverrides) -> Vec<(String, String)> {
    let mut tools: Value = serde_saphyr::from_str(list).expect("YAML");
    let mut declared = BTreeMap::new();
    for tool in tools.as_array_mut().expect("a list") {
        let tool = tool.as_object_mut().expect("a tool");
        tool.entry("input_schema").or_insert_with(|| serde_json::json!({}));
        if let Some(policy) = tool.remove("policy") {
            declared.insert(tool["name"].as_str().expect("a name").to_owned(), declaration(&policy));
        }
    }
    let list = tool_list::read("list.json", &tools.to_string()).expect("a good list");
    let facts = ListFacts::new(&list, &declared);
    let text = |LintFinding { lint, severity, report }: LintFinding| {
        let tool = report.tool.map_or("-", |tool| facts.tools[tool].name());
        let head = format!("{} {tool} {}", severity.as_str(), report.pointer);
        (lint.id.to_owned(), format!("{}: {}\nbetter: {}", head.trim_end(), report.message, report.better))
    };
    check(&facts, levels).into_iter().map(text).collect()
}

fn declaration(policy: &Value) -> ToolDeclaration {
    let effect = policy["effect"].as_str().unwrap_or("unknown");
    let template = policy["resource"].as_str();
    ToolDeclaration {
        effect: EffectKind::from_name(effect).expect("an effect"),
        once: policy["once"] == true,
        idempotent: policy["idempotent"] == true,
        key_honoured: policy["key_honored"] == true,
        repeatable: policy["repeatable"] == true,
        resource: template.map(|template| ResourceTemplate::parse("resource", template).expect("a template")),
    }
}
