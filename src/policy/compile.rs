//! From the file's text to a policy, or to everything that is wrong with it.

use super::{
    Policy, PolicyError,
    file::{BudgetKeys, EffectKey, File, LevelKeys, ModeKey, PolicyEngine, ScopeKey, Tool},
};
use crate::{
    domain::{
        budget::{Dimension, Limits, Scope},
        digest,
        effect::{EffectKind, ResourceTemplate},
        ids::ToolName,
        tool::{LEASE_MS_DEFAULT, ToolSpec},
    },
    rules::{Mode, RULES, cycle, growth, levels::Levels, refused},
};

/// A month: nothing in a policy lasts longer.
const MILLIS_MAX: u64 = 31 * 86_400_000;

/// Reads a policy file.
///
/// # Errors
/// Everything that is wrong, each with its path; the file's form first, since nothing can be said past it.
pub fn compile(text: &str) -> Result<Policy, Vec<PolicyError>> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map(|location| location.line());
        let problem = error.without_snippet().to_string();
        vec![PolicyError { line, path: String::new(), problem }]
    })?;
    let mut compiler = Compiler { policy: Policy::default(), errors: Vec::new() };
    compiler.engine(file.policy_engine);
    let Compiler { mut policy, errors } = compiler;
    if !errors.is_empty() {
        return Err(errors);
    }
    policy.version = digest::of_success(text, &[]).to_hex()[..16].to_owned();
    Ok(policy)
}

struct Compiler {
    policy: Policy,
    errors: Vec<PolicyError>,
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

impl Compiler {
    fn wrong(&mut self, path: impl Into<String>, problem: impl Into<String>) {
        self.errors.push(PolicyError {
            line: None,
            path: format!("policy_engine.{}", path.into()),
            problem: problem.into(),
        });
    }

    fn engine(&mut self, keys: PolicyEngine) {
        if let Some(mode) = keys.mode {
            self.policy.mode = mode.into();
            if matches!(mode, ModeKey::Off) {
                self.wrong("mode", "must be enforce or shadow");
            }
        }
        let same_call = &mut self.policy.rules.same_call;
        set(&mut same_call.window_ms, keys.deduplication.window_ms);
        set(&mut same_call.same_results, keys.deduplication.same_results);
        set(&mut same_call.recheck_ms, keys.deduplication.recheck_ms);
        set(&mut same_call.recheck_ms_max, keys.deduplication.recheck_ms_max);
        set(&mut same_call.once_ttl_ms, keys.idempotency.ttl_ms);
        if same_call.same_results < 2 {
            self.wrong("deduplication.same_results", "must be 2 or more: one result equals nothing");
        }
        self.loops(&keys.loops);
        self.growth(&keys.growth);
        set(&mut self.policy.rules.cooldown.max_ms, keys.cooldown.max_ms);
        self.retry(&keys.retry);
        keys.budgets.into_iter().for_each(|(scope, limits)| self.budget(scope, &limits));
        for (rule, rule_keys) in keys.rules {
            match RULES.iter().find(|(id, _)| *id == rule) {
                Some((id, _)) => drop(self.policy.rules.modes.insert(id, rule_keys.mode.into())),
                None => {
                    let known: Vec<_> = RULES.iter().map(|(id, _)| *id).collect();
                    self.wrong(format!("rules.{rule}"), format!("is no rule; there are {}", known.join(", ")));
                }
            }
        }
        keys.tool_schemas.into_iter().for_each(|(name, tool)| self.tool(&name, tool));
    }

    fn loops(&mut self, keys: &super::file::Loops) {
        set(&mut self.policy.rules.window, keys.window);
        let window = self.policy.rules.window;
        if !(10..=crate::domain::tree::CALLS_MAX).contains(&window) {
            let most = crate::domain::tree::CALLS_MAX;
            self.wrong("loops.window", format!("is {window}; it must lie between 10 and {most}"));
        }
        // A detector that counts the proposed call reaches one more than the window holds.
        let detectors = [
            ("repeat", keys.repeat, window),
            ("poll", keys.poll, window),
            (cycle::ID, keys.cycle, window + 1),
            ("breaker", keys.breaker, window),
            (refused::ID, keys.refused, window),
        ];
        for (rule, keys, reach) in detectors {
            let rules = &mut self.policy.rules;
            let levels = match rule {
                "repeat" => &mut rules.repeat,
                "poll" => &mut rules.poll,
                cycle::ID => &mut rules.cycle,
                "breaker" => &mut rules.breaker,
                _ => &mut rules.refused,
            };
            if let Some(LevelKeys { warning, critical, break_at }) = keys {
                *levels = Levels { warning, critical, break_at };
            }
            let levels = *levels;
            if levels.highest() as usize > reach {
                let problem =
                    format!("needs {} calls, and the window holds {window}: it would never fire", levels.highest());
                self.wrong(format!("loops.{rule}"), problem);
            }
            let steps: Vec<u32> = [levels.warning, levels.critical, levels.break_at].into_iter().flatten().collect();
            if steps.contains(&0) || steps.windows(2).any(|pair| pair[0] >= pair[1]) {
                self.wrong(
                    format!("loops.{rule}"),
                    "warning, critical and break must be 1 or more, each above the one before",
                );
            }
        }
    }

