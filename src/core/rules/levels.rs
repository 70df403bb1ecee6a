//! Levels of a loop: warning, critical and break, each warning given once and not every turn.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{BreakScope, CountCeiling, PolicySection, RecordedCall, Rule, RuleContext, explained_call::NOTHING};
use crate::domain::{
    call::Call,
    finding::{Decision, Finding, Level, Wording},
    reason::Reason,
};

/// Counts at which a loop detector warns, refuses, and breaks the run. A level without a count is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LevelKeys")]
pub struct DetectorLevels {
    /// Count of a warning: the call is permitted with a hint, once per multiple of this count.
    pub warning: Option<u32>,
    /// Count from which the call is refused.
    pub critical: Option<u32>,
    /// Count from which the subject of the detector (a call, a tool or the whole run) is refused until the next run.
    #[serde(rename = "break")]
    pub break_at: Option<u32>,
}

impl DetectorLevels {
    /// Warning, critical and break at these counts.
    #[must_use]
    pub const fn new(warning: u32, critical: u32, break_at: u32) -> Self {
        Self { warning: Some(warning), critical: Some(critical), break_at: Some(break_at) }
    }

    /// The part of the policy with the levels of a detector.
    #[must_use]
    pub fn levels_section(id: &str) -> PolicySection {
        PolicySection::section::<Self>(format!("loops.{id}"))
    }

    /// Problems of the levels for `rule` with a window of `window` calls.
    #[must_use]
    pub fn problems(&self, rule: &Rule, window: usize) -> Vec<String> {
        let (holds, reach) = match rule.reach {
            CountCeiling::Window => ("the window holds", window),
            CountCeiling::WindowAndProposed => ("the window holds", window + 1),
            CountCeiling::Calls(calls) => ("it looks at", calls as usize),
        };
        let steps: Vec<u32> = [self.warning, self.critical, self.break_at].into_iter().flatten().collect();
        let highest = steps.iter().copied().max().unwrap_or(0);
        let mut problems = Vec::new();
        if highest as usize > reach {
            problems.push(format!("needs {highest} calls, and {holds} {reach}: it would never fire"));
        }
        if steps.contains(&0) || steps.windows(2).any(|pair| pair[0] >= pair[1]) {
            problems.push("warning, critical and break must be 1 or more, each above the one before".to_owned());
        }
        problems
    }

    /// Explanation of a silent detector: its count is below its levels.
    #[must_use]
    pub fn silent(&self, _asked: &RecordedCall<'_>) -> String {
        match (self.warning, self.critical, self.break_at) {
            (Some(at), ..) => format!("{NOTHING}; it warns from {at} on"),
            (None, Some(at), _) => format!("{NOTHING}; it refuses from {at} on"),
            (None, None, Some(at)) => format!("{NOTHING}; it breaks the run at {at}"),
            (None, None, None) => "no level in the policy".to_owned(),
        }
    }

    /// The most severe level that `count` reaches.
    #[must_use]
    pub fn reached_level(&self, count: u32) -> Option<Level> {
        let at = |threshold: Option<u32>| threshold.is_some_and(|threshold| count >= threshold);
        match () {
            () if at(self.break_at) => Some(Level::Break),
            () if at(self.critical) => Some(Level::Critical),
            () if at(self.warning) => Some(Level::Warning),
            () => None,
        }
    }

    /// True for a count beyond the first warning, which is not repeated.
    #[must_use]
    pub fn was_warned_at(&self, count: u32) -> bool {
        self.warning.is_some_and(|warning| count >= warning.saturating_mul(2))
    }

    /// True when a call of `streak` has a warning of `rule` in the same bucket.
    fn was_told<'a>(&self, rule: &str, count: u32, mut streak: impl Iterator<Item = &'a Call>) -> bool {
        let bucket = |count: u32| self.warning.map(|warning| count / warning.max(1));
        streak.any(|call| call.warning_counts(rule).any(|told| bucket(told) == bucket(count)))
    }

    /// The finding for `count`, if it reaches a new level.
    pub fn finding<'a, M: Into<Wording>>(
        &self,
        rule: &Rule,
        reason: Reason,
        count: u32,
        streak: impl Iterator<Item = &'a Call>,
        message: impl FnOnce(Level) -> M,
    ) -> Option<Finding> {
        let level = self.reached_level(count)?;
        if level == Level::Warning && self.was_told(rule.id, count, streak) {
            return None;
        }
        let decision = if level == Level::Warning { Decision::Allow } else { Decision::Deny };
        Some(Finding::new(rule.id, decision, reason, message(level)).at_level(level, count))
    }
}

