//! What a policy says of one tool beyond the facts that rules look at: how its arguments are read.

use std::sync::Arc;

use regex::Regex;

use super::{arguments::ArgumentSchema, normalizers::Canonical};
use crate::{
    domain::{
        effect::{Effect, EffectKind, Fresh, Resource, ResourceTemplate},
        json::Json,
        time::Timestamp,
        tool::ToolSpec,
    },
    rules::condition::{Bindings, Condition},
    shell,
};

/// Cases of one tool.
pub(super) const CASES_MAX: usize = 32;

/// A declared tool.
#[derive(Debug, Clone, Default)]
pub(super) struct Declared {
    pub(super) spec: Arc<ToolSpec>,
    /// The form in which calls are known again; none is all arguments as they are.
    pub(super) canonical: Option<Canonical>,
    pub(super) schema: Option<ArgumentSchema>,
    pub(super) cases: Vec<EffectCase>,
    pub(super) command_line: Option<CommandLine>,
}

/// Where the arguments of a tool have a line of a shell.
#[derive(Debug, Clone)]
pub(super) struct CommandLine {
    pub(super) line: String,
    pub(super) folder: Option<String>,
}

impl CommandLine {
    /// What the line does; none where there is no line.
    fn read(&self, arguments: &Json) -> Option<(EffectKind, Option<Resource>)> {
        let text = |name: &str| match arguments.get(name) {
            Some(Json::String(text)) => Some(&**text),
            _ => None,
        };
        let read = shell::read(text(&self.line)?, self.folder.as_deref().and_then(text));
        Some((read.kind, read.path.map(|path| Resource::new(format!("file/{path}")))))
    }
}

/// Another effect for some arguments.
#[derive(Debug, Clone)]
pub(super) struct EffectCase {
    pub(super) when: Applies,
    pub(super) effect: EffectKind,
    pub(super) resource: Option<ResourceTemplate>,
    pub(super) fresh: Option<Fresh>,
}

/// When a case holds.
#[derive(Debug, Clone)]
pub(super) enum Applies {
    Condition(Condition),
    Matches { field: String, regex: Regex },
}

impl Declared {
    /// What a call with these arguments does to the world: by the first case that holds, else in general. A case that
    /// cannot be judged does not hold; what is then said in general should be the stricter.
    pub(super) fn effect_of(&self, arguments: &Json) -> (Effect, Fresh) {
        let general = self.spec.effect_of(arguments);
        let fresh = self.spec.fresh;
        let Some(case) = self.cases.iter().find(|case| case.when.holds(arguments)) else {
            let read = self.command_line.as_ref().and_then(|line| line.read(arguments));
            let in_steps = self.command_line.is_some();
            let effect = match read {
                Some((kind, resource)) => Effect { kind, resource, in_steps, ..general },
                None => Effect { in_steps, ..general },
            };
            return (effect, fresh);
        };
        let writes = case.effect == EffectKind::Write;
        let effect = Effect {
            kind: case.effect,
            resource: case.resource.as_ref().map_or(general.resource, |template| Some(template.fill(arguments))),
            once: general.once && writes,
            idempotent: general.idempotent && writes,
            key_honoured: general.key_honoured && writes,
            repeatable: general.repeatable && writes,
            in_steps: general.in_steps,
            share: general.share,
        };
        (effect, case.fresh.unwrap_or(fresh))
    }
}

impl Applies {
    fn holds(&self, arguments: &Json) -> bool {
        match self {
            Self::Condition(condition) => {
                let known = Bindings {
                    args: arguments,
                    now: Timestamp::default(),
                    steps: 0,
                    calls: 0,
                    cost_micros: 0,
                    phase: None,
                    last: &|_| None,
                };
                condition.evaluate(&known).unwrap_or(false)
            }
            Self::Matches { field, regex } => {
                matches!(arguments.get(field), Some(Json::String(text)) if regex.is_match(text))
            }
        }
    }
}
