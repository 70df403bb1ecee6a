//! same_success: the same call succeeds again and again, and each result is another receipt.
//!
//! Fires when the proposed call is the third (warning) or fifth (critical) of its fingerprint whose results are
//! receipts, side by side: they differ in names or in numbers that the arguments have moved, and in nothing that is
//! news (docs/semantics.md#receipts). That holds where the arguments hold content, or the results tell of something
//! that was made just then; others may take from a queue or draw a number, and are slowed first (`Brake`). A result
//! that lapses by itself (a lease, a quote) only warns, and so does one before another undeclared call or a declared
//! write of this session. Identical acknowledgments (`ok`, `sent`) of an undeclared tool count back to the last success
//! of another call, and are slowed before they are refused. A multi-line text that is inserted again, with counts that
//! rise by the same step, is refused at the fifth. Everything counts over the call tree's run, since a declared write
//! last changed its named resource. Not for reads, polls, checks and `repeatable` calls. `repeat_intended` turns the
//! refusal into an approval request. A first call is told of earlier creations by arguments that differ in spelling or
//! in omitted settings, or by the same agent in another call tree within the deduplication window; where and by whom,
//! and the difference.
//!
//! Why: an agent that does not see that it is done creates the same thing again, and each answer looks new. In 34,000
//! recorded calls three such successes occur in 10 sessions, nearly all of them one edit applied again and again.
//!
//! Known problems: results cannot tell an id of the answer from an id of a created thing: a read whose answer has an id
//! of its own is refused where its arguments hold content; declare it. A creation named by words alone is news each
//! time. A call beyond the last 64 of its session is forgotten.

mod made_before;

use crate::domain::{
    answer::{ContentAmount, ResultDifference, ResultMarkers},
    call::Call,
    content::{self, Content},
    effect::EffectKind,
    finding::{Decision, Finding, Level, Wording},
    reason::Reason,
    time::wait_in_words,
    tree::CALLS_MAX,
};

use self::made_before::made_before;
pub(crate) use self::made_before::names_something;
use super::{
    BreakScope, CountCeiling, RecordedCall, Rule, RuleContext,
    evidence::{gave_the_same, handing_back, list_names, name_creations, pace, recheck_ms},
    levels::{DetectorLevels, still_broken},
};

/// The rule.
pub const RULE: Rule = Rule::detector("same_success", LEVELS, check, silent)
    .closes(BreakScope::Call)
    .reach(CountCeiling::Calls(CALLS_MAX as u32))
    .per_tool();
const LEVELS: DetectorLevels = DetectorLevels::new(3, 5, 10);
/// Thresholds: the count from which a repetition waits, and the levels. The policy's levels are those of arguments with
/// content.
struct SlowdownLevels {
    levels: DetectorLevels,
    waits_from: Option<u32>,
}

impl SlowdownLevels {
    /// For receipts; `is_sure` where they contain a recent creation time.
    fn of_receipts(levels: &DetectorLevels, cx: &RuleContext<'_>, is_sure: bool) -> Self {
        // Levels set by the policy apply to all arguments.
        match cx.content() {
            _ if *levels != LEVELS || is_sure => Self { levels: *levels, waits_from: None },
            Content::Written => Self { levels: *levels, waits_from: None },
            Content::Plain => Self::weak(levels, 3, 5, 20),
            Content::Bare => Self::weak(levels, 5, 10, 30),
        }
    }

