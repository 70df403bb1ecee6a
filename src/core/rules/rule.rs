//! What a rule is to everybody else: its name, its manual, what it closes, and its parameters, which judge by
//! themselves and read themselves from their parts of the policy.

use std::{any::Any, fmt::Debug, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Asked, Context, levels::Levels};
use crate::domain::finding::Finding;

/// A rule.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its file's name: its id in findings, its key in the policy, its metric label and its anchor in the docs.
    pub id: &'static str,
    /// The key of the policy that sets its parameters.
    pub section: &'static str,
    /// What its break ends.
    pub closes: Closes,
    /// Whether a tool may have levels of its own.
    pub per_tool: bool,
    /// How many calls its levels can count.
    pub reach: Reach,
    source: &'static str,
    defaults: Defaults,
}

/// What a break ends for the rest of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closes {
    /// Nothing: the rule finds each call anew.
    Nothing,
    /// The call with these arguments.
    Call,
    /// The tool.
    Tool,
    /// Every call of the run.
    Run,
}

/// How many calls a detector can count at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those that the window holds.
    Window,
    /// The proposed call, and those that the window holds.
    WindowAndProposed,
    /// So many, whatever the window is.
    Calls(u32),
}

/// The parameters of a rule, and what it makes of them. They are built in by `Default` or [`Rule::detector`]; a policy
/// changes them part by part.
pub trait Judge: Any + Debug + Send + Sync {
    /// What the rule has to say about the call.
    fn check(&self, cx: &Context<'_>) -> Option<Finding>;

    /// Why it had nothing to say, in a line for people.
    fn silent(&self, asked: &Asked<'_>) -> String;

    /// The parts of the policy that it reads itself.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    /// Takes in the part `at`. Gives what is wrong with it beyond its schema.
    fn read(&mut self, _at: &str, _part: Value) -> Vec<Problem> {
        Vec::new()
    }

    /// Its levels, if it is a detector.
    fn levels(&self) -> Option<&Levels> {
        None
    }

    /// The same with other levels; none if it has no levels.
    fn with_levels(&self, _levels: Levels) -> Option<Arc<dyn Judge>> {
        None
    }
}

/// A part of the policy that a rule reads.
#[derive(Debug)]
pub struct Part {
    /// Its path below `policy_engine`.
    pub at: String,
    /// Whether the rule shares the section with others, and reads only its own keys of it.
    pub is_shared: bool,
    /// Its JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Part {
    /// A section of the rule's own.
    #[must_use]
    pub fn section<P: JsonSchema>(at: impl Into<String>) -> Self {
        Self { at: at.into(), is_shared: false, schema: SchemaGenerator::subschema_for::<P> }
    }

    /// Keys of a section that is shared with others.
    #[must_use]
    pub fn keys<P: JsonSchema>(at: impl Into<String>) -> Self {
        Self { at: at.into(), is_shared: true, schema: P::json_schema }
    }
}

/// What is wrong with a part of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key, below the part; empty for the part itself.
    pub key: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl Problem {
    /// A problem of one key.
    pub fn of(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into() }
    }
}

/// Reads a part whose form was checked. Only a number that is too large for its type is left to be found.
pub fn take_in<P: DeserializeOwned>(target: &mut P, part: Value) -> Vec<Problem> {
    match serde_json::from_value(part) {
        Ok(read) => {
            *target = read;
            Vec::new()
        }
        Err(error) => vec![Problem::of("", error.to_string())],
    }
}

#[derive(Debug, Clone, Copy)]
enum Defaults {
    Detector(Detector),
    Of(fn() -> Arc<dyn Judge>),
}

impl Rule {
    /// A rule that judges by parameters of its own.
    #[must_use]
    pub const fn of<P: Judge + Default>(id: &'static str) -> Self {
        fn defaults<P: Judge + Default>() -> Arc<dyn Judge> {
            Arc::new(P::default())
        }
        Self::with(id, Defaults::Of(defaults::<P>))
    }

    const fn with(id: &'static str, defaults: Defaults) -> Self {
        Self { id, section: id, closes: Closes::Nothing, per_tool: false, reach: Reach::Window, source: "", defaults }
    }

    /// A loop detector, whose parameters are its levels. [`Levels::silent`] does for most as `silent`.
    #[must_use]
    pub const fn detector(
        id: &'static str,
        levels: Levels,
        check: fn(&Levels, &Context<'_>) -> Option<Finding>,
        silent: fn(&Levels, &Asked<'_>) -> String,
    ) -> Self {
        Self::with(id, Defaults::Detector(Detector { id, levels, check, silent }))
    }

    /// Its parameters are set by another key of the policy than its own name.
    #[must_use]
    pub const fn section(self, section: &'static str) -> Self {
        Self { section, ..self }
    }

    /// Its break ends this.
    #[must_use]
    pub const fn closes(self, closes: Closes) -> Self {
        Self { closes, ..self }
    }

    /// A tool may have levels of its own.
    #[must_use]
    pub const fn per_tool(self) -> Self {
        Self { per_tool: true, ..self }
    }

    /// Its levels count other calls than those that the window holds.
    #[must_use]
    pub const fn reach(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// Its file's text, whose doc comment is its manual.
    #[must_use]
    pub const fn source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    /// Its built-in parameters.
    #[must_use]
    pub fn defaults(&self) -> Arc<dyn Judge> {
        match self.defaults {
            Defaults::Detector(detector) => Arc::new(detector),
            Defaults::Of(defaults) => defaults(),
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub fn summary(&self) -> Option<&'static str> {
        let first = self.source.lines().next()?.strip_prefix("//! ")?;
        first.split_once(": ").map(|(_, summary)| summary)
    }
}

/// A detector at work: its levels, and what it does with them.
#[derive(Debug, Clone, Copy)]
struct Detector {
    id: &'static str,
    levels: Levels,
    check: fn(&Levels, &Context<'_>) -> Option<Finding>,
    silent: fn(&Levels, &Asked<'_>) -> String,
}

impl Judge for Detector {
    fn check(&self, cx: &Context<'_>) -> Option<Finding> {
        (self.check)(&self.levels, cx)
    }

    fn silent(&self, asked: &Asked<'_>) -> String {
        (self.silent)(&self.levels, asked)
    }

    fn parts(&self) -> Vec<Part> {
        vec![Levels::part(self.id)]
    }

    fn read(&mut self, _at: &str, part: Value) -> Vec<Problem> {
        take_in(&mut self.levels, part)
    }

    fn levels(&self) -> Option<&Levels> {
        Some(&self.levels)
    }

    fn with_levels(&self, levels: Levels) -> Option<Arc<dyn Judge>> {
        Some(Arc::new(Self { levels, ..*self }))
    }
}
