//! Lints of tool lists: one file each, a pure function from facts to reports. This module knows the facts of lists and
//! policy; it must not know files, or the display of reports. A lint never fails and never sees another.
//!
//! The file's name is the lint's id in reports, on the command line and in SARIF; its doc comment is its manual. A new
//! lint is one file and one line in [`LINTS`] beside its `mod`.

mod facts;
mod prose;
#[cfg(test)]
mod testing;

mod additional_properties;
mod bare_resource;
mod date_format;
mod destructive_confirmation;
mod endpoint_bloat;
mod free_text_enum;
mod id_pattern;
mod instructions;
mod money_minor_units;
mod number_as_string;
mod optional_parameters;
mod read_and_write;
mod siblings;
mod token_waste;
mod unbounded_number;
mod undo;
mod use_when;
mod visible_idempotency_key;
mod way_out;
mod write_idempotency;
mod write_without_reader;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::domain::{closed_set::closed_set, manual::manual};

pub use self::{
    facts::{ListFacts, ToolDeclaration, ToolFacts},
    token_waste::{Cost, cost},
};

/// Maximum number of reports; a list with more has a common cause among these.
pub const REPORTS_MAX: usize = 10_000;

/// Lints that most tools of most lists violate.
const COMMON: [&str; 3] = ["additional_properties", "undo", "use_when"];
/// Minimum number of tools for one merged report of these.
const COMMON_MIN: usize = 4;
/// Minimum number of tools for one merged report of any warning or note, if they are one in [`ONCE_SHARE`] of the list.
const ONCE_MIN: usize = 8;
const ONCE_SHARE: usize = 4;
/// Maximum number of tools named in such a report.
const NAMED_MAX: usize = 3;

closed_set! {
    /// Severity of a report.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Severity {
        /// Advice.
        Note = "note",
        /// Models will make mistakes.
        Warning = "warning",
        /// Mistakes do harm.
        Error = "error",
    }
}

/// Report of a lint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintReport {
    /// Index of the tool in the list; none for the list itself.
    pub tool: Option<usize>,
    /// JSON pointer in the tool's document: `/input_schema/properties/amount`; empty for all of it. The schema is
    /// `input_schema` there, whatever its format calls it.
    pub pointer: String,
    /// Problem.
    pub message: String,
    /// Reason.
    pub reason: &'static str,
    /// Improved text.
    pub better: String,
    /// True when it depends on a guess from a name: it is a note at most.
    pub guessed: bool,
}

/// A lint: id, severity, manual, and check.
#[derive(Debug)]
pub struct Lint {
    /// Id.
    pub id: &'static str,
    /// Default severity, unless [`SeverityOverrides`] override it.
    pub severity: Severity,
    manual: &'static str,
    check: fn(&ListFacts<'_>) -> Vec<LintReport>,
}

impl Lint {
    /// Its manual: reports, reason, known problems.
    #[must_use]
    pub fn manual(&self) -> String {
        let lines = self.manual.lines().map_while(|line| line.strip_prefix("//!"));
        let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        lines.join("\n").trim().to_owned()
    }

