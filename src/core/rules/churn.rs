//! churn: nearly the same arguments, and nearly the same result again.
//!
//! Fires when earlier calls of the tool in this run had nearly the same arguments, and results without news compared
//! with each other (docs/semantics.md#receipts): three are a warning, 20 are refused, 30 close the tool. Only identical
//! results count fully, if they list something or are a declared read's of more than 64 bytes. Others of more than 64
//! bytes and empty lists only warn; shorter ones do not count. A sweep never counts, unless every result was empty:
//! calls that each name another page, day, number, path, address or identifier. Calls before the last successful write
//! never count.
//!
//! Why: on 34,192 recorded calls, what three of them block was futile in 85.5 % of cases
//! (docs/learning.md#near-duplicate-calls): enough to warn, not to refuse.
//!
//! Known problems: the flag measures waste; it does not predict that the task will fail.

use crate::domain::{
    answer::{ContentAmount, ResultDifference},
    call::Call,
    effect::EffectKind,
    finding::{Finding, Level, Wording},
    reason::Reason,
    similarity::is_sweep,
};

use super::{
    BreakScope, RecordedCall, Rule, RuleContext,
    evidence::{Weight, gave_the_same, weight},
    levels::{DetectorLevels, still_broken},
};

/// The rule.
pub const RULE: Rule =
    Rule::detector("churn", DetectorLevels::new(3, 20, 30), check, silent).closes(BreakScope::Tool).per_tool();

fn check(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    // Polls and writes have detectors of their own.
    if matches!(cx.proposal.effect.kind, EffectKind::Poll | EffectKind::Write) {
        return None;
    }
    if let Some(broken) = still_broken(&RULE, Reason::NearDuplicate, cx) {
        return Some(broken);
    }
    let mut streak: Vec<&Call> = Vec::new();
    for call in cx.calls() {
        let Some(outcome) = call.success() else { continue };
        if call.effect.kind == EffectKind::Write {
            break;
        }
        if call.tool.as_str() != cx.tool() || !cx.is_like(call) || weight(call) == Weight::Nothing {
            continue;
        }
        let marks = |call: &Call| call.success().and_then(|outcome| outcome.marks.clone());
        let same_result = streak.first().is_none_or(|newest| {
            let pair = marks(newest).zip(outcome.marks.clone());
            pair.is_some_and(|(newest, marks)| newest.compared_with(&marks, &[]) != ResultDifference::News)
        });
        if !same_result {
            break;
        }
        streak.push(call);
    }
    let (count, tool) = (streak.len() as u32, cx.tool());
    levels.reached_level(count)?;
    if is_repetition(&streak, cx) || cx.sweeps(&streak) || sweeps(&streak, cx) && !are_empty(&streak) {
        return None;
    }
    let full = |call: &&&Call| weight(call) == Weight::Full && gave_the_same(streak[0], call);
    let full = streak.iter().filter(full).count() as u32;
    let counts = (full, count);
    levels.weigh_counts(&RULE, Reason::NearDuplicate, counts, streak.into_iter(), |level| match level {
        Level::Warning => format!(
            "{tool} was called {count} times with nearly these arguments, and the results were nearly the same: use \
             them, or change the approach."
        )
        .into(),
        _ => Wording::new(
            format!("{tool} was not run: {count} calls with nearly these arguments gave nearly the same results."),
            "Use them, change the approach, or tell the user what is missing.",
        ),
    })
}

fn silent(levels: &DetectorLevels, asked: &RecordedCall<'_>) -> String {
    match asked.effect_kind() {
        Some(EffectKind::Poll | EffectKind::Write) => "looks at neither writes nor polls".to_owned(),
        _ => levels.silent(asked),
    }
}

/// True for an exact repetition, which other rules cover.
fn is_repetition(streak: &[&Call], cx: &RuleContext<'_>) -> bool {
    streak.iter().all(|call| cx.is_same(call))
}

/// True when every result was empty.
fn are_empty(streak: &[&Call]) -> bool {
    let says = |call: &Call| Some(call.success()?.marks.as_deref()?.says);
    streak.iter().all(|call| says(call) == Some(ContentAmount::NoMatches))
}

fn sweeps(streak: &[&Call], cx: &RuleContext<'_>) -> bool {
    let shapes = std::iter::once(&*cx.proposal.shape).chain(streak.iter().filter_map(|call| call.shape.as_deref()));
    is_sweep(&shapes.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn an_empty_result_asked_for_again_on_other_days_is_told() {
        check(
            "rules churn
             search {\"from\":\"Hamburg\",\"to\":\"Lisbon\",\"day\":\"2026-05-01\"} -> ok []
             search {\"from\":\"Hamburg\",\"to\":\"Lisbon\",\"day\":\"2026-05-02\"} -> ok []
             search {\"from\":\"Hamburg\",\"to\":\"Lisbon\",\"day\":\"2026-05-03\"} -> ok []
             search {\"from\":\"Hamburg\",\"to\":\"Lisbon\",\"day\":\"2026-05-04\"} => allow, warning churn 3",
        );
    }

    #[test]
    fn paging_is_a_sweep() {
        check(
            "rules churn
             page {\"list\":\"orders of the year\",\"page\":1} -> ok {\"frame\":\"the_same_all_over\",\"row\":1}
             page {\"list\":\"orders of the year\",\"page\":2} -> ok {\"frame\":\"the_same_all_over\",\"row\":2}
             page {\"list\":\"orders of the year\",\"page\":3} -> ok {\"frame\":\"the_same_all_over\",\"row\":3}
             page {\"list\":\"orders of the year\",\"page\":4} => allow",
        );
    }
}
