//! Finding and loading call trees, and what crosses them.

use std::{collections::BTreeMap, sync::Arc};

use super::{Gate, GateError, SharedBatch, TRIES_MAX};
use crate::{
    domain::{
        budget::CounterKey,
        call::{Proposal, Request},
        ids::{AgentId, CallId, SessionId, TenantId, ToolName},
        tree::CallTree,
    },
    engine,
    policy::Policy,
    store::{Slot, Turn},
};

impl Gate {
    /// The slot of the tree that a request belongs to, which may not exist yet.
    pub(super) async fn slot(&self, request: &Request) -> Result<Arc<Slot>, GateError> {
        let root = self.root(request).await?;
        self.slot_of(request.tenant, &root).await
    }

    async fn root(&self, request: &Request) -> Result<SessionId, GateError> {
        if let Some(root) = self.known_root(request.tenant, &request.session).await? {
            return Ok(root);
        }
        let Some(parent) = &request.parent else {
            return Ok(request.session.clone());
        };
        // A parent that nobody has heard of becomes a root.
        Ok(self.known_root(request.tenant, parent).await?.unwrap_or_else(|| parent.clone()))
    }

    pub(super) async fn known_root(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionId>, GateError> {
        if let Some(root) = self.slots.root(tenant, session) {
            return Ok(Some(root));
        }
        let root = self.store.root(tenant, session).await?;
        if let Some(root) = &root {
            self.slots.set_root(tenant, session, root);
        }
        Ok(root)
    }

    pub(super) async fn slot_of(&self, tenant: TenantId, root: &SessionId) -> Result<Arc<Slot>, GateError> {
        loop {
            if let Some(slot) = self.slots.get(tenant, root) {
                return Ok(slot);
            }
            match self.slots.turn(tenant, root) {
                Turn::Load(loading) => {
                    let tree = self.load(tenant, root).await.inspect_err(|_| loading.fail())?;
                    return Ok(self.slots.put(tree));
                }
                // Whoever loads may also be called off; then somebody else does.
                Turn::Wait(mut other) => {
                    if other.wait_for(|failed| *failed).await.is_ok() {
                        return Err(GateError::StoreUnavailable("the call tree could not be loaded".to_owned()));
                    }
                }
            }
        }
    }

    /// The tree as it was last committed, with the forgotten calls that were asked about.
    async fn load(&self, tenant: TenantId, root: &SessionId) -> Result<CallTree, GateError> {
        let Some(mut tree) = self.store.tree(tenant, root).await? else {
            return Ok(CallTree::new(tenant, root.clone(), self.store.now()));
        };
        for (session, call_id) in self.slots.missed(tenant, root) {
            let events = self.store.call(tenant, tree.epoch, &session, &call_id).await?;
            tree.recall(&session, &events);
        }
        Ok(tree)
    }

    pub(super) fn invalidate(&self, tenant: TenantId, slot: &Arc<Slot>) {
        self.slots.invalidate(tenant, slot);
    }

    /// True when nobody else has moved the tree past `version`: an answer that needs no append holds only then.
    pub(super) async fn is_current(&self, tenant: TenantId, slot: &Arc<Slot>, version: u64) -> Result<bool, GateError> {
        if !slot.wait_for(version).await {
            return Ok(false);
        }
        let stored = self.store.version(tenant, slot.root()).await?;
        Ok(stored == version || slot.has_committed(stored))
    }

    /// Shared counters and ledger rows that the proposals depend on.
    pub(super) async fn shared(
        &self,
        policy: &Policy,
        slot: &Arc<Slot>,
        proposals: &[Proposal],
    ) -> Result<SharedBatch, GateError> {
        let Some(first) = proposals.first() else {
            return Err(GateError::SessionUnknown);
        };
        let (tenant, root) = (first.request.tenant, slot.root());
        let mut counters = BTreeMap::new();
        for proposal in proposals {
            let request = &proposal.request;
            let (agent, tool) = (request.agent.as_ref(), Some(&request.tool));
            counters.extend(self.counters_of(policy, tenant, agent, tool).await?);
        }
        let mut ledger = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            ledger.push(match engine::ledger_key(root, proposal) {
                Some(key) => self.store.ledger(tenant, key).await?,
                None => None,
            });
        }
        let mut health = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            health.push(self.health_to_judge_by(proposal).await);
        }
        let halts = self.fleet.halts(tenant);
        Ok(SharedBatch { counters, ledger, health, halts, profiles: self.profiles(tenant).await })
    }

    /// What a known session's call tree says, as it is stored.
    ///
    /// # Errors
    /// [`GateError`] when the session is unknown or its tree cannot be read.
    pub(super) async fn look<T>(
        &self,
        tenant: TenantId,
        session: &SessionId,
        says: impl Fn(&CallTree) -> T,
    ) -> Result<T, GateError> {
        for _ in 0..TRIES_MAX {
            let root = self.known_root(tenant, session).await?.ok_or(GateError::SessionUnknown)?;
            let slot = self.slot_of(tenant, &root).await?;
            match slot.advance(|tree| (says(tree), tree.version)) {
                Some((said, version)) if self.is_current(tenant, &slot, version).await? => return Ok(said),
                _ => self.invalidate(tenant, &slot),
            }
        }
        Err(GateError::Contention)
    }

    /// The counters of the agent that asked last in a session, and the tenant's.
    pub(super) async fn counters(
        &self,
        policy: &Policy,
        tenant: TenantId,
        slot: &Arc<Slot>,
        session: &SessionId,
    ) -> Result<BTreeMap<CounterKey, u64>, GateError> {
        let agent = slot.advance(|tree| {
            let newest = tree.sessions.get(session).and_then(|session| session.calls.back());
            newest.and_then(|call| call.agent.clone())
        });
        self.counters_of(policy, tenant, agent.flatten().as_ref(), None).await
    }

    pub(super) async fn counters_of(
        &self,
        policy: &Policy,
        tenant: TenantId,
        agent: Option<&AgentId>,
        tool: Option<&ToolName>,
    ) -> Result<BTreeMap<CounterKey, u64>, GateError> {
        let keys = engine::counter_keys(policy, agent, tool, self.store.now());
        Ok(self.store.counters(tenant, &keys).await?)
    }

    /// Remembers a call again that its tree has forgotten, here and whenever the tree is loaded; does nothing for one
    /// that nobody has heard of.
    pub(super) async fn recall(
        &self,
        tenant: TenantId,
        slot: &Arc<Slot>,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<(), GateError> {
        let Some(epoch) = slot.advance(|tree| tree.epoch) else { return Ok(()) };
        let events = self.store.call(tenant, epoch, session, call_id).await?;
        if !events.is_empty() {
            self.slots.miss(tenant, slot.root(), session, call_id);
            slot.advance(|tree| tree.recall(session, &events));
        }
        Ok(())
    }
}
