//! tool_circuit_breaker: the circuit breaker of a tool that is rate limited or down, for all sessions of the tenant.
//!
//! Fires (WAIT) while the tool's circuit is open: some session of the tenant has just found it rate limited, or down
//! (more than two consecutive transient failures). The circuit is open as long as the provider asks for, otherwise for
//! the learned smallest good wait, at most `max_ms`. It is then half-open: one call at a time is the probe, the others
//! wait for it, and the first success closes the circuit.
//!
//! Why: one session's knowledge helps all; a hundred agents that each probe a limited API keep it limited.
//!
//! Known problems: a tool whose calls go to several services has one circuit. During a probe, the others' WAIT is a
//! recheck: the same finding may recur after it.

use crate::domain::{
    finding::{Decision, Finding, Wording},
    reason::Reason,
    time::wait_in_words,
};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{PolicySection, RecordedCall, Rule, RuleContext, RuleLogic, SectionProblem, take_in};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("tool_circuit_breaker");
/// Interval of rechecks while another call is the probe, in milliseconds.
const RECHECK_MS: u64 = 1_000;

/// Parameters of the circuit breaker of tools.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "ToolCircuitBreaker")]
pub struct Params {
    /// Longest time that the circuit breaker of a tool is open.
    pub max_ms: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self { max_ms: 300_000 }
    }
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        check(cx)
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        format!("the circuit breaker of {} let it through", asked.tool)
    }

    fn policy_sections(&self) -> Vec<PolicySection> {
        vec![PolicySection::section::<Self>(RULE.section)]
    }

    fn read(&mut self, _at: &str, part: Value) -> Vec<SectionProblem> {
        take_in(self, part)
    }
}

fn check(cx: &RuleContext<'_>) -> Option<Finding> {
    let cooldown = cx.cooldown?;
    let (tool, failure) = (cx.tool(), cooldown.failure.as_str());
    let waits = cx.who_waits();
    if cx.now < cooldown.until {
        let ms = cooldown.until.since_ms(cx.now);
        let situation = format!(
            "{tool} was not run: it answered {failure}, and every agent of this fleet leaves it alone for {}.",
            wait_in_words(ms)
        );
        let message = Wording::new(situation, waits);
        return Some(Finding::new(RULE.id, Decision::Wait, Reason::Cooldown, message).retry_after(ms));
    }
    let ms = cooldown.probe_until.filter(|until| cx.now < *until)?.since_ms(cx.now).min(RECHECK_MS);
    let situation = format!(
        "{tool} was not run: it answered {failure}, and another call is finding out whether it works again, \
         which takes up to {}.",
        wait_in_words(ms)
    );
    let message = Wording::new(situation, waits);
    Some(Finding::new(RULE.id, Decision::Wait, Reason::Cooldown, message).retry_after(ms))
}
