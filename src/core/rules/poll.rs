//! poll: a poll, declared or a line of a shell, that keeps giving the same result.
//!
//! Fires when the last 10, 20 or 30 results of this fingerprint in this run are unchanged, regardless of other calls in
//! between. Ten are a warning; from 20 on it waits for the next poll (15 s, doubling to 5 min), which is permitted; 30
//! close the call. A changed result restarts the count. An undeclared call polls if a result that was equal three times
//! changed at the next execution, or if it keeps a steady pace of 30 s or more. It waits no longer than its usual
//! interval, and is never closed; one with shorter intervals waits for 5 min from the 30th equal result on.
//!
//! Why: `same_call` permits any number of polls, so a stuck one needs a detector.
//!
//! Known problems: it counts polls, not time; a slow but healthy job needs a longer interval or higher levels.

use crate::domain::{
    effect::EffectKind,
    finding::{Decision, Finding, Level, Wording},
    reason::Reason,
    time::wait_in_words,
};

use super::{
    BreakScope, RecordedCall, Rule, RuleContext,
    evidence::{handing_back, pace, recheck_ms, unchanged_calls},
    levels::{DetectorLevels, still_broken},
};

/// The rule.
pub const RULE: Rule =
    Rule::detector("poll", DetectorLevels::new(10, 20, 30), check, silent).closes(BreakScope::Call).per_tool();

fn check(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    if let Some(broken) = still_broken(&RULE, Reason::NoProgress, cx) {
        return Some(broken);
    }
    let pace = pace(cx);
    if cx.proposal.effect.kind != EffectKind::Poll && pace.is_none() {
        return None;
    }
    // That it polls is no declaration: it is slowed, and never closed.
    let closing = levels.break_at;
    let levels = DetectorLevels { break_at: closing.filter(|_| pace.is_none()), ..*levels };
    let streak = unchanged_calls(cx.calls().filter(|call| call.fingerprint == cx.fingerprint()));
    let (count, tool) = (streak.len() as u32, cx.tool());
    let last = streak.first().and_then(|call| call.outcome.as_ref()).map(|outcome| outcome.at);
    let left_ms = levels
        .critical
        .and_then(|critical| count.checked_sub(critical))
        .zip(last)
        .map(|(beyond, last)| last.plus_ms(recheck_ms(beyond)).since_ms(cx.now))
        .map(|left_ms| match pace {
            Some(pace) if pace.is_slow() || closing.is_none_or(|at| count < at) => left_ms.min(pace.left_ms),
            _ => left_ms,
        });
    let finding = levels.finding(&RULE, Reason::NoProgress, count, streak.iter().copied(), |level| match level {
        Level::Warning => format!(
            "{tool} has given the same status {count} times. Wait longer between checks, or do other work first; if \
             nothing changes, tell the user that it is still pending."
        )
        .into(),
        Level::Critical => Wording::new(
            format!(
                "{tool} was not run: its status has not changed over {count} checks. It may look again in {}.",
                wait_in_words(left_ms.unwrap_or(0))
            ),
            "Do other work meanwhile, or tell the user that it is still pending.",
        ),
        Level::Break => Wording::new(
            format!("{tool} was not run: its status has not changed over {count} checks."),
            "Tell the user that it is still pending, and how to check later.",
        ),
    })?;
    let finding = handing_back(finding, cx, streak.into_iter());
    match (finding.level, left_ms) {
        (Some(Level::Critical), Some(0)) => None,
        (Some(Level::Critical), Some(left_ms)) => {
            Some(Finding { decision: Decision::Wait, ..finding }.retry_after(left_ms))
        }
        _ => Some(finding),
    }
}

fn silent(levels: &DetectorLevels, asked: &RecordedCall<'_>) -> String {
    match asked.effect_kind() {
        None | Some(EffectKind::Poll) => levels.silent(asked),
        Some(_) => "not declared as a poll".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn a_stuck_poll_is_warned_then_refused() {
        check(
            "rules poll
             tool status poll
             status {} -> ok pending   x10
             status {} => allow, warning poll 10
             status {} -> ok pending   x10
             status {} => wait no_progress after 14s, critical poll 20 as c
             wait 13s
             status {} => allow as c
             record c ok pending
             status {} => wait no_progress after 30s, critical poll 21 as d
             wait 30s
             status {} -> ok done => allow as d
             status {} -> ok done x29
             status {} => deny no_progress, break poll 30
             other {} => allow",
        );
    }

    #[test]
    fn poll_watches_an_undeclared_call_that_polls_and_keeps_to_its_interval() {
        check(
            "rules poll repeat same_success same_call
             step 4s
             status {\"id\":7} -> ok queued   x4
             status {\"id\":7} -> ok running   x10
             status {\"id\":7} => allow, warning poll 10 as a
             record a ok running
             status {\"id\":7} -> ok running   x9
             step 1s
             status {\"id\":7} => allow as b
             record b ok running
             status {\"id\":7} => wait no_progress after 3s, critical poll 21 as c
             wait 2s
             status {\"id\":7} => allow as c
             record c ok running
             step 4s
             status {\"id\":7} -> ok running x8
             status {\"id\":7} => wait no_progress after 296s, critical poll 30
             wait 5m
             status {\"id\":7} -> ok done => allow",
        );
    }

    #[test]
    fn poll_leaves_what_never_changed_and_is_quick_to_other_rules() {
        check(
            "rules poll repeat
             step 4s
             status {\"id\":7} -> ok [\"queued\"]   x20
             status {\"id\":7} => deny no_progress, critical repeat 20",
        );
    }

    #[test]
    fn a_poll_that_moves_is_left_alone_whatever_runs_between() {
        check(
            "rules poll
             tool status poll
             status {} -> ok pending   x9
             status {} -> ok running
             status {} -> ok running   x8
             status {} => allow
             read {\"page\":1} -> ok a
             status {} -> ok running
             status {} => allow, warning poll 10",
        );
    }
}
