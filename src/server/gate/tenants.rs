//! Tenants, as they were read last: known on every replica, read each second together with their policies.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;

use super::{Identities, NoAnswer, PolicyProblem, ServerState};
use callgate_core::{
    domain::{
        audit::Actor,
        ids::{DEFAULT_TENANT, TenantId},
        tenant::{Quotas, Tenant, TenantState, Terms},
    },
    policy::Policy,
};
use callgate_net::clock::{Clock, Tick};
use callgate_store::Store;

/// Longest age of a read that is relied on while the database is unavailable.
const VOUCHED: Duration = Duration::from_secs(2);

/// Tenants, and when they were read. The tenant `default` is known before the first read.
#[derive(Debug)]
pub(super) struct Tenants(ArcSwap<TenantTable>);

#[derive(Debug)]
struct TenantTable {
    tenants: BTreeMap<TenantId, Arc<Tenant>>,
    read: Option<Tick>,
}

impl Default for Tenants {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(TenantTable { tenants: BTreeMap::new(), read: None }))
    }
}

impl Tenants {
    fn set(&self, tenants: Vec<Tenant>, read: Tick) {
        let tenants = tenants.into_iter().map(|tenant| (tenant.id, Arc::new(tenant))).collect();
        let new = Arc::new(TenantTable { tenants, read: Some(read) });
        // Two looks may end in the other order.
        self.0.rcu(
            |known| if known.read.is_some_and(|before| before > read) { Arc::clone(known) } else { Arc::clone(&new) },
        );
    }

    fn of(&self, tenant: TenantId) -> Option<Arc<Tenant>> {
        self.0.load().tenants.get(&tenant).cloned()
    }

    /// Age of the last read; zero before the first.
    pub(super) fn age(&self, clock: &Clock) -> Duration {
        self.0.load().read.map_or(Duration::ZERO, |read| clock.elapsed_since(read))
    }

    /// True for a tenant that is certainly served at this moment, without a read: `default` can be neither suspended
    /// nor deleted.
    pub(super) fn vouches(&self, tenant: TenantId, clock: &Clock) -> bool {
        tenant == DEFAULT_TENANT || self.0.load().read.is_some_and(|read| clock.elapsed_since(read) <= VOUCHED)
    }
}

/// Result of creating or changing a tenant.
#[derive(Debug, Clone, PartialEq)]
pub enum TenantChange {
    /// It is as was asked for.
    Done(Box<Tenant>),
    /// There is, or was, one of that name.
    Taken,
    /// There is none of that name, or it is deleted.
    Unknown,
    /// It is `default`, which is always served.
    Own,
    /// Only a suspended tenant is deleted.
    NotSuspended,
}

impl From<Option<Tenant>> for TenantChange {
    fn from(changed: Option<Tenant>) -> Self {
        changed.map_or(Self::Unknown, |tenant| Self::Done(Box::new(tenant)))
    }
}

impl ServerState {
    /// Is the tenant served? Asked before anything is done for it, and again whenever something takes long.
    ///
    /// # Errors
    /// [`NoAnswer`]: it is suspended, deleted or unknown, or its values are encrypted and its keys are not here.
    pub fn admits(&self, tenant: TenantId) -> Result<(), NoAnswer> {
        if self.store.keyring().is_locked(tenant) {
            return Err(NoAnswer::KeyMissing("no key of the tenant is on this server".to_owned()));
        }
        if tenant == DEFAULT_TENANT {
            return Ok(());
        }
        match self.tenants.0.load().tenants.get(&tenant).map(|tenant| tenant.state) {
            None => Err(NoAnswer::TenantUnknown),
            Some(TenantState::Active) => Ok(()),
            Some(state) => Err(NoAnswer::NotServed(state)),
        }
    }

    /// The policy that judges a tenant, if it is served.
    ///
    /// # Errors
    /// [`NoAnswer`]: as [`ServerState::admits`], and where this build cannot read the tenant's policy and has judged by
    /// none before.
    pub(super) fn judges(&self, tenant: TenantId) -> Result<Arc<Policy>, NoAnswer> {
        self.admits(tenant)?;
        self.policy.of(tenant).ok_or(NoAnswer::PolicyUnreadable)
    }

    /// May a caller report in the tenant? A report opens nothing, and ends a call that was let through before the
    /// tenant was suspended. A report of a call without a permit (`is_new`) is a call like any other.
    ///
    /// # Errors
    /// [`NoAnswer`]: it is deleted or unknown, or suspended and this is new.
    pub(super) fn admits_report(&self, tenant: TenantId, is_new: bool) -> Result<(), NoAnswer> {
        match self.admits(tenant) {
            Err(NoAnswer::NotServed(TenantState::Suspended)) if !is_new => Ok(()),
            admitted => admitted,
        }
    }