    /// One-line summary.
    #[must_use]
    pub fn summary(&self) -> String {
        let manual = self.manual();
        let first = manual.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        first.split_once(": ").map_or(first.clone(), |(_, summary)| summary.trim_end_matches('.').to_owned())
    }
}

macro_rules! lint {
    ($id:ident, $severity:ident) => {
        Lint {
            id: stringify!($id),
            severity: Severity::$severity,
            manual: manual!(concat!(stringify!($id), ".rs")),
            check: $id::check,
        }
    };
}

/// All lints, in the order of their reports.
pub const LINTS: &[Lint] = &[
    lint!(instructions, Error),
    lint!(visible_idempotency_key, Error),
    lint!(destructive_confirmation, Warning),
    lint!(money_minor_units, Error),
    lint!(use_when, Warning),
    lint!(siblings, Warning),
    lint!(read_and_write, Warning),
    lint!(write_idempotency, Warning),
    lint!(undo, Warning),
    lint!(write_without_reader, Warning),
    lint!(bare_resource, Warning),
    lint!(additional_properties, Warning),
    lint!(free_text_enum, Warning),
    lint!(number_as_string, Warning),
    lint!(unbounded_number, Warning),
    lint!(id_pattern, Warning),
    lint!(date_format, Warning),
    lint!(optional_parameters, Note),
    lint!(token_waste, Note),
    lint!(endpoint_bloat, Note),
    lint!(way_out, Note),
];

/// Severity overrides.
#[derive(Debug, Clone, Default)]
pub struct SeverityOverrides {
    /// Ids of disabled lints.
    pub allowed: Vec<String>,
    /// Ids of lints that are errors.
    pub denied: Vec<String>,
    /// True when every warning is an error.
    pub deny_warnings: bool,
}

/// A report with its lint and severity.
#[derive(Debug, Clone)]
pub struct LintFinding {
    /// Lint.
    pub lint: &'static Lint,
    /// Severity.
    pub severity: Severity,
    /// Report.
    pub report: LintReport,
}

/// The lint of that id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Lint> {
    LINTS.iter().find(|lint| lint.id == id)
}

/// Runs all lints. Reports are grouped by tool, worst first, the list itself last; at most [`REPORTS_MAX`]. A report on
/// most of the list is merged into one, unless its lint is an error.
#[must_use]
pub fn check(facts: &ListFacts<'_>, levels: &SeverityOverrides) -> Vec<LintFinding> {
    let names = |ids: &[String], lint: &Lint| ids.iter().any(|id| id == lint.id);
    let mut found = Vec::new();
    for lint in LINTS.iter().filter(|lint| !names(&levels.allowed, lint)) {
        let severity = match lint.severity {
            _ if names(&levels.denied, lint) => Severity::Error,
            Severity::Warning if levels.deny_warnings => Severity::Error,
            severity => severity,
        };
        let reports = (lint.check)(facts);
        let is_told_once = !names(&levels.denied, lint) && lint.severity != Severity::Error;
        let once = is_told_once.then(|| told_once(lint, &reports, facts)).flatten();
        found.extend(once.map_or(reports, |once| vec![once]).into_iter().map(|report| {
            let severity = if report.guessed { Severity::Note } else { severity };
            LintFinding { lint, severity, report }
        }));
    }
    let worst = |tool: Option<usize>| found.iter().filter(|one| one.report.tool == tool).map(|one| one.severity).max();
    let worst: BTreeMap<Option<usize>, Option<Severity>> = found
        .iter()
        .map(|one| one.report.tool)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|at| (at, worst(at)))
        .collect();
    found.sort_by_key(|one| {
        let tool = one.report.tool;
        (tool.is_none(), Reverse(worst[&tool]), tool)
    });
    found.truncate(REPORTS_MAX);
    found
}

/// One report for a problem of most tools, which would hide the others.
fn told_once(lint: &Lint, reports: &[LintReport], facts: &ListFacts<'_>) -> Option<LintReport> {
    let tools: BTreeSet<usize> = reports.iter().filter_map(|report| report.tool).collect();
    let all = facts.tools.len();
    let is_common = COMMON.contains(&lint.id) && tools.len() >= COMMON_MIN;
    if !is_common && (tools.len() < ONCE_MIN || tools.len() * ONCE_SHARE < all) {
        return None;
    }
    let names: Vec<&str> = tools.iter().take(NAMED_MAX).map(|at| facts.tools[*at].name()).collect();
    let more = if tools.len() > NAMED_MAX { ", …" } else { "" };
    let message = format!("{} of {all} tools: {} ({}{more})", tools.len(), lint.summary(), names.join(", "));
    let better = format!("`--deny {}` tells each with its better text", lint.id);
    let guessed = reports.iter().all(|report| report.guessed);
    Some(LintReport { guessed, ..facts.report(message, reports.first()?.reason, better) })
}

#[cfg(test)]
mod tests;
