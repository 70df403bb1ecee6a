//! The rules: one file each, a pure function from what is known to an optional finding. This room knows the nouns and
//! the past; it must not know the policy file (a rule sees its own `Params`), the store, the network or a clock. A rule
//! never fails and never sees another rule.
//!
//! The file's name is the rule's id in findings, its key in the policy, its metric label and its anchor in the docs. A
//! new rule is one file and one line in [`RULES`].

pub mod breaker;
pub mod budget;
mod context;
pub mod cooldown;
pub mod cycle;
pub mod growth;
pub mod levels;
pub mod poll;
pub mod refused;
pub mod repeat;
pub mod same_call;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeMap;

pub use context::Context;

use crate::domain::finding::Finding;

/// What becomes of a rule's findings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// They hold.
    #[default]
    Enforce,
    /// They are recorded, and the call is let through.
    Shadow,
    /// The rule does not run.
    Off,
}

/// Calls that loop detectors look back over, unless the policy says otherwise.
pub const WINDOW_DEFAULT: usize = 30;

/// The parameters of every rule.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSet {
    /// Calls that loop detectors look back over.
    pub window: usize,
    /// Modes other than [`Mode::Enforce`], by rule.
    pub modes: BTreeMap<&'static str, Mode>,
    /// See [`same_call`].
    pub same_call: same_call::Params,
    /// See [`repeat`].
    pub repeat: levels::Levels,
    /// See [`poll`].
    pub poll: levels::Levels,
    /// See [`cycle`].
    pub cycle: levels::Levels,
    /// See [`breaker`].
    pub breaker: levels::Levels,
    /// See [`refused`].
    pub refused: levels::Levels,
    /// See [`cooldown`].
    pub cooldown: cooldown::Params,
    /// See [`growth`].
    pub growth: growth::Params,
    /// See [`budget`].
    pub budget: budget::Params,
}

impl Default for RuleSet {
    fn default() -> Self {
        Self {
            window: WINDOW_DEFAULT,
            modes: BTreeMap::new(),
            same_call: same_call::Params::default(),
            repeat: repeat::LEVELS,
            poll: poll::LEVELS,
            cycle: cycle::LEVELS,
            breaker: breaker::LEVELS,
            refused: refused::LEVELS,
            cooldown: cooldown::Params::default(),
            growth: growth::Params::default(),
            budget: budget::Params::default(),
        }
    }
}

/// A rule: its id, and what it has to say.
pub type Rule = (&'static str, fn(&RuleSet, &Context<'_>) -> Option<Finding>);

/// All rules, in the order in which ties are settled.
pub const RULES: &[Rule] = &[
    (same_call::ID, |set, cx| same_call::check(&set.same_call, cx)),
    (repeat::ID, |set, cx| repeat::check(&set.repeat, cx)),
    (poll::ID, |set, cx| poll::check(&set.poll, cx)),
    (cycle::ID, |set, cx| cycle::check(&set.cycle, cx)),
    (breaker::ID, |set, cx| breaker::check(&set.breaker, cx)),
    (refused::ID, |set, cx| refused::check(&set.refused, cx)),
    (cooldown::ID, |_, cx| cooldown::check(cx)),
    (growth::ID, |set, cx| growth::check(&set.growth, cx)),
    (budget::ID, |set, cx| budget::check(&set.budget, cx)),
];

impl RuleSet {
    /// The mode of a rule.
    #[must_use]
    pub fn mode(&self, rule: &str) -> Mode {
        self.modes.get(rule).copied().unwrap_or_default()
    }

    /// What every rule has to say about the call, in the rules' order.
    #[must_use]
    pub fn check(&self, cx: &Context<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (rule, check) in RULES {
            let mode = self.mode(rule);
            if mode == Mode::Off {
                continue;
            }
            findings.extend(check(self, cx).map(|finding| Finding { enforced: mode == Mode::Enforce, ..finding }));
        }
        findings
    }
}
