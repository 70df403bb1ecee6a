//! Session state: calls, budgets, grants and halts of a session.

use std::sync::Arc;

use super::{Decisions, Insight, SessionError, decide::read_nothing};
use callgate_core::{
    domain::{
        grant::Grant,
        halt::{Halt, HaltTarget},
        ids::{SessionId, TenantId},
        rejection::SessionUnknown,
        session_state::{Extent, SessionState},
    },
    engine,
};
use callgate_store::DecisionStore;

impl Decisions {
    /// The state of a session.
    ///
    /// # Errors
    /// [`SessionError`]: it has no call yet, or cannot be read.
    pub async fn session_state(
        &self,
        tenant: TenantId,
        session: &SessionId,
        extent: Extent,
    ) -> Result<SessionState, SessionError> {
        self.session_state_from(&*self.store, tenant, session, extent).await
    }

    async fn session_state_from(
        &self,
        store: &dyn DecisionStore,
        tenant: TenantId,
        session: &SessionId,
        extent: Extent,
    ) -> Result<SessionState, SessionError> {
        self.server.admits(tenant)?;
        #[cfg(feature = "break-invariants")]
        let tenant = super::broken::looked_at(tenant);
        let policies = self.server.candidate_policies(tenant, self.server.policy(tenant));
        let read = async |slot: Arc<_>| {
            let policy = policies.choose_before(&slot, None, self.store.now())?;
            let past = store.past_calls(tenant, session, extent.past_calls).await?;
            let counters = self.counters(&policy, tenant, &slot, session).await?;
            Ok((policy, counters, past))
        };
        let state = self.read_tree(tenant, session, read, |tree, (policy, counters, past), now| {
            engine::session_state(&policy, tree, session, (&counters, &past), extent, now)
        });
        let state = state.await?.ok_or(SessionError::Rejected(SessionUnknown))?;
        let tools = state.calls.iter().map(|told| told.call.tool.clone());
        Ok(SessionState { cooldowns: self.tools.cooldowns(tenant, tools, state.at), ..state })
    }

    /// The grants of a session's call tree that are not over, oldest first, with the count of their uses.
    ///
    /// # Errors
    /// [`SessionError`] when the session is unknown or cannot be read.
    pub async fn grants(&self, tenant: TenantId, session: &SessionId) -> Result<Vec<(Grant, u64)>, SessionError> {
        let now = self.store.now();
        self.read_tree(tenant, session, read_nothing, |tree, (), _| {
            let used = |grant: &Grant| tree.uses.get(&grant.key()).map_or(0, |used| used.used);
            let open = tree.grants.iter().filter(|grant| now < grant.expires_at);
            open.map(|grant| (grant.clone(), used(grant))).collect()
        })
        .await
    }

    /// The halt that stops a session, if one does: its own, that of one above it, or everything's.
    ///
    /// # Errors
    /// [`SessionError`] when the session is unknown or cannot be read.
    pub async fn halt_of(&self, tenant: TenantId, session: &SessionId) -> Result<Option<Halt>, SessionError> {
        let halts: Arc<[Halt]> = self.server.halts(tenant);
        if halts.is_empty() {
            return Ok(None);
        }
        let line: Vec<SessionId> = self
            .read_tree(tenant, session, read_nothing, |tree, (), _| tree.ancestry(session).cloned().collect())
            .await?;
        let stops = |halt: &&Halt| match &halt.what {
            HaltTarget::Tenant => true,
            HaltTarget::Session(halted) => line.contains(halted),
            HaltTarget::Agent(_) | HaltTarget::Tool(_) => false,
        };
        Ok(halts.iter().find(stops).cloned())
    }
}

impl Insight {
    /// As [`Decisions::session_state`], for an operator.
    ///
    /// # Errors
    /// [`SessionError`]: it has no call yet, or cannot be read.
    pub async fn session_state(
        &self,
        tenant: TenantId,
        session: &SessionId,
        extent: Extent,
    ) -> Result<SessionState, SessionError> {
        self.decisions.session_state_from(&*self.operators.decisions(), tenant, session, extent).await
    }
}
