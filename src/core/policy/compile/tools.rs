//! Compiler of tool declarations.

use std::{collections::BTreeMap, sync::Arc};

use regex::Regex;
use serde_json::Value;

use super::{Common, Compiler, compile_storage, consistency::SeenTool, unknown};
use crate::{
    domain::{
        effect::{EffectKind, ResourceTemplate},
        ids::ToolName,
        tool::{EmptyMeans, InjectAs, LEASE_MS_DEFAULT, RiskLevel, StorageMode, ToolSpec},
        violation::OnViolation,
    },
    policy::{
        arguments::{self, ArgumentSchema},
        file::{
            CaseKeys, CoercionSetting, ConditionKeys, EffectKey, EmptyKey, OnViolationKey, PolicyMode, Requires,
            RiskKey, ThenSection, ToolSection, UnavailableKey, UnknownFieldsKey,
        },
        normalizers::{Canonical, Normalizer},
        tool::{CASES_MAX, CaseCondition, DeclaredTool, EffectCase},
    },
    rules::{
        condition::{Condition, no_regex},
        requires::{self, Requirement, ValueSource},
        schema::{self, ArgumentCondition},
        side_effects,
        tier::{self, ConditionalCase, Effects},
    },
};

/// Maximum number of conditions, requirements or canonical fields per tool.
const PARTS_MAX: usize = 64;

impl From<EffectKey> for EffectKind {
    fn from(key: EffectKey) -> Self {
        match key {
            EffectKey::Unknown => Self::Unknown,
            EffectKey::Read => Self::Read,
            EffectKey::Write => Self::Write,
            EffectKey::Poll => Self::Poll,
            EffectKey::Check => Self::Check,
        }
    }
}

impl From<RiskKey> for RiskLevel {
    fn from(key: RiskKey) -> Self {
        match key {
            RiskKey::Low => Self::Low,
            RiskKey::Medium => Self::Medium,
            RiskKey::High => Self::High,
        }
    }
}

/// Removes the idempotency key, which is no argument of the model, from the schema.
fn without(schema: &mut Value, key: &str) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove(key);
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != key);
    }
}

/// True for a tool with canonical fields: duplicates are then unwanted.
fn names_identity(keys: &ToolSection) -> bool {
    !keys.canonical_fields.is_empty() && keys.effects.is_empty() && keys.command_line.is_none()
}

impl Compiler {
    pub(super) fn tool(&mut self, common: &Common, name: &str, keys: ToolSection) {
        let path = format!("tool_schemas.{name}");
        if let Err(invalid) = ToolName::parse(&path, name) {
            return self.wrong(invalid.field, format!("the name {}", invalid.problem));
        }
        if name.contains(['*', '?']) {
            return self.wrong(path, "is a pattern: tools are declared by their names");
        }
        let parts = [keys.conditions.len(), keys.requires.len(), keys.canonical_fields.len(), keys.normalizers.len()];
        if parts.iter().any(|parts| *parts > PARTS_MAX) {
            return self.wrong(path, format!("has a list of more than {PARTS_MAX} entries"));
        }
        if let Some(second_change) = keys.second_change {
            let by_tool = &mut self.policy.rules.get_mut::<side_effects::Params>().by_tool;
            by_tool.insert(name.to_owned(), second_change);
        }
        self.seen.push(SeenTool::new(name, &path, &keys));
        let properties = keys.schema.as_ref().and_then(|schema| schema.get("properties")).cloned();
        let schema = self.schema(&path, common, &keys);
        let canonical = self.canonical(&path, common, &keys, properties.as_ref());
        let cases = self.cases(&path, &keys.effects);
        let command_line = self.command_line(&path, &keys);
        let spec = self.spec(&path, common, &keys);
        for (detector, levels) in &keys.loops {
            self.levels_of_tool(&format!("{path}.loops.{detector}"), name, detector, *levels);
        }
        self.conditions(&path, name, keys.conditions);
        self.requires(&path, name, keys.requires);
        let declared = DeclaredTool { spec: Arc::new(spec), canonical, schema, cases, command_line };
        self.policy.insert_declared(name, declared);
    }

