//! Rollouts of policies, as they were read last: their versions judge their part of the call trees.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;

use super::{
    Decisions, GateError, NoAnswer, Policies, ServerState,
    activations::{ActivationOutcome, Author},
    decide::{Subject, TRIES_MAX},
    policies::compile_stored_policy,
    policy_check::{PolicyProblem, problems},
    policy_hashing::with_hashing,
};
use crate::telemetry;
use callgate_core::{
    domain::{
        hashing::Hashing,
        ids::{AgentId, TenantId},
        revision::Revision,
        rollout::{Comparison, Rollout, RolloutChange, RolloutPart, RolloutState},
        time::Timestamp,
        tree::CallTree,
    },
    policy::Policy,
};
use callgate_store::{RolloutStep, Slot, Store};

/// The last step of a tenant's rollouts, with the policy of a running one; none where this build cannot read it.
#[derive(Debug)]
pub(super) struct KnownRollout {
    rollout: Rollout,
    policy: Option<Arc<Policy>>,
}

/// By tenant.
#[derive(Debug, Default)]
pub(super) struct Rollouts(ArcSwap<BTreeMap<TenantId, Arc<KnownRollout>>>);

impl Rollouts {
    fn of(&self, tenant: TenantId) -> Option<Arc<KnownRollout>> {
        self.0.load().get(&tenant).cloned()
    }

    fn running(&self, tenant: TenantId) -> Option<Arc<KnownRollout>> {
        self.of(tenant).filter(|known| known.rollout.is_running())
    }

    /// Takes over a later step: two reads may end in the other order. True when it was later.
    fn put(&self, tenant: TenantId, new: KnownRollout) -> bool {
        let (step, new) = (new.rollout.step, Arc::new(new));
        let is_later = |known: &BTreeMap<TenantId, Arc<KnownRollout>>| {
            known.get(&tenant).is_none_or(|known| known.rollout.step < step)
        };
        let before = self.0.rcu(|known| match is_later(known) {
            false => Arc::clone(known),
            true => {
                let mut known = BTreeMap::clone(known);
                known.insert(tenant, Arc::clone(&new));
                Arc::new(known)
            }
        });
        is_later(&before)
    }

    /// Sets a tenant's hashing from now on.
    pub(super) fn hash_by(&self, tenant: TenantId, hashing: &Hashing) {
        self.0.rcu(|known| {
            let mut known = BTreeMap::clone(known);
            if let Some(known) = known.get_mut(&tenant) {
                let policy = known.policy.as_ref().map(|policy| with_hashing(policy, hashing));
                *known = Arc::new(KnownRollout { rollout: known.rollout.clone(), policy });
            }
            known
        });
    }
}

/// The policies of a tenant, of which one judges each call tree: the active one, and that of a running rollout.
#[derive(Debug)]
pub(super) struct CandidatePolicies {
    active: Arc<Policy>,
    rollout: Option<Arc<KnownRollout>>,
}

impl CandidatePolicies {
    /// The one that judges a tree, whose first call would be one of `agent`.
    pub(super) fn choose(
        &self,
        tree: &CallTree,
        agent: Option<&AgentId>,
        now: Timestamp,
    ) -> Result<ChosenPolicy, NoAnswer> {
        let rollout = self.rollout.as_ref().map(|known| (Arc::clone(known), known.rollout.takes(tree, agent, now)));
        let policy = match &rollout {
            Some((known, true)) => known.policy.clone().ok_or(NoAnswer::PolicyUnreadable)?,
            _ => Arc::clone(&self.active),
        };
        Ok(ChosenPolicy { policy, rollout })
    }

    /// As [`CandidatePolicies::choose`], before a decision on the tree of a slot; the active one where the slot is out
    /// of use, since the decision fails then.
    pub(super) fn choose_before(
        &self,
        slot: &Slot,
        agent: Option<&AgentId>,
        now: Timestamp,
    ) -> Result<Arc<Policy>, NoAnswer> {
        if self.rollout.is_none() {
            return Ok(Arc::clone(&self.active));
        }
        let chosen = slot.advance(|tree| self.choose(tree, agent, now)).transpose()?;
        Ok(chosen.map_or_else(|| Arc::clone(&self.active), |chosen| chosen.policy))
    }
}

/// The policy that judges a call tree, and the rollout by which it was chosen, with true where that takes the tree.
#[derive(Debug, Clone)]
pub(super) struct ChosenPolicy {
    pub(super) policy: Arc<Policy>,
    rollout: Option<(Arc<KnownRollout>, bool)>,
}

impl ChosenPolicy {
    /// True while a rollout is running: the choice may change before the tree is locked.
    pub(super) const fn is_by_rollout(&self) -> bool {
        self.rollout.is_some()
    }

    /// True when the policy still is the tree's: before the first call of a tree two calls may choose differently.
    pub(super) fn holds(&self, tree: &CallTree, agent: Option<&AgentId>, now: Timestamp) -> bool {
        self.rollout.as_ref().is_none_or(|(known, takes)| known.rollout.takes(tree, agent, now) == *takes)
    }
}

impl ServerState {
    pub(super) fn candidate_policies(&self, tenant: TenantId, active: Arc<Policy>) -> CandidatePolicies {
        CandidatePolicies { active, rollout: self.policy.rollouts.running(tenant) }
    }

    /// The policy of a version: the running rollout's, or else the active one.
    pub(super) fn policy_of(&self, tenant: TenantId, of: &str) -> Arc<Policy> {
        let rollout = self.policy.rollouts.running(tenant).and_then(|known| known.policy.clone());
        rollout.filter(|policy| *policy.version == *of).unwrap_or_else(|| self.policy(tenant))
    }
}

