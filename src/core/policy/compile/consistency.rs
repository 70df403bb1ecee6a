//! Consistency checks across parts of a file: unknown fields, unreachable steps, unguarded writes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Compiler, nearest};
use crate::{
    domain::{
        effect::{EffectKind, ResourceTemplate},
        pattern::Pattern,
    },
    policy::file::ToolSection,
    rules::{
        condition::{Condition, Misfit, ValueType},
        phase,
        requires::{self, Requirement, ValueSource},
        tier::{self, Action},
    },
};

/// Facts about one tool, for checks across parts of the file.
#[derive(Debug)]
pub(super) struct SeenTool {
    name: String,
    path: String,
    schema: Option<Value>,
    /// Known members of its results.
    answers: Vec<(String, ValueType)>,
    pub(super) conditions: Vec<(String, Condition)>,
    pub(super) templates: Vec<(String, ResourceTemplate)>,
}

impl SeenTool {
    pub(super) fn new(name: &str, path: &str, keys: &ToolSection) -> Self {
        let pointers =
            [(&keys.result_map.is_complete, ValueType::Bool), (&keys.result_map.total_matches, ValueType::Number)]
                .into_iter();
        let pointers = pointers.filter_map(|(pointer, kind)| Some((pointer.as_deref()?, kind)));
        let all = pointers.chain(keys.volatile.iter().map(|pointer| (pointer.as_str(), ValueType::Any)));
        let answers = all.filter_map(|(pointer, kind)| first_member(pointer, kind)).collect();
        let (name, path, schema) = (name.to_owned(), path.to_owned(), keys.schema.clone());
        Self { name, path, schema, answers, conditions: Vec::new(), templates: Vec::new() }
    }

    /// The fields of its schema; none without a schema, or with an open one.
    fn fields(&self) -> Option<Vec<&str>> {
        let fields = self.schema.as_ref()?.get("properties")?.as_object()?;
        Some(fields.keys().map(String::as_str).collect())
    }

    /// The message about a field that the schema lacks, and whether it is an error.
    fn lacks(&self, field: &str) -> Option<(String, bool)> {
        let fields = self.fields()?;
        if fields.contains(&field) {
            return None;
        }
        let more = self.schema.as_ref().and_then(|schema| schema.get("additionalProperties"));
        let meant = nearest(field, &fields);
        let hint =
            meant.map_or_else(|| format!("it has {}", fields.join(", ")), |near| format!("did you mean {near}?"));
        Some((format!("which the schema has not; {hint}"), meant.is_some() || more == Some(&Value::Bool(false))))
    }
}

fn first_member(pointer: &str, kind: ValueType) -> Option<(String, ValueType)> {
    let mut parts = pointer.strip_prefix('/')?.split('/');
    let first = parts.next().filter(|first| !first.is_empty() && *first != "*")?;
    Some((first.to_owned(), if parts.next().is_some() { ValueType::Any } else { kind }))
}

impl Compiler {
    /// Checks the file as a whole.
    pub(super) fn sense(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        for tool in &seen {
            self.fields_exist(tool);
            self.conditions_fit(tool, &seen);
        }
        self.requirements_fit(&seen);
        self.requirements_can_be_met();
        self.check_write_guards();
        self.tiers_have_effects();
        self.phases_allow();
    }

    fn report_problem(&mut self, is_certain: bool, path: String, problem: String) {
        if is_certain { self.wrong(path, problem) } else { self.warn(path, problem) }
    }

    fn fields_exist(&mut self, tool: &SeenTool) {
        for (path, template) in &tool.templates {
            for field in template.fields() {
                if let Some((lacks, is_certain)) = tool.lacks(field) {
                    self.report_problem(is_certain, path.clone(), format!("names {{{field}}}, {lacks}"));
                }
            }
        }
        let required = tool.schema.as_ref().and_then(|schema| schema.get("required")).and_then(Value::as_array);
        for field in required.into_iter().flatten().filter_map(Value::as_str) {
            if let Some((lacks, is_certain)) = tool.lacks(field) {
                self.report_problem(is_certain, format!("{}.schema", tool.path), format!("requires {field}, {lacks}"));
            }
        }
    }

    fn conditions_fit(&mut self, tool: &SeenTool, seen: &[SeenTool]) {
        let by_tool = &self.policy.rules.get::<requires::Params>().by_tool;
        let built_on = by_tool.values().flatten();
        let pointers: Vec<(Pattern, String)> = built_on
            .flat_map(|need| need.matching.iter().map(|(_, source)| (need.tools.clone(), source.clone())))
            .filter_map(|(tools, source)| match source {
                ValueSource::Result(pointer) => Some((tools, pointer)),
                ValueSource::Argument(_) => None,
            })
            .collect();
        let known = |name: &str| {
            let answers = seen.iter().filter(|tool| tool.name == name).flat_map(|tool| tool.answers.iter().cloned());
            let matched = pointers.iter().filter(|(tools, _)| tools.matches(name));
            answers.chain(matched.filter_map(|(_, pointer)| first_member(pointer, ValueType::Any))).collect()
        };
        for (path, condition) in &tool.conditions {
            for Misfit { problem, is_certain } in condition.misfits(tool.schema.as_ref(), known) {
                self.report_problem(is_certain, path.clone(), problem);
            }
        }
    }

