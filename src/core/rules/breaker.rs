//! breaker: many calls in a row, and nothing new.
//!
//! Fires when 15 (warning) or 30 (break) calls in a row, of whatever tools, made no progress: nothing new but names and
//! numbers of what was there before. Polls, `repeatable` calls, the first permitted repetition of a call in the run,
//! and calls whose refusals promise another look neither count nor end the row, nor do calls that still run; other
//! refused ones count.
//!
//! Why: the other detectors look for a shape; an agent can also flounder without one.
//!
//! Known problems: none of its window is older than the run, so an agent that opens a run per call is never seen here.

use crate::domain::{
    call::Call,
    effect::EffectKind,
    finding::{Finding, Level},
    reason::Reason,
};

use super::{
    Closes, Context, Rule,
    evidence::is_rechecked,
    levels::{Levels, still_broken},
};

/// The rule.
pub const RULE: Rule = Rule::detector("breaker", LEVELS, check, Levels::silent).closes(Closes::Run);
const LEVELS: Levels = Levels { warning: Some(15), critical: None, break_at: Some(30) };

fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    if let Some(broken) = still_broken(&RULE, Reason::CircuitBreak, cx) {
        return Some(broken);
    }
    let streak: Vec<_> = cx
        .calls()
        .filter(|call| !call.is_open() && !is_left_alone(cx, call))
        .take_while(|call| call.outcome.as_ref().is_none_or(|outcome| !outcome.progress))
        .collect();
    let count = streak.len() as u32;
    levels.finding(&RULE, Reason::CircuitBreak, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "The last {count} tool calls brought nothing new. Say what you are missing, and change the approach or ask \
             the user instead of calling on."
        ),
        _ => format!(
            "{} was not run: the last {count} tool calls brought nothing new, so this run is stopped. Tell the user \
             what is known and what is missing.",
            cx.tool()
        ),
    })
}

/// To look again, to repeat what is meant to be repeated, and to do a thing a second time is no floundering.
fn is_left_alone(cx: &Context<'_>, call: &Call) -> bool {
    if call.effect.kind == EffectKind::Poll || call.effect.repeatable {
        return true;
    }
    let same = || cx.run_calls().filter(|other| other.fingerprint == call.fingerprint);
    let is_first_repetition = || same().filter(|other| other.seq < call.seq && other.permit.is_some()).count() == 1;
    call.permit.is_some() && is_first_repetition() || is_rechecked(&same().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn fifteen_fruitless_calls_warn_and_thirty_break_the_run() {
        check(
            "rules breaker
             try {\"n\":new} -> error not_found   x15
             try {\"n\":new} => allow, warning breaker 15
             try {\"n\":new} -> error not_found   x15
             try {\"n\":new} => deny circuit_break, break breaker 30
             run next
             try {\"n\":new} => allow",
        );
    }

    #[test]
    fn one_new_result_starts_the_count_again() {
        check(
            "rules breaker
             try {\"n\":new} -> error not_found   x14
             read {\"n\":new} -> ok new
             try {\"n\":new} -> error not_found   x14
             try {\"n\":new} => allow",
        );
    }
}
