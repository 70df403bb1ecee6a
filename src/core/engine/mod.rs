//! Two pure functions over a call tree: [`evaluate`] judges a call before it runs, [`record`] takes in what came of it.
//! This room knows nouns, rules and policy; it must not know the store, the network or a clock.

mod bookings;
#[cfg(test)]
mod catalogue;
mod control;
pub mod envelope;
mod evaluate;
mod follow_up;
mod instead;
mod record;
mod replay;
mod self_correction;
mod state;
#[cfg(test)]
mod stories;
mod summary;

use std::{collections::BTreeMap, sync::Arc};

pub use bookings::counter_keys;
pub use control::control;
pub use evaluate::{evaluate, is_recent};
pub use record::record;
pub use state::session_state;
#[cfg(test)]
pub(crate) use summary::tokens as summary_tokens;

use crate::{
    domain::{
        budget::{CounterKey, Left},
        call::{Call, Proposal},
        creation::{Creation, CreationKey},
        effect::Share,
        event::{Append, Change, Event, Settled},
        fingerprint::{LedgerKey, Reach},
        halt::Halt,
        health::{Health, Observation},
        ids::{AgentId, SessionId, ToolName},
        json::Json,
        ledger::LedgerRow,
        outcome::Advice,
        profile::Trial,
        redaction::Secrets,
        tree::CallTree,
        verdict::Verdict,
    },
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
    /// What the asking agent made last by the proposed call, in any call tree.
    pub creation: Option<Creation>,
    /// What is halted.
    pub halts: Arc<[Halt]>,
    /// What was learned of retries.
    pub profiles: Arc<Profiles>,
    /// By so many milliseconds leases end later than the time says: the clock was stepped forward.
    pub step_ms: u64,
}

/// What came of an Evaluate.
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
    /// It exists already, since an earlier attempt of the occurrence has most likely made it.
    pub made_earlier: bool,
    /// The share of follow-ups with other arguments that succeeded after such a failure, once enough were seen.
    pub corrected: Option<f64>,
    /// The tool, and what the report says about it; none when it says nothing, or was stored before.
    pub observation: Option<(ToolName, Observation)>,
    /// For a follow-up on a failure: what came of it.
    pub trial: Option<Trial>,
    /// What it made, to be told to the same agent in another call tree.
    pub creation: Option<(CreationKey, Creation)>,
    /// The result as JSON, if it is that.
    pub read: Option<Json>,
    /// The secrets that are left out of what is stored.
    pub secrets: Secrets,
    /// What to store; none when the same report was stored before.
    pub change: Option<Box<Change>>,
}

/// The reach within which one execution excludes another. What an unnamed agent does is shared in its tree alone.
fn reach<'a>(root: &'a SessionId, agent: Option<&'a AgentId>, share: Share) -> Reach<'a> {
    match (share, agent) {
        (Share::Tenant, _) => Reach::Tenant,
        (Share::Agent, Some(agent)) => Reach::Agent(agent),
        (Share::Agent, None) | (Share::Tree, _) => Reach::Tree(root),
    }
}

/// The ledger row that a judgement depends on: declared writes have one, and what is shared by more than a tree.
#[must_use]
pub fn ledger_key(root: &SessionId, proposal: &Proposal) -> Option<LedgerKey> {
    let (effect, agent) = (&proposal.effect, proposal.request.agent.as_ref());
    effect.is_in_ledger().then(|| LedgerKey::of(reach(root, agent, effect.share), &proposal.fingerprint))
}

/// The ledger row that a permitted call has changed, or would have.
#[must_use]
pub fn ledger_key_of(root: &SessionId, call: &Call) -> Option<LedgerKey> {
    let (effect, agent) = (&call.effect, call.agent.as_ref());
    effect.is_in_ledger().then(|| LedgerKey::of(reach(root, agent, effect.share), &call.fingerprint))
}

/// Folds a change into its tree, and gives what the store needs to accept it.
#[must_use]
pub fn advance(tree: &mut CallTree, change: Change) -> Append {
    let expected = tree.version;
    let mut new_sessions = Vec::new();
    // A sub-agent may speak first: its root then exists without a call of its own.
    let mut root = (!tree.sessions.contains_key(&tree.root)).then(|| (tree.root.clone(), None, 0));
    for event in &change.events {
        let (session, parent, depth) = match event {
            Event::Judged(judged) => (&judged.session, &judged.parent, judged.depth),
            Event::Settled(settled) => (&settled.session, &None, 0),
            Event::Controlled(controlled) => (&controlled.session, &None, 0),
        };
        if !tree.sessions.contains_key(session) {
            new_sessions.extend(root.take().filter(|(root, _, _)| root != session));
            new_sessions.push((session.clone(), parent.clone(), depth));
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
        due: tree.due,
        new_sessions,
        trace: None,
        change,
    }
}
