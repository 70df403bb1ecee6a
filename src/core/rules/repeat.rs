//! repeat: the same call, with the same result, again.
//!
//! Fires when the session's last calls contain this fingerprint 10, 20 or 30 times with an unchanged result, walking
//! back until the result differs or another call made progress. The proposed call is not counted: ten recorded, the
//! eleventh warns. A refused call is no evidence. A call made ten times in the window with changing results is warned
//! of once. A `repeatable` call is only warned of.
//!
//! Why: an agent that cannot tell "done" from "failed" from "empty" calls the same tool again.
//!
//! Known problems: an undeclared poll is slowed by `same_call` long before it reaches this rule.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    BreakScope, PolicySection, RecordedCall, Rule, RuleContext, RuleLogic, SectionProblem,
    evidence::{gave_the_same, handing_back, list_names, name_creations, pace, unchanged_calls},
    levels::{DetectorLevels, still_broken},
    take_in,
};
use crate::domain::{
    answer::ContentAmount,
    call::Call,
    effect::EffectKind,
    finding::{Decision, Finding, Level, Wording},
    outcome::OutcomeStatus,
    reason::Reason,
};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("repeat").closes(BreakScope::Call).per_tool();

const LEVELS: DetectorLevels = DetectorLevels::new(10, 20, 30);

/// Thresholds of repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// For calls with an unchanged result.
    pub levels: DetectorLevels,
    /// For calls regardless of their results.
    pub plain: Plain,
}

/// The counts of other loop guards, which ignore results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Plain {
    /// Identical successes, with any results, from which the call is refused until the next run. Off by default.
    pub loop_threshold: Option<u32>,
    /// Executions of one call that are allowed in a run. Off by default.
    pub max_repeat: Option<u32>,
    /// Window of loop_threshold and max_repeat, in calls: the window of the loops by default.
    pub last_n: Option<u32>,
}

impl Default for Params {
    fn default() -> Self {
        Self { levels: LEVELS, plain: Plain::default() }
    }
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        if cx.proposal.effect.kind == EffectKind::Poll {
            return None;
        }
        let broken = if self.plain.loop_threshold.is_some() { Reason::RepeatedSuccess } else { Reason::NoProgress };
        plainly(&self.plain, cx)
            .or_else(|| still_broken(&RULE, broken, cx))
            .or_else(|| if self.is_left_to_poll(cx) { None } else { without_progress(&self.levels, cx) })
            .or_else(|| drifting(&self.levels, cx))
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        match asked.effect_kind() {
            Some(EffectKind::Poll) => "left to poll".to_owned(),
            _ => self.levels.silent(asked),
        }
    }

    fn policy_sections(&self) -> Vec<PolicySection> {
        vec![DetectorLevels::levels_section(RULE.id), PolicySection::keys::<Plain>("deduplication")]
    }

    fn read(&mut self, at: &str, part: Value) -> Vec<SectionProblem> {
        if at != "deduplication" {
            return take_in(&mut self.levels, part);
        }
        let mut problems = take_in(&mut self.plain, part);
        let Plain { loop_threshold, max_repeat, last_n } = self.plain;
        let counts = [("loop_threshold", loop_threshold), ("max_repeat", max_repeat), ("last_n", last_n)];
        for (key, count) in counts.into_iter().filter_map(|(key, count)| Some((key, count?))) {
            if count == 0 {
                problems.push(SectionProblem::of(key, "must be 1 or more"));
            }
            if let Some(last_n) = last_n.filter(|last_n| count > *last_n) {
                let what = format!("is {count}, and last_n looks back {last_n} calls: it would never fire");
                problems.push(SectionProblem::of(key, what));
            }
        }
        problems
    }

    fn levels(&self) -> Option<&DetectorLevels> {
        Some(&self.levels)
    }

    fn with_levels(&self, levels: DetectorLevels) -> Option<Arc<dyn RuleLogic>> {
        Some(Arc::new(Self { levels, ..self.clone() }))
    }
}

impl Params {
    /// True for an undeclared poll without levels of its tool.
    fn is_left_to_poll(&self, cx: &RuleContext<'_>) -> bool {
        self.levels == LEVELS && pace(cx).is_some()
    }
}

/// True for results of an undeclared call without information.
fn acknowledges(cx: &RuleContext<'_>, streak: &[&Call]) -> bool {
    let says = streak.iter().find_map(|call| call.success()?.marks.as_deref()).map(|marks| marks.says);
    cx.proposal.effect.kind == EffectKind::Unknown && says == Some(ContentAmount::Little)
}

