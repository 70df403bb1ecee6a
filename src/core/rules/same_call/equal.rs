//! Equal results: the number after which, and the time for which, the last one replaces a new call.

use super::{Params, RULE, has_world_changed, reuse};
use crate::{
    domain::{
        answer::ContentAmount,
        call::Call,
        finding::{Decision, Finding, Wording},
        previous::Previous,
        reason::Reason,
        time::wait_in_words,
        tool::EmptyMeans,
    },
    rules::{
        RuleContext,
        evidence::{gave_the_same, pace},
    },
};

/// True for a result that can be returned whole; otherwise the call runs.
pub(super) fn fits(cx: &RuleContext<'_>, previous: &Previous) -> bool {
    previous.result_bytes as usize <= cx.proposal.answer_bytes_max
}

/// True for an informative result: no acknowledgment, and an empty one only where declared.
fn says_something(cx: &RuleContext<'_>, previous: &Previous) -> bool {
    let no_matches = previous.is_empty || previous.says == Some(ContentAmount::NoMatches);
    matches!(previous.says, Some(ContentAmount::Much | ContentAmount::Lists))
        || (no_matches && cx.proposal.spec.empty_means == Some(EmptyMeans::NoMatches))
}

/// The newest successes of the call in this context with equal results, names included, newest first. The row ends
/// where `ends` holds for another call.
fn equal_row<'a>(cx: &RuleContext<'a>, ends: impl Fn(&Call) -> bool) -> Vec<&'a Call> {
    let compacted = cx.session().map_or(0, |session| session.compacted);
    let mut row: Vec<&Call> = Vec::new();
    for call in cx.run_calls().take_while(|call| call.seq > compacted) {
        let is_same = call.fingerprint == cx.fingerprint();
        if !is_same && ends(call)
            || is_same && row.first().is_some_and(|newest| call.permit.is_some() && !gave_the_same(newest, call))
        {
            break;
        }
        if is_same && call.success().is_some() {
            row.push(call);
        }
    }
    row
}

/// The rest of `wait_ms` since the newest result of a row, in milliseconds, at most the time for which results have
/// been equal.
fn left_ms(cx: &RuleContext<'_>, row: &[&Call], wait_ms: u64) -> Option<u64> {
    let at = |call: &&Call| call.success().map_or(call.at, |outcome| outcome.at);
    let (newest, oldest) = (row.first().map(at)?, row.last().map(at)?);
    let left = wait_ms.min(newest.since_ms(oldest)).checked_sub(cx.now.since_ms(newest))?;
    (left > 0).then_some(left)
}

/// An undeclared call with equal results and no other success in between is answered with the previous result for a
/// while.
pub(super) fn reuse_equal(params: &Params, cx: &RuleContext<'_>, previous: &Previous) -> Option<Finding> {
    let is_given = cx.is_in_context(previous) && fits(cx, previous);
    let is_known = is_given && says_something(cx, previous) && !has_world_changed(cx, previous);
    if cx.proposal.request.repeat_intended || !is_known {
        return None;
    }
    let row = equal_row(cx, |call| call.success().is_some());
    // A steady, slower pace is a poll, which always runs.
    let left_ms = left_ms(cx, &row, params.recheck_ms).filter(|_| row.len() >= params.same_results as usize)?;
    let left_ms = left_ms.min(pace(cx).map_or(left_ms, |pace| pace.left_ms));
    if left_ms == 0 {
        return None;
    }
    let (times, age_ms) = (row.len(), cx.now.since_ms(previous.last_at));
    let why = format!("Its last {times} results were the same. It may run again in {}.", wait_in_words(left_ms));
    Some(reuse(cx, age_ms, &why).retry_after(left_ms))
}

/// A check with equal results is delayed, never answered: the world may have changed.
pub(super) fn delay_check(params: &Params, cx: &RuleContext<'_>, previous: &Previous) -> Option<Finding> {
    if has_world_changed(cx, previous) {
        return None;
    }
    let row = equal_row(cx, |call| call.permit.is_some() && !call.effect.kind.is_look());
    let beyond = (row.len() as u32).checked_sub(params.same_results)?;
    let wait_ms = params.recheck_ms.saturating_mul(1 << beyond.min(20)).min(params.recheck_ms_max);
    let left_ms = left_ms(cx, &row, wait_ms)?;
    let waits = cx.who_waits();
    let situation = format!(
        "{} was not started: its last {} results were the same. It may run again in {}.",
        cx.tool(),
        row.len(),
        wait_in_words(left_ms)
    );
    let message = Wording::new(situation, waits);
    Some(Finding::new(RULE.id, Decision::Wait, Reason::DuplicateCallBlocked, message).retry_after(left_ms))
}
