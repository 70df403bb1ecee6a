//! Evidence helpers of loop detectors: weights, equality, pace and streaks.

use super::{Rule, RuleContext, levels::DetectorLevels};
use crate::domain::{
    answer::{ContentAmount, ResultDifference},
    call::Call,
    effect::EffectKind,
    failure::FailureKind,
    finding::{Decision, Finding, Level, Wording},
    fingerprint::ResultDigest,
    outcome::{Outcome, OutcomeStatus},
    reason::Reason,
    time::Timestamp,
};

/// Weight of a result for detectors that compare results of different calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// An acknowledgment, equal for every effect.
    Nothing,
    /// Warns, never refuses.
    Warns,
    /// Informative: an equal result is no coincidence.
    Full,
}

/// The weight of a call's result.
pub(super) fn weight(call: &Call) -> Weight {
    let marks = call.success().and_then(|outcome| outcome.marks.as_deref());
    match marks.map(|marks| marks.says) {
        Some(ContentAmount::Lists) => Weight::Full,
        Some(ContentAmount::Much) if call.effect.kind == EffectKind::Read => Weight::Full,
        Some(ContentAmount::Much | ContentAmount::NoMatches) => Weight::Warns,
        Some(ContentAmount::Little) | None => Weight::Nothing,
    }
}

/// True for equal results, except for volatile parts.
pub(super) fn gave_the_same(a: &Call, b: &Call) -> bool {
    let gave = |call: &Call| call.success()?.digest;
    gave(a).is_some_and(|a| gave(b) == Some(a))
}

/// True when the last two failures of this call are of a kind that tools state in their own words, and the words
/// differ: its subject moves.
pub(super) fn errors_move(cx: &RuleContext<'_>) -> bool {
    let failed = cx.tree.calls_of(cx.fingerprint()).filter_map(|(_, _, call)| call.outcome.as_ref());
    let mut failed: Vec<_> = failed.filter(|outcome| outcome.status == OutcomeStatus::Error).collect();
    failed.sort_by_key(|outcome| outcome.seq);
    let [.., before, last] = failed.as_slice() else { return false };
    let is_stated = matches!(last.failure, Some(FailureKind::Other | FailureKind::InvalidArgument));
    is_stated && last.failure == before.failure && last.digest != before.digest
}

/// Interval of rechecks of an unchanged result: 15 s, doubling with each excess call, at most 5 min.
pub(super) fn recheck_ms(beyond: u32) -> u64 {
    (15_000_u64 << beyond.min(10)).min(300_000)
}

/// Minimum interval of a slow pace, in milliseconds.
const PACE_MS_MIN: u64 = 10_000;

/// Minimum interval at which a steady pace marks a poll, in milliseconds; a looping model returns sooner.
const STEADY_MS_MIN: u64 = 30_000;

/// Pace of an undeclared poll.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollPace {
    /// Median interval of executions in this run, in milliseconds.
    usual_ms: u64,
    /// Rest of that interval since the newest execution, in milliseconds.
    pub(super) left_ms: u64,
}

impl PollPace {
    /// True for a pace that needs no slowing.
    pub(super) const fn is_slow(self) -> bool {
        self.usual_ms >= PACE_MS_MIN
    }
}

/// The pace of an undeclared poll: a result that was equal three times changed at the next execution, or arguments
/// without content come at a steady pace of half a minute or more. None for other calls.
pub(super) fn pace(cx: &RuleContext<'_>) -> Option<PollPace> {
    if cx.proposal.effect.kind != EffectKind::Unknown {
        return None;
    }
    let looks: Vec<(Timestamp, &Outcome)> = cx
        .run_calls()
        .filter(|call| call.fingerprint == cx.fingerprint())
        .filter_map(|call| Some((call.permit.as_ref()?.at, call.success()?)))
        .collect();
    let mut gaps: Vec<u64> = looks.windows(2).map(|pair| pair[0].0.since_ms(pair[1].0)).collect();
    gaps.sort_unstable();
    let usual_ms = *gaps.get(gaps.len() / 2).filter(|_| gaps.len() > 2)?;
    let is_usual = |gap: &&u64| gap.abs_diff(usual_ms) <= usual_ms / 4;
    let is_steady = gaps.iter().filter(is_usual).count() * 4 >= gaps.len() * 3;
    let is_news = |now: &Outcome, then: &Outcome| {
        let marks = now.marks.as_deref().zip(then.marks.as_deref());
        now.digest != then.digest
            && marks.is_some_and(|(now, then)| now.compared_with(then, &[]) == ResultDifference::News)
    };
    let held = |row: &[(Timestamp, &Outcome)]| row.windows(2).all(|pair| pair[0].1.digest == pair[1].1.digest);
    let has_moved = looks.windows(4).any(|row| held(&row[1..]) && is_news(row[0].1, row[1].1));
    let polls = has_moved || is_steady && usual_ms >= STEADY_MS_MIN && !cx.has_content();
    polls.then(|| PollPace { usual_ms, left_ms: looks[0].0.plus_ms(usual_ms).since_ms(cx.now) })
}

