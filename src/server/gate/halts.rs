//! Halts: stored outside of call trees, and read into the memory of every replica each second.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{Decisions, Insight, NoAnswer, ServerState};
use callgate_core::domain::{
    audit::Actor,
    halt::{Halt, HaltTarget},
    ids::TenantId,
};
use callgate_store::DecisionStore;

/// Halts by tenant, as of the last read.
#[derive(Debug, Default)]
pub(super) struct Halts(Mutex<BTreeMap<TenantId, Arc<[Halt]>>>);

impl Halts {
    fn of(&self, tenant: TenantId) -> Arc<[Halt]> {
        self.0.lock().get(&tenant).cloned().unwrap_or_default()
    }

    /// The kind of every halt, of all tenants.
    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.0.lock().values().flat_map(|halts| halts.iter()).map(|halt| halt.what.kind_name()).collect()
    }

    fn set(&self, halts: BTreeMap<TenantId, Vec<Halt>>) {
        *self.0.lock() = halts.into_iter().map(|(tenant, halts)| (tenant, halts.into())).collect();
    }
}

impl ServerState {
    /// Halts of a tenant, as of the last read.
    #[must_use]
    pub fn halts(&self, tenant: TenantId) -> Arc<[Halt]> {
        self.halts.of(tenant)
    }

    /// Reads the halts.
    ///
    /// # Errors
    /// [`NoAnswer`]: the halts of the last read stay in force.
    pub async fn read_halts(&self) -> Result<(), NoAnswer> {
        self.read_halts_from(&*self.store).await
    }

    pub(super) async fn read_halts_from(&self, store: &dyn DecisionStore) -> Result<(), NoAnswer> {
        self.halts.set(store.halts().await?);
        Ok(())
    }
}

impl Decisions {
    /// Halts a target until [`Decisions::resume`]: here at once, on every replica within two seconds. A second halt
    /// changes nothing; returns the halt in force.
    ///
    /// # Errors
    /// [`NoAnswer`]: nothing was halted.
    pub async fn halt(
        &self,
        tenant: TenantId,
        what: &HaltTarget,
        by: impl Into<Actor>,
        reason: &str,
    ) -> Result<Halt, NoAnswer> {
        let reason = self.server.policy(tenant).without_secrets(reason);
        let halt = self.store.halt(tenant, what, &by.into(), &reason).await?;
        self.server.read_halts().await?;
        Ok(halt)
    }

    /// Resumes a halted target; false when it was not halted.
    ///
    /// # Errors
    /// [`NoAnswer`]: nothing was changed.
    pub async fn resume(
        &self,
        tenant: TenantId,
        what: &HaltTarget,
        by: impl Into<Actor>,
        reason: &str,
    ) -> Result<bool, NoAnswer> {
        let was_halted = self.store.resume(tenant, what, &by.into(), reason).await?;
        self.server.read_halts().await?;
        Ok(was_halted)
    }
}

impl Insight {
    /// As [`ServerState::read_halts`], for an operator.
    ///
    /// # Errors
    /// [`NoAnswer`]: the halts of the last read stay in force.
    pub async fn read_halts(&self) -> Result<(), NoAnswer> {
        self.server.read_halts_from(&*self.operators.decisions()).await
    }
}
