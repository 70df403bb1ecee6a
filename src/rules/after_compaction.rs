//! after_compaction: the context was compacted, and the loop goes on.
//!
//! Fires when the first three outcomes after MarkCompacted are all of this call, with one and the same result: the next
//! call of it is refused.
//!
//! Why: a compaction that drops what was tried is followed by the same calls again; three in a row show that the
//! summary did not tell the model what it had done. The refusal carries what GetSessionState would have told.
//!
//! Known problems: callgate learns of a compaction only when the caller marks it.

use crate::domain::{
    finding::{Decision, Finding, Level},
    outcome::OutcomeStatus,
    reason::Reason,
};

use super::{Context, levels::Levels};

/// The rule's name.
pub const ID: &str = "after_compaction";
/// Critical only: there is nothing to warn of before.
pub const LEVELS: Levels = Levels { warning: None, critical: Some(3), break_at: None };

/// See the module.
#[must_use]
pub fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    let critical = levels.critical? as usize;
    let session = cx.session()?;
    if session.compacted == 0 {
        return None;
    }
    let is_done = |status| matches!(status, OutcomeStatus::Success | OutcomeStatus::Error);
    let mut since: Vec<_> = session
        .calls
        .iter()
        .filter_map(|call| Some((call, call.outcome.as_ref()?)))
        .filter(|(_, outcome)| outcome.seq > session.compacted && is_done(outcome.status))
        .collect();
    since.sort_by_key(|(_, outcome)| outcome.seq);
    let digest = since.first().and_then(|(_, outcome)| outcome.digest)?;
    let same = since
        .iter()
        .take_while(|(call, outcome)| call.fingerprint == cx.fingerprint() && outcome.digest == Some(digest));
    let count = same.count();
    if count < critical {
        return None;
    }
    let tool = cx.tool();
    let message = format!(
        "{tool} was not run: since the context was compacted, it has been called {count} times with these arguments \
         and gave the same result each time. Use that result, and read the session's state for what was done before."
    );
    let finding = Finding::new(ID, Decision::Deny, Reason::NoProgress, message);
    Some(finding.at_level(Level::Critical, count as u32))
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn three_equal_outcomes_after_a_compaction_are_enough() {
        check(
            "rules after_compaction
             look {} -> ok same   x5
             compacted
             look {} -> ok same   x3
             look {} => deny no_progress, critical after_compaction 3",
        );
    }

    #[test]
    fn another_call_or_result_in_between_is_not_it() {
        check(
            "rules after_compaction
             compacted
             look {} -> ok same   x2
             edit {\"n\":new} -> ok done
             look {} -> ok same   x3
             look {} => allow",
        );
    }
}
