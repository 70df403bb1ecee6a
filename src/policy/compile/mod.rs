//! From the file's text to a policy, or to everything that is wrong with it.

mod access;
mod limits;
mod loops;
mod presets;
mod tools;

use std::sync::Arc;

use super::{
    Policy, PolicyError,
    file::{self, InjectKey, ModeKey, PolicyEngine, PolicyMode, ShareKey, Strategy, UnknownKey},
    form::{self, Lines, nearest},
};
use crate::{
    domain::{
        digest,
        effect::Share,
        tool::{InjectAs, Stored},
    },
    rules::{Mode, PLACEHOLDERS, RULES, side_effects::SecondChange, unknown_tool::Unknown},
};

/// Digits of its hash that name a policy.
const VERSION_DIGITS: usize = 16;
/// A month: nothing in a policy lasts longer.
const MILLIS_MAX: u64 = 31 * 86_400_000;

/// Reads a policy file.
///
/// # Errors
/// Everything that is wrong, each with its path and line; the file's form first, since nothing can be said past it.
pub fn compile(text: &str) -> Result<Policy, Vec<PolicyError>> {
    let form = form::read(text)?;
    let mut compiler = Compiler { policy: Policy::default(), errors: Vec::new(), lines: form.lines };
    compiler.engine(form.file.policy_engine);
    let Compiler { mut policy, mut errors, .. } = compiler;
    if !errors.is_empty() {
        errors.sort_by(|a, b| (a.line, &a.path).cmp(&(b.line, &b.path)));
        return Err(errors);
    }
    policy.version = hash(text)[..VERSION_DIGITS].to_owned();
    Ok(policy)
}

/// The hash of a policy file: SHA-256 of its text, hexadecimal.
#[must_use]
pub fn hash(text: &str) -> String {
    digest::of_text(text)
}

struct Compiler {
    policy: Policy,
    errors: Vec<PolicyError>,
    lines: Lines,
}

/// What tools have in common unless they say otherwise.
struct Common {
    share: Share,
    /// Canonical fields and normalisers count.
    semantic: bool,
    inject_as: Option<InjectAs>,
    stored: (Stored, Stored),
    validation: file::Validation,
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

impl From<ModeKey> for Mode {
    fn from(key: ModeKey) -> Self {
        match key {
            ModeKey::Enforce => Self::Enforce,
            ModeKey::Shadow => Self::Shadow,
            ModeKey::Off => Self::Off,
        }
    }
}

impl From<file::StoredKey> for Stored {
    fn from(key: file::StoredKey) -> Self {
        match key {
            file::StoredKey::Full => Self::Full,
            file::StoredKey::Redacted => Self::Redacted,
            file::StoredKey::Hash => Self::Hash,
        }
    }
}

impl From<file::SecondChangeKey> for SecondChange {
    fn from(key: file::SecondChangeKey) -> Self {
        match key {
            file::SecondChangeKey::Allow => Self::Allow,
            file::SecondChangeKey::Ask => Self::Ask,
            file::SecondChangeKey::Deny => Self::Deny,
        }
    }
}

impl Compiler {
    fn wrong(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        let path = format!("policy_engine.{}", path.into());
        self.errors.push(PolicyError { line: self.lines.of(&path), path, problem: problem.into() });
    }

    /// What is odd, and may be meant so.
    fn warn(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        let path = format!("policy_engine.{}", path.into());
        self.policy.warnings.push(PolicyError { line: self.lines.of(&path), path, problem: problem.into() });
    }

    fn millis(&mut self, path: &str, millis: Option<u64>) -> Option<u64> {
        if millis.is_some_and(|millis| !(1..=MILLIS_MAX).contains(&millis)) {
            self.wrong(path, format!("must lie between 1 and {MILLIS_MAX} (a month)"));
        }
        millis
    }

    fn engine(&mut self, keys: PolicyEngine) {
        if let Some(PolicyMode::Shadow) = keys.mode {
            self.policy.mode = Mode::Shadow;
        }
        let share = self.deduplication(&keys.deduplication);
        let ttl = self.millis("idempotency.ttl_ms", keys.idempotency.ttl_ms);
        set(&mut self.policy.rules.same_call.once_ttl_ms, ttl);
        let ttl = self.millis("approvals.ttl_ms", keys.approvals.ttl_ms);
        set(&mut self.policy.approval_ttl_ms, ttl);
        set(&mut self.policy.rules.side_effects.second_change, keys.side_effects.second_change.map(Into::into));
        let common = Common {
            share,
            semantic: !matches!(keys.deduplication.strategy, Some(Strategy::ByteHash)),
            inject_as: self.inject_as(&keys.idempotency),
            stored: (stored(keys.storage.arguments), stored(keys.storage.results)),
            validation: keys.validation,
        };
        self.policy.redact = keys.storage.redact;
        self.loops(&keys.loops);
        self.growth(&keys.growth);
        set(&mut self.policy.rules.cooldown.max_ms, keys.cooldown.max_ms);
        self.retry(&keys.retry);
        keys.budgets.into_iter().for_each(|(scope, limits)| self.budget(scope, &limits));
        keys.rules.into_iter().for_each(|(rule, keys)| self.rule(&rule, keys));
        let is_declared = !keys.tool_schemas.is_empty();
        for (name, tool) in keys.presets.into_iter().flat_map(presets::tools) {
            if !keys.tool_schemas.contains_key(&name) {
                self.tool(&common, &name, tool);
            }
        }
        keys.tool_schemas.into_iter().for_each(|(name, tool)| self.tool(&common, &name, tool));
        self.tiers(keys.authorization.tiers);
        self.phases(keys.phases, keys.after_failed_write);
        self.unknown_tools(keys.unknown_tools, is_declared);
        self.policy.declare_others(&common.stored, common.inject_as.as_ref(), common.share);
        self.answers_that_are_needed();
        self.tools_that_are_named();
    }