/// True for a refusal with a retry time.
pub(super) fn names_a_time(call: &Call) -> bool {
    let refuses = |finding: &Finding| finding.enforced && matches!(finding.decision, Decision::Reuse | Decision::Deny);
    call.was_refused() && call.findings.iter().any(|finding| refuses(finding) && finding.retry_after_ms.is_some())
}

/// Creations of the calls, oldest first: the first name that not all share, with its key.
pub(super) fn name_creations<'a>(calls: &[&'a Call]) -> Vec<(&'a str, &'a str)> {
    let of = |call: &&'a Call| {
        let marks = call.success().and_then(|outcome| outcome.marks.as_deref());
        marks.map(|marks| marks.named.iter().collect()).unwrap_or_default()
    };
    let all: Vec<Vec<(&str, &str)>> = calls.iter().rev().map(of).collect();
    let is_shared = |name: &(&str, &str)| all.iter().all(|names| names.contains(name));
    all.iter().filter_map(|names| names.iter().find(|name| !is_shared(name))).copied().collect()
}

/// `: a, b and c`; of many the first and the last; empty for none.
pub(super) fn list_names(named: &[(&str, &str)]) -> String {
    let names: Vec<&str> = named.iter().map(|(_, name)| *name).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!(": {one}"),
        [most @ .., last] if most.len() < 6 => format!(": {} and {last}", most.join(", ")),
        [first, .., last] => format!(": {first}, …, {last}"),
    }
}

/// The finding with the last result of these calls (newest first), returned where it refuses.
pub(super) fn handing_back<'a>(
    finding: Finding,
    cx: &RuleContext<'_>,
    mut calls: impl Iterator<Item = &'a Call>,
) -> Finding {
    match calls.find(|call| call.success().is_some()) {
        Some(call) if finding.decision > Decision::Allow => finding.reusing(call.reference(cx.session_id())),
        _ => finding,
    }
}

/// The newest of these calls of one fingerprint with equal results; calls without a result are skipped.
pub(super) fn unchanged_calls<'a>(calls: impl Iterator<Item = &'a Call>) -> Vec<&'a Call> {
    let mut result: Option<ResultDigest> = None;
    let mut streak = Vec::new();
    for call in calls {
        match call.outcome.as_ref().and_then(|outcome| outcome.digest) {
            Some(digest) if result.is_some_and(|result| result != digest) => break,
            Some(digest) => result = Some(digest),
            None => continue,
        }
        streak.push(call);
    }
    streak
}

/// A success that may have changed the proposed call's result: an overlapping declared write, or an undeclared call
/// with news.
pub(super) fn may_have_changed(cx: &RuleContext<'_>, call: &Call) -> bool {
    let Some(outcome) = call.success() else { return false };
    match call.effect.kind {
        EffectKind::Write => call.effect.overlaps(&cx.proposal.effect),
        EffectKind::Unknown => outcome.news,
        EffectKind::Read | EffectKind::Poll | EffectKind::Check => false,
    }
}

impl DetectorLevels {
    /// The finding for two counts: one that can refuse, and one that only warns.
    pub(super) fn weigh_counts<'a, M: Into<Wording>>(
        &self,
        rule: &Rule,
        reason: Reason,
        (full, all): (u32, u32),
        streak: impl Iterator<Item = &'a Call>,
        message: impl FnOnce(Level) -> M,
    ) -> Option<Finding> {
        if self.reached_level(full).is_some_and(|level| level > Level::Warning) {
            return self.finding(rule, reason, full, streak, message);
        }
        let warns = Self { critical: None, break_at: None, ..*self };
        warns.finding(rule, reason, all, streak, message)
    }
}