    fn spec(&mut self, path: &str, common: &Common, keys: &ToolSection) -> ToolSpec {
        let resource = self.template(&format!("{path}.side_effect_resource"), keys.side_effect_resource.as_deref());
        let effect = match keys.effect {
            Some(effect) => effect.into(),
            None if resource.is_some() || keys.once || keys.repeatable || names_identity(keys) => EffectKind::Write,
            None => EffectKind::Unknown,
        };
        let writes = effect == EffectKind::Write || keys.effects.iter().any(|case| case.effect == EffectKey::Write);
        let facts = [
            ("once", keys.once),
            ("idempotent", keys.idempotent),
            ("key_honored", keys.key_honored),
            ("repeatable", keys.repeatable),
        ];
        for (fact, _) in facts.into_iter().filter(|(_, is)| *is && !writes) {
            self.wrong(path, format!("is {fact}, which only a write can be: set effect: write"));
        }
        if keys.once && keys.idempotent {
            let problem = "is both once and idempotent: its repetition either harms or it does not. If its provider \
                           knows the idempotency key again, that is key_honored";
            self.wrong(path, problem);
        }
        if keys.once && keys.repeatable {
            self.wrong(path, "is both once and repeatable: its repetition either harms or it is meant");
        }
        let runs_without_store = keys.on_store_unavailable == Some(UnavailableKey::Allow);
        if runs_without_store && effect != EffectKind::Read {
            self.wrong(format!("{path}.on_store_unavailable"), "may be allow for a declared read only");
        }
        let pointers = [
            ("is_complete", &keys.result_map.is_complete),
            ("total_matches", &keys.result_map.total_matches),
            ("is_error", &keys.result_map.is_error),
        ];
        let pointers = pointers.into_iter().filter_map(|(key, at)| Some((format!("result_map.{key}"), at.as_ref()?)));
        let volatile = keys.volatile.iter().map(|pointer| ("volatile".to_owned(), pointer));
        for (key, pointer) in pointers.chain(volatile).filter(|(_, pointer)| !pointer.starts_with('/')) {
            self.wrong(format!("{path}.{key}"), format!("{pointer:?} is not a JSON pointer: it must begin with '/'"));
        }
        let fresh = self.fresh(path, common, keys, effect);
        let storage = (keys.storage.arguments, keys.storage.results);
        ToolSpec {
            effect,
            resource,
            fresh,
            once: keys.once,
            idempotent: keys.idempotent,
            key_honoured: keys.key_honored,
            repeatable: keys.repeatable,
            share: common.share,
            risk: keys.risk_level.map(Into::into),
            terminal: keys.terminal,
            lease_ms: self.millis(&format!("{path}.lease_ms"), keys.lease_ms).unwrap_or(LEASE_MS_DEFAULT),
            volatile: keys.volatile.clone(),
            result_map: (keys.result_map.is_complete.clone(), keys.result_map.total_matches.clone()),
            failure_at: keys.result_map.is_error.clone(),
            empty_means: keys.empty_means.map(|key| match key {
                EmptyKey::NoMatches => EmptyMeans::NoMatches,
                EmptyKey::Suspect => EmptyMeans::Suspect,
            }),
            cost_micros: keys.cost_usd.and_then(|usd| self.micros(&format!("{path}.cost_usd"), usd)).unwrap_or(0),
            retryable: keys.retryable,
            suggested_next: keys.suggested_next.clone(),
            inject_as: common.inject_as.clone(),
            stored: (
                storage.0.map_or(common.stored.0, |key| compile_storage(Some(key))),
                storage.1.map_or(common.stored.1, |key| compile_storage(Some(key))),
            ),
            shadow: matches!(keys.mode, Some(PolicyMode::Shadow)),
            runs_without_store,
        }
    }

    fn template(&mut self, path: &str, text: Option<&str>) -> Option<ResourceTemplate> {
        let parsed = ResourceTemplate::parse(path, text?);
        let template = parsed.map_err(|invalid| self.wrong(invalid.field, invalid.problem)).ok()?;
        self.seen.last_mut()?.templates.push((path.to_owned(), template.clone()));
        Some(template)
    }

    fn schema(&mut self, path: &str, common: &Common, keys: &ToolSection) -> Option<ArgumentSchema> {
        let coercion = match keys.coercion.or(common.validation.coercion) {
            None | Some(CoercionSetting::Reject) => arguments::Coercion::Reject,
            Some(CoercionSetting::AcceptAndLog) => arguments::Coercion::AcceptAndLog,
            Some(CoercionSetting::Repair) => arguments::Coercion::Repair,
        };
        let unknown = match keys.unknown_fields.or(common.validation.unknown_fields) {
            None => arguments::UnknownFields::BySchema,
            Some(UnknownFieldsKey::Refuse) => arguments::UnknownFields::Refuse,
            Some(UnknownFieldsKey::Log) => arguments::UnknownFields::Log,
        };
        let mut schema = keys.schema.clone()?;
        if let Some(InjectAs::Argument(name)) = &common.inject_as {
            without(&mut schema, name);
        }
        let compiled = ArgumentSchema::compile(&schema, unknown, coercion);
        let compiled = compiled.map(|schema| if common.semantic { schema } else { schema.without_defaults() });
        compiled
            .map_err(|problems| problems.into_iter().for_each(|problem| self.wrong(format!("{path}.schema"), problem)))
            .ok()
    }