/// The finding of a break that still holds for this call, with the scope of the break.
pub(super) fn still_broken(rule: &Rule, reason: Reason, cx: &RuleContext<'_>) -> Option<Finding> {
    let (count, tool) = (cx.find_break(rule)?.count, cx.tool());
    let message = match rule.closes {
        BreakScope::Call => format!("{tool} with these arguments was stopped for this turn after {count} calls."),
        BreakScope::Tool => format!("{tool} was stopped for this turn after {count} calls without anything new."),
        _ => format!("This run was stopped after {count} calls without anything new."),
    };
    let next = match rule.closes {
        BreakScope::Call => {
            "Do not repeat it: use what you have, change the arguments, take a different approach, or tell the user \
             what is missing."
        }
        BreakScope::Tool => {
            "Do not call it again in this turn: use another tool, or tell the user what is known and what is missing."
        }
        _ => "Do not call tools again in this turn: tell the user what is known and what is missing.",
    };
    Some(Finding::new(rule.id, Decision::Deny, reason, Wording::new(message, next)).at_level(Level::Break, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{domain::verdict::Verdict, rules::testing::play};

    #[test]
    fn the_most_severe_level_wins() {
        let levels = DetectorLevels { warning: Some(2), critical: None, break_at: Some(5) };
        let reached: Vec<_> = [1, 2, 4, 5, 9].map(|count| levels.reached_level(count)).into();
        assert_eq!(reached, [None, Some(Level::Warning), Some(Level::Warning), Some(Level::Break), Some(Level::Break)]);
    }

    /// The message about the last call of a story.
    fn last_message(story: &str) -> String {
        let said = play(story, None).unwrap_or_else(|problem| panic!("{problem}"));
        said.last().and_then(Verdict::winner).expect("a finding").message.clone()
    }

    #[test]
    fn a_break_claims_what_it_closed_and_no_more() {
        let call = last_message(
            "rules repeat
             loops repeat 1 2 3
             look {\"n\":1} -> ok same x3
             look {\"n\":1} => deny no_progress, break repeat 3
             look {\"n\":2} => allow
             look {\"n\":1} => deny no_progress, break repeat 3",
        );
        assert!(call.starts_with("look with these arguments was stopped for this turn after 3 calls"), "{call}");
        let tool = last_message(
            "rules same_error
             loops same_error 1 2 3
             look {\"text\":\"the late orders of May in the north\",\"n\":1} -> error other
             look {\"text\":\"the late orders of May in the north\",\"n\":2} -> error other
             look {\"text\":\"the late orders of May in the north\",\"n\":3} -> error other
             look {\"text\":\"the late orders of May in the north\",\"n\":4} => deny same_error, break same_error 3
             edit {} => allow
             look {} => deny same_error, break same_error 3",
        );
        assert!(tool.starts_with("look was stopped for this turn after 3 calls"), "{tool}");
        let run = last_message(
            "rules global_circuit_breaker
             loops global_circuit_breaker 1 2 3
             look {\"n\":new} -> error other x2
             edit {\"n\":new} -> error other
             look {} => deny circuit_break, break global_circuit_breaker 3
             edit {} => deny circuit_break, break global_circuit_breaker 3",
        );
        assert!(run.starts_with("This run was stopped after 3 calls"), "{run}");
    }

    #[test]
    fn token_stop_does_not_mention_waits() {
        let told = last_message(
            "rules growth
             call {\"n\":1} tokens 20000000 => stop runaway, break growth 20000000
             call {\"n\":2} => stop runaway, break growth 20000000",
        );
        assert!(told.contains("stopped before for going too fast") && !told.contains("20000000"), "{told}");
    }
}