    fn deduplication(&mut self, keys: &file::Deduplication) -> Share {
        let same_call = &mut self.policy.rules.same_call;
        set(&mut same_call.window_ms, keys.window_ms);
        set(&mut same_call.same_results, keys.same_results);
        set(&mut same_call.recheck_ms, keys.recheck_ms);
        set(&mut same_call.recheck_ms_max, keys.recheck_ms_max);
        let too_few = same_call.same_results < 2;
        let plain = &mut self.policy.rules.plain;
        plain.loop_threshold = keys.loop_threshold;
        plain.max_repeat = keys.max_repeat;
        plain.last_n = keys.last_n.map(|n| n as usize);
        let counts =
            [("loop_threshold", keys.loop_threshold), ("max_repeat", keys.max_repeat), ("last_n", keys.last_n)];
        for (key, _) in counts.iter().filter(|(_, count)| *count == Some(0)) {
            self.wrong(format!("deduplication.{key}"), "must be 1 or more");
        }
        let most = keys.last_n.unwrap_or(u32::MAX);
        for (key, count) in counts.iter().take(2).filter(|(_, count)| count.is_some_and(|count| count > most)) {
            let problem = format!("is {}, and last_n looks back {most} calls: it would never fire", count.unwrap_or(0));
            self.wrong(format!("deduplication.{key}"), problem);
        }
        if too_few {
            self.wrong("deduplication.same_results", "must be 2 or more: one result equals nothing");
        }
        match keys.scope {
            None | Some(ShareKey::CallTree) => Share::Tree,
            Some(ShareKey::Agent) => Share::Agent,
            Some(ShareKey::Tenant) => Share::Tenant,
        }
    }

    fn inject_as(&mut self, keys: &file::Idempotency) -> Option<InjectAs> {
        let empty = |name: &Option<String>| name.as_ref().is_some_and(|name| name.trim().is_empty());
        for (key, name) in [("header", &keys.header), ("argument", &keys.argument)] {
            if empty(name) {
                self.wrong(format!("idempotency.{key}"), "is empty: it must be a name");
            }
        }
        match (keys.inject_as, &keys.argument, &keys.header) {
            (Some(InjectKey::Argument), Some(argument), _) => Some(InjectAs::Argument(Arc::from(argument.as_str()))),
            (Some(InjectKey::Argument), None, _) => {
                self.wrong("idempotency.inject_as", "is argument: name it with `argument`");
                None
            }
            (Some(InjectKey::Header), _, None) => {
                self.wrong("idempotency.inject_as", "is header: name it with `header`");
                None
            }
            (_, _, Some(header)) => Some(InjectAs::Header(Arc::from(header.as_str()))),
            (None, _, None) => None,
        }
    }

    fn rule(&mut self, rule: &str, keys: file::RuleKeys) {
        let Some((id, _)) = RULES.iter().find(|(id, _)| *id == rule) else {
            let known: Vec<&str> = RULES.iter().map(|(id, _)| *id).collect();
            let meant = nearest(rule, &known)
                .map_or_else(|| format!("there are {}", known.join(", ")), |meant| format!("did you mean {meant}?"));
            return self.wrong(format!("rules.{rule}"), format!("is no rule; {meant}"));
        };
        if let Some(mode) = keys.mode {
            self.policy.rules.modes.insert(id, mode.into());
        }
        let Some(message) = keys.message else { return };
        let rest = PLACEHOLDERS.iter().fold(message.clone(), |text, known| text.replace(known, ""));
        if let Some(unknown) = rest.find('{').map(|at| rest[at..].split_inclusive('}').next().unwrap_or_default()) {
            let known = PLACEHOLDERS.join(", ");
            self.wrong(format!("rules.{rule}.message"), format!("has {unknown}; it may have {known}"));
        }
        if message.trim().is_empty() || message.contains('\n') {
            self.wrong(format!("rules.{rule}.message"), "must be one line of text");
        }
        self.policy.rules.messages.insert(id, message);
    }

    /// Once the owner declares any tool, those that are not are refused.
    fn unknown_tools(&mut self, key: Option<UnknownKey>, is_declared: bool) {
        let names: Vec<String> = self.policy.tools().map(|(name, _)| name.to_owned()).collect();
        let rules = &mut self.policy.rules;
        let of_tiers = rules.tier.tiers.iter().map(|tier| tier.tools.clone());
        let of_phases = rules.phase.phases.iter().filter_map(|phase| phase.tools.clone());
        // A pattern for whatever comes names no tool.
        rules.unknown_tool.patterns = of_tiers.chain(of_phases).filter(|pattern| !pattern.matches("")).collect();
        rules.unknown_tool.unknown = match key {
            Some(UnknownKey::Allow) => Unknown::Allow,
            Some(UnknownKey::Ask) => Unknown::Ask,
            Some(UnknownKey::Deny) => Unknown::Deny,
            None if is_declared => Unknown::Deny,
            None => Unknown::Allow,
        };
        rules.unknown_tool.tools = names;
    }
}

fn stored(key: Option<file::StoredKey>) -> Stored {
    key.map_or(Stored::Full, Into::into)
}

#[cfg(test)]
mod tests;
