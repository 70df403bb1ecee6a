//! repeat: the same call, with the same result, again.
//!
//! Fires when the session's last calls hold this fingerprint 10, 20 or 30 times with an unchanged result, walking back
//! until the result differs or another call made progress. The proposed call is not counted: ten recorded, the
//! eleventh warns. A refused call counts, with the last result of its fingerprint.
//!
//! Why: an agent that cannot tell "done" from "failed" from "empty" calls the same tool again.
//!
//! Known problems: a tool that polls without being declared is slowed by `same_call` long before it comes here.

use crate::domain::{
    effect::EffectKind,
    finding::{Decision, Finding, Level},
    fingerprint::ResultDigest,
    outcome::OutcomeStatus,
    reason::Reason,
};

use super::{
    Context,
    levels::{Levels, still_broken},
};

/// The rule's name.
pub const ID: &str = "repeat";
/// Warning, critical, break.
pub const LEVELS: Levels = Levels::new(10, 20, 30);

/// The plain rules of other loop guards, for those who want them: what a call did is not asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plain {
    /// So many identical successes break, whatever their results.
    pub loop_threshold: Option<u32>,
    /// So many executions of one call are allowed in a run.
    pub max_repeat: Option<u32>,
    /// How many calls they look back; none is the window.
    pub last_n: Option<usize>,
}

/// See the module.
#[must_use]
pub fn check(levels: &Levels, plain: &Plain, cx: &Context<'_>) -> Option<Finding> {
    if cx.proposal.effect.kind == EffectKind::Poll {
        return None;
    }
    if let Some(closed) = cx.closed(ID, Some(cx.fingerprint())) {
        return Some(still_broken(ID, Decision::Deny, Reason::NoProgress, closed.count));
    }
    let mut result: Option<ResultDigest> = None;
    let mut streak = Vec::new();
    for call in cx.calls() {
        let outcome = call.outcome.as_ref();
        if call.fingerprint != cx.fingerprint() {
            if outcome.is_some_and(|outcome| outcome.progress) {
                break;
            }
            continue;
        }
        match outcome.and_then(|outcome| outcome.digest) {
            Some(digest) if result.is_some_and(|result| result != digest) => break,
            Some(digest) => result = Some(digest),
            None if call.was_refused() => {}
            None => continue,
        }
        streak.push(call);
    }
    let (count, tool) = (streak.len() as u32, cx.tool());
    let plainly = plainly(plain, cx);
    if plainly.is_some() {
        return plainly;
    }
    levels.finding(ID, Reason::NoProgress, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "{tool} was called {count} times with these arguments and gave the same result each time. Another call \
            will \
             not change it: use the result you have, change the arguments, or answer the user."
        ),
        _ => format!(
            "{tool} was not run: {count} calls with these arguments gave the same result. Use that result, try a \
             different approach, or tell the user what is missing."
        ),
    })
}

fn plainly(plain: &Plain, cx: &Context<'_>) -> Option<Finding> {
    let last_n = plain.last_n.unwrap_or(cx.window);
    let same = || cx.calls().take(last_n).filter(|call| call.fingerprint == cx.fingerprint() && call.permit.is_some());
    let is_success = |call: &&crate::domain::call::Call| {
        call.outcome.as_ref().is_some_and(|outcome| outcome.status == OutcomeStatus::Success)
    };
    let (runs, successes) = (same().count() as u32, same().filter(is_success).count() as u32);
    let tool = cx.tool();
    if plain.loop_threshold.is_some_and(|threshold| successes >= threshold) {
        let message = format!(
            "{tool} was not run: it succeeded {successes} times with these arguments. Use that result, or change the \
             arguments."
        );
        let finding = Finding::new(ID, Decision::Deny, Reason::NoProgress, message);
        return Some(finding.at_level(Level::Break, successes));
    }
    plain.max_repeat.is_some_and(|most| runs >= most).then(|| {
        let message = format!(
            "{tool} was not run: it has run {runs} times with these arguments, as often as it may. Change the \
             arguments, or tell the user what is missing."
        );
        Finding::new(ID, Decision::Deny, Reason::NoProgress, message).at_level(Level::Critical, runs)
    })
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn the_eleventh_identical_call_warns() {
        check(
            "rules repeat
             make {} -> error timeout   x10
             make {} => allow, warning repeat 10
             make {} -> error timeout
             make {} => allow",
        );
    }

    #[test]
    fn refused_calls_count_and_the_break_holds() {
        check(
            "rules repeat
             make {} -> ok same   x20
             make {} => deny no_progress, critical repeat 20
             make {} => deny no_progress   x9
             make {} => deny no_progress, break repeat 30
             other {} -> ok new
             make {} => deny no_progress, break repeat 30
             run next
             make {} => allow",
        );
    }

    #[test]
    fn progress_elsewhere_or_another_result_starts_the_count_again() {
        check(
            "rules repeat
             make {} -> ok same   x9
             edit {\"n\":1} -> ok done
             make {} -> ok same   x9
             make {} -> ok other
             make {} => allow",
        );
    }
}
