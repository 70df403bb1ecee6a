//! The calls of one model turn, judged together.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::EvaluateAnswer;
use callgate_core::{
    domain::{
        budget::CounterKey,
        bulkhead::FullBulkhead,
        call::Proposal,
        creation::Creation,
        effect::EffectKind,
        event::{Change, Event},
        finding::{Decision, Finding},
        fingerprint::{Fingerprint, ResultDigest},
        halt::Halt,
        health::Health,
        ledger::LedgerRow,
        reason::Reason,
        rejection::EvaluateRejection,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Evaluation, SharedState},
    policy::Policy,
    retry::profiles::Profiles,
};

/// State shared between call trees, for a batch of proposals.
#[derive(Debug)]
pub(super) struct SharedBatch {
    pub(super) counters: BTreeMap<CounterKey, u64>,
    /// The ledger's row of each.
    pub(super) ledger: Vec<Option<LedgerRow>>,
    /// Health of each one's tool.
    pub(super) health: Vec<Health>,
    /// Turn of each one, while its tool is paced.
    pub(super) turns: Vec<Option<Timestamp>>,
    /// Last creation of each one's agent by that call.
    pub(super) creations: Vec<Option<Creation>>,
    /// Full bulkhead before which each one is queued.
    pub(super) bulkheads: Vec<Option<FullBulkhead>>,
    pub(super) halts: Arc<[Halt]>,
    pub(super) profiles: Arc<Profiles>,
    pub(super) step_ms: u64,
}

impl SharedBatch {
    /// Takes the state of the first proposal. The entries of the others stay.
    pub(super) fn first(&mut self) -> SharedState {
        SharedState {
            counters: std::mem::take(&mut self.counters),
            ledger: self.ledger.first_mut().and_then(Option::take),
            health: self.health.first_mut().map(std::mem::take).unwrap_or_default(),
            turn: self.turns.first_mut().and_then(Option::take),
            creation: self.creations.first_mut().and_then(Option::take),
            bulkhead: self.bulkheads.first_mut().and_then(Option::take),
            halts: Arc::clone(&self.halts),
            profiles: Arc::clone(&self.profiles),
            step_ms: self.step_ms,
        }
    }
}

/// Judges one proposal after the other, each on the tree that the ones before it leave; returns their changes.
pub(super) fn judge_all(
    policy: &Policy,
    tree: &CallTree,
    mut shared: SharedBatch,
    proposals: &[Proposal],
    now: Timestamp,
) -> Result<(Vec<Verdict>, Vec<Change>), EvaluateRejection> {
    let mut draft = Cow::Borrowed(tree);
    let mut known = shared.first();
    let (mut verdicts, mut changes) = (Vec::with_capacity(proposals.len()), Vec::new());
    let mut batch = None;
    for (i, proposal) in proposals.iter().enumerate() {
        if i > 0 {
            known.ledger = shared.ledger.get_mut(i).and_then(Option::take);
            known.creation = shared.creations.get_mut(i).and_then(Option::take);
            known.bulkhead = shared.bulkheads.get_mut(i).and_then(Option::take);
            known.health = shared.health.get_mut(i).map(std::mem::take).unwrap_or_default();
            known.turn = shared.turns.get_mut(i).and_then(Option::take);
        }
        match engine::evaluate(policy, &draft, &known, proposal, batch, now)? {
            Evaluation::Replay(verdict) => verdicts.push(verdict),
            Evaluation::New(verdict, change) => {
                for add in &change.counters {
                    let used = known.counters.entry(add.key.clone()).or_default();
                    *used = used.saturating_add_signed(add.amount);
                }
                if let Some(Event::Judged(judged)) = change.events.first() {
                    batch.get_or_insert(judged.batch);
                }
                // No proposal follows the last one.
                if i + 1 < proposals.len() {
                    change.events.iter().for_each(|event| draft.to_mut().apply(event));
                }
                verdicts.push(verdict);
                changes.push(*change);
            }
        }
    }
    Ok((verdicts, changes))
}

/// The last calls of the session, as they are known again: the evidence behind a loop.
pub(super) fn evidence(tree: &CallTree, proposal: &Proposal) -> Vec<(Fingerprint, Option<ResultDigest>)> {
    let session = tree.sessions.get(&proposal.request.session);
    let calls = session.into_iter().flat_map(|session| session.calls.iter().rev()).take(30);
    calls.map(|call| (call.fingerprint, call.outcome.as_ref().and_then(|outcome| outcome.digest))).collect()
}

/// The answers for reads that the policy lets run while the store is away; none when one of the calls is no such read,
/// or when a rule objects. The past is unknown then: the rules see a call tree without one, and the halts in this
/// replica's memory.
pub(super) fn answer_unrecorded(
    policy: &Policy,
    proposals: &[Proposal],
    halts: &Arc<[Halt]>,
    now: Timestamp,
) -> Option<Vec<EvaluateAnswer>> {
    let shared = SharedState { halts: Arc::clone(halts), ..SharedState::default() };
    proposals.iter().map(|proposal| unrecorded_read(policy, proposal, &shared, now)).collect()
}

fn unrecorded_read(
    policy: &Policy,
    proposal: &Proposal,
    shared: &SharedState,
    now: Timestamp,
) -> Option<EvaluateAnswer> {
    if !proposal.spec.runs_without_store || proposal.effect.kind != EffectKind::Read {
        return None;
    }
    let request = &proposal.request;
    let tree = CallTree::new(request.tenant, request.session.clone(), now);
    let Ok(Evaluation::New(mut verdict, _)) = engine::evaluate(policy, &tree, shared, proposal, None, now) else {
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
    // Spending and occurrence are unknown: the key of another occurrence would be wrong.
    verdict.left.clear();
    verdict.seq = 0;
    if let Some(permit) = &mut verdict.permit {
        (permit.seq, permit.occurrence) = (0, 0);
        permit.idempotency_key.clear();
    }
    let executes = proposal.repaired.then(|| proposal.canonical.to_string());
    Some(EvaluateAnswer { verdict, text: None, inject_as: None, executes, host_may_approve: false, edited: None })
}
