//! poll: a declared poll tool that keeps giving the same result.
//!
//! Fires when the last 10, 20 or 30 results of this fingerprint in this run are unchanged, whatever else ran between
//! them. A changed result starts the count again.
//!
//! Why: `same_call` lets a poll tool look as often as it likes, so something must notice that the thing polled is
//! stuck.
//!
//! Known problems: it counts looks, not time; a job that is slow but sound needs a longer interval or higher levels.

use crate::domain::{
    effect::EffectKind,
    finding::{Decision, Finding, Level},
    fingerprint::ResultDigest,
    reason::Reason,
};

use super::{
    Context,
    levels::{Levels, still_broken},
};

/// The rule's name.
pub const ID: &str = "poll";
/// Warning, critical, break.
pub const LEVELS: Levels = Levels::new(10, 20, 30);

/// See the module.
#[must_use]
pub fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    if cx.proposal.effect.kind != EffectKind::Poll {
        return None;
    }
    if let Some(closed) = cx.closed(ID, Some(cx.fingerprint())) {
        return Some(still_broken(ID, Decision::Deny, Reason::NoProgress, closed.count));
    }
    let mut result: Option<ResultDigest> = None;
    let mut streak = Vec::new();
    for call in cx.calls().filter(|call| call.fingerprint == cx.fingerprint()) {
        match call.outcome.as_ref().and_then(|outcome| outcome.digest) {
            Some(digest) if result.is_some_and(|result| result != digest) => break,
            Some(digest) => result = Some(digest),
            None if call.was_refused() => {}
            None => continue,
        }
        streak.push(call);
    }
    let (count, tool) = (streak.len() as u32, cx.tool());
    levels.finding(ID, Reason::NoProgress, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "{tool} has given the same status {count} times. Wait longer between checks, or do other work first; if \
             nothing changes, tell the user that it is still pending."
        ),
        _ => format!(
            "{tool} was not run: its status has not changed over {count} checks. Tell the user that it is still \
             pending, and how to check later."
        ),
    })
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
             status {} => deny no_progress, critical poll 20",
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