    /// Fields in requirements must exist in their tools.
    fn requirements_fit(&mut self, seen: &[SeenTool]) {
        let by_tool = self.policy.rules.get::<requires::Params>().by_tool.clone();
        for tool in seen {
            for (i, need) in by_tool.get(&tool.name).into_iter().flatten().enumerate() {
                for (field, source) in &need.matching {
                    let path = format!("{}.requires[{i}].match.{field}", tool.path);
                    if let Some((lacks, is_certain)) = tool.lacks(field) {
                        self.report_problem(is_certain, path.clone(), format!("names an argument, {lacks}"));
                    }
                    let ValueSource::Argument(name) = source else { continue };
                    let other = seen.iter().find(|other| other.name == need.tools.as_str());
                    if let Some((lacks, is_certain)) = other.and_then(|other| other.lacks(name)) {
                        self.report_problem(
                            is_certain,
                            path,
                            format!("names args.{name} of {}, {lacks}", need.tools.as_str()),
                        );
                    }
                }
            }
        }
    }

    /// Steps that a tier refuses, or that require each other.
    fn requirements_can_be_met(&mut self) {
        let by_tool = self.policy.rules.get::<requires::Params>().by_tool.clone();
        let names: Vec<String> = self.policy.tools().map(|(name, _)| name.to_owned()).collect();
        let steps =
            |need: &Requirement| -> Vec<&String> { names.iter().filter(|name| need.tools.matches(name)).collect() };
        let mut callable: BTreeSet<&String> = BTreeSet::new();
        for _ in 0..=names.len() {
            let is_met = |need: &Requirement| {
                let steps = steps(need);
                steps.is_empty() || steps.iter().any(|step| callable.contains(step))
            };
            let more: Vec<&String> =
                names.iter().filter(|name| by_tool.get(*name).into_iter().flatten().all(is_met)).collect();
            callable.extend(more);
        }
        for name in names.iter().filter(|name| !callable.contains(name)) {
            let mut chain = vec![name];
            while let Some(next) = by_tool.get(*chain.last().unwrap_or(&name)).into_iter().flatten().find_map(|need| {
                let steps = steps(need);
                steps.iter().all(|step| !callable.contains(step)).then(|| steps.first().copied()).flatten()
            }) {
                let is_closed = chain.contains(&next);
                chain.push(next);
                if is_closed {
                    break;
                }
            }
            let chain: Vec<&str> = chain.into_iter().map(String::as_str).collect();
            let problem = format!("can never be met: {} (each requires the next)", chain.join(" → "));
            self.wrong(format!("tool_schemas.{name}.requires"), problem);
        }
        let denied = |name: &str| {
            let tier = self.policy.rules.get::<tier::Params>().tier(name)?;
            (tier.action == Action::Deny).then(|| tier.name.clone())
        };
        let mut wrong = Vec::new();
        for (name, needs) in &by_tool {
            for (i, need) in needs.iter().enumerate() {
                let tiers: Option<Vec<String>> = steps(need).into_iter().map(|step| denied(step)).collect();
                if let Some(tier) = tiers.and_then(|tiers| tiers.first().cloned()) {
                    let problem = format!("can never be met: tier {tier} denies {}", need.tools.as_str());
                    wrong.push((format!("tool_schemas.{name}.requires[{i}].tool"), problem));
                }
            }
        }
        wrong.into_iter().for_each(|(path, problem)| self.wrong(path, problem));
    }

    /// A write of no named resource without a declared repetition behavior.
    fn check_write_guards(&mut self) {
        let unguarded = self.policy.tools().filter(|(_, spec)| {
            let is_said = spec.once || spec.idempotent || spec.key_honoured || spec.repeatable || spec.terminal;
            let has_identity = spec.resource.as_ref().is_some_and(|template| template.fields().next().is_some());
            spec.effect == EffectKind::Write && !is_said && !has_identity
        });
        let names: Vec<String> = unguarded.map(|(name, _)| name.to_owned()).collect();
        for name in names {
            let problem = "is an unguarded write: nothing says which thing it writes, or what its repetition does. \
                           Give side_effect_resource a field (order/{order_id}), or set once (it harms), idempotent \
                           (it is harmless) or repeatable (it is meant)";
            self.warn(format!("tool_schemas.{name}"), problem);
        }
    }

    fn tiers_have_effects(&mut self) {
        let tiers = self.policy.rules.get::<tier::Params>().tiers.clone();
        for (i, tier) in tiers.iter().enumerate().filter(|(_, tier)| tier.action != Action::Deny) {
            let is_first = |name: &str| {
                let first = self.policy.rules.get::<tier::Params>().tier(name);
                first.is_some_and(|first| first.name == tier.name)
            };
            let silent = self.policy.silent_tools().filter(|name| is_first(name));
            let names: Vec<&str> = silent.collect();
            if names.is_empty() {
                continue;
            }
            let (s, have) = if names.len() == 1 { ("", "has") } else { ("s", "have") };
            let problem = format!(
                "has {} tool{s} that {have} no effect: {}. Until read, write, poll or check is declared, their \
                 repetitions are judged by their results alone",
                names.len(),
                names.join(", ")
            );
            self.warn(format!("authorization.tiers[{i}]"), problem);
        }
    }

    /// Tools that no phase allows.
    fn phases_allow(&mut self) {
        let phases = &self.policy.rules.get::<phase::Params>().phases;
        if phases.is_empty() {
            return;
        }
        let allowed =
            |name: &str| phases.iter().any(|phase| phase.tools.as_ref().is_some_and(|tools| tools.matches(name)));
        let never = self.policy.tools().filter(|(name, spec)| !spec.terminal && !allowed(name));
        let names: Vec<String> = never.map(|(name, _)| name.to_owned()).collect();
        for name in names {
            self.warn(format!("tool_schemas.{name}"), "can never be called: no phase allows it");
        }
    }
}