fn without_progress(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    let is_same = |call: &Call| cx.is_same(call);
    let made_progress = |call: &Call| call.outcome.as_ref().is_some_and(|outcome| outcome.progress);
    let since = cx.calls().take_while(|call| is_same(call) || !made_progress(call));
    let streak = unchanged_calls(since.filter(|call| is_same(call)));
    let (count, tool) = (streak.len() as u32, cx.tool());
    let levels = match cx.proposal.effect.repeatable {
        true => DetectorLevels { critical: None, break_at: None, ..*levels },
        // Unknown effects: `same_success` acts earlier.
        _ if acknowledges(cx, &streak) && *levels == LEVELS => DetectorLevels { critical: levels.break_at, ..*levels },
        _ => *levels,
    };
    let finding = levels.finding(&RULE, Reason::NoProgress, count, streak.iter().copied(), |level| match level {
        Level::Warning => format!(
            "{tool} was called {count} times with these arguments and gave the same result each time. Use the \
             result you have, change the arguments, or answer the user."
        )
        .into(),
        _ => Wording::new(
            format!("{tool} was not run: {count} calls with these arguments gave the same result."),
            "Use that result, try a different approach, or tell the user what is missing.",
        ),
    })?;
    Some(handing_back(finding, cx, streak.into_iter()))
}

/// Repetitions with changing results: warned of once, because they may be intended.
fn drifting(levels: &DetectorLevels, cx: &RuleContext<'_>) -> Option<Finding> {
    let same: Vec<&Call> = cx.calls().filter(|call| cx.is_same(call) && call.success().is_some()).collect();
    let (count, tool) = (same.len() as u32, cx.tool());
    let was_told = cx.run_calls().any(|call| cx.is_same(call) && call.warning_counts(RULE.id).next().is_some());
    let changes = same.windows(2).filter(|pair| !gave_the_same(pair[0], pair[1])).count();
    if was_told || changes * 2 < same.len() || cx.proposal.effect.repeatable {
        return None;
    }
    let once = DetectorLevels { critical: None, break_at: None, ..*levels };
    once.finding(&RULE, Reason::NoProgress, count, std::iter::empty(), |_| {
        format!(
            "{tool} was called {count} times with these arguments, and the results keep changing. If you are waiting \
             for something, say what for; if you look for something, change the arguments."
        )
    })
}

fn plainly(plain: &Plain, cx: &RuleContext<'_>) -> Option<Finding> {
    let last_n = plain.last_n.map_or(cx.window, |last_n| last_n as usize);
    let same: Vec<&Call> =
        cx.calls().take(last_n).filter(|call| call.fingerprint == cx.fingerprint() && call.permit.is_some()).collect();
    let succeeded =
        |call: &&&Call| call.outcome.as_ref().is_some_and(|outcome| outcome.status == OutcomeStatus::Success);
    let (runs, successes) = (same.len() as u32, same.iter().filter(succeeded).count() as u32);
    let tool = cx.tool();
    let times = |count: u32| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let made = list_names(&name_creations(&same));
    let (reason, level, count, message) = match () {
        () if plain.loop_threshold.is_some_and(|threshold| successes >= threshold) => {
            let situation =
                format!("{tool} was not run: it has succeeded {} with these arguments{made}.", times(successes));
            let message = Wording::new(situation, "Use what it gave; for something different, change the arguments.");
            (Reason::RepeatedSuccess, Level::Break, successes, message)
        }
        () if plain.max_repeat.is_some_and(|max| runs >= max) => {
            let done = if successes > 0 { format!(" and succeeded {}{made}", times(successes)) } else { String::new() };
            let situation = format!(
                "{tool} was not run: it has run {} with these arguments{done}, and may not run more often.",
                times(runs)
            );
            let message = Wording::new(situation, "Change the arguments, or tell the user what is missing.");
            let reason = if successes == runs { Reason::RepeatedSuccess } else { Reason::NoProgress };
            (reason, Level::Critical, runs, message)
        }
        () => return None,
    };
    let finding = Finding::new(RULE.id, Decision::Deny, reason, message).at_level(level, count);
    Some(handing_back(finding, cx, same.into_iter()))
}

#[cfg(test)]
mod tests {
    use crate::rules::testing::check;

    #[test]
    fn the_eleventh_identical_call_warns() {
        check(
            "rules repeat
             make {} -> error timeout   x10
             make {} => allow, warning repeat 10
             make {} -> error timeout
             make {} => allow",
        );
    }

    #[test]
    fn results_that_keep_changing_are_told_of_once() {
        check(
            "rules repeat
             tool status poll
             tool next write repeatable
             get {} -> ok new => allow x10
             get {} -> ok new => allow, warning repeat 10
             get {} -> ok new => allow x15
             status {} -> ok new => allow x12
             next {} -> ok new => allow x12",
        );
    }

    #[test]
    fn refused_calls_are_no_evidence() {
        check(
            "rules repeat
             make {} -> ok [\"same\"]   x20
             make {} => deny no_progress, critical repeat 20
             make {} => deny no_progress, critical repeat 20   x12
             other {} -> ok new
             make {} => allow",
        );
    }

    #[test]
    fn progress_elsewhere_or_another_result_starts_the_count_again() {
        check(
            "rules repeat
             make {} -> ok [\"same\"]   x9
             edit {\"n\":1} -> ok done
             make {} -> ok [\"same\"]   x9
             make {} -> ok other
             make {} => allow",
        );
    }
}
