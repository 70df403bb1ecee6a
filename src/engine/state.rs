//! What a session has done and may still do, in one answer: for people, and to be put back into a context after
//! compaction.

use std::collections::BTreeMap;

use crate::{
    domain::{
        books::Books,
        budget::{CounterKey, Left, Spent},
        call::{ApprovalStatus, Call, Standing},
        finding::Level,
        ids::{SessionId, ToolName},
        session_state::{CallState, SessionState},
        time::{Timestamp, wait_in_words},
        tool::ToolSpec,
        tree::{CallTree, Closed, Session},
    },
    engine::bookings::is_spent,
    policy::Policy,
    rules::{Closes, budget},
};

/// Calls told in a summary for the model.
const SUMMARY_CALLS_MAX: usize = 12;

/// The state of a session of `tree`; none when the tree has no such session.
#[must_use]
pub fn session_state(
    policy: &Policy,
    tree: &CallTree,
    id: &SessionId,
    counters: &BTreeMap<CounterKey, u64>,
    last_calls: usize,
    now: Timestamp,
) -> Option<SessionState> {
    let session = tree.sessions.get(id)?;
    let now = now.max(tree.last_at);
    let newest = session.calls.back();
    let anything = ToolName::parse("tool", newest.map_or("-", |call| call.tool.as_str())).ok()?;
    let agent = newest.and_then(|call| call.agent.as_ref());
    let books = Books::of(tree, Some(session), agent, &anything, counters, now);
    let left = books.left(policy.rules.get(), &Spent::default());
    let stops = Stops::of(policy, session, &left);
    let listed = session.calls.iter().rev().enumerate();
    let listed = listed.filter(|(i, call)| *i < last_calls || call.is_open() || is_held(call, now));
    Some(SessionState {
        root: tree.root.clone(),
        parent: session.parent.clone(),
        run: session.run.id.as_ref().map(|run| run.as_str().to_owned()),
        is_stopped: stops.is_all(),
        run_spent: session.run.spent,
        tree_spent: tree.spent,
        loops: loops(session),
        calls: listed.map(|(_, call)| (call.clone(), CallState::of(call, now))).collect(),
        cooldowns: Vec::new(),
        summary_for_model: summary(session, &left, &stops, now),
        left,
        at: now,
    })
}

/// What is refused for the rest of the run, whatever else is asked: only what holds, and no more than was closed.
struct Stops {
    /// Every call is, but for those of tools in shadow.
    run: bool,
    /// Tools in shadow, whose calls are let through all the same.
    shadowed: Vec<String>,
    /// Single tools and calls that are.
    parts: Vec<String>,
}

impl Stops {
    fn of(policy: &Policy, session: &Session, left: &[Left]) -> Self {
        let newest = session.calls_in_run().next();
        let closes = |closed: &Closed| policy.rules.find(&closed.rule).map(|slot| slot.rule.closes);
        let ends_run = |closed: &Closed| match closes(closed) {
            Some(Closes::Run) => true,
            Some(Closes::RunWhileRefused) => newest.is_some_and(Call::was_refused),
            _ => false,
        };
        let any = ToolSpec::default();
        let broken = session.run.closed.iter().any(|closed| policy.holds(&closed.rule, &any) && ends_run(closed));
        let of_tool = session.run.closed.iter().filter(|closed| policy.holds(&closed.rule, policy.tool(&closed.tool)));
        let parts = of_tool.filter_map(|closed| match closes(closed)? {
            Closes::Tool => Some(format!("{} is disabled for the rest of this turn.", closed.tool)),
            Closes::Call => Some(format!(
                "{} is refused for the rest of this turn with {}; other arguments are not.",
                closed.tool,
                arguments_of(session, closed)
            )),
            _ => None,
        });
        let shadowed = policy.tools().filter(|(_, spec)| spec.shadow).map(|(name, _)| name.to_owned());
        Self { run: broken || is_spent(policy, &any, left), shadowed: shadowed.collect(), parts: parts.collect() }
    }

    /// True when no call is let through.
    fn is_all(&self) -> bool {
        self.run && self.shadowed.is_empty()
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let run = self.run.then(|| match self.shadowed.join(", ") {
            none if none.is_empty() => "Tools are disabled for this turn: give the final answer.".to_owned(),
            some => format!("Tools are disabled for this turn, except {some}: finish with what you have."),
        });
        let parts = self.parts.iter().filter(|_| !self.is_all()).cloned();
        run.into_iter().chain(parts)
    }
}

/// The arguments that a break closed, by a call that had them.
fn arguments_of(session: &Session, closed: &Closed) -> String {
    let call = session.calls.iter().rev().find(|call| call.fingerprint == closed.fingerprint);
    call.map_or_else(
        || "the arguments that were repeated".to_owned(),
        |call| format!("the arguments of call {}", call.call_id),
    )
}

fn is_held(call: &Call, now: Timestamp) -> bool {
    matches!(call.standing(now), Standing::Held(approval) if approval.answer == ApprovalStatus::Pending)
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

fn summary(session: &Session, left: &[Left], stops: &Stops, now: Timestamp) -> String {
    let mut lines = Vec::new();
    // One line a call, the newest of each; what was done is what must not be done again.
    let mut seen = Vec::new();
    for call in session.calls.iter().rev() {
        // A refusal says less than what came of the execution that it refers to.
        let executed = |other: &Call| other.fingerprint == call.fingerprint && other.permit.is_some();
        let is_echo = call.was_refused() && session.calls.iter().any(executed);
        if is_echo || seen.contains(&call.fingerprint) || lines.len() == SUMMARY_CALLS_MAX {
            continue;
        }
        seen.push(call.fingerprint);
        let state = CallState::of(call, now);
        let ago = wait_in_words(now.since_ms(call.outcome.as_ref().map_or(call.at, |outcome| outcome.at)));
        let why = call.outcome.as_ref().and_then(|outcome| outcome.failure).map(|kind| format!(" ({})", kind.as_str()));
        let refused =
            (state == CallState::Refused).then(|| call.reason.map(|reason| format!(" ({})", reason.as_str())));
        let why = why.or(refused.flatten()).unwrap_or_default();
        lines.push(format!("- {} [call {}] {}{why}, {ago} ago", call.tool, call.call_id, state.in_words()));
    }
    lines.reverse();
    let mut text = if lines.is_empty() {
        "No tool calls were made in this session.".to_owned()
    } else {
        format!(
            "Tool calls so far, oldest first. Do not repeat the ones that succeeded; do not retry what was \
            refused.\n{}",
            lines.join("\n")
        )
    };
    stops.lines().for_each(|line| text.push_str(&format!("\n{line}")));
    if !stops.run
        && let Some(tight) = left.iter().filter(|l| l.limit > 0).min_by_key(|l| l.remaining() * 100 / l.limit)
    {
        let (rest, limit) = (tight.dimension.in_words(tight.remaining()), tight.dimension.in_words(tight.limit));
        text.push_str(&format!("\nBudget left: {rest} of {limit}."));
    }
    text
}

#[cfg(test)]
#[path = "state/tests.rs"]
mod tests;
