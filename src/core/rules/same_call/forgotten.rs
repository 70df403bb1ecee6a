//! Repetition after a compaction of calls done before it.

use super::{Params, RULE, ask, reuse};
use crate::{
    domain::{
        effect::EffectKind,
        finding::{Decision, Finding},
        previous::Previous,
        reason::Reason,
        time::wait_in_words,
    },
    rules::RuleContext,
};

/// An undeclared call with content, done in this run before the last compaction, with the result of a write. The first
/// repetition is answered with the dated result. The next one needs approval where the policy has a route, and
/// otherwise runs with a warning.
pub(super) fn forgotten_finding(
    params: &Params,
    cx: &RuleContext<'_>,
    previous: &Previous,
    age_ms: u64,
) -> Option<Finding> {
    let (session, run) = (cx.session()?, cx.run()?);
    let is_mine = previous.run.as_ref().is_some_and(|(id, from)| id == cx.session_id() && *from == run.from);
    let is_before = previous.seq <= session.compacted;
    let is_act = cx.proposal.effect.kind == EffectKind::Unknown && cx.has_content() && previous.is_act;
    if !(is_mine && is_before && is_act) || cx.proposal.request.repeat_intended {
        return None;
    }
    let mut since = session.calls.iter().filter(|call| call.seq > session.compacted);
    if !since.any(|call| call.fingerprint == cx.fingerprint() && call.was_reused()) {
        let why = "Your context was compacted since, so this is its result as of then.";
        return Some(cx.or_on_purpose(reuse(cx, age_ms, why), "it is done again"));
    }
    let done = format!(
        "{} with these arguments succeeded {} ago, before your context was compacted",
        cx.tool(),
        wait_in_words(age_ms)
    );
    if params.has_approvers {
        return Some(ask(format!("{done}. Doing it again needs a person's approval.")));
    }
    let message = format!("{done}: this does it again.");
    Some(Finding::new(RULE.id, Decision::Allow, Reason::DuplicateCallBlocked, message))
}