    /// A tenant, as this replica knows it.
    #[must_use]
    pub fn tenant(&self, tenant: TenantId) -> Option<Arc<Tenant>> {
        self.tenants.of(tenant)
    }

    /// All tenants, as this replica knows them, by their numbers.
    #[must_use]
    pub fn tenants(&self) -> Vec<Arc<Tenant>> {
        self.tenants.0.load().tenants.values().cloned().collect()
    }
}

impl Identities {
    /// Reads the tenants, and the active policy of each. A tenant is known here once its policy is. Returns the
    /// problems of the policy of `default`, when they are new.
    ///
    /// # Errors
    /// [`NoAnswer`]: the former state holds.
    pub async fn read_tenants(&self) -> Result<Vec<PolicyProblem>, NoAnswer> {
        self.read_tenants_from(&self.store).await
    }

    /// As [`Self::read_tenants`], for an operator.
    ///
    /// # Errors
    /// [`NoAnswer`]: the former state holds.
    pub async fn read_tenants_for_operator(&self) -> Result<(), NoAnswer> {
        self.read_tenants_from(&self.operators).await.map(drop)
    }

    async fn read_tenants_from(&self, store: &Store) -> Result<Vec<PolicyProblem>, NoAnswer> {
        let asked = self.server.clock.tick();
        let mut known = store.tenants().await?;
        let mut problems = Vec::new();
        for (tenant, active, rollout) in &mut known {
            self.know_keys(store, tenant).await?;
            // A tenant that is not served needs no policy, which takes long to compile.
            if let Some(active) = active.as_ref().filter(|_| tenant.state == TenantState::Active) {
                let found = self.policies.follow_policy(store, tenant.id, active).await?;
                if tenant.id == DEFAULT_TENANT {
                    problems = found;
                }
            }
            if tenant.state == TenantState::Active {
                self.policies.follow_rollout(store, tenant.id, rollout.take()).await?;
            }
        }
        self.server.tenants.set(known.into_iter().map(|(tenant, ..)| tenant).collect(), asked);
        Ok(problems)
    }

    /// Makes a tenant: known here at once, on every replica within two seconds.
    ///
    /// # Errors
    /// [`NoAnswer`]: it was not created, or the result is unknown.
    pub async fn create_tenant(&self, name: &str, quotas: &Quotas, by: &Actor) -> Result<TenantChange, NoAnswer> {
        match self.store.create_tenant(name, quotas, by).await? {
            None => Ok(TenantChange::Taken),
            changed => self.read_anew(changed.into()).await,
        }
    }

    /// Serves a tenant or does not: here at once, on every replica within two seconds.
    ///
    /// # Errors
    /// [`NoAnswer`]: it was not changed, or the result is unknown.
    pub async fn set_tenant_state(
        &self,
        name: &str,
        state: TenantState,
        by: &Actor,
        reason: &str,
    ) -> Result<TenantChange, NoAnswer> {
        let known =
            self.store.tenants().await?.into_iter().map(|(tenant, ..)| tenant).find(|tenant| tenant.name == name);
        match known {
            Some(tenant) if tenant.id == DEFAULT_TENANT && state != TenantState::Active => Ok(TenantChange::Own),
            Some(tenant) if state == TenantState::Deleted && tenant.state == TenantState::Active => {
                Ok(TenantChange::NotSuspended)
            }
            Some(_) => {
                let changed = self.store.set_tenant_state(name, state, by, reason).await?;
                self.read_anew(changed.into()).await
            }
            None => Ok(TenantChange::Unknown),
        }
    }

    /// Sets a tenant's quotas: here at once, on every replica within two seconds.
    ///
    /// # Errors
    /// [`NoAnswer`]: it was not changed, or the result is unknown.
    pub async fn set_tenant_quotas(&self, name: &str, quotas: &Quotas, by: &Actor) -> Result<TenantChange, NoAnswer> {
        let changed = self.store.set_tenant_quotas(name, quotas, by).await?;
        self.read_anew(changed.into()).await
    }

    /// Sets a tenant's retention periods. Months belong to the deployment: only `default` has a period for them.
    ///
    /// # Errors
    /// [`NoAnswer`]: it was not changed, or the result is unknown.
    pub async fn set_tenant_terms(&self, name: &str, terms: &Terms, by: &Actor) -> Result<TenantChange, NoAnswer> {
        let changed = self.store.set_tenant_terms(name, terms, by).await?;
        self.read_anew(changed.into()).await
    }

    /// Applies a change here at once. After a failed read it is stored all the same, and read within a second.
    async fn read_anew(&self, change: TenantChange) -> Result<TenantChange, NoAnswer> {
        if matches!(change, TenantChange::Done(_)) {
            let _ = Box::pin(self.read_tenants()).await;
        }
        Ok(change)
    }
}