    /// For identical acknowledgments, which are weaker evidence.
    fn of_acknowledgements(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Self {
        if cx.has_content() { Self::weak(levels, 3, 5, 10) } else { Self::weak(levels, 10, 20, 30) }
    }

    /// Disabled if the policy disables the levels.
    fn weak(levels: &DetectorLevels, warning: u32, wait: u32, critical: u32) -> Self {
        let is_on = levels.critical.is_some();
        let set = |count| is_on.then_some(count);
        let weak =
            DetectorLevels { warning: levels.warning.and(Some(warning)), critical: set(critical), break_at: None };
        Self { levels: weak, waits_from: set(wait) }
    }

    /// The finding as WAIT, for a count between warning and refusal: until a time after the last success that doubles
    /// with each further one. A later call passes.
    fn slow_down(&self, cx: &RuleContext<'_>, count: u32, newest: &Call) -> Option<Finding> {
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

fn check(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    if cx.proposal.effect.kind.is_look() || cx.proposal.effect.repeatable {
        return None;
    }
    let finding = still_broken(&RULE, Reason::RepeatedSuccess, cx)
        .or_else(|| made_again(levels, cx))
        .or_else(|| inserted_again(levels, cx))
        .or_else(|| find_acknowledged(levels, cx))
        .or_else(|| levels.warning.and_then(|_| made_before(cx)))?;
    Some(match (finding.decision, cx.proposal.request.repeat_intended) {
        (Decision::Deny, true) => Finding { decision: Decision::Ask, retry_after_ms: None, ..finding },
        (Decision::Deny, false) => cx.or_on_purpose(finding, "a person is then asked"),
        _ => finding,
    })
}

fn silent(levels: &DetectorLevels, asked: &RecordedCall<'_>) -> String {
    match asked.effect_kind() {
        Some(kind) if kind.is_look() => format!("left alone, as a declared {}", kind.as_str()),
        _ => levels.silent(asked),
    }
}

/// The successes of this call in the call tree's run, newest first, up to a change of its resource; and the number of
/// those after another undeclared call or a declared write of this session.
fn successes<'a>(cx: &RuleContext<'a>) -> (Vec<(&'a Call, &'a ResultMarkers)>, usize) {
    let (mut found, mut undisturbed) = (Vec::new(), None);
    for call in cx.tree_run_calls() {
        let (is_same, kind) = (cx.is_same(call), call.effect.kind);
        let Some(marks) = call.success().and_then(|outcome| outcome.marks.as_deref()) else { continue };
        if is_same {
            // Another nonce may be another intention.
            if call.fingerprint != cx.fingerprint() {
                undisturbed.get_or_insert(found.len());
            }
            found.push((call, marks));
            continue;
        }
        let is_named = cx.proposal.effect.resource.as_ref().is_some_and(|resource| resource.is_named());
        if is_named && kind == EffectKind::Write && call.effect.overlaps(&cx.proposal.effect) {
            break;
        }
        if matches!(kind, EffectKind::Unknown | EffectKind::Write) {
            undisturbed.get_or_insert(found.len());
        }
    }
    let undisturbed = undisturbed.unwrap_or(found.len());
    (found, undisturbed)
}

/// The newest successes whose results are receipts.
struct Receipts<'a> {
    /// Newest first.
    calls: Vec<&'a Call>,
    /// Number of those that can refuse.
    full: u32,
    /// Each contains a recent creation time.
    are_sure: bool,
    lapse: bool,
}

fn receipts<'a>(cx: &RuleContext<'a>) -> Option<Receipts<'a>> {
    let (all, undisturbed) = successes(cx);
    let (newest, marks) = *all.first()?;
    // A page is scrolled by as much as it moves.
    let amounts = if cx.has_content() { content::amounts(&cx.proposal.request.arguments) } else { Vec::new() };
    let mut found =
        Receipts { calls: vec![newest], full: u32::from(undisturbed > 0), are_sure: marks.made_now, lapse: false };
    let (mut later, mut known) = (marks, marks.names.to_vec());
    for (at, (call, marks)) in all.iter().enumerate().skip(1) {
        let is_new = |(now, then): (&u64, &u64)| now != then && !known.contains(then);
        let names_another = later.names.iter().zip(&marks.names).any(is_new);
        match later.compared_with(marks, &amounts) {
            ResultDifference::Receipt { lapses } if names_another || later.names == marks.names => {
                found.lapse |= lapses;
                found.are_sure &= marks.made_now;
                found.calls.push(call);
                found.full += u32::from(at < undisturbed);
            }
            // The same thing once more.
            ResultDifference::Equal | ResultDifference::Receipt { .. } => {}
            ResultDifference::Risen | ResultDifference::News => break,
        }
        known.extend(&marks.names);
        later = marks;
    }
    (found.calls.len() > 1).then_some(found)
}

