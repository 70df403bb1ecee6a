//! Compiled tool declaration beyond the facts for rules: schema, canonicalization, effect cases.

use std::sync::Arc;

use regex::Regex;

use super::{arguments::ArgumentSchema, normalizers::Canonical};
use crate::{
    domain::{
        effect::{Effect, EffectKind, Freshness, Resource, ResourceTemplate},
        json::Json,
        time::Timestamp,
        tool::ToolSpec,
    },
    rules::condition::{Bindings, Condition},
    shell,
};

/// Maximum number of effect cases per tool.
pub(super) const CASES_MAX: usize = 32;

/// A declared tool.
#[derive(Debug, Clone, Default)]
pub(super) struct DeclaredTool {
    pub(super) spec: Arc<ToolSpec>,
    /// Canonicalization for the fingerprint; none is all arguments, unchanged.
    pub(super) canonical: Option<Canonical>,
    pub(super) schema: Option<ArgumentSchema>,
    pub(super) cases: Vec<EffectCase>,
    pub(super) command_line: Option<CommandLine>,
}

/// The argument that holds a shell line.
#[derive(Debug, Clone)]
pub(super) struct CommandLine {
    pub(super) line: String,
    pub(super) folder: Option<String>,
}

impl CommandLine {
    /// Effect of the line; none without one.
    fn read(&self, arguments: &Json) -> Option<(EffectKind, Option<Resource>)> {
        let text = |name: &str| match arguments.get(name) {
            Some(Json::String(text)) => Some(&**text),
            _ => None,
        };
        let read = shell::read(text(&self.line)?, self.folder.as_deref().and_then(text));
        Some((read.kind, read.path.map(|path| Resource::new(format!("file/{path}")))))
    }
}

/// A different effect for some arguments.
#[derive(Debug, Clone)]
pub(super) struct EffectCase {
    pub(super) when: CaseCondition,
    pub(super) effect: EffectKind,
    pub(super) resource: Option<ResourceTemplate>,
    pub(super) fresh: Option<Freshness>,
}

/// Condition of a case.
#[derive(Debug, Clone)]
pub(super) enum CaseCondition {
    Condition(Condition),
    Matches { field: String, regex: Regex },
}

impl DeclaredTool {
    /// Effect of a call with these arguments: of the first case that applies, otherwise the general one. A case that
    /// cannot be evaluated does not apply, so the general effect should be the stricter one.
    pub(super) fn effect_of(&self, arguments: &Json) -> (Effect, Freshness) {
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

impl CaseCondition {
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
