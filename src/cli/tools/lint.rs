//! `callgate tools lint`: selects lints, prints reports, and sets the exit code.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::{json, read, sarif, text};
use callgate_core::tool_list::lint::{
    self, LINTS, LintFinding, ListFacts, Severity, SeverityOverrides, ToolDeclaration,
};
use callgate_server::policy_file::load_policy;

/// Name of all warnings in `--deny`.
const WARNINGS: &str = "warnings";
/// Minimum similarity of a misspelled word, 0 to 1.
const ALIKE_MIN: f64 = 0.7;

#[derive(Debug, Args)]
pub(super) struct LintArgs {
    /// Tool lists in the format of OpenAI, Anthropic or MCP, checked together; `-` is standard input
    #[arg(required_unless_present_any = ["explain", "list"], value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A policy whose declared effects precede annotations and names
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Skip this lint
    #[arg(long, value_name = "LINT")]
    allow: Vec<String>,
    /// Treat this lint, or all `warnings`, as errors; a guess from a name stays a note
    #[arg(long, value_name = "LINT")]
    deny: Vec<String>,
    /// Explain this lint: its reports, the reason, its known problems
    #[arg(long, value_name = "LINT", exclusive = true)]
    explain: Option<String>,
    /// List all lints
    #[arg(long, conflicts_with_all = ["files", "policy", "format", "allow", "deny", "explain"])]
    list: bool,
    /// Print JSON, one object a line: a report, or with --list a lint
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// Text
    #[default]
    Text,
    /// One JSON document
    Json,
    /// SARIF 2.1.0, for code scanners
    Sarif,
}

/// Judged tools and their reports.
#[derive(Debug)]
pub(super) struct LintOutcome<'a> {
    pub(super) facts: &'a ListFacts<'a>,
    pub(super) found: &'a [LintFinding],
}

impl LintOutcome<'_> {
    /// Number of reports of that severity.
    pub(super) fn count(&self, severity: Severity) -> usize {
        self.found.iter().filter(|found| found.severity == severity).count()
    }
}

/// Prints reports, a manual, or all lints.
///
/// # Errors
/// An input that cannot be read, a policy that cannot be used, a lint that does not exist.
pub(super) fn run(args: &LintArgs) -> anyhow::Result<ExitCode> {
    if let Some(id) = &args.explain {
        let Some(lint) = lint::find(id) else { bail!(unknown(id)) };
        outln!("{}\n\nSeverity: {}.", lint.manual(), lint.severity.as_str());
        return Ok(ExitCode::SUCCESS);
    }
    if args.list && args.json {
        for lint in LINTS {
            let (id, severity, summary) = (lint.id, lint.severity.as_str(), lint.summary());
            outln!("{}", serde_json::json!({"lint": id, "severity": severity, "summary": summary}));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        let width = LINTS.iter().map(|lint| lint.id.len()).max().unwrap_or_default();
        let line =
            |lint: &lint::Lint| format!("{:width$}  {:7}  {}\n", lint.id, lint.severity.as_str(), lint.summary());
        out!("{}", LINTS.iter().map(line).collect::<String>());
        return Ok(ExitCode::SUCCESS);
    }
    let levels = levels(args)?;
    let declared = match &args.policy {
        Some(path) => {
            let policy = load_policy(Some(path))?;
            policy.tools().map(|(name, spec)| (name.to_owned(), ToolDeclaration::from(spec))).collect()
        }
        None => BTreeMap::new(),
    };
    let list = read(&args.files)?;
    let facts = ListFacts::new(&list, &declared);
    let found = lint::check(&facts, &levels);
    let outcome = LintOutcome { facts: &facts, found: &found };
    let text = match args.format {
        _ if args.json => json::render_reports(&outcome),
        Format::Text => text::write(&outcome),
        Format::Json => json::write(&outcome)?,
        Format::Sarif => sarif::write(&outcome)?,
    };
    out!("{text}");
    Ok(ExitCode::from(u8::from(outcome.count(Severity::Error) > 0)))
}

fn levels(args: &LintArgs) -> anyhow::Result<SeverityOverrides> {
    let denied: Vec<String> = args.deny.iter().filter(|id| *id != WARNINGS).cloned().collect();
    if let Some(id) = args.allow.iter().chain(&denied).find(|id| lint::find(id).is_none()) {
        bail!(unknown(id));
    }
    Ok(SeverityOverrides { allowed: args.allow.clone(), deny_warnings: denied.len() < args.deny.len(), denied })
}

fn unknown(id: &str) -> String {
    let alike = |lint: &lint::Lint| strsim::jaro_winkler(id, lint.id);
    let near = LINTS.iter().max_by(|a, b| alike(a).total_cmp(&alike(b))).filter(|lint| alike(lint) >= ALIKE_MIN);
    let near = near.map_or(String::new(), |lint| format!("; did you mean {}?", lint.id));
    format!("unknown lint {id:?}{near} (`callgate tools lint --list` prints all)")
}
