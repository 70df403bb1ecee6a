//! Log lines and span attributes of decisions and reports: one line each, readable alone. They never hold arguments or
//! results, only their hashes.
//!
//! Levels: a loop that got its call refused is a warning; every other decision that a rule had a part in (refusals,
//! warnings to the model, calls that shadow mode let through) is info; a plain ALLOW, and an answer repeated for the
//! same call_id, are debug. Of the WAITs of one call the first, the tenth, the hundredth are info, the others debug.
//! The decision after them is info and has their count. A report of an error or of an unknown outcome is info, any
//! other is debug.

use std::fmt;

use opentelemetry::trace::TraceId;
use tracing::{Level as LogLevel, Span, field};

use super::{names, sampling, spans, waits::is_worth_a_line};
use callgate_core::domain::{
    call::Proposal,
    event::SettledEvent,
    finding::{Decision, Level},
    fingerprint::{Fingerprint, ResultDigest},
    outcome::OutcomeStatus,
    reason::Reason,
    time::wait_in_words,
    verdict::Verdict,
    violation::any_item,
};

/// Calls of the window that are logged with a broken loop: as many as the default window of loop detectors.
const WINDOW_MAX: usize = 30;

/// The lines of one statement at a level that is only known at run time: tracing wants it at compile time.
macro_rules! at {
    ($level:expr, $line:ident!($($arg:expr),*)) => {
        match $level {
            LogLevel::WARN => $line!(LogLevel::WARN, $($arg),*),
            LogLevel::INFO => $line!(LogLevel::INFO, $($arg),*),
            _ => $line!(LogLevel::DEBUG, $($arg),*),
        }
    };
}

/// One log line.
macro_rules! line {
    ([$target:expr, $level:expr, $text:expr, $($more:ident = $said:expr),+] $($name:ident = $value:expr,)+) => {
        tracing::event!(
            target: $target,
            $level,
            $({ names::$name } = $value,)+
            $({ names::$more } = $said,)+
            "{}",
            $text
        )
    };
}

/// Values for a span that has declared them.
macro_rules! noted {
    ([$span:expr] $($name:ident = $value:expr,)+) => {
        // All at once: each alone is found by its name, allocates and locks for itself.
        tracing::record_all!($span, $({ names::$name } = $value,)+);
    };
}

macro_rules! decision_line {
    ($level:expr, $verdict:expr, $proposal:expr, $waits:expr, $window:expr, $trace:expr) => {
        verdict_attributes!(line [
            names::TARGET_DECISION,
            $level,
            Sentence { verdict: $verdict, tool: $proposal.request.tool.as_str(), waits: $waits },
            WAITS = ($waits > 0).then_some($waits),
            LOOP_WINDOW = $window.as_ref().map(field::display),
            TRACE_ID = $trace().map(field::display)
        ] $verdict, $proposal)
    };
}

macro_rules! report_line {
    ($level:expr, $settled:expr, $trace:expr) => {
        report_attributes!(line [
            names::TARGET_RECORD,
            $level,
            VerdictText($settled),
            TRACE_ID = $trace().map(field::display)
        ] $settled)
    };
}

/// Logs a decision, once, and records it on the current Evaluate's span. `waits` is the count of former `WAIT`s of the
/// same call. `window` is read for a broken loop only: the session's last calls, newest first, as fingerprint and
/// result digest; its first 30 are logged.
pub fn log_verdict(
    verdict: &Verdict,
    proposal: &Proposal,
    waits: u32,
    window: impl IntoIterator<Item = (Fingerprint, Option<ResultDigest>)>,
) {
    let span = spans::of_verdict();
    note_verdict(&span, verdict, proposal);
    let level = level(verdict, waits);
    let broken = level == LogLevel::WARN;
    let window = broken.then(|| Window(window.into_iter().take(WINDOW_MAX).collect()));
    let trace = || -> Option<TraceId> { sampling::trace_id(&span) };
    at!(level, decision_line!(verdict, proposal, waits, window, trace));
}

/// Says which arguments of a call were read as another type; never their values.
pub fn log_coercion(proposal: &Proposal) {
    let fields: Vec<String> = proposal.coerced.iter().map(|coerced| any_item(&coerced.field)).collect();
    tracing::event!(
        target: names::TARGET_DECISION,
        LogLevel::INFO,
        { names::SESSION } = proposal.request.session.as_str(),
        { names::CALL_ID } = proposal.request.call_id.as_str(),
        { names::TOOL } = proposal.request.tool.as_str(),
        { names::COERCED } = fields.join(", "),
        "arguments of {} were coerced from another type",
        proposal.request.tool
    );
}

