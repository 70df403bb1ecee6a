//! The kill switch: beside the trees, in memory on every replica, read each second.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::{Gate, GateError, decide::nothing, lock};
use crate::domain::{
    halt::{Halt, Halted},
    ids::{SessionId, TenantId},
};

/// What is halted, as it was read last.
#[derive(Debug, Default)]
pub(super) struct Halts(Mutex<BTreeMap<TenantId, Arc<[Halt]>>>);

impl Halts {
    fn of(&self, tenant: TenantId) -> Arc<[Halt]> {
        lock(&self.0).get(&tenant).cloned().unwrap_or_default()
    }

    fn set(&self, halts: BTreeMap<TenantId, Vec<Halt>>) {
        *lock(&self.0) = halts.into_iter().map(|(tenant, halts)| (tenant, halts.into())).collect();
    }
}

impl Gate {
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
        self.halts.of(tenant)
    }

    /// Reads what is halted.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`]: what was known holds.
    pub async fn read_halts(&self) -> Result<(), GateError> {
        self.halts.set(self.store.halts().await?);
        Ok(())
    }

    /// The halt that stops a session, if one does: its own, that of one above it, or everything's.
    ///
    /// # Errors
    /// [`GateError`] when the session is unknown or cannot be read.
    pub async fn halt_of(&self, tenant: TenantId, session: &SessionId) -> Result<Option<Halt>, GateError> {
        let halts: Arc<[Halt]> = self.halts(tenant);
        if halts.is_empty() {
            return Ok(None);
        }
        let line: Vec<SessionId> =
            self.look(tenant, session, nothing, |tree, (), _| tree.line(session).cloned().collect()).await?;
        let stops = |halt: &&Halt| match &halt.what {
            Halted::Tenant => true,
            Halted::Session(halted) => line.contains(halted),
            Halted::Agent(_) | Halted::Tool(_) => false,
        };
        Ok(halts.iter().find(stops).cloned())
    }
}
