//! Bookings of a judgment: uses of tiers and grants, and additions to shared counters. Rules only read them.

use crate::{
    domain::{
        budget::{self as books, BudgetSpend, CounterAdd, CounterKey, Dimension, RemainingBudget},
        finding::Decision,
        grant::{GrantUse, Per, RateLimit},
        ids::{AgentId, ToolName},
        time::Timestamp,
        tool::{RiskLevel, ToolSpec},
    },
    policy::Policy,
    rules::{
        Rule, RuleContext, budget,
        tier::{self, Action},
    },
};

/// The shared counters that a call of `tool` by `agent` depends on, each with its limit; without a tool, those of
/// budgets.
#[must_use]
pub fn counter_keys(
    policy: &Policy,
    agent: Option<&AgentId>,
    tool: Option<&ToolName>,
    now: Timestamp,
) -> Vec<(CounterKey, u64)> {
    let rate = tool.and_then(|tool| policy.rules.get::<tier::Params>().rate(tool.as_str()));
    let of_rate = rate
        .into_iter()
        .flat_map(|(tier, rate)| rate.counters(tier, agent, now).into_iter().map(|key| (key, rate.rate.calls)));
    policy.rules.get::<budget::Params>().counters(agent, now.day()).chain(of_rate).collect()
}

/// The uses of tiers and grants by a permit.
pub(super) fn uses(params: &tier::Params, cx: &RuleContext<'_>) -> Vec<GrantUse> {
    let tier = params.tier(cx.tool());
    let medium = tier.is_none() && cx.proposal.spec.risk == Some(RiskLevel::Medium);
    let grants = medium || tier.is_some_and(|tier| tier.action == Action::Grant);
    let explicit = grants.then(|| cx.grant()).flatten();
    let mut uses = Vec::new();
    let next = |key: String, rate: Option<&RateLimit>| {
        let before = cx.tree.uses.get(&key);
        let recent = before.map(|used| used.recent.as_slice()).unwrap_or_default();
        GrantUse {
            opened_at: before.map_or(cx.now, |used| used.opened_at),
            used: before.map_or(0, |used| used.used) + 1,
            recent: rate.map(|rate| rate.rate.after(recent, cx.now)).unwrap_or_default(),
            key,
        }
    };
    if let Some(grant) = explicit {
        uses.push(next(grant.key(), None));
    }
    let rate = tier.and_then(|tier| tier.rate.as_ref()).filter(|rate| rate.per == Per::Session);
    if rate.is_some() || grants && explicit.is_none() {
        let key = tier.map_or_else(|| "risk:MEDIUM".to_owned(), tier::Tier::key);
        uses.push(next(key, rate));
    }
    uses
}

/// Facts are added unconditionally; a reservation must fit its limit.
pub(super) fn counters(policy: &Policy, cx: &RuleContext<'_>, extra: &BudgetSpend) -> Vec<CounterAdd> {
    let mut adds = Vec::new();
    let holds = |rule: &Rule| policy.holds(rule.id, &cx.proposal.spec);
    let enforced = holds(&budget::RULE);
    let request = &cx.proposal.request;
    for (key, limit) in policy.rules.get::<budget::Params>().counters(request.agent.as_ref(), cx.now.day()) {
        let (fact, reservation) = match key.dimension {
            // The step of a refused call is always added; that of a permitted one must fit.
            Dimension::Steps if extra.calls > 0 => (0, extra.steps),
            Dimension::Steps => (extra.steps, 0),
            Dimension::ToolCalls => (0, extra.calls),
            Dimension::Cost => (extra.cost_micros, extra.reserved_micros),
            Dimension::Tokens => (extra.tokens, 0),
            _ => (0, 0),
        };
        for (amount, limit) in [(fact, None), (reservation, enforced.then_some(limit))] {
            if let Some(amount) = i64::try_from(amount).ok().filter(|amount| *amount > 0) {
                adds.push(CounterAdd { key: key.clone(), amount, limit });
            }
        }
    }
    // A rate that is shared by trees is taken with the permit, and refused by the store when others were faster.
    if extra.calls > 0
        && holds(&tier::RULE)
        && let Some((tier, rate)) = policy.rules.get::<tier::Params>().rate(cx.tool())
    {
        let mut keys = rate.counters(tier, request.agent.as_ref(), cx.now).into_iter();
        let present = keys.next();
        // The usage of earlier parts of the window reduces the current one's limit.
        let taken: u64 = keys.filter_map(|key| cx.counters.get(&key)).sum();
        let limit = Some(rate.rate.calls.saturating_sub(taken));
        adds.extend(present.map(|key| CounterAdd { key, amount: 1, limit }));
    }
    adds
}

/// True when every further call of the tool will be refused: after STOP, or with an exhausted, enforced budget.
pub(super) fn is_tool_disabled(policy: &Policy, spec: &ToolSpec, decision: Decision, left: &[RemainingBudget]) -> bool {
    decision == Decision::Stop || is_spent(policy, spec, left)
}

/// True when an enforced budget of the tool is exhausted.
pub(super) fn is_spent(policy: &Policy, spec: &ToolSpec, left: &[RemainingBudget]) -> bool {
    policy.holds(budget::RULE.id, spec) && books::is_spent(left)
}