/// Logs the outcome of a call, once, and records it on the current report's span.
pub fn log_outcome(settled: &SettledEvent) {
    let span = Span::current();
    note_report(&span, settled);
    let level = match settled.status {
        _ if settled.double_effect => LogLevel::WARN,
        OutcomeStatus::Error | OutcomeStatus::Unknown => LogLevel::INFO,
        OutcomeStatus::Running | OutcomeStatus::Success | OutcomeStatus::Cancelled => LogLevel::DEBUG,
    };
    let trace = || -> Option<TraceId> { sampling::trace_id(&span) };
    at!(level, report_line!(settled, trace));
}

fn level(verdict: &Verdict, waits: u32) -> LogLevel {
    let is_told_again = verdict.decision == Decision::Wait && !is_worth_a_line(waits);
    let ends_waits = verdict.decision != Decision::Wait && waits > 0;
    if verdict.replayed || is_told_again || (verdict.findings.is_empty() && !ends_waits) {
        LogLevel::DEBUG
    } else if verdict.loop_broken().is_some() {
        LogLevel::WARN
    } else {
        LogLevel::INFO
    }
}

fn note_verdict(span: &Span, verdict: &Verdict, proposal: &Proposal) {
    if spans::is_kept(span) {
        verdict_attributes!(noted [span] verdict, proposal);
        verdict.findings.iter().for_each(|finding| spans::note_finding(span, finding));
    }
}

fn note_report(span: &Span, settled: &SettledEvent) {
    if spans::is_kept(span) {
        report_attributes!(noted [span] settled);
    }
}

fn retry_after_ms(settled: &SettledEvent) -> Option<u64> {
    settled.advice.filter(|advice| advice.retryable).map(|advice| advice.retry_after_ms)
}

/// `deny charge_card: outcome_unknown (same_call)`.
struct Sentence<'a> {
    verdict: &'a Verdict,
    tool: &'a str,
    waits: u32,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, tool, waits } = self;
        write!(f, "{} {tool}", verb(verdict.decision))?;
        match waits {
            0 => {}
            before if verdict.decision == Decision::Wait => write!(f, ", {} times", before + 1)?,
            1 => f.write_str(", after 1 wait")?,
            before => write!(f, ", after {before} waits")?,
        }
        if verdict.replayed {
            f.write_str(", replayed")?;
        }
        if !verdict.is_enforced() {
            write!(f, ", in shadow mode instead of {}", verb(verdict.would))?;
        }
        let Some(winner) = verdict.winner() else { return Ok(()) };
        write!(f, ": {} ({}", Reason::as_str(winner.reason), winner.rule)?;
        match (winner.level, winner.count) {
            (Some(level), Some(count)) => write!(f, ", {} at {count})", level.as_str())?,
            _ => f.write_str(")")?,
        }
        match verdict.retry_after_ms() {
            Some(millis) => write!(f, ", again in {}", wait_in_words(millis)),
            None => Ok(()),
        }
    }
}

const fn verb(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask about",
        Decision::Wait => "wait with",
        Decision::Reuse => "reuse",
        Decision::Deny => "deny",
        Decision::Stop => "stop at",
    }
}

/// `error of call_7: rate_limited, retry after 40 s`.
struct VerdictText<'a>(&'a SettledEvent);

impl fmt::Display for VerdictText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(settled) = self;
        write!(f, "{} of {}", settled.status.as_str(), settled.call_id)?;
        if settled.by_lease {
            f.write_str(": its lease expired")?;
        } else if settled.double_effect {
            f.write_str(": another attempt of the same execution has succeeded too")?;
        } else if let Some(failure) = settled.failure {
            write!(f, ": {}", failure.as_str())?;
        }
        match settled.advice {
            Some(advice) => write!(f, ", {}", advice.repeat.describe(&wait_in_words(advice.retry_after_ms))),
            None => Ok(()),
        }
    }
}

/// `fingerprint:digest fingerprint:- …`, the newest call first.
struct Window(Vec<(Fingerprint, Option<ResultDigest>)>);

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (fingerprint, digest)) in self.0.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            match digest {
                Some(digest) => write!(f, "{space}{fingerprint:?}:{digest:?}")?,
                None => write!(f, "{space}{fingerprint:?}:-")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
