//! Finding and loading of call trees, and of the state shared between them.

use std::{collections::BTreeMap, sync::Arc};

use tracing::Instrument as _;

use super::{
    Decisions, GateError, NoAnswer,
    decide::{Subject, UnknownSession},
};
use crate::telemetry::database::load_span;
use callgate_core::{
    domain::{
        budget::CounterKey,
        event::Event,
        ids::{CallId, SessionId, TenantId},
        tree::CallTree,
    },
    engine,
    policy::Policy,
};
use callgate_store::{LoadTurn, SessionTree, Slot, StoreError};

impl Decisions {
    /// The slot of a session's tree, which may not exist yet, and true when the session's root was cached. For a new
    /// session the database is asked once.
    pub(super) async fn slot<R: Clone>(&self, subject: &Subject<'_, R>) -> Result<(Arc<Slot>, bool), GateError<R>> {
        let Subject { tenant, session, .. } = *subject;
        match self.server.slots.root(tenant, session) {
            Some(root) => Ok((self.slot_of(tenant, &root).await?, true)),
            None => Ok((Box::pin(self.slot_unheard(subject)).await?, false)),
        }
    }

    async fn slot_unheard<R: Clone>(&self, subject: &Subject<'_, R>) -> Result<Arc<Slot>, GateError<R>> {
        let Subject { tenant, session, ref unheard, .. } = *subject;
        let parent = match unheard {
            UnknownSession::Rejected(_) => None,
            UnknownSession::Begins(parent) => *parent,
        };
        match (self.find(tenant, session, parent).await?, unheard) {
            (Some(SessionTree { root, epoch, .. }), _) => Ok(self.slot_born(tenant, &root, epoch).await?),
            (None, UnknownSession::Rejected(rejection)) => Err(GateError::Rejected(rejection.clone())),
            // An unknown parent becomes a root.
            (None, UnknownSession::Begins(parent)) => Ok(self.new_slot(tenant, parent.unwrap_or(session))),
        }
    }

    /// Finds the tree of a session, or of its parent.
    async fn find(
        &self,
        tenant: TenantId,
        session: &SessionId,
        parent: Option<&SessionId>,
    ) -> Result<Option<SessionTree>, NoAnswer> {
        let found = self.store.find(tenant, session, parent).await?;
        if let Some(SessionTree { root, by_parent: false, .. }) = &found {
            self.server.slots.set_root(tenant, session, root);
        }
        Ok(found)
    }

    /// A tree that has no event yet, as far as the database says; if another replica is first, its first change is a
    /// conflict.
    fn new_slot(&self, tenant: TenantId, root: &SessionId) -> Arc<Slot> {
        let known = self.server.slots.get(tenant, root);
        known.unwrap_or_else(|| self.server.slots.put_tree(CallTree::new(tenant, root.clone(), self.store.now())))
    }

    pub(super) async fn known_root(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionId>, NoAnswer> {
        if let Some(root) = self.server.slots.root(tenant, session) {
            return Ok(Some(root));
        }
        Ok(self.find(tenant, session, None).await?.map(|found| found.root))
    }

    pub(super) async fn slot_of(&self, tenant: TenantId, root: &SessionId) -> Result<Arc<Slot>, NoAnswer> {
        self.slot_born(tenant, root, None).await
    }

    /// The slot of a tree whose day of birth may be known.
    async fn slot_born(&self, tenant: TenantId, root: &SessionId, epoch: Option<i32>) -> Result<Arc<Slot>, NoAnswer> {
        let mut was_there = true;
        loop {
            if let Some(slot) = self.server.slots.get(tenant, root) {
                self.server.metrics.looked_up(was_there);
                return Ok(slot);
            }
            was_there = false;
            match self.server.slots.turn(tenant, root) {
                LoadTurn::Load(loading) => {
                    let load = self.load(tenant, root, epoch).instrument(load_span(self.store.namespace()));
                    let loaded = Box::pin(load).await;
                    let tree = loaded.inspect_err(|error| loading.fail(error))?;
                    tree.sessions.keys().for_each(|session| self.server.slots.set_root(tenant, session, root));
                    self.server.metrics.looked_up(was_there);
                    return Ok(self.server.slots.put_tree(tree));
                }
                // The loading task may be dropped; then another one loads.
                LoadTurn::Wait(mut other) => {
                    if let Ok(failed) = other.wait_for(Option::is_some).await
                        && let Some(error) = failed.clone()
                    {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// The tree as it was last committed.
    async fn load(&self, tenant: TenantId, root: &SessionId, epoch: Option<i32>) -> Result<CallTree, StoreError> {
        let known = match self.server.slots.take_stored(tenant, root) {
            Some(stored) => self.store.catch_up(*stored).await?,
            None => None,
        };
        let read = match known {
            Some(tree) => Some(tree),
            None => self.store.tree(tenant, root, epoch).await?,
        };
        Ok(read.unwrap_or_else(|| CallTree::new(tenant, root.clone(), self.store.now())))
    }

    /// The events of those calls of a decision that their tree has forgotten, as far as that is known: it recalls them
    /// under its lock.
    pub(super) async fn recall_forgotten<R>(
        &self,
        subject: &Subject<'_, R>,
        slot: &Arc<Slot>,
    ) -> Result<Vec<Vec<Event>>, NoAnswer> {
        let mut forgotten = Vec::new();
        for call_id in subject.calls {
            let is_there = |tree: &mut CallTree| tree.sessions.get(subject.session)?.call(call_id).map(drop);
            if self.server.slots.is_missed(subject.tenant, slot.root(), subject.session, call_id)
                && slot.advance(is_there).flatten().is_none()
            {
                forgotten.push(self.store.call(subject.tenant, subject.session, call_id).await?);
            }
        }
        Ok(forgotten)
    }

    /// The counters of a session's last agent and of the tenant, for display: old ones are read again.
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
        let keys = engine::counter_keys(policy, agent.flatten().as_ref(), None, self.store.now());
        Ok(self.store.counters(tenant, keys.into_iter().map(|(key, _)| (key, 0)).collect()).await?)
    }

    /// Recalls a call that its tree has forgotten; does nothing for an unknown one.
    pub(super) async fn recall(
        &self,
        tenant: TenantId,
        slot: &Arc<Slot>,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<(), NoAnswer> {
        let events = self.store.call(tenant, session, call_id).await?;
        if !events.is_empty() {
            self.server.slots.miss(tenant, slot.root(), session, call_id);
            slot.advance(|tree| tree.recall(session, &events));
        }
        Ok(())
    }
}
