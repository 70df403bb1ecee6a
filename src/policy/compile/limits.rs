//! Rates, budgets and retries.

use super::{Compiler, set};
use crate::{
    domain::budget::{Dimension, Limits, Scope},
    policy::file::{BudgetKeys, Growth, Retry, ScopeKey},
    rules::growth,
};

impl Compiler {
    pub(super) fn retry(&mut self, keys: &Retry) {
        let retry = &mut self.policy.retry;
        set(&mut retry.attempts, keys.attempts);
        set(&mut retry.rate_limit_run, keys.rate_limit_run);
        set(&mut retry.unless_wait_honoured, keys.unless_wait_honoured);
        set(&mut retry.explore, keys.explore);
        set(&mut retry.allowance.share, keys.share_of_calls);
        set(&mut retry.allowance.per_minute, keys.per_minute);
        set(&mut retry.allowance.max, keys.saved_up);
        let (explore, allowance) = (retry.explore, retry.allowance);
        if self.policy.retry.attempts == 0 {
            self.wrong("retry.attempts", "must be 1 or more: the first try is an attempt");
        }
        if !(0.0..=1.0).contains(&explore) {
            self.wrong("retry.explore", "must be a share between 0 and 1");
        }
        let amounts =
            [("share_of_calls", allowance.share), ("per_minute", allowance.per_minute), ("saved_up", allowance.max)];
        for (key, amount) in amounts.into_iter().filter(|(_, amount)| !(0.0..=1e6).contains(amount)) {
            self.wrong(format!("retry.{key}"), format!("is {amount}; it must lie between 0 and 1000000"));
        }
    }

    pub(super) fn growth(&mut self, keys: &Growth) {
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

    pub(super) fn budget(&mut self, key: ScopeKey, keys: &BudgetKeys) {
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

    pub(super) fn micros(&mut self, path: &str, usd: f64) -> Option<u64> {
        let micros = (usd * 1_000_000.0).round();
        if (0.0..=1e15).contains(&micros) {
            return Some(micros as u64);
        }
        self.wrong(path, "must be an amount in US dollars, 0 or more");
        None
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
