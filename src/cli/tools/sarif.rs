//! Reports for code scanners: SARIF 2.1.0, one run, a rule for every lint.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::lint::LintOutcome;
use callgate_core::tool_list::lint::{LINTS, Lint, LintFinding};

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// All reports as one log.
///
/// # Errors
/// None in practice; those of `serde_json`.
pub(super) fn write(outcome: &LintOutcome<'_>) -> anyhow::Result<String> {
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "callgate",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": LINTS.iter().map(rule).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": outcome.found.iter().map(|found| result(outcome, found)).collect::<Vec<_>>(),
        }],
    });
    Ok(serde_json::to_string_pretty(&log)? + "\n")
}

fn rule(lint: &Lint) -> Value {
    let manual = lint.manual();
    json!({
        "id": lint.id,
        "shortDescription": {"text": lint.summary()},
        "fullDescription": {"text": lint.summary()},
        "help": {"text": manual, "markdown": manual},
        "defaultConfiguration": {"level": lint.severity.as_str()},
    })
}

fn result(outcome: &LintOutcome<'_>, found: &LintFinding) -> Value {
    let report = &found.report;
    let tools = &outcome.facts.tools;
    let doc = report.tool.and_then(|tool| tools.get(tool)).map(|tool| tool.doc);
    let name = doc.map_or("all tools", |doc| doc.name.as_str());
    let place = doc.or(tools.first().map(|tool| tool.doc));
    let mut location = json!({
        "logicalLocations": [{
            "name": name,
            "fullyQualifiedName": format!("{name}{}", report.pointer),
            "kind": if report.pointer.is_empty() { "object" } else { "property" },
        }],
    });
    if let Some(place) = place {
        let line = doc.map_or(1, |doc| doc.line);
        location["physicalLocation"] =
            json!({"artifactLocation": {"uri": uri(&place.source)}, "region": {"startLine": line}});
    }
    let mut text = format!("{name}: {}: {}.", report.message, report.reason);
    // Braces and brackets mean placeholders and links here, and scanners disagree on how they are escaped.
    if !report.better.contains(['{', '}', '[', ']']) {
        let _ = write!(text, " Better: {}", report.better);
    }
    json!({
        "ruleId": found.lint.id,
        "ruleIndex": LINTS.iter().position(|lint| lint.id == found.lint.id),
        "level": found.severity.as_str(),
        "message": {"text": text},
        "locations": [location],
        "properties": {"better": report.better, "guessed": report.guessed},
    })
}

/// A path as a URI; relative ones stay relative to the repository's root.
fn uri(path: &str) -> String {
    let mut uri = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.trim_start_matches("./").bytes() {
        match byte {
            b'\\' if cfg!(windows) => uri.push('/'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            other => {
                let _ = write!(uri, "%{other:02X}");
            }
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn paths_become_uris() {
        for (path, expected) in
            [("./tools/my list.json", "tools/my%20list.json"), ("/a/ü.json", "file:///a/%C3%BC.json"), ("c:x", "c%3Ax")]
        {
            assert_eq!(uri(path), expected, "{path}");
        }
    }
}
