//! Levels of loop detectors.

use super::{Compiler, set};
use crate::{
    domain::tree::CALLS_MAX,
    policy::file::{LevelKeys, Loops},
    rules::{
        RuleSet, after_compaction, breaker, churn, cycle, levels::Levels, poll, refused, repeat, same_error,
        unknown_tool,
    },
};

impl From<LevelKeys> for Levels {
    fn from(LevelKeys { warning, critical, break_at }: LevelKeys) -> Self {
        Self { warning, critical, break_at }
    }
}

/// Where the levels of a detector are, and where the file has them.
type Detector = (&'static str, fn(&mut RuleSet) -> &mut Levels, fn(&Loops) -> Option<LevelKeys>);

/// The levels of each detector, by its id.
const DETECTORS: [Detector; 9] = [
    (repeat::ID, |set| &mut set.repeat, |keys| keys.repeat),
    (poll::ID, |set| &mut set.poll, |keys| keys.poll),
    (cycle::ID, |set| &mut set.cycle, |keys| keys.cycle),
    (breaker::ID, |set| &mut set.breaker, |keys| keys.breaker),
    (same_error::ID, |set| &mut set.same_error, |keys| keys.same_error),
    (churn::ID, |set| &mut set.churn, |keys| keys.churn),
    (refused::ID, |set| &mut set.refused, |keys| keys.refused),
    (unknown_tool::ID, |set| &mut set.unknown_tool.levels, |keys| keys.unknown_tool),
    (after_compaction::ID, |set| &mut set.after_compaction, |keys| keys.after_compaction),
];

/// Detectors that a tool may have its own levels for.
const BY_TOOL: [&str; 5] = [repeat::ID, poll::ID, cycle::ID, same_error::ID, churn::ID];

impl Compiler {
    pub(super) fn loops(&mut self, keys: &Loops) {
        set(&mut self.policy.rules.window, keys.window);
        let window = self.policy.rules.window;
        if !(10..=CALLS_MAX).contains(&window) {
            self.wrong("loops.window", format!("is {window}; it must lie between 10 and {CALLS_MAX}"));
        }
        for (rule, levels, given) in DETECTORS {
            let of_all = levels(&mut self.policy.rules);
            set(of_all, given(keys).map(Into::into));
            let of_all = *of_all;
            self.reachable(&format!("loops.{rule}"), rule, &of_all);
        }
    }

    /// The levels of detectors for one tool.
    pub(super) fn loops_of_tool(&mut self, path: &str, tool: &str, keys: impl Iterator<Item = (String, LevelKeys)>) {
        for (rule, keys) in keys {
            let path = format!("{path}.loops.{rule}");
            let Some(rule) = BY_TOOL.into_iter().find(|known| **known == rule) else {
                self.wrong(
                    path,
                    format!("is no detector that a tool has levels for; there are {}", BY_TOOL.join(", ")),
                );
                continue;
            };
            let levels = Levels::from(keys);
            self.reachable(&path, rule, &levels);
            self.policy.rules.by_tool.insert((rule, tool.to_owned()), levels);
        }
    }

    fn reachable(&mut self, path: &str, rule: &str, levels: &Levels) {
        let window = self.policy.rules.window;
        // A detector that counts the proposed call reaches one more than the window holds.
        let reach = match rule {
            after_compaction::ID => 3,
            cycle::ID | unknown_tool::ID => window + 1,
            _ => window,
        };
        if levels.highest() as usize > reach {
            let holds = if rule == after_compaction::ID { "it looks at" } else { "the window holds" };
            let problem = format!("needs {} calls, and {holds} {reach}: it would never fire", levels.highest());
            self.wrong(path, problem);
        }
        let steps: Vec<u32> = [levels.warning, levels.critical, levels.break_at].into_iter().flatten().collect();
        if steps.contains(&0) || steps.windows(2).any(|pair| pair[0] >= pair[1]) {
            self.wrong(path, "warning, critical and break must be 1 or more, each above the one before");
        }
    }
}
