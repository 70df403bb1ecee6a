//! The three levels of a loop, and telling the model once instead of every turn.

use crate::domain::{
    call::Call,
    finding::{Decision, Finding, Level},
    reason::Reason,
};

/// At what count a detector warns, refuses, and breaks the run; absent is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// ALLOW, and the model is told, once per multiple of this count.
    pub warning: Option<u32>,
    /// DENY.
    pub critical: Option<u32>,
    /// DENY for the rest of the run (for `refused`: STOP).
    pub break_at: Option<u32>,
}

impl Levels {
    /// Warning, critical and break at these counts.
    #[must_use]
    pub const fn new(warning: u32, critical: u32, break_at: u32) -> Self {
        Self { warning: Some(warning), critical: Some(critical), break_at: Some(break_at) }
    }

    /// The most severe level that `count` reaches.
    #[must_use]
    pub fn reached(&self, count: u32) -> Option<Level> {
        let at = |threshold: Option<u32>| threshold.is_some_and(|threshold| count >= threshold);
        match () {
            () if at(self.break_at) => Some(Level::Break),
            () if at(self.critical) => Some(Level::Critical),
            () if at(self.warning) => Some(Level::Warning),
            () => None,
        }
    }

    /// The highest count that any level needs.
    #[must_use]
    pub fn highest(&self) -> u32 {
        [self.warning, self.critical, self.break_at].into_iter().flatten().max().unwrap_or(0)
    }

    /// True when a warning of `rule` in the same bucket stands beside one of `streak`, the calls that were counted.
    fn was_told<'a>(&self, rule: &str, count: u32, mut streak: impl Iterator<Item = &'a Call>) -> bool {
        let bucket = |count: u32| self.warning.map(|warning| count / warning.max(1));
        streak.any(|call| call.told(rule).any(|told| bucket(told) == bucket(count)))
    }

    /// The finding for `count`, if it reaches a level that was not told yet.
    pub(super) fn finding<'a>(
        &self,
        rule: &'static str,
        reason: Reason,
        count: u32,
        streak: impl Iterator<Item = &'a Call>,
        message: impl FnOnce(Level) -> String,
    ) -> Option<Finding> {
        let level = self.reached(count)?;
        if level == Level::Warning && self.was_told(rule, count, streak) {
            return None;
        }
        let decision = if level == Level::Warning { Decision::Allow } else { Decision::Deny };
        Some(Finding::new(rule, decision, reason, message(level)).at_level(level, count))
    }
}

/// The finding of a detector that broke the run earlier.
pub(super) fn still_broken(rule: &'static str, decision: Decision, reason: Reason, count: u32) -> Finding {
    let message = format!(
        "This run was stopped after {count} calls without anything new. Do not call tools again in this turn: tell the \
         user what is known and what is missing."
    );
    Finding::new(rule, decision, reason, message).at_level(Level::Break, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_severe_level_wins() {
        let levels = Levels { warning: Some(2), critical: None, break_at: Some(5) };
        let reached: Vec<_> = [1, 2, 4, 5, 9].map(|count| levels.reached(count)).into();
        assert_eq!(reached, [None, Some(Level::Warning), Some(Level::Warning), Some(Level::Break), Some(Level::Break)]);
    }
}
