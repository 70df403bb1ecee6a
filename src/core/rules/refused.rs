//! refused: call after call was refused, nothing ran between, and the agent insists.
//!
//! Fires when the last 3 (warning) or 10 (break: STOP of the run) new call_ids in a row were refused, regardless of
//! their calls: by DENY, or by REUSE from the third one on. It does not count a WAIT, an ASK, a refusal for other
//! fields than the last one, or a refusal with a retry time; an executed call ends the row.
//!
//! Why: a misunderstood refusal is repeated with small changes; each one costs a model turn. A refusal is no evidence
//! about the tool or the arguments, so no other rule counts it.
//!
//! Known problems: an agent that lost its context twice in one run, and repeats ten known calls the third time, looks
//! like one that insists.

use crate::domain::{
    call::Call,
    finding::{Decision, Finding, Level, Wording},
    reason::Reason,
};

use super::{
    BreakScope, Rule, RuleContext,
    evidence::names_a_time,
    levels::{DetectorLevels, still_broken},
};

/// The rule.
pub const RULE: Rule = Rule::detector("refused", LEVELS, check, DetectorLevels::silent).closes(BreakScope::Run);
const LEVELS: DetectorLevels = DetectorLevels { warning: Some(3), critical: None, break_at: Some(10) };
/// Number of answers with a previous result that do not count.
const REUSED_FREE: usize = 2;

fn check(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    if !cx.is_new {
        return None;
    }
    let stopped = |finding| Finding { decision: Decision::Stop, ..finding };
    if let Some(broken) = still_broken(&RULE, Reason::InsistingOnRefused, cx) {
        return Some(stopped(broken));
    }
    let row = row(cx);
    let count = row.len() as u32;
    let finding = levels.finding(&RULE, Reason::InsistingOnRefused, count, row.into_iter(), |level| match level {
        Level::Warning => format!(
            "The last {count} tool calls were refused. Read why before you call again: repeating them with small \
             changes will not help."
        )
        .into(),
        _ => Wording::new(
            format!("Tools are disabled for this run: the last {count} calls were refused, and none ran between."),
            "Give the final answer with what you have, and say what could not be done.",
        ),
    })?;
    Some(if finding.level == Some(Level::Break) { stopped(finding) } else { finding })
}

/// The streak of refused calls, newest first.
fn row<'a>(cx: &RuleContext<'a>) -> Vec<&'a Call> {
    let all: Vec<&Call> = cx.calls().take_while(|call| call.was_refused()).collect();
    let mut reused = 0;
    let mut row = Vec::new();
    for (at, call) in all.iter().enumerate().rev() {
        reused += usize::from(call.was_reused());
        let fields = fields(call);
        let before = all[at + 1..].iter().find(|other| other.reason == call.reason && other.tool == call.tool);
        let is_progress = !fields.is_empty() && before.is_none_or(|before| self::fields(before) != fields);
        let is_free = call.was_reused() && reused <= REUSED_FREE;
        if !(is_progress || is_free || names_a_time(call)) {
            row.push(*call);
        }
    }
    row.reverse();
    row
}

/// The invalid fields.
fn fields(call: &Call) -> Vec<&str> {
    call.findings.iter().flat_map(|f| &f.violations).map(|violation| violation.field.as_str()).collect()
}

#[cfg(test)]
#[path = "refused/tests.rs"]
mod tests;
