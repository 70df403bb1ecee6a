//! Reports for people: by tool, with a count at the end.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::lint::LintOutcome;
use callgate_core::tool_list::lint::{self, LintFinding, Severity};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// All reports with their count.
pub(super) fn write(outcome: &LintOutcome<'_>) -> String {
    let mut text = String::new();
    for reports in outcome.found.chunk_by(|a, b| a.report.tool == b.report.tool) {
        let tool = reports.first().and_then(|found| outcome.facts.tools.get(found.report.tool?));
        let _ = match tool {
            Some(tool) => {
                let doc = tool.doc;
                writeln!(
                    text,
                    "{BOLD}{}{BOLD:#} {DIM}{}:{}{DIM:#}",
                    escape_text(&doc.name),
                    escape_text(&doc.source),
                    doc.line
                )
            }
            None => writeln!(text, "{BOLD}all tools{BOLD:#}"),
        };
        reports.iter().for_each(|found| report(&mut text, found));
        text.push('\n');
    }
    summary(&mut text, outcome);
    text
}

fn report(text: &mut String, found: &LintFinding) {
    let color = match found.severity {
        Severity::Error => AnsiColor::Red,
        Severity::Warning => AnsiColor::Yellow,
        Severity::Note => AnsiColor::Cyan,
    };
    let style = Style::new().fg_color(Some(color.into())).bold();
    let (severity, lint, report) = (found.severity.as_str(), found.lint.id, &found.report);
    let _ = writeln!(text, "  {style}{severity}[{lint}]{style:#}: {}", escape_text(&report.message));
    if !report.pointer.is_empty() {
        let _ = writeln!(text, "    {DIM}at{DIM:#}      {}", escape_text(&report.pointer));
    }
    let _ = writeln!(text, "    {DIM}why{DIM:#}     {}", report.reason);
    let _ = writeln!(text, "    {DIM}better{DIM:#}  {}", escape_text(&report.better));
}

fn summary(text: &mut String, outcome: &LintOutcome<'_>) {
    let tools = &outcome.facts.tools;
    let counted = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let counts = [Severity::Error, Severity::Warning, Severity::Note]
        .map(|severity| counted(outcome.count(severity), severity.as_str()));
    let of = counted(tools.len(), "tool");
    let _ = writeln!(text, "{BOLD}{}{BOLD:#} in {of}", counts.join(", "));
    let costs = tools.iter().map(|tool| lint::cost(outcome.facts, tool));
    let (choice, rest) = costs.fold((0, 0), |(choice, rest), cost| (choice + cost.choice, rest + cost.rest));
    let _ = writeln!(
        text,
        "{DIM}descriptions: {} tokens a turn, {choice} of them on the choice of a tool{DIM:#}",
        choice + rest
    );
    if let Some(found) = outcome.found.first() {
        let _ = writeln!(text, "{DIM}more on a lint: callgate tools lint --explain {}{DIM:#}", found.lint.id);
    }
}

/// A text from a list, on one line, without terminal control characters.
fn escape_text(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
