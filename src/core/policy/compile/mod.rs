//! Policy compiler: from the file's text to a policy, or to all its problems.

mod access;
mod command_line;
mod consistency;
mod freshness;
mod limits;
mod presets;
mod routes;
mod rules;
mod tools;

pub(super) use presets::has_tool;
pub use presets::is_coding_agent_read;

use std::sync::Arc;

use regex::Regex;

use super::{
    Policy, PolicyError,
    file::{self, InjectKey, PolicyEngine, PolicyMode, ShareKey, Strategy},
    form::{self, KeyPositions, nearest, unknown},
};
use crate::{
    domain::{
        digest,
        effect::DuplicateScope,
        redaction::Redaction,
        tool::{InjectAs, StorageMode},
    },
    rules::{
        Mode, RULES, Rule, RuleSet, phase, same_call, tamper_protection, tier,
        unknown_tool::{self, UnknownToolMode},
    },
};

/// Hash digits in a policy's version.
const VERSION_DIGITS: usize = 16;
/// Maximum number of secret names and patterns.
const REDACTED_MAX: usize = 256;
/// Minimum of `storage.result_bytes_max`.
const RESULT_BYTES_LEAST: u64 = 1_024;
/// Maximum of any duration in a policy: a month.
const MILLIS_MAX: u64 = 31 * 86_400_000;

/// Compiles a policy file.
///
/// # Errors
/// All problems, each with its path and line. Problems of the form come alone, because the rest depends on it.
pub fn compile(text: &str) -> Result<Policy, Vec<PolicyError>> {
    compile_by(text, false, RULES, &form::BUILT_IN)
}

/// Compiles a stored policy. Unlike a new one, it may have keys by their names of earlier builds.
///
/// # Errors
/// As [`compile`].
pub fn compile_stored(text: &str) -> Result<Policy, Vec<PolicyError>> {
    compile_by(text, true, RULES, &form::BUILT_IN)
}

/// Compiles a policy file with the parameters of these rules.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(text: &str, rules: &[Rule]) -> Result<Policy, Vec<PolicyError>> {
    compile_by(text, false, rules, &form::PolicyForm::of(rules))
}

fn compile_by(
    text: &str,
    is_stored: bool,
    rules: &[Rule],
    form: &form::PolicyForm,
) -> Result<Policy, Vec<PolicyError>> {
    let (mut file, lines) = form.read(text, is_stored)?;
    let policy = Policy { rules: RuleSet::new(rules), ..Policy::default() };
    let mut compiler = Compiler { policy, errors: Vec::new(), lines, seen: Vec::new() };
    presets::set(&mut compiler.policy.rules, &file["policy_engine"]["presets"]);
    compiler.rule_parts(&mut file["policy_engine"]);
    compiler.engine(form::read_remaining_keys(file)?);
    let Compiler { mut policy, mut errors, .. } = compiler;
    if !errors.is_empty() {
        errors.sort_by(|a, b| (a.line, &a.path).cmp(&(b.line, &b.path)));
        return Err(errors);
    }
    policy.version = hash(text)[..VERSION_DIGITS].into();
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
    lines: KeyPositions,
    /// Facts about each tool, for checks across parts of the file.
    seen: Vec<consistency::SeenTool>,
}

/// Defaults that all tools share.
struct Common {
    share: DuplicateScope,
    /// Canonical fields and normalizers apply.
    semantic: bool,
    inject_as: Option<InjectAs>,
    stored: (StorageMode, StorageMode),
    validation: file::Validation,
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

impl From<file::StoredKey> for StorageMode {
    fn from(key: file::StoredKey) -> Self {
        match key {
            file::StoredKey::Raw => Self::Raw,
            file::StoredKey::Full => Self::Full,
            file::StoredKey::Redacted => Self::Redacted,
            file::StoredKey::Hash => Self::Hash,
        }
    }
}

impl Compiler {
    fn wrong(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        let path = format!("policy_engine.{}", path.into());
        self.errors.push(self.lines.problem(path, problem.into()));
    }

