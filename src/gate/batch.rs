//! The calls of one model turn, judged together.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    domain::{
        budget::CounterKey,
        call::Proposal,
        event::{Append, Event},
        fingerprint::{Fingerprint, ResultDigest},
        halt::Halt,
        health::Health,
        ledger::LedgerRow,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Judgement, Misuse, Shared},
    policy::Policy,
    retry::profiles::Profiles,
};

/// What crosses trees, for a batch of proposals.
#[derive(Debug)]
pub(super) struct SharedBatch {
    pub(super) counters: BTreeMap<CounterKey, u64>,
    pub(super) ledger: Vec<Option<LedgerRow>>,
    /// How the tool of each fares, and whether its probe was claimed.
    pub(super) health: Vec<(Health, bool)>,
    pub(super) halts: Arc<[Halt]>,
    pub(super) profiles: Arc<Profiles>,
}

impl SharedBatch {
    pub(super) fn of(&self, i: usize) -> Shared {
        Shared {
            counters: self.counters.clone(),
            ledger: self.ledger.get(i).cloned().flatten(),
            health: self.health.get(i).map(|(health, _)| health.clone()).unwrap_or_default(),
            halts: Arc::clone(&self.halts),
            profiles: Arc::clone(&self.profiles),
        }
    }

    /// The proposals that would find out how their tool fares.
    pub(super) fn claimed(&self) -> Vec<usize> {
        (0..self.health.len()).filter(|i| self.health[*i].1).collect()
    }
}

pub(super) type JudgedAll = Result<(Vec<Verdict>, Option<Append>), Misuse>;

/// Judges one proposal after the other, each on the tree that the ones before it leave. When one is misused, the tree
/// stays as it was.
pub(super) fn judge_all(
    policy: &Policy,
    tree: &mut CallTree,
    mut shared: SharedBatch,
    proposals: &[Proposal],
    now: Timestamp,
) -> JudgedAll {
    let mut draft = (proposals.len() > 1).then(|| tree.clone());
    let mut verdicts = Vec::with_capacity(proposals.len());
    let mut append: Option<Append> = None;
    let mut batch = None;
    for (i, proposal) in proposals.iter().enumerate() {
        let on = draft.as_mut().unwrap_or(tree);
        match engine::evaluate(policy, on, &shared.of(i), proposal, batch, now)? {
            Judgement::Replay(verdict) => verdicts.push(verdict),
            Judgement::New(verdict, change) => {
                for add in &change.counters {
                    let used = shared.counters.entry(add.key.clone()).or_default();
                    *used = used.saturating_add_signed(add.amount);
                }
                if let Some(Event::Judged(judged)) = change.events.first() {
                    batch.get_or_insert(judged.batch);
                }
                let next = engine::advance(on, *change);
                append = Some(match append {
                    Some(append) => append.then(next),
                    None => next,
                });
                verdicts.push(verdict);
            }
        }
    }
    if let Some(draft) = draft {
        *tree = draft;
    }
    Ok((verdicts, append))
}

/// The last calls of the session, as they are known again: the evidence behind a loop.
pub(super) fn evidence(tree: &CallTree, proposal: &Proposal) -> Vec<(Fingerprint, Option<ResultDigest>)> {
    let session = tree.sessions.get(&proposal.request.session);
    let calls = session.into_iter().flat_map(|session| session.calls.iter().rev()).take(30);
    calls.map(|call| (call.fingerprint, call.outcome.as_ref().and_then(|outcome| outcome.digest))).collect()
}
