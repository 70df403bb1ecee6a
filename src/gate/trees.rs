//! Finding and loading call trees, and what crosses them.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Gate, GateError, NoAnswer,
    decide::{Subject, Unheard},
};
use crate::{
    domain::{
        budget::CounterKey,
        ids::{AgentId, CallId, SessionId, TenantId, ToolName},
        tree::CallTree,
    },
    engine,
    policy::Policy,
    store::{Slot, StoreError, Turn},
};

impl Gate {
    /// The slot of a session's tree, which may not exist yet.
    pub(super) async fn slot<R: Clone>(&self, subject: &Subject<'_, R>) -> Result<Arc<Slot>, GateError<R>> {
        let root = self.root(subject).await?;
        Ok(self.slot_of(subject.tenant, &root).await?)
    }

    async fn root<R: Clone>(&self, subject: &Subject<'_, R>) -> Result<SessionId, GateError<R>> {
        if let Some(root) = self.known_root(subject.tenant, subject.session).await? {
            return Ok(root);
        }
        match &subject.unheard {
            Unheard::Rejected(rejection) => Err(GateError::Rejected(rejection.clone())),
            Unheard::Begins(None) => Ok(subject.session.clone()),
            // A parent that nobody has heard of becomes a root.
            Unheard::Begins(Some(parent)) => {
                Ok(self.known_root(subject.tenant, parent).await?.unwrap_or_else(|| SessionId::clone(parent)))
            }
        }
    }

    pub(super) async fn known_root(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionId>, NoAnswer> {
        if let Some(root) = self.slots.root(tenant, session) {
            return Ok(Some(root));
        }
        let root = self.store.root(tenant, session).await?;
        if let Some(root) = &root {
            self.slots.set_root(tenant, session, root);
        }
        Ok(root)
    }

    pub(super) async fn slot_of(&self, tenant: TenantId, root: &SessionId) -> Result<Arc<Slot>, NoAnswer> {
        loop {
            if let Some(slot) = self.slots.get(tenant, root) {
                return Ok(slot);
            }
            match self.slots.turn(tenant, root) {
                Turn::Load(loading) => {
                    let tree = self.load(tenant, root).await.inspect_err(|error| loading.fail(error))?;
                    return Ok(self.slots.put(tree));
                }
                // Whoever loads may also be called off; then somebody else does.
                Turn::Wait(mut other) => {
                    if let Ok(failed) = other.wait_for(Option::is_some).await
                        && let Some(error) = failed.clone()
                    {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// The tree as it was last committed, with the forgotten calls that were asked about.
    async fn load(&self, tenant: TenantId, root: &SessionId) -> Result<CallTree, StoreError> {
        let known = match self.slots.take_stored(tenant, root) {
            Some(stored) => self.store.catch_up(stored).await?,
            None => None,
        };
        let read = match known {
            Some(tree) => Some(tree),
            None => self.store.tree(tenant, root).await?,
        };
        let Some(mut tree) = read else {
            return Ok(CallTree::new(tenant, root.clone(), self.store.now()));
        };
        for (session, call_id) in self.slots.missed(tenant, root) {
            let events = self.store.call(tenant, tree.epoch, &session, &call_id).await?;
            tree.recall(&session, &events);
        }
        Ok(tree)
    }

    /// The counters of the agent that asked last in a session, and the tenant's.
    pub(super) async fn counters(
        &self,
        policy: &Policy,
        tenant: TenantId,
        slot: &Arc<Slot>,
        session: &SessionId,
    ) -> Result<BTreeMap<CounterKey, u64>, NoAnswer> {
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
    ) -> Result<BTreeMap<CounterKey, u64>, NoAnswer> {
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
    ) -> Result<(), NoAnswer> {
        let Some(epoch) = slot.advance(|tree| tree.epoch) else { return Ok(()) };
        let events = self.store.call(tenant, epoch, session, call_id).await?;
        if !events.is_empty() {
            self.slots.miss(tenant, slot.root(), session, call_id);
            slot.advance(|tree| tree.recall(session, &events));
        }
        Ok(())
    }
}
