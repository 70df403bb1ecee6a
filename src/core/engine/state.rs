//! Session state: past calls, loops and remaining budgets, for people and for a context after compaction.

use std::collections::BTreeMap;

use crate::{
    domain::{
        accounting::Books,
        budget::{BudgetSpend, CounterKey, RemainingBudget},
        call::{ApprovalStatus, Call, CallStatus},
        finding::Level,
        gist,
        history::PastCall,
        ids::{SessionId, ToolName},
        redaction::Redaction,
        session_state::{CallState, CallTold, Extent, SessionState},
        time::Timestamp,
        tool::ToolSpec,
        tree::{CallTree, RunBreak, Session},
    },
    engine::{
        bookings::is_spent,
        summary::{ARGUMENTS_MAX, SessionHistory, SummaryInput, came_of, summary},
    },
    policy::Policy,
    rules::{BreakScope, budget},
};

/// The state of a session of `tree`, with its past calls, oldest first; none for an unknown session.
#[must_use]
pub fn session_state(
    policy: &Policy,
    tree: &CallTree,
    id: &SessionId,
    (counters, past): (&BTreeMap<CounterKey, u64>, &[PastCall]),
    extent: Extent,
    now: Timestamp,
) -> Option<SessionState> {
    let session = tree.sessions.get(id)?;
    let now = now.max(tree.last_at);
    let newest = session.calls.back();
    let anything = ToolName::parse("tool", newest.map_or("-", |call| call.tool.as_str())).ok()?;
    let agent = newest.and_then(|call| call.agent.as_ref());
    let books = Books::of(tree, Some(session), agent, &anything, counters, now);
    let left = books.list_remaining(policy.rules.get(), &BudgetSpend::default());
    let stops = Stops::of(policy, session, &left);
    let listed = session.calls.iter().rev().enumerate();
    let listed = listed.filter(|(i, call)| *i < extent.last_calls || call.is_open() || is_held(call, now));
    Some(SessionState {
        root: tree.root.clone(),
        parent: session.parent.clone(),
        run: session.run.id.as_ref().map(|run| run.as_str().to_owned()),
        is_stopped: stops.is_all(),
        run_spent: session.run.spent,
        tree_spent: tree.spent,
        loops: loops(session),
        calls: listed.map(|(_, call)| summarize_call(call, past, &policy.redaction, now)).collect(),
        cooldowns: Vec::new(),
        summary_for_model: summary(
            &SummaryInput { session, past, stops: &stops, left: &left, redaction: &policy.redaction, now },
            extent.summary_tokens,
        ),
        left,
        at: now,
    })
}

/// Closed parts of the run: only enforced breaks, with their exact scope.
pub(super) struct Stops {
    /// The whole run, except tools in shadow mode.
    run: bool,
    /// Tools in shadow mode, whose calls are permitted.
    shadowed: Vec<String>,
    /// Closed tools and calls.
    parts: Vec<(BreakScope, RunBreak)>,
}

impl Stops {
    fn of(policy: &Policy, session: &Session, left: &[RemainingBudget]) -> Self {
        let closes = |closed: &RunBreak| policy.rules.find(&closed.rule).map(|slot| slot.rule.closes);
        let ends_run = |closed: &RunBreak| closes(closed) == Some(BreakScope::Run);
        let any = ToolSpec::default();
        let broken = session.run.closed.iter().any(|closed| policy.holds(&closed.rule, &any) && ends_run(closed));
        let of_tool = session.run.closed.iter().filter(|closed| policy.holds(&closed.rule, policy.tool(&closed.tool)));
        let parts = of_tool.filter_map(|closed| Some((closes(closed)?, closed.clone())));
        let shadowed = policy.tools().filter(|(_, spec)| spec.shadow).map(|(name, _)| name.to_owned());
        Self { run: broken || is_spent(policy, &any, left), shadowed: shadowed.collect(), parts: parts.collect() }
    }

    /// True when every call is refused.
    fn is_all(&self) -> bool {
        self.run && self.shadowed.is_empty()
    }

    /// True when the run is stopped, except for tools in shadow mode.
    pub(super) fn is_run(&self) -> bool {
        self.run
    }

    /// The lines for the model.
    pub(super) fn render_lines(&self, past: &SessionHistory<'_>) -> Vec<String> {
        let run = self.run.then(|| match self.shadowed.join(", ") {
            none if none.is_empty() => "Tools are disabled for this turn: give the final answer.".to_owned(),
            some => format!("Tools are disabled for this turn, except {some}: finish with what you have."),
        });
        let part = |(closes, closed): &(BreakScope, RunBreak)| match closes {
            BreakScope::Tool => Some(format!("{} is disabled for the rest of this turn.", closed.tool)),
            BreakScope::Call => Some(format!(
                "{} is refused for the rest of this turn with {}; other arguments are not.",
                closed.tool,
                past.arguments_of(closed.fingerprint).unwrap_or_else(|| "the arguments that were repeated".to_owned())
            )),
            _ => None,
        };
        let parts = self.parts.iter().filter(|_| !self.is_all()).filter_map(part);
        run.into_iter().chain(parts).collect()
    }
}

/// Summary of a call.
fn summarize_call(call: &Call, past: &[PastCall], redaction: &Redaction, now: Timestamp) -> CallTold {
    let found = past.iter().rev().find(|past| past.call_id == call.call_id && past.seq >= call.seq);
    let arguments = found.and_then(|past| past.arguments.as_deref()).or(call.arguments.as_deref());
    let outcome = found.and_then(|past| past.outcome.as_ref());
    let state = CallState::of(call, now);
    let success = outcome.filter(|_| state == CallState::Succeeded);
    let error = call.outcome.as_ref().and_then(|outcome| outcome.error_line.as_deref());
    CallTold {
        call: call.clone(),
        state,
        arguments: arguments.map(|text| gist::arguments(text, redaction, ARGUMENTS_MAX)).unwrap_or_default(),
        gist: success.map(came_of).unwrap_or_default(),
        result_bytes: success.and_then(|outcome| outcome.result_bytes),
        is_cut: success.is_some_and(|outcome| outcome.is_cut),
        error: error.unwrap_or_default().to_owned(),
    }
}

fn is_held(call: &Call, now: Timestamp) -> bool {
    matches!(call.standing(now), CallStatus::Held(approval) if approval.answer == ApprovalStatus::Pending)
}

fn loops(session: &Session) -> Vec<(String, Level, u32)> {
    let mut loops: Vec<(String, Level, u32)> = Vec::new();
    for finding in session.calls_in_run().flat_map(|call| call.findings.iter()) {
        if let (Some(level), Some(count)) = (finding.level, finding.count)
            && finding.rule != budget::RULE.id
            && !loops.iter().any(|(rule, _, _)| *rule == finding.rule)
        {
            loops.push((finding.rule.to_string(), level, count));
        }
    }
    loops
}

#[cfg(test)]
#[path = "state/tests.rs"]
mod tests;