    fn canonical(
        &mut self,
        path: &str,
        common: &Common,
        keys: &ToolSection,
        properties: Option<&Value>,
    ) -> Option<Canonical> {
        let mut normalizers = BTreeMap::new();
        let region = common.validation.phone_region.as_deref();
        for (field, name) in &keys.normalizers {
            let at = format!("{path}.normalizers.{field}");
            let of_field = properties.and_then(|properties| properties.get(field.split('.').next().unwrap_or(field)));
            if properties.is_some() && of_field.is_none() {
                self.wrong(&at, format!("has no effect: the schema has no field {field}"));
            } else if !keys.canonical_fields.is_empty() && !keys.canonical_fields.contains(field) {
                self.wrong(&at, format!("has no effect: {field} is not among canonical_fields"));
            }
            match Normalizer::parse(name, region) {
                Ok(normalizer) => {
                    let direct = of_field.filter(|_| !field.contains('.'));
                    if let Err(problem) = normalizer.fits(direct) {
                        self.wrong(&at, problem);
                    }
                    normalizers.insert(field.clone(), normalizer);
                }
                Err(problem) => self.wrong(&at, problem),
            }
        }
        for (i, field) in keys.canonical_fields.iter().enumerate() {
            let first = field.split('.').next().unwrap_or(field);
            let Some(known) = properties.and_then(Value::as_object).filter(|known| !known.contains_key(first)) else {
                continue;
            };
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            self.wrong(format!("{path}.canonical_fields[{i}]"), unknown("field of the schema", first, &names));
        }
        let says_something = !keys.canonical_fields.is_empty() || !normalizers.is_empty();
        (common.semantic && says_something).then(|| Canonical::new(&keys.canonical_fields, normalizers))
    }

    fn cases(&mut self, path: &str, keys: &[CaseKeys]) -> Vec<EffectCase> {
        if keys.len() > CASES_MAX {
            self.wrong(format!("{path}.effects"), format!("has {} cases; at most {CASES_MAX} are allowed", keys.len()));
        }
        let mut cases = Vec::new();
        for (i, keys) in keys.iter().enumerate() {
            let at = format!("{path}.effects[{i}]");
            let when = match (&keys.when, &keys.field, &keys.matches) {
                (Some(when), None, None) => self.condition(&format!("{at}.when"), when).map(CaseCondition::Condition),
                (None, Some(field), Some(regex)) => match Regex::new(regex) {
                    Ok(regex) => Some(CaseCondition::Matches { field: field.clone(), regex }),
                    Err(_) => {
                        let problem = format!("{regex:?} is not a regular expression: {}", no_regex(regex));
                        self.wrong(format!("{at}.matches"), problem);
                        None
                    }
                },
                _ => {
                    self.wrong(&at, "must have either when, or field and matches");
                    None
                }
            };
            let resource = self.template(&format!("{at}.side_effect_resource"), keys.side_effect_resource.as_deref());
            let fresh = self.fresh_of_case(&at, keys);
            cases.extend(when.map(|when| EffectCase { when, effect: keys.effect.into(), resource, fresh }));
        }
        cases
    }

    fn condition(&mut self, path: &str, text: &str) -> Option<Condition> {
        let condition = Condition::parse(text).map_err(|problem| self.wrong(path, problem)).ok()?;
        self.seen.last_mut()?.conditions.push((path.to_owned(), condition.clone()));
        Some(condition)
    }

    fn conditions(&mut self, path: &str, tool: &str, keys: Vec<ConditionKeys>) {
        for (i, keys) in keys.into_iter().enumerate() {
            let at = format!("{path}.conditions[{i}]");
            match (&keys.check, &keys.when, keys.then) {
                (Some(text), None, None) => {
                    let Some(condition) = self.condition(&format!("{at}.check"), text) else { continue };
                    let check = ArgumentCondition {
                        field: keys.field.unwrap_or_else(|| "arguments".to_owned()),
                        message: keys.message,
                        on_violation: match keys.on_violation {
                            None | Some(OnViolationKey::SelfCorrect) => OnViolation::SelfCorrect,
                            Some(OnViolationKey::AskUser) => OnViolation::AskUser,
                        },
                        user_facing_hint: keys.user_facing_hint,
                        condition,
                    };
                    self.policy
                        .rules
                        .get_mut::<schema::Params>()
                        .by_tool
                        .entry(tool.to_owned())
                        .or_default()
                        .push(check);
                }
                (None, Some(text), Some(then)) => {
                    for (key, given) in [("field", keys.field.is_some()), ("on_violation", keys.on_violation.is_some())]
                    {
                        if given {
                            self.wrong(format!("{at}.{key}"), "belongs to `check`, not to `when`");
                        }
                    }
                    let Some(condition) = self.condition(&format!("{at}.when"), text) else { continue };
                    let then = match then {
                        ThenSection::Deny => Effects::Deny,
                        ThenSection::Ask => Effects::Ask,
                        ThenSection::Low => Effects::Risk(RiskLevel::Low),
                        ThenSection::Medium => Effects::Risk(RiskLevel::Medium),
                        ThenSection::High => Effects::Risk(RiskLevel::High),
                    };
                    let when = ConditionalCase { condition, then, message: keys.message };
                    let conditions = &mut self.policy.rules.get_mut::<tier::Params>().conditions;
                    conditions.entry(tool.to_owned()).or_default().push(when);
                }
                _ => self.wrong(at, "must have either check (what must hold), or when and then"),
            }
        }
    }

