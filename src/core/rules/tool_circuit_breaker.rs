//! tool_circuit_breaker: the circuit breaker of a tool that is rate limited or down, for all sessions of the tenant.
//!
//! Fires (WAIT) while the tool's circuit is open: some session of the tenant has just found it rate limited, or down
//! (more than two consecutive transient failures). The circuit is open as long as the provider asks for, otherwise for
//! the learned smallest good wait, at most `max_ms`. It is then half-open: one call at a time is the probe, the others
//! wait for it, and the first success closes the circuit. After a rate limit calls are paced instead, each at its turn
//! (docs/learning.md#pacing), where the replica knows a rate.
//!
//! Why: one session's knowledge helps all; a hundred agents that each probe a limited API keep it limited.
//!
//! Known problems: a tool whose calls go to several services has one circuit. During a probe, the others' WAIT is a
//! recheck: the same finding may recur after it.

use crate::domain::{
    failure::FailureKind,
    finding::{Decision, Finding, Wording},
    health::Cooldown,
    reason::Reason,
    time::{Timestamp, wait_in_words},
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
    /// Spread calls of a tool over time after a rate limit, at the rate that its provider accepted.
    pub pacing: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self { max_ms: 300_000, pacing: true }
    }
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        let turn = cx.turn.filter(|_| self.pacing);
        cx.cooldown.and_then(|open| check_circuit(cx, open, turn)).or_else(|| check_turn(cx, turn?))
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

fn check_circuit(cx: &RuleContext<'_>, open: Cooldown, turn: Option<Timestamp>) -> Option<Finding> {
    let (tool, failure) = (cx.tool(), open.failure.as_str());
    if cx.now < open.until {
        let ms = turn.map_or(open.until, |turn| turn.max(open.until)).since_ms(cx.now);
        let open_ms = open.until.since_ms(cx.now);
        return Some(wait(
            cx,
            ms,
            format!(
                "{tool} was not run: it answered {failure}, and every agent of this fleet leaves it alone for {}.",
                wait_in_words(open_ms)
            ),
        ));
    }
    if turn.is_some() && open.failure == FailureKind::RateLimited {
        return None;
    }
    let ms = open.probe_until.filter(|until| cx.now < *until)?.since_ms(cx.now).min(RECHECK_MS);
    let situation = format!(
        "{tool} was not run: it answered {failure}, and another call is finding out whether it works again, \
         which takes up to {}.",
        wait_in_words(ms)
    );
    Some(wait(cx, ms, situation))
}

fn check_turn(cx: &RuleContext<'_>, turn: Timestamp) -> Option<Finding> {
    let ms = turn.since_ms(cx.now);
    let situation = || {
        format!(
            "{} was not run: its provider limits the rate of calls, so that the agents of this fleet take turns. \
             The turn of this call comes in {} at the earliest.",
            cx.tool(),
            wait_in_words(ms)
        )
    };
    (ms > 0).then(|| wait(cx, ms, situation()))
}

fn wait(cx: &RuleContext<'_>, ms: u64, situation: String) -> Finding {
    let message = Wording::new(situation, cx.who_waits());
    Finding::new(RULE.id, Decision::Wait, Reason::Cooldown, message).retry_after(ms)
}
