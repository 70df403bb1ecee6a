//! Reports for programs.
//!
//! ```json
//! {"version": 1,
//!  "summary": {"tools": 1, "errors": 0, "warnings": 1, "notes": 0, "description_tokens": 20, "choice_tokens": 0},
//!  "tools": [{"name": "pay", "file": "tools.json", "line": 3, "description_tokens": 20, "choice_tokens": 0}],
//!  "reports": [{"lint": "use_when", "severity": "warning", "tool": "pay", "file": "tools.json", "line": 3,
//!               "pointer": "/description", "message": "…", "reason": "…", "better": "…", "guessed": false}]}
//! ```
//!
//! `description_tokens` counts all of a description, `choice_tokens` the sentences in it that say when to use the tool.
//! `tool`, `file` and `line` are null in a report about all tools. `guessed` marks what rests on a name alone; such a
//! report is never more than a note. Keys may be added under one version.

use serde_json::{Value, json};

use super::lint::LintOutcome;
use callgate_core::tool_list::lint::{self, LintFinding, Severity};

/// Format version of the document.
const VERSION: u32 = 1;

/// All reports as one document.
///
/// # Errors
/// None in practice; those of `serde_json`.
pub(super) fn write(outcome: &LintOutcome<'_>) -> anyhow::Result<String> {
    let (mut all, mut choices) = (0, 0);
    let mut tools = Vec::new();
    for tool in &outcome.facts.tools {
        let cost = lint::cost(outcome.facts, tool);
        all += cost.choice + cost.rest;
        choices += cost.choice;
        tools.push(json!({
            "name": tool.doc.name,
            "file": tool.doc.source,
            "line": tool.doc.line,
            "description_tokens": cost.choice + cost.rest,
            "choice_tokens": cost.choice,
        }));
    }
    let document = json!({
        "version": VERSION,
        "summary": {
            "tools": tools.len(),
            "errors": outcome.count(Severity::Error),
            "warnings": outcome.count(Severity::Warning),
            "notes": outcome.count(Severity::Note),
            "description_tokens": all,
            "choice_tokens": choices,
        },
        "tools": tools,
        "reports": outcome.found.iter().map(|found| report(outcome, found)).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// One line per report.
pub(super) fn render_reports(outcome: &LintOutcome<'_>) -> String {
    outcome.found.iter().map(|found| format!("{}\n", report(outcome, found))).collect()
}

fn report(outcome: &LintOutcome<'_>, found: &LintFinding) -> Value {
    let report = &found.report;
    let doc = report.tool.and_then(|tool| outcome.facts.tools.get(tool)).map(|tool| tool.doc);
    json!({
        "lint": found.lint.id,
        "severity": found.severity.as_str(),
        "tool": doc.map(|doc| &doc.name),
        "file": doc.map(|doc| &doc.source),
        "line": doc.map(|doc| doc.line),
        "pointer": report.pointer,
        "message": report.message,
        "reason": report.reason,
        "better": report.better,
        "guessed": report.guessed,
    })
}