    fn retry(&mut self, keys: &super::file::Retry) {
        let retry = &mut self.policy.retry;
        set(&mut retry.attempts, keys.attempts);
        set(&mut retry.rate_limit_run, keys.rate_limit_run);
        set(&mut retry.unless_wait_honoured, keys.unless_wait_honoured);
        set(&mut retry.explore, keys.explore);
        set(&mut retry.allowance.share, keys.share_of_calls);
        set(&mut retry.allowance.per_minute, keys.per_minute);
        set(&mut retry.allowance.most, keys.saved_up);
        let (explore, allowance) = (retry.explore, retry.allowance);
        if self.policy.retry.attempts == 0 {
            self.wrong("retry.attempts", "must be 1 or more: the first try is an attempt");
        }
        if !(0.0..=1.0).contains(&explore) {
            self.wrong("retry.explore", "must be a share between 0 and 1");
        }
        let amounts =
            [("share_of_calls", allowance.share), ("per_minute", allowance.per_minute), ("saved_up", allowance.most)];
        for (key, amount) in amounts.into_iter().filter(|(_, amount)| !(0.0..=1e6).contains(amount)) {
            self.wrong(format!("retry.{key}"), format!("is {amount}; it must lie between 0 and 1000000"));
        }
    }

    fn growth(&mut self, keys: &super::file::Growth) {
        let growth = &mut self.policy.rules.growth;
        set(&mut growth.calls_per_second, keys.calls_per_second.map(Some));
        set(&mut growth.patience, keys.patience);
        set(&mut growth.tokens_per_minute, keys.tokens_per_minute.map(Some));
        set(&mut growth.tokens_per_minute_stop, keys.tokens_per_minute_stop.map(Some));
        let most = growth::CALLS_PER_SECOND_MAX;
        if !(1..=most).contains(&growth.calls_per_second.unwrap_or(1)) {
            self.wrong("growth.calls_per_second", format!("must lie between 1 and {most}"));
        }
        if !(1..=most).contains(&self.policy.rules.growth.patience) {
            self.wrong("growth.patience", format!("must lie between 1 and {most}"));
        }
    }

    fn budget(&mut self, key: ScopeKey, keys: &BudgetKeys) {
        let scope = match key {
            ScopeKey::Run => Scope::Run,
            ScopeKey::CallTree => Scope::CallTree,
            ScopeKey::Agent => Scope::Agent,
            ScopeKey::Tenant => Scope::Tenant,
        };
        let path = format!("budgets.{}", scope.as_str());
        let cost = keys.max_total_cost_usd.and_then(|usd| self.micros(&format!("{path}.max_total_cost_usd"), usd));
        let given = [
            (Dimension::Steps, keys.max_steps),
            (Dimension::ToolCalls, keys.max_tool_calls),
            (Dimension::Cost, cost),
            (Dimension::Tokens, keys.max_tokens),
            (Dimension::Elapsed, keys.max_elapsed_ms),
            (Dimension::CallsPerTool, keys.max_calls_per_tool),
            (Dimension::ConsecutiveSameTool, keys.max_consecutive_same_tool),
            (Dimension::SessionDepth, keys.max_session_depth),
        ];
        for (dimension, limit) in given {
            let Some(limit) = limit else { continue };
            let daily = matches!(scope, Scope::Agent | Scope::Tenant);
            if daily && !dimension.is_shared() {
                self.wrong(format!("{path}.{}", dimension.as_str()), "cannot be counted over many call trees");
            }
            limits(&mut self.policy.rules.budget, scope).set(dimension, (limit > 0).then_some(limit));
        }
    }

    fn micros(&mut self, path: &str, usd: f64) -> Option<u64> {
        let micros = (usd * 1_000_000.0).round();
        if (0.0..=1e15).contains(&micros) {
            return Some(micros as u64);
        }
        self.wrong(path, "must be an amount in US dollars, 0 or more");
        None
    }

