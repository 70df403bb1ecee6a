//! budget: a limit of steps, calls, money, tokens, time or depth is reached.
//!
//! Fires when a limit of the run, the call tree, the agent's or the tenant's day is spent (STOP), or when this call
//! does not fit into what is left, or only its tool's own limit is reached (DENY). From 80 % of a limit a hint says
//! what is left, again from 90 %.
//!
//! Why: runaway spending has to stop before the call that would pass the limit, not after the bill. A final ALLOW
//! reserves the estimated cost; Record books the actual in full.
//!
//! Known problems: actual costs may exceed the estimate, and pass a limit by that much.

use std::collections::BTreeMap;

use crate::domain::{
    budget::{CounterKey, Dimension, Left, Limits, Scope, Spent, Usage},
    finding::{Decision, Finding, Level},
    ids::{AgentId, ToolName},
    reason::Reason,
    time::{Timestamp, wait_in_words},
    tree::{CallTree, Run, Session},
};

use super::Context;

/// The rule's name.
pub const ID: &str = "budget";
const HINT_FROM_PERCENT: u64 = 80;
const HINT_EVERY_PERCENT: u64 = 10;

/// The limits of every scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// Per run.
    pub run: Limits,
    /// Per call tree.
    pub call_tree: Limits,
    /// Per agent and UTC day.
    pub agent: Limits,
    /// Per tenant and UTC day.
    pub tenant: Limits,
}

impl Default for Params {
    /// Wide enough for real work, narrow enough to stop what has run away overnight.
    fn default() -> Self {
        use Dimension::{CallsPerTool, Cost, Elapsed, SessionDepth, Steps, Tokens, ToolCalls};
        const DOLLAR: u64 = 1_000_000;
        const HOUR_MS: u64 = 3_600_000;
        Self {
            run: Limits::new([(Steps, 200), (Cost, 10 * DOLLAR), (Elapsed, 6 * HOUR_MS)]),
            call_tree: Limits::new([
                (Steps, 2_000),
                (ToolCalls, 1_000),
                (Cost, 50 * DOLLAR),
                (Tokens, 100_000_000),
                (CallsPerTool, 500),
                (SessionDepth, 8),
            ]),
            agent: Limits::new([(Cost, 200 * DOLLAR)]),
            tenant: Limits::new([(Cost, 1_000 * DOLLAR)]),
        }
    }
}

impl Params {
    /// The limits of one scope.
    #[must_use]
    pub fn of(&self, scope: Scope) -> &Limits {
        match scope {
            Scope::Run => &self.run,
            Scope::CallTree => &self.call_tree,
            Scope::Agent => &self.agent,
            Scope::Tenant => &self.tenant,
        }
    }

    /// The shared counters that the limits of agent and tenant need on `day`.
    pub fn counters<'a>(
        &'a self,
        agent: Option<&'a AgentId>,
        day: i32,
    ) -> impl Iterator<Item = (CounterKey, u64)> + 'a {
        let keys = move |limits: &'a Limits, agent: Option<AgentId>| {
            let shared = limits.iter().filter(|(dimension, _)| dimension.is_shared());
            shared
                .map(move |(dimension, limit)| (CounterKey { agent: agent.clone(), day, dimension, tier: None }, limit))
        };
        let of_agent = agent.into_iter().flat_map(move |agent| keys(&self.agent, Some(agent.clone())));
        of_agent.chain(keys(&self.tenant, None))
    }
}

/// Everything that spending is read from.
#[derive(Debug, Clone, Copy)]
pub struct Books<'a> {
    /// The tree.
    pub tree: &'a CallTree,
    /// The current run; none before its first call.
    pub run: Option<&'a Run>,
    /// The session; none before its first call.
    pub session: Option<&'a Session>,
    /// How deep the session is nested.
    pub depth: u32,
    /// Whose day is counted beside the tenant's.
    pub agent: Option<&'a AgentId>,
    /// The tool whose own limits count.
    pub tool: &'a ToolName,
    /// Shared counters, as last seen.
    pub counters: &'a BTreeMap<CounterKey, u64>,
    /// Now.
    pub now: Timestamp,
}

