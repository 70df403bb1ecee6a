//! Two pure functions over a call tree: [`evaluate`] judges a call before it runs, [`record`] takes in what came of it.
//! This room knows nouns, rules and policy; it must not know the store, the network or a clock.

pub mod envelope;
mod evaluate;
mod follow_up;
mod record;
mod state;
#[cfg(test)]
mod stories;
pub mod world;

use std::{collections::BTreeMap, sync::Arc};

pub use evaluate::evaluate;
pub use record::{Report, record};
pub use state::{CallState, LAST_CALLS_DEFAULT, SessionState, session_state};

use crate::{
    domain::{
        budget::{CounterKey, Left},
        call::{Call, Proposal},
        effect::EffectKind,
        event::{Append, Change, Event, Settled},
        fingerprint::{LedgerKey, Reach},
        health::{Health, Sign},
        ids::{AgentId, SessionId, ToolName},
        ledger::LedgerRow,
        outcome::Advice,
        profile::Trial,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    policy::Policy,
    retry::profiles::Profiles,
};

/// What crosses call trees, as last seen. It may be stale: the store accepts nothing that was decided on a stale part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shared {
    /// Shared counters.
    pub counters: BTreeMap<CounterKey, u64>,
    /// The ledger's row of the proposed write.
    pub ledger: Option<LedgerRow>,
    /// How the tool fares.
    pub health: Health,
    /// What was learned of retries.
    pub profiles: Arc<Profiles>,
}

/// The caller's own fault: nothing was decided and nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misuse {
    /// The call_id belongs to a call with other arguments.
    CallIdReused,
    /// The session has another parent; it is set once.
    ParentChanged {
        /// The parent it has.
        known: Option<SessionId>,
    },
    /// The tree has as many open calls as it may.
    TooManyOpenCalls,
    /// The tree has as many sessions as it may.
    TooManySessions,
    /// Nobody asked for that call, and the report names no tool.
    UnknownCall,
    /// The call was refused: there is nothing to report on.
    NotPermitted,
    /// The call was reported on before, with another outcome.
    AlreadySettled,
    /// A newer attempt of the same execution was permitted meanwhile.
    AttemptSuperseded,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// The answer given before to the same call_id: nothing is to be stored.
    Replay(Verdict),
    /// A new answer, valid once the change is stored.
    New(Verdict, Box<Change>),
}

/// What came of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// What is stored about it, or was before.
    pub settled: Settled,
    /// What is left of each limit.
    pub left: Vec<Left>,
    /// What was advised, for failures.
    pub advice: Option<Advice>,
    /// True when no further tool call will be let through in this scope.
    pub tools_disabled: bool,
    /// What the model should see next turn.
    pub context_hint: Option<String>,
    /// The share of follow-ups with other arguments that succeeded after such a failure, once enough were seen.
    pub corrected: Option<f64>,
    /// What the report says about its tool, and what profiles learn from it; none when it was stored before.
    pub lesson: Option<Lesson>,
    /// What to store; none when the same report was stored before.
    pub change: Option<Box<Change>>,
}

/// What one report teaches everybody.
#[derive(Debug, Clone, PartialEq)]
pub struct Lesson {
    /// The tool.
    pub tool: ToolName,
    /// How it fares.
    pub sign: Sign,
    /// For a follow-up on a failure: what came of it.
    pub trial: Option<Trial>,
}

/// The reach within which one execution of a write excludes another.
fn reach<'a>(root: &'a SessionId, once: bool) -> Reach<'a> {
    if once { Reach::Tenant } else { Reach::Tree(root) }
}

/// The ledger row that a question depends on: declared writes have one.
#[must_use]
pub fn ledger_key(root: &SessionId, proposal: &Proposal) -> Option<LedgerKey> {
    let effect = &proposal.effect;
    let writes = effect.kind == EffectKind::Write;
    writes.then(|| LedgerKey::of(reach(root, effect.once), &proposal.fingerprint))
}

/// The ledger row that a permitted call has changed, or would have.
#[must_use]
pub fn ledger_key_of(root: &SessionId, call: &Call) -> Option<LedgerKey> {
    let writes = call.effect.kind == EffectKind::Write;
    writes.then(|| LedgerKey::of(reach(root, call.effect.once), &call.fingerprint))
}

/// The shared counters that a question of `agent` depends on.
#[must_use]
pub fn counter_keys(policy: &Policy, agent: Option<&AgentId>, now: Timestamp) -> Vec<CounterKey> {
    policy.rules.budget.counters(agent, now.day()).map(|(key, _)| key).collect()
}

/// Folds a change into its tree, and gives what the store needs to accept it.
#[must_use]
pub fn advance(tree: &mut CallTree, change: Change) -> Append {
    let expected = tree.version;
    let mut new_sessions = Vec::new();
    // A sub-agent may speak first: its root then exists without a call of its own.
    let mut root = (!tree.sessions.contains_key(&tree.root)).then(|| (tree.root.clone(), None, 0));
    for event in &change.events {
        if let Event::Judged(judged) = event
            && !tree.sessions.contains_key(&judged.session)
        {
            new_sessions.extend(root.take().filter(|(root, _, _)| *root != judged.session));
            new_sessions.push((judged.session.clone(), judged.parent.clone(), judged.depth));
        }
        tree.apply(event);
    }
    Append {
        tenant: tree.tenant,
        root: tree.root.clone(),
        epoch: tree.epoch,
        expected,
        started_at: tree.started_at,
        totals: tree.spent,
        open_calls: tree.open_calls,
        new_sessions,
        change,
    }
}