fn made_again(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    let Receipts { calls, full, are_sure, lapse } = receipts(cx)?;
    let successes = calls.len() as u32;
    let (full, all, tool) = (full + 1, successes + 1, cx.tool());
    // Without arguments, a call may draw a number or take a picture.
    let is_sure = are_sure && cx.proposal.shape.has_fields();
    let brake = SlowdownLevels::of_receipts(levels, cx, is_sure);
    if let Some(slowed) = brake.slow_down(cx, full, calls[0]).filter(|_| !lapse) {
        return Some(slowed);
    }
    let levels = match lapse {
        true => DetectorLevels { critical: None, break_at: None, ..brake.levels },
        false => brake.levels,
    };
    let names = name_creations(&calls);
    let what = match names.last().map(|(member, _)| *member) {
        None => "a number that the arguments have moved".to_owned(),
        Some("") => "another name".to_owned(),
        Some(member) => format!("another `{member}`"),
    };
    let what = format!("{what}{}", list_names(&names));
    let go_on = names.last().map_or("Do not repeat it".to_owned(), |(_, name)| format!("Go on with {name}"));
    let next = format!("{go_on}; for something different, change the arguments.");
    let finding =
        levels.weigh_counts(
            &RULE,
            Reason::RepeatedSuccess,
            (full, all),
            calls.iter().copied(),
            |level| {
                match level {
            Level::Warning => format!(
                "{tool} has succeeded {successes} times with these arguments, and each result has {what}. If one is \
                 enough, go on with it and do not make another."
            )
            .into(),
            _ => Wording::new(
                format!(
                    "{tool} was not run: it has succeeded {successes} times with these arguments, and each result has \
                     {what}."
                ),
                next.as_str(),
            ),
        }
            },
        )?;
    Some(handing_back(finding, cx, calls.into_iter()))
}

/// A repeated insertion of a multi-line text: only numbers differ, and rise by the same step.
fn inserted_again(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    if cx.proposal.effect.in_steps || !content::has_lines(&cx.proposal.request.arguments) {
        return None;
    }
    let (all, undisturbed) = successes(cx);
    let mut pairs = all[..undisturbed].windows(2).map(|pair| pair[0].1.steps_from(pair[1].1));
    let step = pairs.next().flatten()?;
    let row = 2 + pairs.take_while(|other| other.as_ref() == Some(&step)).count();
    let (count, tool) = (row as u32 + 1, cx.tool());
    let levels = DetectorLevels { warning: levels.warning.and(Some(4)), ..*levels };
    let calls = all.iter().take(row).map(|(call, _)| *call);
    let numbers = |marks: &ResultMarkers| {
        marks.numbers.iter().map(|number| number.value.to_string()).collect::<Vec<_>>().join(", ")
    };
    let (first, last) = (numbers(all[row - 1].1), numbers(all[0].1));
    levels.finding(&RULE, Reason::RepeatedSuccess, count, calls, |level| match level {
        Level::Warning => format!(
            "{tool} has succeeded {row} times with this text, and its result counted from {first} to {last} in equal \
             steps: it seems to be inserted again each time. If once is enough, do not call it again."
        )
        .into(),
        _ => Wording::new(
            format!(
                "{tool} was not run: it has succeeded {row} times with this text, and its result counted from {first} \
                 to {last} in equal steps."
            ),
            "Look at what is there now; to insert something else, change the text.",
        ),
    })
}

fn find_acknowledged(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    let is_act = cx.proposal.effect.kind == EffectKind::Unknown && !cx.proposal.effect.writes_a_named_thing();
    if !is_act || pace(cx).is_some() {
        return None;
    }
    let mut streak: Vec<&Call> = Vec::new();
    for call in cx.run_calls() {
        let Some(outcome) = call.success() else { continue };
        let is_bare = outcome.marks.as_deref().is_some_and(|marks| marks.says == ContentAmount::Little);
        let same = streak.first().is_none_or(|newest| gave_the_same(newest, call));
        if !cx.is_same(call) || !is_bare || !same {
            break;
        }
        streak.push(call);
    }
    let (successes, tool) = (streak.len() as u32, cx.tool());
    let count = successes + 1;
    let brake = SlowdownLevels::of_acknowledgements(levels, cx);
    if let Some(slowed) = brake.slow_down(cx, count, streak.first()?) {
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

#[cfg(test)]
#[path = "same_success/answers.rs"]
mod answers;