impl<'a> Books<'a> {
    /// The books behind a question.
    #[must_use]
    pub fn of(cx: &Context<'a>) -> Self {
        let request = &cx.proposal.request;
        Self {
            tree: cx.tree,
            run: cx.run(),
            session: cx.session(),
            depth: cx.depth,
            agent: request.agent.as_ref(),
            tool: &request.tool,
            counters: cx.counters,
            now: cx.now,
        }
    }

    /// What has been spent; none where the scope does not apply.
    #[must_use]
    pub fn used(&self, scope: Scope, dimension: Dimension) -> Option<u64> {
        let fresh = Run::default();
        let run = self.run.unwrap_or(&fresh);
        let (spent, by_tool, since) = match scope {
            Scope::Run => (&run.spent, &run.by_tool, self.run.map(|run| run.started_at)),
            Scope::CallTree => (&self.tree.spent, &self.tree.by_tool, Some(self.tree.started_at)),
            Scope::Agent | Scope::Tenant => return self.counted(scope, dimension),
        };
        Some(match dimension {
            Dimension::Steps => spent.steps,
            Dimension::ToolCalls => spent.calls,
            Dimension::Cost => spent.cost_micros.saturating_add(spent.reserved_micros),
            Dimension::Tokens => spent.tokens,
            Dimension::Elapsed => since.map_or(0, |since| self.now.since_ms(since)),
            Dimension::CallsPerTool => by_tool.get(self.tool).copied().unwrap_or(0),
            Dimension::ConsecutiveSameTool => self.in_a_row(),
            Dimension::SessionDepth => u64::from(self.depth),
        })
    }

    fn counted(&self, scope: Scope, dimension: Dimension) -> Option<u64> {
        let agent = match scope {
            Scope::Agent => Some(self.agent?.clone()),
            _ => None,
        };
        let key = CounterKey { agent, day: self.now.day(), dimension, tier: None };
        dimension.is_shared().then(|| self.counters.get(&key).copied().unwrap_or(0))
    }

    fn in_a_row(&self) -> u64 {
        let calls = self.run.and(self.session).into_iter().flat_map(Session::calls_in_run);
        calls.filter(|call| call.permit.is_some()).take_while(|call| call.tool == *self.tool).count() as u64
    }

    /// What is left of every limit that applies, after `extra` was spent on top of the books.
    #[must_use]
    pub fn left(&self, params: &Params, extra: &Spent) -> Vec<Left> {
        let mut left = Vec::new();
        for scope in Scope::ALL {
            for (dimension, limit) in params.of(scope).iter() {
                let Some(used) = self.used(scope, dimension) else {
                    continue;
                };
                let used = used.saturating_add(match dimension {
                    Dimension::Steps => extra.steps,
                    Dimension::ToolCalls | Dimension::CallsPerTool | Dimension::ConsecutiveSameTool => extra.calls,
                    Dimension::Cost => extra.cost_micros.saturating_add(extra.reserved_micros),
                    Dimension::Tokens => extra.tokens,
                    Dimension::Elapsed | Dimension::SessionDepth => 0,
                });
                left.push(Left { scope, dimension, used, limit });
            }
        }
        left
    }
}

/// True when nothing more will be let through in some scope: every next call meets a STOP of this rule.
#[must_use]
pub fn is_spent(left: &[Left]) -> bool {
    left.iter().any(|left| stops(left.dimension) && left.remaining() == 0)
}

fn stops(dimension: Dimension) -> bool {
    !matches!(dimension, Dimension::CallsPerTool | Dimension::ConsecutiveSameTool | Dimension::SessionDepth)
}

/// See the module.
#[must_use]
pub fn check(params: &Params, cx: &Context<'_>) -> Option<Finding> {
    let usage = cx.usage();
    // What has been used is a fact and counts whether or not the call is let through.
    let facts = Spent { cost_micros: usage.cost_micros, tokens: usage.tokens(), ..Spent::default() };
    let left = Books::of(cx).left(params, &facts);
    let refusals = left.iter().filter_map(|left| refusal(cx, left));
    // The first of equals: the narrowest scope says it best.
    let refusal = refusals.reduce(|first, next| if next.decision > first.decision { next } else { first });
    refusal.or_else(|| hint(params, cx, usage))
}

