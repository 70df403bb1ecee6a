//! The calls of one model turn, judged together.

use std::{collections::BTreeMap, sync::Arc};

use super::EvaluateAnswer;
use crate::{
    domain::{
        budget::CounterKey,
        call::Proposal,
        effect::EffectKind,
        event::{Append, Event},
        finding::{Decision, Finding},
        fingerprint::{Fingerprint, ResultDigest},
        halt::Halt,
        health::Health,
        ledger::LedgerRow,
        reason::Reason,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, CallerError, Judgement, Shared},
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

pub(super) type JudgedAll = Result<(Vec<Verdict>, Option<Append>), CallerError>;

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

/// The answers for reads that the policy lets run while the store is away; none when one of the calls is no such read,
/// or when a rule objects. What happened before cannot be known then: the rules see a call tree without a past, and
/// what this replica knows of halts.
pub(super) fn unrecorded(
    policy: &Policy,
    proposals: &[Proposal],
    halts: &Arc<[Halt]>,
    now: Timestamp,
) -> Option<Vec<EvaluateAnswer>> {
    let shared = Shared { halts: Arc::clone(halts), ..Shared::default() };
    proposals.iter().map(|proposal| unrecorded_read(policy, proposal, &shared, now)).collect()
}

fn unrecorded_read(policy: &Policy, proposal: &Proposal, shared: &Shared, now: Timestamp) -> Option<EvaluateAnswer> {
    if !proposal.spec.runs_without_store || proposal.effect.kind != EffectKind::Read {
        return None;
    }
    let request = &proposal.request;
    let tree = CallTree::new(request.tenant, request.session.clone(), now);
    let Ok(Judgement::New(mut verdict, _)) = engine::evaluate(policy, &tree, shared, proposal, None, now) else {
        return None;
    };
    if verdict.decision != Decision::Allow {
        return None;
    }
    let message = format!(
        "{} runs without a record: callgate's database is out of reach. Record it as an observed call once it is back.",
        request.tool
    );
    verdict.findings.push(Finding::new("store", Decision::Allow, Reason::StoreUnavailable, message));
    // Nothing is known of what was spent, nor which execution this is: the key of another one would be a lie.
    verdict.left.clear();
    verdict.seq = 0;
    if let Some(permit) = &mut verdict.permit {
        (permit.seq, permit.occurrence) = (0, 0);
        permit.idempotency_key.clear();
    }
    let executes = proposal.repaired.then(|| proposal.canonical.to_string());
    Some(EvaluateAnswer { verdict, text: None, inject_as: None, executes })
}
