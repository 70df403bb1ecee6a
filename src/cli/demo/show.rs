//! Screen output of the demo.

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::cli::evaluate::style_decision;
use callgate_client::remote::member_name;
use callgate_core::domain::time::wait_in_words;
use callgate_proto::{
    time::millis,
    v1::{AdviceGuard, Decision, LoopLevel, OutcomeStatus, RecordResponse, ServerInfo, Verdict},
};

/// Maximum length of shown arguments, in characters.
const ARGUMENTS_MAX: usize = 64;

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();

/// The screen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Show;

impl Show {
    /// Prints the server and its policy.
    pub(super) fn server(&self, url: &str, server: &ServerInfo) {
        let policy = match server.policy_version.as_str() {
            "default" => "the built-in policy, which declares no tools".to_owned(),
            hash => format!("policy {hash}"),
        };
        let holds = if server.enforced { "" } else { " Shadow mode: every call runs." };
        outln!("callgate {} at {url} judges by {policy}.{holds}", server.version);
    }

    /// Prints the decisions of a scene.
    pub(super) fn ends(&self, ends: &BTreeMap<Decision, u32>) {
        let told = ends.iter().map(|(decision, n)| match decision {
            Decision::Allow | Decision::Unspecified => format!("{n} ran"),
            Decision::Ask => format!("{n} held for approval"),
            Decision::Wait => format!("{n} deferred for longer than the demo waits"),
            Decision::Reuse => format!("{n} answered with the previous result"),
            Decision::Deny => format!("{n} refused"),
            Decision::Stop => format!("{n} stopped"),
        });
        let (calls, told) = (ends.values().sum::<u32>(), told.collect::<Vec<_>>().join(", "));
        outln!("  {DIM}{calls} calls: {told}{DIM:#}");
    }

    pub(super) fn title(&self, text: &str) {
        outln!("\n{BOLD}{text}{BOLD:#}");
    }

    pub(super) fn verdict(&self, tool: &str, args: &Value, verdict: &Verdict) {
        let (word, style) = style_decision(verdict);
        let attempt = verdict.permit.as_ref().filter(|permit| permit.attempt > 1);
        let attempt = attempt.map(|permit| format!(" attempt {}", permit.attempt)).unwrap_or_default();
        let reason = match verdict.decision() {
            Decision::Allow => String::new(),
            _ => format!(" {}", verdict.reason),
        };
        outln!("  {style}{word:<5}{style:#} {tool} {DIM}{}{DIM:#}{attempt}{reason}", short(&args.to_string()));
        for finding in &verdict.findings {
            let mark = match finding.level() {
                LoopLevel::Warning => "loop warning: ",
                _ => "",
            };
            outln!("        {DIM}{mark}{}{DIM:#}", finding.message);
        }
    }

    pub(super) fn print_outcome(&self, recorded: &RecordResponse) {
        if recorded.status() == OutcomeStatus::Success {
            return;
        }
        let Some(advice) = &recorded.advice else { return };
        let style =
            Style::new().fg_color(Some(if advice.retryable { AnsiColor::Green } else { AnsiColor::Red }.into()));
        let kind = member_name(recorded.failure().as_str_name(), "FAILURE_KIND_");
        let basis = member_name(advice.basis().as_str_name(), "ESTIMATE_BASIS_");
        let why = match advice.guard() {
            AdviceGuard::Unspecified if advice.probe => "a probe, against the estimate".to_owned(),
            AdviceGuard::Unspecified if advice.trials >= 1.0 => {
                let (p, trials) = (advice.p_success, advice.trials);
                format!("a retry succeeds with p = {p:.2}, by {basis}, {trials:.0} trials")
            }
            AdviceGuard::Unspecified => format!("a retry succeeds with p = {:.2}, by {basis}", advice.p_success),
            guard => format!("guard {}", member_name(guard.as_str_name(), "ADVICE_GUARD_")),
        };
        let wait = advice.retry_after.as_ref().map(|wait| format!(" after {}", wait_in_words(millis(Some(wait)))));
        let wait = wait.unwrap_or_default();
        outln!("        failed: {kind} → {style}retryable: {}{style:#}{wait} {DIM}({why}){DIM:#}", advice.retryable);
    }

    pub(super) fn memory(&self, summary: &str) {
        for line in summary.lines() {
            outln!("  {line}");
        }
    }

    /// Prints that the demo's own server has ended.
    pub(super) fn print_end(&self) {
        outln!(
            "\nThis server ends now, and all that it knows with it. To keep the calls and query them in SQL, run \
             callgate serve, then callgate demo --server URL"
        );
    }

    pub(super) fn end(&self, session: &str, is_in_memory: bool) {
        match is_in_memory {
            true => {
                outln!("\nThis server stores everything in memory: without --memory every call above is a row in SQL")
            }
            false => outln!(
                "\nEvery call above is a row in Postgres: select * from callgate.tool_call where session_id = \
                 '{session}'"
            ),
        }
    }
}

fn short(text: &str) -> String {
    if text.chars().count() <= ARGUMENTS_MAX {
        return text.to_owned();
    }
    let cut: String = text.chars().take(ARGUMENTS_MAX - 1).collect();
    format!("{cut}…")
}
