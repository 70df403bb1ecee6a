//! after_compaction: the context was compacted, and the loop goes on.
//!
//! Fires when the first three outcomes after MarkCompacted are all of this call, with one and the same result: the next
//! call of it is refused, until the world has changed since, or another run begins. A declared poll is left to `poll`.
//!
//! Why: a compaction that drops earlier attempts is followed by the same calls; three in a row show that the summary
//! did not tell the model its past work. The refusal contains the same data as GetSessionState.
//!
//! Known problems: callgate learns of a compaction only when the caller marks it.

use crate::domain::{
    effect::EffectKind,
    finding::{Decision, Finding, Level, Wording},
    outcome::OutcomeStatus,
    reason::Reason,
};

use super::{CountCeiling, Rule, RuleContext, evidence::handing_back, levels::DetectorLevels};

/// The rule.
pub const RULE: Rule =
    Rule::detector("after_compaction", LEVELS, check, DetectorLevels::silent).reach(CountCeiling::Calls(OUTCOMES));
/// Number of outcomes after a compaction that are compared.
const OUTCOMES: u32 = 3;
/// No warning precedes it.
const LEVELS: DetectorLevels = DetectorLevels { warning: None, critical: Some(OUTCOMES), break_at: None };

fn check(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    let critical = levels.critical? as usize;
    let session = cx.session()?;
    if session.compacted == 0 || cx.proposal.effect.kind == EffectKind::Poll {
        return None;
    }
    let changed = |previous| cx.tree.world_changed_since(previous, cx.fingerprint(), &cx.proposal.effect);
    if cx.previous.is_some_and(changed) {
        return None;
    }
    let run = cx.run()?.from;
    let is_done = |status| matches!(status, OutcomeStatus::Success | OutcomeStatus::Error);
    let mut since: Vec<_> = session
        .calls
        .iter()
        .filter(|call| call.run_from == run)
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
    let situation = format!(
        "{tool} was not run: since the context was compacted, it has been called {count} times with these arguments \
         and gave the same result each time."
    );
    let next = "Use that result, and go on with what is not done yet.";
    let message = Wording::new(situation, next);
    let finding = Finding::new(RULE.id, Decision::Deny, Reason::NoProgress, message);
    let outcomes = since.iter().rev().map(|(call, _)| *call).filter(|call| call.fingerprint == cx.fingerprint());
    Some(handing_back(finding.at_level(Level::Critical, count as u32), cx, outcomes))
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
    fn refusal_ends_with_a_change_of_the_world_or_the_run() {
        for ending in ["edit {\"path\":\"a\"} -> ok new => allow", "run next"] {
            check(&format!(
                "rules after_compaction
                 tool read_file read workspace/{{path}}
                 tool edit write workspace/{{path}}
                 compacted
                 read_file {{\"path\":\"a\"}} -> ok same   x3
                 read_file {{\"path\":\"a\"}} => deny no_progress, critical after_compaction 3
                 {ending}
                 read_file {{\"path\":\"a\"}} => allow"
            ));
        }
    }

    #[test]
    fn a_poll_may_look_again() {
        check(
            "rules after_compaction
             tool job_status poll
             compacted
             job_status {} -> ok running   x9
             job_status {} => allow",
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
