//! Compiler of rule settings: parameters, levels per tool, modes and messages.

use serde_json::Value;

use super::{Compiler, unknown};
use crate::{
    domain::tree::CALLS_MAX,
    policy::{file::RuleKeys, schema::take},
    rules::{PLACEHOLDERS, SectionProblem, levels::DetectorLevels},
};

impl Compiler {
    /// Lets every rule take its keys out of the policy.
    pub(super) fn rule_parts(&mut self, engine: &mut Value) {
        let mut problems = Vec::new();
        for params in self.policy.rules.iter_mut().filter_map(|slot| slot.params_mut()) {
            for part in params.policy_sections() {
                let Some(value) = take(engine, &part) else { continue };
                let found = params.read(&part.at, value).into_iter();
                problems.extend(found.map(|SectionProblem { key, what }| match key.as_str() {
                    "" => (part.at.clone(), what),
                    key => (format!("{}.{key}", part.at), what),
                }));
            }
        }
        problems.into_iter().for_each(|(path, what)| self.wrong(path, what));
    }

    /// The window, checked against the levels of all detectors.
    pub(super) fn window(&mut self, window: Option<usize>) {
        super::set(&mut self.policy.rules.window, window);
        let window = self.policy.rules.window;
        if !(10..=CALLS_MAX).contains(&window) {
            self.wrong("loops.window", format!("is {window}; it must lie between 10 and {CALLS_MAX}"));
        }
        let detectors = self.policy.rules.iter().filter_map(|slot| Some((slot.rule, slot.levels()?)));
        let problems = detectors.flat_map(|(rule, levels)| {
            levels.problems(&rule, window).into_iter().map(move |what| (format!("loops.{}", rule.id), what))
        });
        problems.collect::<Vec<_>>().into_iter().for_each(|(path, what)| self.wrong(path, what));
    }

    /// A tool's levels of a detector.
    pub(super) fn levels_of_tool(&mut self, path: &str, tool: &str, detector: &str, levels: DetectorLevels) {
        let rules = &mut self.policy.rules;
        let Some(rule) = rules.find(detector).map(|slot| slot.rule).filter(|rule| rule.per_tool) else {
            let known: Vec<&str> = rules.iter().map(|slot| slot.rule).filter(|r| r.per_tool).map(|r| r.id).collect();
            return self.wrong(path, unknown("per-tool detector", detector, &known));
        };
        let problems = levels.problems(&rule, rules.window);
        rules.set_levels(rule.id, Some(tool), levels);
        problems.into_iter().for_each(|what| self.wrong(path, what));
    }

    pub(super) fn rule(&mut self, rule: &str, keys: RuleKeys) {
        let Some(slot) = self.policy.rules.find_mut(rule) else {
            let known: Vec<&str> = self.policy.rules.iter().map(|slot| slot.rule.id).collect();
            return self.wrong(format!("rules.{rule}"), unknown("rule", rule, &known));
        };
        super::set(&mut slot.mode, keys.mode);
        let Some(message) = keys.message else { return };
        slot.message = Some(message.clone());
        let rest = PLACEHOLDERS.iter().fold(message.clone(), |text, known| text.replace(known, ""));
        if let Some(unknown) = rest.find('{').map(|at| rest[at..].split_inclusive('}').next().unwrap_or_default()) {
            let known = PLACEHOLDERS.join(", ");
            self.wrong(format!("rules.{rule}.message"), format!("has {unknown}; it may have {known}"));
        }
        if message.trim().is_empty() || message.contains('\n') {
            self.wrong(format!("rules.{rule}.message"), "must be one line of text");
        }
    }
}
