//! bulkhead: a bounded number of calls in flight over the whole fleet.
//!
//! Fires (WAIT) when as many calls of a limit's tools are in flight as it allows, in any session, agent or replica of
//! the tenant: per tool, per resource, or over all its tools together. A call in flight holds a lease until its report,
//! or until its lease expires. Waiting calls go in the order of their arrival; the text tells the place in the queue.
//!
//! Why: a slow service that everybody calls at once becomes slower for everybody, and a pool of connections has a size.
//!
//! Known problems: a waiting call that does not return within 5 s after its wait loses its place. A call that still
//! runs when its lease has expired is not counted. After a lower limit, the calls in flight end first.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Mode, PolicySection, RecordedCall, Rule, RuleContext, RuleLogic, RuleSet, SectionProblem, take_in};
use crate::domain::{
    bulkhead::{BulkheadClaim, FullBulkhead, IN_FLIGHT_MAX},
    call::Proposal,
    finding::{Decision, Finding, Wording},
    pattern::Pattern,
    reason::Reason,
    time::{Timestamp, wait_in_words},
};

/// The rule.
pub const RULE: Rule = Rule::of::<Params>("bulkhead");
/// Maximum number of limits of a policy.
const LIMITS_MAX: usize = 32;

/// Scope in which calls are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "BulkheadScope")]
pub enum BulkheadScope {
    /// Each tool by itself.
    #[default]
    Tool,
    /// Each resource by itself; calls without one are not limited.
    Resource,
    /// All tools of the limit together.
    Tenant,
}

/// A limit of calls in flight.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BulkheadLimit")]
struct LimitKeys {
    /// Unique name, for texts.
    name: String,
    /// Tools: `get_*|list_*`.
    tools: String,
    /// Maximum number of calls in flight, over all sessions, agents and replicas.
    max_in_flight: u32,
    /// Scope in which calls are counted.
    #[serde(default)]
    per: BulkheadScope,
}

/// Limits of calls in flight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Bulkhead")]
struct SectionKeys {
    /// The limits. Each that matches a call must have room for it.
    limits: Vec<LimitKeys>,
}

/// A limit of calls in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Limit {
    name: Arc<str>,
    tools: Pattern,
    max: u32,
    per: BulkheadScope,
}

/// The limits of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params {
    limits: Vec<Limit>,
}

impl Params {
    /// True without a limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// True for a tool with a limit.
    #[must_use]
    pub fn limits(&self, tool: &str) -> bool {
        self.limits.iter().any(|limit| limit.tools.matches(tool))
    }

    fn claims(&self, proposal: &Proposal, now: Timestamp, margin_ms: u64) -> Vec<(BulkheadClaim, FullBulkhead)> {
        let request = &proposal.request;
        let tool = request.tool.as_str();
        let limits = self.limits.iter().filter(|limit| limit.tools.matches(tool) && !proposal.spec.terminal);
        let claims = limits.filter_map(|limit| {
            let (kind, scope) = match limit.per {
                BulkheadScope::Tool => ("tool", tool),
                BulkheadScope::Resource => ("resource", proposal.effect.resource.as_ref()?.as_str()),
                BulkheadScope::Tenant => ("tenant", ""),
            };
            let claim = BulkheadClaim {
                limit: format!("{}:{kind}:{scope}", limit.name).into(),
                max: limit.max,
                session: request.session.clone(),
                call_id: request.call_id.clone(),
                fingerprint: proposal.fingerprint,
                until: now.plus_ms(proposal.spec.lease_ms + margin_ms),
            };
            let scope = match limit.per {
                BulkheadScope::Tool => format!("of {tool}"),
                BulkheadScope::Resource => format!("on {scope}"),
                BulkheadScope::Tenant => format!("under {}", limit.name),
            };
            let full = FullBulkhead { name: Arc::clone(&limit.name), scope, max: limit.max, place: 0, wait_ms: 0 };
            Some((claim, full))
        });
        claims.collect()
    }
}

impl RuleLogic for Params {
    fn check(&self, cx: &RuleContext<'_>) -> Option<Finding> {
        let full = cx.bulkhead?;
        let situation = format!(
            "{} was not run: the limit of {} in flight {} is reached. It is number {} in the queue; the next try is in \
             {}.",
            cx.tool(),
            if full.max == 1 { "1 call".to_owned() } else { format!("{} calls", full.max) },
            full.scope,
            full.place,
            wait_in_words(full.wait_ms)
        );
        let message = Wording::new(situation, cx.who_waits());
        Some(Finding::new(RULE.id, Decision::Wait, Reason::BulkheadFull, message).retry_after(full.wait_ms))
    }

    fn silent(&self, asked: &RecordedCall<'_>) -> String {
        let limits = self.limits.iter().filter(|limit| limit.tools.matches(asked.tool));
        let limits: Vec<String> = limits.map(|limit| format!("room within {} of {}", limit.max, limit.name)).collect();
        if limits.is_empty() { "no limit of calls in flight".to_owned() } else { limits.join("; ") }
    }

    fn policy_sections(&self) -> Vec<PolicySection> {
        vec![PolicySection::section::<SectionKeys>(RULE.section)]
    }

    fn read(&mut self, _at: &str, part: Value) -> Vec<SectionProblem> {
        let mut keys = SectionKeys::default();
        let mut problems = take_in(&mut keys, part);
        if keys.limits.len() > LIMITS_MAX {
            let what = format!("has {} limits; at most {LIMITS_MAX} are allowed", keys.limits.len());
            problems.push(SectionProblem::of("limits", what));
            return problems;
        }
        for (i, limit) in keys.limits.iter().enumerate() {
            let is_taken = keys.limits[..i].iter().any(|other| other.name == limit.name);
            if limit.name.is_empty() || limit.name.len() > 64 || limit.name.contains(':') || is_taken {
                let what = "must be a name of at most 64 bytes, without `:`, that no other limit has";
                problems.push(SectionProblem::of(format!("limits[{i}].name"), what));
            }
            if !(1..=IN_FLIGHT_MAX).contains(&limit.max_in_flight) {
                let what = format!("is {}; it must lie between 1 and {IN_FLIGHT_MAX}", limit.max_in_flight);
                problems.push(SectionProblem::of(format!("limits[{i}].max_in_flight"), what));
            }
            let field = format!("limits[{i}].tools");
            match Pattern::parse(&field, &limit.tools) {
                Ok(tools) => self.limits.push(Limit {
                    name: limit.name.as_str().into(),
                    tools,
                    max: limit.max_in_flight,
                    per: limit.per,
                }),
                Err(invalid) => problems.push(SectionProblem::of(field, invalid.problem)),
            }
        }
        problems
    }
}

/// The claims of a call under the policy's rules, each with the full bulkhead that it may find; none while the rule is
/// off. Leases end `margin_ms` after the call's.
#[must_use]
pub fn claims(
    rules: &RuleSet,
    proposal: &Proposal,
    now: Timestamp,
    margin_ms: u64,
) -> Vec<(BulkheadClaim, FullBulkhead)> {
    if rules.mode(RULE.id) == Mode::Off {
        return Vec::new();
    }
    rules.get::<Params>().claims(proposal, now, margin_ms)
}
