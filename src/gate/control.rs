//! What people and systems do to sessions.

use super::{
    Gate, GateError,
    decide::{Decided, Subject, Unheard, nothing},
};
use crate::{
    domain::{
        call::Approval,
        control::Control,
        ids::{SessionId, TenantId},
    },
    engine::{self, Command},
};

impl Gate {
    /// Does something to a session; tells what was done once it is stored.
    ///
    /// # Errors
    /// [`GateError`]: nothing was done.
    pub async fn control(&self, tenant: TenantId, command: &Command) -> Result<Control, GateError> {
        let policy = self.policy();
        let unheard = Unheard::Begins(None);
        let subject = Subject { tenant, session: &command.session, unheard, calls: &[] };
        let controlled =
            self.decide(subject, nothing, |tree, (), now| match engine::control(&policy, tree, command, now) {
                Err(caller_error) => Decided::Rejected(caller_error),
                Ok(controlled) => Decided::Append(controlled.control.clone(), vec![controlled.into()]),
            });
        Ok(controlled.await?.answer)
    }

    /// Where the question to a person stands that a call waits for; none when the call waits for nobody.
    ///
    /// # Errors
    /// [`GateError`] when the session cannot be read.
    pub async fn approval(
        &self,
        tenant: TenantId,
        session: &SessionId,
        approval_id: &str,
    ) -> Result<Option<Approval>, GateError> {
        self.look(tenant, session, nothing, |tree, (), _| {
            let calls = tree.sessions.get(session).into_iter().flat_map(|session| &session.calls);
            let approvals = calls.rev().filter_map(|call| call.approval.as_ref());
            approvals.into_iter().find(|approval| approval.id == approval_id).cloned()
        })
        .await
    }
}
