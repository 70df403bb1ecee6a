//! Declared reads that need not run: unchanged by witness, or fresh enough.

use super::{Params, UNCHANGED, equal::fits, reuse};
use crate::{
    domain::{effect::Freshness, finding::Finding, previous::Previous, time::wait_in_words},
    rules::RuleContext,
};

/// A read of the same state as the previous execution: its witness was equal before it, after it, and now.
pub(super) fn unchanged_by_witness(cx: &RuleContext<'_>, previous: &Previous) -> bool {
    cx.looks_at_the_same()
        && cx.is_in_context(previous)
        && fits(cx, previous)
        && !cx.tree.conflicts_since(previous, cx.fingerprint())
}

/// A read without a known change, within the declared freshness.
pub(super) fn read(params: &Params, cx: &RuleContext<'_>, previous: &Previous) -> Option<Finding> {
    // Its result was as of some time while it ran.
    let (asked_at, now) = (previous.call.at, cx.now);
    let age_ms = now.since_ms(asked_at);
    let holds = match cx.proposal.fresh {
        Freshness::Usual => age_ms < params.fresh_ms && cx.is_in_context(previous),
        Freshness::For(fresh_ms) => age_ms < fresh_ms && cx.is_in_context(previous),
        Freshness::BySession => !previous.foreign,
        Freshness::Always => true,
    };
    let why = match cx.proposal.fresh {
        Freshness::Always => "What it reads never changes.".to_owned(),
        _ => format!("{UNCHANGED} The result is as of {} ago.", wait_in_words(age_ms)),
    };
    let reused = || cx.or_on_purpose(reuse(cx, now.since_ms(previous.last_at), &why), "it then runs again");
    (holds && fits(cx, previous)).then(reused)
}
