//! What a session has done and may still do.

use std::sync::Arc;

use super::{Gate, GateError};
use crate::{
    domain::ids::{SessionId, TenantId},
    engine::{self, SessionState},
};

impl Gate {
    /// The state of a session.
    ///
    /// # Errors
    /// [`GateError::SessionUnknown`] for a session without a call; others when it cannot be read.
    pub async fn session_state(
        &self,
        tenant: TenantId,
        session: &SessionId,
        last_calls: usize,
    ) -> Result<SessionState, GateError> {
        let policy = self.policy();
        let counters = |slot: Arc<_>| {
            let policy = Arc::clone(&policy);
            async move { self.counters(&policy, tenant, &slot, session).await }
        };
        let state = self.look(tenant, session, counters, |tree, counters, now| {
            engine::session_state(&policy, tree, session, &counters, last_calls, now)
        });
        let state = state.await?.ok_or(GateError::SessionUnknown)?;
        let tools = state.calls.iter().map(|(call, _)| call.tool.clone());
        Ok(SessionState { cooldowns: self.tools.cooldowns(tenant, tools, state.at), ..state })
    }
}