    fn requires(&mut self, path: &str, tool: &str, keys: Vec<Requires>) {
        for (i, keys) in keys.into_iter().enumerate() {
            let at = format!("{path}.requires[{i}]");
            let Some(tools) = self.pattern(&format!("{at}.tool"), &keys.tool) else { continue };
            let mut matching = Vec::new();
            for (field, source) in keys.matching {
                match source.strip_prefix("args.") {
                    Some(argument) => matching.push((field, ValueSource::Argument(argument.to_owned()))),
                    None if source.starts_with('/') => matching.push((field, ValueSource::Result(source))),
                    None => {
                        let problem = format!("is {source:?}; it must be a JSON pointer (/id) or args.NAME");
                        self.wrong(format!("{at}.match.{field}"), problem);
                    }
                }
            }
            let condition = keys.condition.and_then(|text| self.condition(&format!("{at}.condition"), &text));
            for named in condition.iter().flat_map(Condition::tools).filter(|named| !tools.matches(named)) {
                let problem = format!("asks for last('{named}'), which is not the required {}", tools.as_str());
                self.wrong(format!("{at}.condition"), problem);
            }
            let Requires { message, user_facing_hint, .. } = keys;
            let requirement = Requirement { tools, matching, condition, message, user_facing_hint };
            let by_tool = &mut self.policy.rules.get_mut::<requires::Params>().by_tool;
            by_tool.entry(tool.to_owned()).or_default().push(requirement);
        }
    }

    /// Results that others depend on must be stored in full, to survive their replica.
    pub(super) fn check_needed_results(&mut self) {
        let requires = self.policy.rules.get::<requires::Params>();
        let needed = |name: &str| requires.builds_on(name);
        let is_partly = |spec: &ToolSpec| matches!(spec.stored.1, StorageMode::Redacted | StorageMode::Hash);
        let partly = self.policy.tools().filter(|(_, spec)| is_partly(spec));
        let names: Vec<String> = partly.filter(|(name, _)| needed(name)).map(|(name, _)| name.to_owned()).collect();
        // A secret is not there to be compared.
        let secret = |source: &ValueSource, (arguments, results): (StorageMode, StorageMode)| match source {
            ValueSource::Argument(name) => arguments != StorageMode::Raw && self.policy.redaction.is_secret(name),
            ValueSource::Result(pointer) => {
                let name = pointer.rsplit('/').find(|part| *part != "*" && part.parse::<usize>().is_err());
                results != StorageMode::Raw && name.is_some_and(|name| self.policy.redaction.is_secret(name))
            }
        };
        let mut compared = Vec::new();
        for (tool, requirements) in &requires.by_tool {
            for requirement in requirements {
                let stored = self.policy.tools().filter(|(name, _)| requirement.tools.matches(name));
                let stored: Vec<(StorageMode, StorageMode)> = stored.map(|(_, spec)| spec.stored).collect();
                let is_secret = |source: &ValueSource| stored.iter().any(|stored| secret(source, *stored));
                let fields = requirement.matching.iter().filter(|(_, source)| is_secret(source));
                compared.extend(
                    fields.map(|(field, _)| (tool.clone(), field.clone(), requirement.tools.as_str().to_owned())),
                );
            }
        }
        for name in names {
            let problem = "must be full: other tools require its results";
            self.wrong(format!("tool_schemas.{name}.storage.results"), problem);
        }
        for (tool, field, of) in compared {
            let problem = format!(
                "{field} is compared with a secret of {of}, which is not stored: say `storage: {{arguments: raw, \
                 results: raw}}` there, or name the field in storage.not_secret"
            );
            self.wrong(format!("tool_schemas.{tool}.requires"), problem);
        }
    }
}