fn refusal(cx: &Context<'_>, left: &Left) -> Option<Finding> {
    let Left { scope, dimension, used, limit } = *left;
    let (what, whose) = (dimension.in_words(limit), scope_in_words(scope));
    let cost = cx.proposal.cost_micros;
    let tool = cx.tool();
    match dimension {
        Dimension::Steps if !cx.is_new => None,
        Dimension::SessionDepth if used > limit => {
            let message = format!(
                "Tools are disabled here: sub-agents may be nested {limit} deep, and this session \
            is {used} deep. Return what you have to the agent that started you."
            );
            Some(Finding::new(ID, Decision::Stop, Reason::BudgetExceeded, message))
        }
        Dimension::SessionDepth => None,
        Dimension::CallsPerTool | Dimension::ConsecutiveSameTool if used >= limit => {
            let row = if dimension == Dimension::CallsPerTool { "" } else { " in a row" };
            let message = format!(
                "{tool} was not run: it may be called {limit} times{row} {whose}. Go on with what \
            you have, or use another tool."
            );
            Some(Finding::new(ID, Decision::Deny, Reason::BudgetExceeded, message))
        }
        _ if stops(dimension) && used >= limit => {
            let reason =
                if dimension == Dimension::Steps { Reason::StepBudgetExceeded } else { Reason::BudgetExceeded };
            let message = format!(
                "Tools are disabled: the budget of {what} {whose} is used up. Give the final answer with what you \
                have, \
                 and say what is missing."
            );
            Some(Finding::new(ID, Decision::Stop, reason, message))
        }
        Dimension::Cost if used.saturating_add(cost) > limit => {
            let message = format!(
                "{tool} was not run: it is expected to cost {}, and {} of {what} is left {whose}. Use a cheaper \
                way, or \
                 tell the user.",
                dimension.in_words(cost),
                dimension.in_words(left.remaining())
            );
            Some(Finding::new(ID, Decision::Deny, Reason::BudgetExceeded, message))
        }
        _ => None,
    }
    .map(|finding| Finding { count: u32::try_from(used).ok(), ..finding })
}

fn scope_in_words(scope: Scope) -> &'static str {
    match scope {
        Scope::Run => "for this turn",
        Scope::CallTree => "for this task",
        Scope::Agent => "for this agent today",
        Scope::Tenant => "for all agents today",
    }
}

fn hint(params: &Params, cx: &Context<'_>, usage: Usage) -> Option<Finding> {
    let extra = Spent {
        steps: u64::from(cx.is_new),
        calls: 1,
        cost_micros: usage.cost_micros,
        reserved_micros: cx.proposal.cost_micros,
        tokens: usage.tokens(),
    };
    let percent = |left: &Left| left.used.saturating_mul(100) / left.limit.max(1);
    let left = Books::of(cx).left(params, &extra);
    let fullest = left.iter().filter(|left| stops(left.dimension)).max_by_key(|left| percent(left))?;
    let bucket = (percent(fullest).min(100) / HINT_EVERY_PERCENT * HINT_EVERY_PERCENT) as u32;
    if u64::from(bucket) < HINT_FROM_PERCENT {
        return None;
    }
    if cx.calls().any(|call| call.told(ID).any(|told| told >= bucket)) {
        return None;
    }
    let (scope, dimension) = (fullest.scope, fullest.dimension);
    let message = match dimension {
        Dimension::Elapsed => format!(
            "{} of {} {} are over after this call; finish soon.",
            wait_in_words(fullest.used),
            dimension.in_words(fullest.limit),
            scope_in_words(scope)
        ),
        _ => format!(
            "{} of {} are left {} after this call; finish with what matters most.",
            dimension.in_words(fullest.remaining()),
            dimension.in_words(fullest.limit),
            scope_in_words(scope)
        ),
    };
    let reason = if dimension == Dimension::Steps { Reason::StepBudgetExceeded } else { Reason::BudgetExceeded };
    Some(Finding::new(ID, Decision::Allow, reason, message).at_level(Level::Warning, bucket))
}

#[cfg(test)]
#[path = "budget/tests.rs"]
mod tests;
