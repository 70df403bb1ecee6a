//! same_success: the same call succeeds again and again, and makes something else each time.
//!
//! Fires when the proposed call is the third (warning) or fifth (critical) of its fingerprint in this run whose results
//! have one shape and each name something else: seven documents from one text. That holds for arguments with content, a
//! text of two words or more; others may take from a queue or turn a page, and are slowed first (`Brake`). Everything
//! counts since a declared write last changed its named resource. It warns and no more where bare numbers in a text are
//! all that differs, and of what came before another undeclared call or a declared write that succeeded. Identical
//! acknowledgements (`ok`, `sent`) of an undeclared tool count back to the last success of another call, and are slowed
//! before they are refused. Not for reads, polls, checks and `repeatable` calls. `repeat_intended` makes a question to
//! a person of the refusal.
//!
//! Why: an agent that does not see that it is done creates the same thing again, and each answer looks new. In 34,000
//! recorded calls three such successes occur in 10 sessions, nearly all of them one edit applied again and again.
//!
//! Known problems: an undeclared queue whose jobs differ in nothing but their ids is slowed from the fifth job on:
//! declare it `repeatable`. A call beyond the last 64 of its session is forgotten.

use crate::domain::{
    answer::Says,
    call::Call,
    effect::EffectKind,
    finding::{Decision, Finding, Level, Wording},
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
pub const RULE: Rule = Rule::detector("same_success", LEVELS, check, silent)
    .closes(Closes::Call)
    .reach(Reach::Calls(CALLS_MAX as u32))
    .per_tool();
const LEVELS: Levels = Levels::new(3, 5, 10);
/// From which count on a repetition waits, and by which levels it is told and refused. The levels of the policy are
/// those of arguments with content.
struct Brake {
    levels: Levels,
    waits_from: Option<u32>,
}

impl Brake {
    /// For results that each name something else. An object that is taken, turned or drawn has no content.
    fn of_receipts(levels: &Levels, cx: &Context<'_>) -> Self {
        // Levels that an owner sets hold for whatever arguments.
        match (cx.has_content() || *levels != LEVELS, cx.proposal.shape.leaves()) {
            (true, _) => Self { levels: *levels, waits_from: None },
            (false, 2..) if !cx.proposal.effect.in_steps => Self::weak(levels, 3, 5, 20),
            (false, _) => Self::weak(levels, 5, 10, 30),
        }
    }

    /// For identical acknowledgements, which are a sign of less.
    fn of_acknowledgements(levels: &Levels, cx: &Context<'_>) -> Self {
        if cx.has_content() { Self::weak(levels, 3, 5, 10) } else { Self::weak(levels, 10, 20, 30) }
    }

    /// A policy that switches the levels off means these too.
    fn weak(levels: &Levels, warning: u32, wait: u32, critical: u32) -> Self {
        let is_on = levels.critical.is_some();
        let set = |count| is_on.then_some(count);
        let weak = Levels { warning: levels.warning.and(Some(warning)), critical: set(critical), break_at: None };
        Self { levels: weak, waits_from: set(wait) }
    }

    /// The finding as a wait, where the count is past warnings and below refusals: until a time after the last success
    /// that doubles with each further one. What is due passes.
    fn slowed(&self, cx: &Context<'_>, count: u32, newest: &Call) -> Option<Finding> {
        let beyond = count.checked_sub(self.waits_from?)?;
        if self.levels.critical.is_some_and(|critical| count >= critical) {
            return None;
        }
        let last = newest.outcome.as_ref()?.at;
        let left_ms = last.plus_ms(recheck_ms(beyond)).since_ms(cx.now);
        let waits = cx.who_waits();
        let situation = format!(
            "{} was not run: it succeeded {} times in a row with these arguments. It may run again in {}.",
            cx.tool(),
            count - 1,
            wait_in_words(left_ms)
        );
        let message = Wording::new(situation, waits);
        let finding = Finding::new(RULE.id, Decision::Wait, Reason::RepeatedSuccess, message);
        (left_ms > 0).then(|| finding.at_level(Level::Critical, count).retry_after(left_ms))
    }
}

fn check(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
    if cx.proposal.effect.kind.is_look() || cx.proposal.effect.repeatable {
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

fn silent(levels: &Levels, asked: &Asked<'_>) -> String {
    match asked.kind() {
        Some(kind) if kind.is_look() => format!("left alone, as a declared {}", kind.as_str()),
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
}

fn made<'a>(cx: &Context<'a>) -> Made<'a> {
    let mut made = Made::default();
    let (mut only_warns, mut newest) = (false, None);
    let mut known = Vec::new();
    for call in cx.run_calls() {
        let (is_same, kind) = (cx.is_same(call), call.effect.kind);
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
    let Made { calls, full } = made(cx);
    let successes = calls.len() as u32;
    if successes < 2 {
        return None;
    }
    let (full, all, tool) = (full + 1, successes + 1, cx.tool());
    let brake = Brake::of_receipts(levels, cx);
    if let Some(slowed) = brake.slowed(cx, full, calls[0]) {
        return Some(slowed);
    }
    let levels = &brake.levels;
    let names = named(&calls);
    let made = in_words(&names);
    let one = names.last().map_or("one of them", |last| last.as_str());
    let next = format!("Go on with {one}; for something different, change the arguments.");
    let finding =
        levels.weighed(&RULE, Reason::RepeatedSuccess, (full, all), calls.iter().copied(), |level| match level {
            Level::Warning => format!(
                "{tool} has succeeded {successes} times with these arguments, and each result has another name{made}. \
                 If one is enough, go on with it and do not make another."
            )
            .into(),
            _ => Wording::new(
                format!(
                    "{tool} was not run: it has succeeded {successes} times with these arguments, and each result has \
                     another name{made}."
                ),
                next.as_str(),
            ),
        })?;
    Some(handing_back(finding, cx, calls.into_iter()))
}

fn acknowledged(levels: &Levels, cx: &Context<'_>) -> Option<Finding> {
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
    let count = successes + 1;
    let brake = Brake::of_acknowledgements(levels, cx);
    if let Some(slowed) = brake.slowed(cx, count, streak.first()?) {
        return Some(slowed);
    }
    brake.levels.finding(&RULE, Reason::RepeatedSuccess, count, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "{tool} was called {successes} times in a row with these arguments, with the same short answer each time. \
             If it was to be done once, do not call it again."
        )
        .into(),
        _ => Wording::new(
            format!(
                "{tool} was not run: it was called {successes} times in a row with these arguments, with the same \
                 short answer each time."
            ),
            "If it is to be done again, change the arguments or ask the user.",
        ),
    })
}

#[cfg(test)]
#[path = "same_success/tests.rs"]
mod tests;
