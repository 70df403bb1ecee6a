//! What the demo puts on the screen.

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::grpc::v1::{Decision, LoopLevel, OutcomeStatus, RecordResponse, Verdict};

/// Longest arguments shown, in characters.
const ARGUMENTS_MAX: usize = 64;

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

/// The screen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Show;

impl Show {
    pub(super) fn title(&self, text: &str) {
        outln!("\n{BOLD}{text}{BOLD:#}");
    }

    pub(super) fn verdict(&self, tool: &str, args: &Value, verdict: &Verdict) {
        let (word, colour) = match verdict.decision() {
            Decision::Allow | Decision::Unspecified => ("ALLOW", AnsiColor::Green),
            Decision::Ask => ("ASK", AnsiColor::Magenta),
            Decision::Wait => ("WAIT", AnsiColor::Yellow),
            Decision::Reuse => ("REUSE", AnsiColor::Cyan),
            Decision::Deny => ("DENY", AnsiColor::Red),
            Decision::Stop => ("STOP", AnsiColor::BrightRed),
        };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        let attempt = verdict.permit.as_ref().filter(|permit| permit.attempt > 1);
        let attempt = attempt.map(|permit| format!(" attempt {}", permit.attempt)).unwrap_or_default();
        let reason = if verdict.decision() == Decision::Allow { "" } else { verdict.reason.as_str() };
        outln!("  {style}{word:<5}{style:#} {tool} {DIM}{}{DIM:#}{attempt} {reason}", short(&args.to_string()));
        for finding in &verdict.findings {
            let mark = match finding.level() {
                LoopLevel::Warning => "loop warning: ",
                _ => "",
            };
            outln!("        {DIM}{mark}{}{DIM:#}", finding.message);
        }
    }

    pub(super) fn recorded(&self, recorded: &RecordResponse) {
        if recorded.status() == OutcomeStatus::Success {
            return;
        }
        let Some(advice) = &recorded.advice else { return };
        let style =
            Style::new().fg_color(Some(if advice.retryable { AnsiColor::Green } else { AnsiColor::Red }.into()));
        let kind = recorded.failure().as_str_name().trim_start_matches("FAILURE_KIND_").to_lowercase();
        let why = match advice.guard.as_str() {
            "" if advice.probe => "a probe, against the estimate".to_owned(),
            "" if advice.trials >= 1.0 => {
                let (p, trials) = (advice.p_success, advice.trials);
                format!("a retry succeeds with p = {p:.2}, by {}, {trials:.0} trials", advice.basis)
            }
            "" => format!("a retry succeeds with p = {:.2}, by {}", advice.p_success, advice.basis),
            guard => format!("guard {guard}"),
        };
        let wait = if advice.retryable { format!(" after {} ms", advice.retry_after_ms) } else { String::new() };
        outln!("        failed: {kind} → {style}retryable: {}{style:#}{wait} {DIM}({why}){DIM:#}", advice.retryable);
    }

    pub(super) fn note(&self, text: &str) {
        outln!("        {DIM}… {text}{DIM:#}");
    }

    pub(super) fn memory(&self, summary: &str) {
        for line in summary.lines() {
            outln!("  {line}");
        }
    }

    pub(super) fn end(&self, session: &str) {
        outln!(
            "\nEvery call above is a row in Postgres: select * from callgate.tool_call where session_id = '{session}'"
        );
    }
}

fn short(text: &str) -> String {
    if text.chars().count() <= ARGUMENTS_MAX {
        return text.to_owned();
    }
    let cut: String = text.chars().take(ARGUMENTS_MAX - 1).collect();
    format!("{cut}…")
}
