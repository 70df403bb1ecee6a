//! refused: call after call was refused, and the agent insists.
//!
//! Fires when the last 3 (warning) or 10 (break) new call_ids in a row were refused and taught the agent nothing: by
//! DENY, or by a REUSE of a call that was answered by REUSE before in this run. The first REUSE of a call is an
//! answered question; WAIT and ASK are none of its doing; and a refusal for other fields than the last one is work in
//! progress: these neither count nor end the row. The break closes the call if all of the row are of it, else it is a
//! STOP of the run. Where the refusals of the call promise another look, it is refused until then, and the look is let
//! through.
//!
//! Why: a refusal that is not understood is repeated with small changes; each one costs a model turn.
//!
//! Known problems: an agent that lost its context twice in one run, and asks for ten known things the third time, is
//! taken for one that insists.

use crate::domain::{
    call::Call,
    finding::{Decision, Finding, Level},
    reason::Reason,
    time::wait_in_words,
};

use super::{
    Closes, Context, Rule,
    evidence::{is_rechecked, until_look_ms},
    levels::{Levels, still_broken},
};

/// The rule.
pub const RULE: Rule = Rule::detector("refused", LEVELS, check, Levels::silent).closes(Closes::CallOrRun);
const LEVELS: Levels = Levels { warning: Some(3), critical: None, break_at: Some(10) };

fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    if !cx.is_new {
        return None;
    }
    if let Some(broken) = still_broken(&RULE, Reason::InsistingOnRefused, cx) {
        return Some(broken);
    }
    let streak = row(cx);
    let count = streak.len() as u32;
    let is_one_call = streak.iter().all(|call| cx.is_same(call));
    let all_of_one = streak.windows(2).all(|pair| pair[0].fingerprint == pair[1].fingerprint);
    let rechecked = is_one_call && is_rechecked(&streak);
    let left_ms = if rechecked { until_look_ms(cx, &streak) } else { None };
    let tool = cx.tool();
    let finding = levels.finding(&RULE, Reason::InsistingOnRefused, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "The last {count} tool calls were refused. Read why before you call again: repeating them with small \
             changes will not help."
        ),
        _ if rechecked => format!(
            "{tool} with these arguments was refused {count} times in a row. It may be called again in {}, not before: \
             do other work meanwhile.",
            wait_in_words(left_ms.unwrap_or(0))
        ),
        _ if is_one_call => format!(
            "{tool} with these arguments was refused {count} times in a row and is closed for this turn. Do something \
             else, or tell the user what could not be done."
        ),
        _ => format!(
            "Tools are disabled for this run: {count} calls in a row were refused. Give the final answer with what you \
             have, and say what could not be done."
        ),
    })?;
    match finding.level {
        Some(Level::Break) if rechecked => {
            left_ms.map(|left_ms| finding.at_level(Level::Critical, count).retry_after(left_ms))
        }
        // Another call than the one that was insisted on.
        Some(Level::Break) if all_of_one && !is_one_call => None,
        Some(Level::Break) if !is_one_call => Some(Finding { decision: Decision::Stop, ..finding }),
        _ => Some(finding),
    }
}

/// The refused calls in a row that taught the agent nothing, newest first.
fn row<'a>(cx: &Context<'a>) -> Vec<&'a Call> {
    let mut row: Vec<&Call> = Vec::new();
    let all: Vec<&Call> = cx.calls().take_while(|call| call.was_refused()).collect();
    for (at, call) in all.iter().enumerate() {
        let fields = fields(call);
        let before = all[at + 1..].iter().find(|other| other.reason == call.reason && other.tool == call.tool);
        let is_progress = !fields.is_empty() && before.is_none_or(|before| self::fields(before) != fields);
        if !is_progress {
            row.push(call);
        }
    }
    row
}

/// The fields that were wrong.
fn fields(call: &Call) -> Vec<&str> {
    call.findings.iter().flat_map(|f| &f.violations).map(|violation| violation.field.as_str()).collect()
}

#[cfg(test)]
#[path = "refused/tests.rs"]
mod tests;