impl Decisions {
    /// The policy that judges a session's call tree, whose first call would be one of `agent`: the active one, or a
    /// rollout's.
    pub(super) async fn choose_policy<R: Clone>(
        &self,
        active: Arc<Policy>,
        subject: &Subject<'_, R>,
        agent: Option<&AgentId>,
    ) -> Result<ChosenPolicy, GateError<R>> {
        let candidates = self.server.candidate_policies(subject.tenant, active);
        if candidates.rollout.is_none() {
            return Ok(ChosenPolicy { policy: candidates.active, rollout: None });
        }
        for _ in 0..TRIES_MAX {
            let slot = match Box::pin(self.slot(subject)).await {
                Ok((slot, _)) => slot,
                // Without a database no call is judged: the policy decides on reads that run without a record.
                Err(GateError::NoAnswer(NoAnswer::OutOfReach(_))) => {
                    let rollout = candidates.rollout.map(|known| (known, false));
                    return Ok(ChosenPolicy { policy: candidates.active, rollout });
                }
                Err(error) => return Err(error),
            };
            let now = self.store.now();
            if let Some(chosen) = slot.advance(|tree| candidates.choose(tree, agent, now)) {
                return Ok(chosen?);
            }
        }
        Err(NoAnswer::Contention.into())
    }
}

/// Result of a step of a rollout.
#[derive(Debug, Clone, PartialEq)]
pub enum RolloutOutcome {
    /// The step, or why there is none.
    Change(RolloutChange),
    /// The policy was not activated: as for any activation.
    Activation(ActivationOutcome),
    /// This build cannot read the policy: nothing was changed.
    Invalid(Vec<PolicyProblem>),
}

impl Policies {
    /// Begins the rollout of a stored policy, or changes the part of the running one: known here at once, on every
    /// replica within two seconds, when it takes new call trees.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used.
    pub async fn start_rollout(
        &self,
        tenant: TenantId,
        (hash, text): (&str, &str),
        part: &RolloutPart,
        author: &Author<'_>,
    ) -> Result<RolloutOutcome, NoAnswer> {
        if let Err(errors) = compile_stored_policy(text).await {
            return Ok(RolloutOutcome::Invalid(problems(errors)));
        }
        let step = RolloutStep { hash, part, by: author.by, note: author.note };
        let change = self.store.start_rollout(tenant, &step).await?;
        let _ = self.read_policy(tenant).await;
        Ok(RolloutOutcome::Change(change))
    }

    /// Ends the running rollout, if the hash of its policy begins so: by the activation of its policy (`promotes`), or
    /// without. The active policy judges its part from the next call on.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used.
    pub async fn end_rollout(
        &self,
        tenant: TenantId,
        prefix: &str,
        promotes: bool,
        author: &Author<'_>,
    ) -> Result<RolloutOutcome, NoAnswer> {
        if !promotes {
            let change = self.store.abort_rollout(tenant, prefix, author.by, author.note).await?;
            let _ = self.read_policy(tenant).await;
            return Ok(RolloutOutcome::Change(change));
        }
        let running = self.store.rollout(tenant).await?.filter(|last| last.is_running_of(prefix));
        let Some(running) = running else { return Ok(RolloutOutcome::Change(RolloutChange::NotRunning)) };
        let change = match self.activate_stored(tenant, &running.hash, author, Some(running.step)).await? {
            // What was committed: another read may fail, or find the next rollout.
            ActivationOutcome::Active(Revision { at, by, note, .. }) => {
                let (step, state) = (running.step + 1, RolloutState::Promoted);
                RolloutChange::Done(Box::new(Rollout { step, state, at, by, note, ..running }))
            }
            // The expected revision is active, so it is the step that is another.
            ActivationOutcome::Changed { revision } if author.expected.is_none_or(|expected| expected == revision) => {
                RolloutChange::Changed
            }
            activation => return Ok(RolloutOutcome::Activation(activation)),
        };
        Ok(RolloutOutcome::Change(change))
    }

    /// The last rollout of a tenant, with the calls of its version next to those of its baseline.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn compare_rollout(&self, tenant: TenantId) -> Result<Option<(Rollout, Comparison)>, NoAnswer> {
        let Some(rollout) = self.operators.rollout(tenant).await? else { return Ok(None) };
        let compared = self.operators.compare_rollout(tenant, &rollout).await?;
        Ok(Some((rollout, compared)))
    }

    /// Takes over the last step of a tenant's rollouts, if it is newer.
    ///
    /// # Errors
    /// [`NoAnswer`] when its policy cannot be read.
    pub(super) async fn follow_rollout(
        &self,
        store: &Store,
        tenant: TenantId,
        rollout: Option<Rollout>,
    ) -> Result<(), NoAnswer> {
        let Some(rollout) = rollout else { return Ok(()) };
        let rollouts = &self.server.policy.rollouts;
        let known = rollouts.of(tenant);
        if known.as_ref().is_some_and(|known| known.rollout.step >= rollout.step) {
            return Ok(());
        }
        let policy = match known.filter(|known| known.rollout.hash == rollout.hash) {
            _ if !rollout.is_running() => None,
            Some(known) if known.policy.is_some() => known.policy.clone(),
            _ => match store.policy_texts(tenant, &rollout.hash).await?.pop() {
                Some((_, text)) => compile_stored_policy(&text).await.ok().map(Arc::new),
                None => None,
            },
        };
        let hashing = &self.server.policy.built_in(tenant).hashing;
        let policy = policy.map(|policy| with_hashing(&policy, hashing));
        let is_readable = policy.is_some() || !rollout.is_running();
        if rollouts.put(tenant, KnownRollout { rollout: rollout.clone(), policy }) {
            telemetry::policy::rolls_out(tenant, &rollout, is_readable);
        }
        Ok(())
    }
}
