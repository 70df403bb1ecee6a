//! Rule descriptor: id, manual, scope of its break, and its parameters, which judge calls and parse themselves from
//! their parts of the policy.

use std::{any::Any, fmt::Debug, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{RecordedCall, RuleContext, levels::DetectorLevels};
use crate::domain::finding::Finding;

/// A rule.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its file's name: its id in findings, its key in the policy, its metric label and its anchor in the docs.
    pub id: &'static str,
    /// The policy key of its parameters.
    pub section: &'static str,
    /// Scope of its break.
    pub closes: BreakScope,
    /// True when a tool may have levels of its own.
    pub per_tool: bool,
    /// Maximum count of its levels.
    pub reach: CountCeiling,
    manual: &'static str,
    defaults: Defaults,
}

/// Scope of a break for the rest of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakScope {
    /// None: the rule judges each call anew.
    Nothing,
    /// The call with these arguments.
    Call,
    /// The tool.
    Tool,
    /// Every call of the run.
    Run,
}

/// Maximum number of calls that a detector can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountCeiling {
    /// The window.
    Window,
    /// The window and the proposed call.
    WindowAndProposed,
    /// A constant, independent of the window.
    Calls(u32),
}

/// Parameters and logic of a rule. They are built in by `Default` or [`Rule::detector`]; a policy changes them part by
/// part.
pub trait RuleLogic: Any + Debug + Send + Sync {
    /// The finding about the call.
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding>;

    /// One-line explanation for people of having no finding.
    fn silent(&self, asked: &RecordedCall<'_>) -> String;

    /// The parts of the policy that it reads.
    fn policy_sections(&self) -> Vec<PolicySection> {
        Vec::new()
    }

    /// Reads the part `at`; returns its problems beyond its schema.
    fn read(&mut self, _at: &str, _part: Value) -> Vec<SectionProblem> {
        Vec::new()
    }

    /// Its levels, if it is a detector.
    fn levels(&self) -> Option<&DetectorLevels> {
        None
    }

    /// A copy with other levels; none if it has no levels.
    fn with_levels(&self, _levels: DetectorLevels) -> Option<Arc<dyn RuleLogic>> {
        None
    }
}

/// A part of the policy that a rule reads.
#[derive(Debug)]
pub struct PolicySection {
    /// Its path below `policy_engine`.
    pub at: String,
    /// True for a shared section, of which it reads only its own keys.
    pub is_shared: bool,
    /// Its JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

impl PolicySection {
    /// A section of the rule's own.
    #[must_use]
    pub fn section<P: JsonSchema>(at: impl Into<String>) -> Self {
        Self { at: at.into(), is_shared: false, schema: SchemaGenerator::subschema_for::<P> }
    }

    /// Keys of a shared section.
    #[must_use]
    pub fn keys<P: JsonSchema>(at: impl Into<String>) -> Self {
        Self { at: at.into(), is_shared: true, schema: P::json_schema }
    }
}

/// Problem of a part of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionProblem {
    /// The key, below the part; empty for the part itself.
    pub key: String,
    /// The problem and its fix.
    pub what: String,
}

impl SectionProblem {
    /// A problem of one key.
    pub fn of(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into() }
    }
}

/// Reads a part of valid form. Only a number that is too large for its type can still be a problem.
pub fn take_in<P: DeserializeOwned>(target: &mut P, part: Value) -> Vec<SectionProblem> {
    match serde_json::from_value(part) {
        Ok(read) => {
            *target = read;
            Vec::new()
        }
        Err(error) => vec![SectionProblem::of("", error.to_string())],
    }
}

#[derive(Debug, Clone, Copy)]
enum Defaults {
    Detector(Detector),
    Of(fn() -> Arc<dyn RuleLogic>),
}

impl Rule {
    /// A rule with parameters of its own.
    #[must_use]
    pub const fn of<P: RuleLogic + Default>(id: &'static str) -> Self {
        fn defaults<P: RuleLogic + Default>() -> Arc<dyn RuleLogic> {
            Arc::new(P::default())
        }
        Self::with(id, Defaults::Of(defaults::<P>))
    }

    const fn with(id: &'static str, defaults: Defaults) -> Self {
        Self {
            id,
            section: id,
            closes: BreakScope::Nothing,
            per_tool: false,
            reach: CountCeiling::Window,
            manual: "",
            defaults,
        }
    }

    /// A loop detector, whose parameters are its levels. Most use [`DetectorLevels::silent`] as `silent`.
    #[must_use]
    pub const fn detector(
        id: &'static str,
        levels: DetectorLevels,
        check: fn(&DetectorLevels, &RuleContext<'_>) -> Option<Finding>,
        silent: fn(&DetectorLevels, &RecordedCall<'_>) -> String,
    ) -> Self {
        Self::with(id, Defaults::Detector(Detector { id, levels, check, silent }))
    }

    /// Sets the policy key of its parameters, instead of its id.
    #[must_use]
    pub const fn section(self, section: &'static str) -> Self {
        Self { section, ..self }
    }

    /// Sets the scope of its break.
    #[must_use]
    pub const fn closes(self, closes: BreakScope) -> Self {
        Self { closes, ..self }
    }

    /// Allows levels per tool.
    #[must_use]
    pub const fn per_tool(self) -> Self {
        Self { per_tool: true, ..self }
    }

    /// Sets the maximum count of its levels.
    #[must_use]
    pub const fn reach(self, reach: CountCeiling) -> Self {
        Self { reach, ..self }
    }

    /// Sets its manual: the doc comment at the head of its file.
    #[must_use]
    pub const fn manual(self, source: &'static str) -> Self {
        Self { manual: source, ..self }
    }

    /// Its built-in parameters.
    #[must_use]
    pub fn defaults(&self) -> Arc<dyn RuleLogic> {
        match self.defaults {
            Defaults::Detector(detector) => Arc::new(detector),
            Defaults::Of(defaults) => defaults(),
        }
    }

    /// One-line summary.
    #[must_use]
    pub fn summary(&self) -> Option<&'static str> {
        let first = self.manual.lines().next()?.strip_prefix("//! ")?;
        first.split_once(": ").map(|(_, summary)| summary)
    }
}

/// A detector with its levels.
#[derive(Debug, Clone, Copy)]
struct Detector {
    id: &'static str,
    levels: DetectorLevels,
    check: fn(&DetectorLevels, &RuleContext<'_>) -> Option<Finding>,
    silent: fn(&DetectorLevels, &RecordedCall<'_>) -> String,
}

impl RuleLogic for Detector {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        (self.check)(&self.levels, cx)
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        (self.silent)(&self.levels, asked)
    }

    fn policy_sections(&self) -> Vec<PolicySection> {
        vec![DetectorLevels::levels_section(self.id)]
    }

    fn read(&mut self, _at: &str, part: Value) -> Vec<SectionProblem> {
        take_in(&mut self.levels, part)
    }

    fn levels(&self) -> Option<&DetectorLevels> {
        Some(&self.levels)
    }

    fn with_levels(&self, levels: DetectorLevels) -> Option<Arc<dyn RuleLogic>> {
        Some(Arc::new(Self { levels, ..*self }))
    }
}