    /// Adds a warning: suspicious, and perhaps intended.
    fn warn(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        let path = format!("policy_engine.{}", path.into());
        self.policy.warnings.push(self.lines.problem(path, problem.into()));
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
        let ttl = self.millis("idempotency.ttl_ms", keys.idempotency.ttl_ms);
        set(&mut self.policy.rules.get_mut::<same_call::Params>().once_ttl_ms, ttl);
        let ttl = self.millis("approvals.ttl_ms", keys.approvals.ttl_ms);
        set(&mut self.policy.approval_ttl_ms, ttl);
        self.routes(keys.approvals.routes);
        let common = Common {
            share: match keys.deduplication.scope {
                None | Some(ShareKey::CallTree) => DuplicateScope::Tree,
                Some(ShareKey::Agent) => DuplicateScope::Agent,
                Some(ShareKey::Tenant) => DuplicateScope::Tenant,
            },
            semantic: !matches!(keys.deduplication.strategy, Some(Strategy::ByteHash)),
            inject_as: self.inject_as(&keys.idempotency),
            stored: (compile_storage(keys.storage.arguments), compile_storage(keys.storage.results)),
            validation: keys.validation,
        };
        self.redaction(&keys.storage);
        self.result_bytes(keys.storage.result_bytes_max);
        self.window(keys.loops.window);
        let run_idle = self.millis("loops.run_idle_ms", keys.loops.run_idle_ms);
        set(&mut self.policy.rules.run_idle_ms, run_idle);
        self.retry(&keys.retry);
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
        self.unknown_tools(is_declared);
        self.command_lines();
        self.policy.declare_others(&common.stored, common.inject_as.as_ref(), common.share);
        self.check_needed_results();
        self.check_named_tools();
        self.sense();
    }

    fn result_bytes(&mut self, given: Option<u64>) {
        match given.map(|bytes| (bytes >= RESULT_BYTES_LEAST, usize::try_from(bytes))) {
            None => {}
            Some((true, Ok(bytes))) => self.policy.result_bytes_max = bytes,
            Some(_) => self.wrong("storage.result_bytes_max", format!("must be {RESULT_BYTES_LEAST} or more")),
        }
    }

    fn redaction(&mut self, keys: &file::Storage) {
        for (key, size) in [
            ("redact", keys.redact.len()),
            ("not_secret", keys.not_secret.len()),
            ("redact_patterns", keys.redact_patterns.len()),
        ] {
            if size > REDACTED_MAX {
                self.wrong(format!("storage.{key}"), format!("has more than {REDACTED_MAX} entries"));
            }
        }
        let mut patterns = Vec::new();
        for (at, pattern) in keys.redact_patterns.iter().enumerate() {
            match Regex::new(pattern) {
                Ok(regex) if regex.is_match("") => {
                    self.wrong(format!("storage.redact_patterns[{at}]"), "matches where there is nothing");
                }
                Ok(regex) => patterns.push(regex),
                Err(error) => self.wrong(format!("storage.redact_patterns[{at}]"), error.to_string()),
            }
        }
        let (also, not_secret) = (keys.redact.iter().map(String::as_str), keys.not_secret.iter().map(String::as_str));
        self.policy.redaction = Redaction::new(also, not_secret, patterns);
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
                self.wrong("idempotency.inject_as", "is argument, so `argument` must name the argument");
                None
            }
            (Some(InjectKey::Header), _, None) => {
                self.wrong("idempotency.inject_as", "is header, so `header` must name the header");
                None
            }
            (_, _, Some(header)) => Some(InjectAs::Header(Arc::from(header.as_str()))),
            (None, _, None) => None,
        }
    }

    /// The arguments that are shell lines, for the rule that reads them.
    fn command_lines(&mut self) {
        let line = |(name, tool): (&String, &super::tool::DeclaredTool)| {
            Some((name.clone(), tool.command_line.as_ref()?.line.clone()))
        };
        let lines = self.policy.tools.iter().filter_map(line).collect();
        self.policy.rules.get_mut::<tamper_protection::Params>().lines = lines;
    }

    /// Undeclared tools are refused once any tool is declared.
    fn unknown_tools(&mut self, is_declared: bool) {
        let names: Vec<String> = self.policy.tools().map(|(name, _)| name.to_owned()).collect();
        let rules = &mut self.policy.rules;
        let of_tiers = rules.get::<tier::Params>().tiers.iter().map(|tier| tier.tools.clone());
        let of_phases = rules.get::<phase::Params>().phases.iter().filter_map(|phase| phase.tools.clone());
        // A catch-all pattern names no tool.
        let patterns = of_tiers.chain(of_phases).filter(|pattern| !pattern.matches("")).collect();
        let params = rules.get_mut::<unknown_tool::Params>();
        (params.tools, params.patterns) = (names, patterns);
        params.unknown.get_or_insert(if is_declared { UnknownToolMode::Deny } else { UnknownToolMode::Allow });
    }
}

fn compile_storage(key: Option<file::StoredKey>) -> StorageMode {
    key.map_or(StorageMode::Full, Into::into)
}

#[cfg(test)]
mod tests;
