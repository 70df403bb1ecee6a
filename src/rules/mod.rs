//! The rules: one file each, a pure function from what is known to an optional finding. This room knows the nouns and
//! the past; it must not know the policy file (a rule sees its own `Params`), the store, the network or a clock. A rule
//! never fails and never sees another rule.
//!
//! The file's name is the rule's id in findings, its key in the policy, its metric label and its anchor in the docs. A
//! new rule is one file and one line in [`RULES`].

pub mod after_compaction;
pub mod breaker;
pub mod budget;
pub mod churn;
pub mod condition;
mod context;
pub mod cooldown;
pub mod cycle;
pub mod growth;
pub mod halted;
pub mod levels;
pub mod phase;
pub mod poll;
pub mod refused;
pub mod repeat;
pub mod requires;
pub mod same_call;
pub mod same_error;
pub mod schema;
pub mod side_effects;
#[cfg(test)]
pub(crate) mod testing;
pub mod tier;
pub mod unknown_tool;

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
    /// The owner's own words for the model, by rule: a text in which `{message}` and the like are filled in.
    pub messages: BTreeMap<&'static str, String>,
    /// Levels of one tool that differ from those of all, by rule and tool.
    pub by_tool: BTreeMap<(&'static str, String), levels::Levels>,
    /// See [`unknown_tool`].
    pub unknown_tool: unknown_tool::Params,
    /// See [`schema`].
    pub schema: schema::Params,
    /// See [`phase`].
    pub phase: phase::Params,
    /// See [`requires`].
    pub requires: requires::Params,
    /// See [`same_call`].
    pub same_call: same_call::Params,
    /// See [`repeat`].
    pub repeat: levels::Levels,
    /// See [`repeat`].
    pub plain: repeat::Plain,
    /// See [`poll`].
    pub poll: levels::Levels,
    /// See [`cycle`].
    pub cycle: levels::Levels,
    /// See [`breaker`].
    pub breaker: levels::Levels,
    /// See [`refused`].
    pub refused: levels::Levels,
    /// See [`same_error`].
    pub same_error: levels::Levels,
    /// See [`churn`].
    pub churn: levels::Levels,
    /// See [`after_compaction`].
    pub after_compaction: levels::Levels,
    /// See [`side_effects`].
    pub side_effects: side_effects::Params,
    /// See [`cooldown`].
    pub cooldown: cooldown::Params,
    /// See [`growth`].
    pub growth: growth::Params,
    /// See [`budget`].
    pub budget: budget::Params,
    /// See [`tier`].
    pub tier: tier::Params,
}

impl Default for RuleSet {
    fn default() -> Self {
        Self {
            window: WINDOW_DEFAULT,
            modes: BTreeMap::new(),
            messages: BTreeMap::new(),
            by_tool: BTreeMap::new(),
            unknown_tool: unknown_tool::Params::default(),
            schema: schema::Params::default(),
            phase: phase::Params::default(),
            requires: requires::Params::default(),
            same_call: same_call::Params::default(),
            repeat: repeat::LEVELS,
            plain: repeat::Plain::default(),
            poll: poll::LEVELS,
            cycle: cycle::LEVELS,
            breaker: breaker::LEVELS,
            refused: refused::LEVELS,
            same_error: same_error::LEVELS,
            churn: churn::LEVELS,
            after_compaction: after_compaction::LEVELS,
            side_effects: side_effects::Params::default(),
            cooldown: cooldown::Params::default(),
            growth: growth::Params::default(),
            budget: budget::Params::default(),
            tier: tier::Params::default(),
        }
    }
}

/// A rule: its id, and what it has to say.
pub type Rule = (&'static str, fn(&RuleSet, &Context<'_>) -> Option<Finding>);

/// All rules, in the order in which ties are settled.
pub const RULES: &[Rule] = &[
    (halted::ID, |_, cx| halted::check(cx)),
    (unknown_tool::ID, |set, cx| unknown_tool::check(&set.unknown_tool, cx)),
    (schema::ID, |set, cx| schema::check(&set.schema, cx)),
    (phase::ID, |set, cx| phase::check(&set.phase, cx)),
    (requires::ID, |set, cx| requires::check(&set.requires, cx)),
    (same_call::ID, |set, cx| same_call::check(&set.same_call, cx)),
    (repeat::ID, |set, cx| repeat::check(set.levels(repeat::ID, &set.repeat, cx), &set.plain, cx)),
    (poll::ID, |set, cx| poll::check(set.levels(poll::ID, &set.poll, cx), cx)),
    (cycle::ID, |set, cx| cycle::check(set.levels(cycle::ID, &set.cycle, cx), cx)),
    (breaker::ID, |set, cx| breaker::check(&set.breaker, cx)),
    (same_error::ID, |set, cx| same_error::check(set.levels(same_error::ID, &set.same_error, cx), cx)),
    (churn::ID, |set, cx| churn::check(set.levels(churn::ID, &set.churn, cx), cx)),
    (refused::ID, |set, cx| refused::check(&set.refused, cx)),
    (after_compaction::ID, |set, cx| after_compaction::check(&set.after_compaction, cx)),
    (side_effects::ID, |set, cx| side_effects::check(&set.side_effects, cx)),
    (cooldown::ID, |_, cx| cooldown::check(cx)),
    (growth::ID, |set, cx| growth::check(&set.growth, cx)),
    (budget::ID, |set, cx| budget::check(&set.budget, cx)),
    (tier::ID, |set, cx| tier::check(&set.tier, cx)),
];

impl RuleSet {
    /// The mode of a rule.
    #[must_use]
    pub fn mode(&self, rule: &str) -> Mode {
        self.modes.get(rule).copied().unwrap_or_default()
    }

    /// The levels of a rule for the proposed tool.
    fn levels<'a>(&'a self, rule: &'static str, of_all: &'a levels::Levels, cx: &Context<'_>) -> &'a levels::Levels {
        if self.by_tool.is_empty() {
            return of_all;
        }
        self.by_tool.get(&(rule, cx.tool().to_owned())).unwrap_or(of_all)
    }

    /// What every rule has to say about the call, in the rules' order. A way out is never blocked.
    #[must_use]
    pub fn check(&self, cx: &Context<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        if cx.proposal.spec.terminal {
            return findings;
        }
        for (rule, check) in RULES {
            let mode = self.mode(rule);
            if mode == Mode::Off {
                continue;
            }
            let enforced = mode == Mode::Enforce && !cx.proposal.spec.shadow;
            findings.extend(check(self, cx).map(|finding| {
                let message = self.worded(rule, &finding, cx);
                Finding { enforced: finding.enforced && enforced, message, ..finding }
            }));
        }
        findings
    }

    /// The finding's text, in the owner's words where there are any.
    fn worded(&self, rule: &str, finding: &Finding, cx: &Context<'_>) -> String {
        let Some(template) = self.messages.get(rule) else { return finding.message.clone() };
        let count = finding.count.map(|count| count.to_string()).unwrap_or_default();
        let next = finding.next_action.as_deref().unwrap_or_default();
        let parts = [finding.message.as_str(), cx.tool(), finding.reason.as_str(), &count, next];
        PLACEHOLDERS.iter().zip(parts).fold(template.clone(), |text, (name, part)| text.replace(name, part))
    }
}

/// What a text of the owner may have filled in.
pub const PLACEHOLDERS: [&str; 5] = ["{message}", "{tool}", "{reason}", "{count}", "{next_action}"];
