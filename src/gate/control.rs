//! What people and systems do to sessions: the same loop as for calls, and the kill switch beside it.

use std::sync::Arc;

use super::{Gate, GateError, TRIES_MAX};
use crate::{
    domain::{
        call::Approval,
        control::Control,
        event::{Change, Event},
        halt::{Halt, Halted},
        ids::{CallId, SessionId, TenantId},
    },
    engine::{self, Command},
    store::Pending,
};

/// What one attempt came to.
enum Attempt {
    Misused(engine::CallerError, u64),
    Sent(Control, Pending),
    Stale,
}

impl Gate {
    /// Does something to a session; tells what was done once it is stored.
    ///
    /// # Errors
    /// [`GateError`]: nothing was done.
    pub async fn control(&self, tenant: TenantId, command: &Command) -> Result<Control, GateError> {
        let policy = self.policy();
        for _ in 0..TRIES_MAX {
            let root = self.known_root(tenant, &command.session).await?.unwrap_or_else(|| command.session.clone());
            let slot = self.slot_of(tenant, &root).await?;
            let queue = self.store.queue_slot().await?;
            let now = self.store.now();
            let attempt = slot.advance(|tree| match engine::control(&policy, tree, command, now) {
                Err(caller_error) => Attempt::Misused(caller_error, tree.version),
                Ok(change) => match done(&change) {
                    Some(control) => Attempt::Sent(control, queue.send(engine::advance(tree, change), &slot)),
                    None => Attempt::Stale,
                },
            });
            match attempt.unwrap_or(Attempt::Stale) {
                Attempt::Misused(caller_error, version) if self.is_current(tenant, &slot, version).await? => {
                    return Err(caller_error.into());
                }
                Attempt::Misused(..) | Attempt::Stale => self.invalidate(tenant, &slot),
                Attempt::Sent(control, pending) => match pending.committed().await {
                    Ok(_) => return Ok(control),
                    Err(lost) => self.lost(tenant, &slot, &command.session, std::iter::empty::<&CallId>(), lost)?,
                },
            }
        }
        Err(GateError::Contention)
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
        self.look(tenant, session, |tree| {
            let calls = tree.sessions.get(session).into_iter().flat_map(|session| &session.calls);
            let approvals = calls.rev().filter_map(|call| call.approval.as_ref());
            approvals.into_iter().find(|approval| approval.id == approval_id).cloned()
        })
        .await
    }

    /// Halts something until [`Gate::resume`]: here at once, on every replica within two seconds. Halting what is
    /// halted changes nothing; gives the halt that holds.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`]: nothing was halted.
    pub async fn halt(&self, tenant: TenantId, what: &Halted, by: &str, reason: &str) -> Result<Halt, GateError> {
        let halt = self.store.halt(tenant, what, by, reason).await?;
        self.read_halts().await?;
        Ok(halt)
    }

    /// Lets go on what was halted; false when it was not.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`]: nothing was changed.
    pub async fn resume(&self, tenant: TenantId, what: &Halted, by: &str) -> Result<bool, GateError> {
        let was_halted = self.store.resume(tenant, what, by).await?;
        self.read_halts().await?;
        Ok(was_halted)
    }

    /// What is halted, as this replica knows it.
    #[must_use]
    pub fn halts(&self, tenant: TenantId) -> Arc<[Halt]> {
        self.fleet.halts(tenant)
    }

    /// Reads what is halted.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`]: what was known holds.
    pub async fn read_halts(&self) -> Result<(), GateError> {
        self.fleet.set_halts(self.store.halts().await?);
        Ok(())
    }
}

/// The one thing that an command does.
fn done(change: &Change) -> Option<Control> {
    change.events.iter().find_map(|event| match event {
        Event::Controlled(controlled) => Some(controlled.control.clone()),
        Event::Judged(_) | Event::Settled(_) => None,
    })
}
