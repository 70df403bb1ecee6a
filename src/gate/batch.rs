//! The calls of one model turn, judged together.

use std::{collections::BTreeMap, sync::Arc};

use super::Answer;
use crate::{
    domain::{
        budget::CounterKey,
        call::{Permit, Proposal},
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

/// True when the policy lets every one of these calls run while the store is away: declared reads that nothing about
/// their arguments forbids. Whatever else the rules would say cannot be known then.
pub(super) fn may_run_unrecorded(policy: &Policy, proposals: &[Proposal]) -> bool {
    policy.is_enforced()
        && proposals.iter().all(|proposal| {
            proposal.spec.runs_without_store
                && proposal.effect.kind == EffectKind::Read
                && proposal.violations.is_empty()
        })
}

/// The answer for a read that runs without a record, and says so.
pub(super) fn unrecorded(policy: &Policy, proposal: &Proposal, now: Timestamp) -> Answer {
    let message = format!(
        "{} runs without a record: callgate's database is out of reach. Record it as an observed call once it is back.",
        proposal.request.tool
    );
    let finding = Finding::new("store", Decision::Allow, Reason::StoreUnavailable, message);
    let permit = Permit {
        attempt: 1,
        occurrence: 0,
        idempotency_key: String::new(),
        at: now,
        seq: 0,
        lease_until: now.plus_ms(proposal.spec.lease_ms),
        reserved_micros: 0,
        ledger_revision: 0,
    };
    let verdict = Verdict {
        decision: Decision::Allow,
        would: Decision::Allow,
        findings: vec![finding],
        permit: Some(permit),
        approval: None,
        left: Vec::new(),
        tools_disabled: false,
        replayed: false,
        fingerprint: proposal.fingerprint,
        seq: 0,
        at: now,
    };
    let executes = proposal.repaired.then(|| proposal.canonical.to_string());
    Answer { verdict, text: None, policy_version: policy.version.clone(), inject_as: None, executes }
}