    fn tool(&mut self, name: &str, keys: Tool) {
        let path = format!("tool_schemas.{name}");
        if let Err(invalid) = ToolName::parse(&path, name) {
            return self.wrong(invalid.field, format!("the name {}", invalid.problem));
        }
        let mut spec = ToolSpec {
            effect: match keys.effect {
                EffectKey::Unknown => EffectKind::Unknown,
                EffectKey::Read => EffectKind::Read,
                EffectKey::Write => EffectKind::Write,
                EffectKey::Poll => EffectKind::Poll,
            },
            once: keys.once,
            idempotent: keys.idempotent,
            lease_ms: keys.lease_ms.unwrap_or(LEASE_MS_DEFAULT),
            retryable: keys.retryable,
            suggested_next: keys.suggested_next,
            ..ToolSpec::default()
        };
        if let Some(template) = keys.side_effect_resource {
            match ResourceTemplate::parse(&format!("{path}.side_effect_resource"), &template) {
                Ok(template) => spec.resource = Some(template),
                Err(invalid) => self.wrong(invalid.field, invalid.problem),
            }
        }
        if let Some(pointer) = keys.volatile.iter().find(|pointer| !pointer.starts_with('/')) {
            self.wrong(format!("{path}.volatile"), format!("{pointer:?} is no JSON pointer: it must begin with '/'"));
        }
        spec.volatile = keys.volatile;
        spec.cost_micros = keys.cost_usd.and_then(|usd| self.micros(&format!("{path}.cost_usd"), usd)).unwrap_or(0);
        if !(1..=MILLIS_MAX).contains(&spec.lease_ms) {
            self.wrong(format!("{path}.lease_ms"), format!("must lie between 1 and {MILLIS_MAX}"));
        }
        let writes = matches!(spec.effect, EffectKind::Write);
        if (spec.once || spec.idempotent) && !writes && !(spec.once && matches!(spec.effect, EffectKind::Unknown)) {
            self.wrong(&path, "is once or idempotent, which only a write can be: set effect: write");
        }
        if spec.once && spec.idempotent {
            self.wrong(&path, "is both once and idempotent: its repetition either harms or it does not");
        }
        self.policy.declare(name, spec);
    }
}

fn limits(params: &mut crate::rules::budget::Params, scope: Scope) -> &mut Limits {
    match scope {
        Scope::Run => &mut params.run,
        Scope::CallTree => &mut params.call_tree,
        Scope::Agent => &mut params.agent,
        Scope::Tenant => &mut params.tenant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changes_what_it_names_and_nothing_else() {
        let policy = compile(
            "policy_engine:
  deduplication: {window_ms: 60000}
  loops: {repeat: {warning: 2, critical: 4, break: 6}}
  budgets: {run: {max_steps: 12, max_total_cost_usd: 0}}
  cooldown: {max_ms: 60000}
  retry: {explore: 0, share_of_calls: 0.5, unless_wait_honoured: true}
  rules: {growth: {mode: shadow}}
  tool_schemas:
    pay: {once: true, side_effect_resource: 'order/{order_id}', cost_usd: 0.25}
    get_order: {effect: read, side_effect_resource: 'order/{order_id}', retryable: false}
",
        )
        .expect("a good file");
        let tool = ToolName::parse("tool", "pay").expect("valid");
        assert!(policy.tool(&tool).once);
        assert_eq!(policy.tool(&tool).cost_micros, 250_000);
        assert_eq!(policy.rules.same_call.window_ms, 60_000);
        assert_eq!(policy.rules.repeat, Levels::new(2, 4, 6));
        assert_eq!(policy.rules.budget.run.of(Dimension::Steps), Some(12));
        assert_eq!(policy.rules.budget.run.of(Dimension::Cost), None);
        assert_eq!(policy.rules.budget.call_tree, Policy::default().rules.budget.call_tree);
        let retry = &policy.retry;
        assert_eq!((retry.explore, retry.allowance.share, retry.unless_wait_honoured), (0.0, 0.5, true));
        assert_eq!(retry.allowance.most, Policy::default().retry.allowance.most);
        assert_eq!(policy.rules.cooldown.max_ms, 60_000);
        assert_eq!(policy.tools().find_map(|(_, spec)| spec.retryable), Some(false));
        assert_eq!(policy.rules.mode("growth"), Mode::Shadow);
        assert_eq!(policy.version.len(), 16);
    }

    #[test]
    fn everything_wrong_is_said_at_once_with_its_path() {
        let errors = compile(
            "policy_engine:
  loops: {cycle: {warning: 5, critical: 4, break: 40}}
  rules: {repeet: {mode: off}}
  retry: {explore: 5, per_minute: -1}
  tool_schemas:
    pay: {once: true, idempotent: true, side_effect_resource: 'order/{id', volatile: [at]}
    get: {effect: read, idempotent: true}
",
        )
        .expect_err("a bad file");
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 9, "{errors:#?}");
        for part in [
            "loops.cycle: needs 40",
            "rules.repeet: is no rule",
            "pay.side_effect_resource: has a '{'",
            "volatile: \"at\" is no JSON pointer",
            "retry.explore: must be a share",
            "retry.per_minute: is -1",
        ] {
            assert!(errors.iter().any(|error| error.contains(part)), "{part} in {errors:#?}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let errors = compile("policy_engine:\n  loops:\n    windw: 3\n").expect_err("a bad file");
        assert!(errors[0].problem.contains("windw"), "{errors:?}");
        assert_eq!(errors[0].line, Some(3), "{errors:?}");
    }
}
