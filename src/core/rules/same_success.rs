//! same_success: the same call succeeds again and again, and makes something else each time.
//!
//! Fires when the proposed call is the third (warning), fifth (critical) or tenth (break) of its fingerprint in this
//! run whose results have one shape and each name something else: seven documents from one text. Everything counts
//! since a declared write last changed its named resource. It warns and no more where bare numbers in a text are all
//! that differs, and of what came before another undeclared call or a declared write that succeeded. Identical bare
//! acknowledgements (`ok`, `sent`: at most 64 bytes, no list) of an undeclared tool count back to the last success of
//! another call: the third is a warning, the tenth waits until it may be looked at again. Not for reads, polls, checks
//! and `repeatable` calls. `repeat_intended` makes a question to a person of the refusal.
//!
//! Why: an agent that does not see that it is done creates the same thing again, and each answer looks new. In 34,000
//! recorded calls three such successes occur in 10 sessions, nearly all of them one edit applied again and again.
//!
//! Known problems: an undeclared queue whose jobs differ in nothing but their ids is taken for it: declare it
//! `repeatable`. A call beyond the last 64 of its session is forgotten.

use crate::domain::{
    answer::Says,
    call::Call,
    effect::EffectKind,
    finding::{Decision, Finding, Level},
    reason::Reason,
    time::wait_in_words,
    tree::CALLS_MAX,
};

use super::{
    Asked, Closes, Context, Reach, Rule,
    evidence::{gave_the_same, handing_back, in_words, named, recheck_ms},
    levels::{Levels, still_broken},
};

/// The rule.
pub const RULE: Rule = Rule::detector("same_success", Levels::new(3, 5, 10), check, silent)
    .closes(Closes::Call)
    .reach(Reach::Calls(CALLS_MAX as u32))
    .per_tool();
/// Identical acknowledgements are a sign of less.
const ACKNOWLEDGED: Levels = Levels { warning: Some(3), critical: Some(10), break_at: None };

fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    if is_exempt(cx.proposal.effect.kind) || cx.proposal.effect.repeatable {
        return None;
    }
    let finding = still_broken(&RULE, Reason::RepeatedSuccess, cx)
        .or_else(|| made_again(levels, cx))
        .or_else(|| acknowledged(levels, cx))?;
    Some(match (finding.decision, cx.proposal.request.repeat_intended) {
        (Decision::Deny, true) => Finding { decision: Decision::Ask, retry_after_ms: None, ..finding },
        (Decision::Deny, false) => cx.or_on_purpose(finding, "a person is then asked"),
        _ => finding,
    })
}

fn is_exempt(kind: EffectKind) -> bool {
    matches!(kind, EffectKind::Read | EffectKind::Poll | EffectKind::Check)
}

fn silent(levels: &Levels, asked: &Asked<'_>) -> String {
    match asked.kind() {
        Some(kind) if is_exempt(kind) => format!("left alone, as a declared {}", kind.as_str()),
        _ => levels.silent(asked),
    }
}

/// The successes that each made something else.
#[derive(Default)]
struct Made<'a> {
    /// Newest first.
    calls: Vec<&'a Call>,
    /// How many of them may refuse.
    full: u32,
    /// How often it was refused since.
    refused: u32,
}

fn made<'a>(cx: &Context<'a>) -> Made<'a> {
    let mut made = Made::default();
    let (mut only_warns, mut newest) = (false, None);
    let mut known = Vec::new();
    for call in cx.run_calls() {
        let (is_same, kind) = (cx.is_same(call), call.effect.kind);
        if is_same && made.calls.is_empty() && call.was_refused_by(RULE.id) {
            made.refused += 1;
        }
        let Some(marks) = call.success().and_then(|outcome| outcome.marks.as_deref()) else { continue };
        if !is_same {
            let changes_it = cx.proposal.effect.resource.as_ref().is_some_and(|resource| resource.is_named())
                && kind == EffectKind::Write
                && call.effect.overlaps(&cx.proposal.effect);
            if changes_it {
                break;
            }
            only_warns |= matches!(kind, EffectKind::Unknown | EffectKind::Write);
            continue;
        }
        let newest = newest.get_or_insert((marks.shape, marks.numberless));
        match () {
            () if marks.shape == newest.0 => {}
            () if marks.numberless == newest.1 => only_warns = true,
            () => break,
        }
        let what = (marks.names, marks.shape);
        if !known.contains(&what) {
            known.push(what);
            made.calls.push(call);
            // Another nonce may be another intention.
            only_warns |= call.fingerprint != cx.fingerprint();
            made.full += u32::from(!only_warns && marks.names.is_some());
        }
    }
    made
}

fn made_again(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    let Made { calls, full, refused } = made(cx);
    let successes = calls.len() as u32;
    if successes < 2 {
        return None;
    }
    let (full, all, tool) = (full + refused + 1, successes + refused + 1, cx.tool());
    let names = named(&calls);
    let made = in_words(&names);
    let finding =
        levels.weighed(&RULE, Reason::RepeatedSuccess, (full, all), calls.iter().copied(), |level| match level {
            Level::Warning => format!(
                "{tool} has succeeded {successes} times with these arguments, and each time the result named something \
             else{made}. If one is enough, go on with it and do not make another."
            ),
            _ => format!(
                "{tool} was not run: it has succeeded {successes} times with these arguments, and each time the result \
             named something else{made}. It is done: go on with one of them. For something different, change the \
             arguments."
            ),
        })?;
    let finding = handing_back(finding, cx, calls.into_iter());
    let next = names.last().map(|last| format!("Go on with {last}."));
    Some(next.map_or_else(|| finding.clone(), |next| finding.clone().next(next)))
}

fn acknowledged(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    // A policy that switches the levels off means these too.
    let levels = if levels.critical.is_some() { ACKNOWLEDGED } else { Levels { critical: None, ..ACKNOWLEDGED } };
    if cx.proposal.effect.kind != EffectKind::Unknown || cx.proposal.effect.writes_a_named_thing() {
        return None;
    }
    let mut streak: Vec<&Call> = Vec::new();
    for call in cx.run_calls() {
        let Some(outcome) = call.success() else { continue };
        let is_bare = outcome.marks.as_deref().is_some_and(|marks| marks.says == Says::Little);
        let same = streak.first().is_none_or(|newest| gave_the_same(newest, call));
        if !cx.is_same(call) || !is_bare || !same {
            break;
        }
        streak.push(call);
    }
    let (successes, tool) = (streak.len() as u32, cx.tool());
    let (count, last) = (successes + 1, streak.first()?.outcome.as_ref()?.at);
    let left_ms = count
        .checked_sub(levels.critical.unwrap_or(u32::MAX))
        .map(|beyond| last.plus_ms(recheck_ms(beyond)).since_ms(cx.now));
    if left_ms == Some(0) {
        return None;
    }
    let finding = levels.finding(&RULE, Reason::RepeatedSuccess, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "{tool} has been done {successes} times in a row with these arguments, with the same short answer each \
             time. If it was to be done once, it is done: go on."
        ),
        _ => format!(
            "{tool} was not run: it has been done {successes} times in a row with these arguments, with the same short \
             answer each time. Go on with other work; it may be called again in {}.",
            wait_in_words(left_ms.unwrap_or(0))
        ),
    })?;
    Some(Finding { retry_after_ms: left_ms, ..finding })
}

#[cfg(test)]
#[path = "same_success/tests.rs"]
mod tests;
