//! Learned retry profiles and self-corrections: counted in the store by one replica at a time, read back by all. No
//! guarantee depends on them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{Decisions, NoAnswer};
use callgate_core::{
    domain::{
        ids::TenantId,
        profile::{ResidualState, Trial},
    },
    retry::{estimate::Estimate, layer::Layer, profiles::Profiles, self_correction::SelfCorrections},
};
use callgate_net::clock::{Clock, Tick};
use callgate_store::{CountingRound, DecisionStore};

/// Rounds of counting without a pause.
const ROUNDS_MAX: usize = 50;

/// Profiles as they were read last: by tenant, with the rollups' version.
#[derive(Debug, Default)]
pub(super) struct LearnedProfiles {
    tenants: Mutex<BTreeMap<TenantId, (u64, Arc<Profiles>)>>,
    /// Last poll for a new version; none since the start.
    looked_at: Mutex<Option<Tick>>,
}

impl LearnedProfiles {
    /// Time since the last poll for a new version; since the start, where there was none.
    pub(super) fn age(&self, clock: &Clock) -> Duration {
        clock.elapsed_since(self.looked_at.lock().unwrap_or_default())
    }

    fn find_profiles(&self, tenant: TenantId) -> Option<Arc<Profiles>> {
        self.tenants.lock().get(&tenant).map(|(_, profiles)| Arc::clone(profiles))
    }

    /// Tenants whose profiles are of another version.
    fn list_outdated(&self, version: u64) -> Vec<TenantId> {
        let is_old = |(tenant, (known, _)): (&TenantId, &(u64, _))| (*known != version).then_some(*tenant);
        self.tenants.lock().iter().filter_map(is_old).collect()
    }

    fn correct(&self, tenant: TenantId, read: SelfCorrections) {
        if let Some((_, known)) = self.tenants.lock().get_mut(&tenant)
            && known.self_corrections != read
        {
            Arc::make_mut(known).self_corrections = read;
        }
    }
}

impl Decisions {
    /// Counts the outcomes of follow-ups, if no other replica does, and reads the new profiles.
    ///
    /// # Errors
    /// [`NoAnswer`]: nothing is lost; it is counted the next time.
    pub async fn learn(&self) -> Result<(), NoAnswer> {
        for _ in 0..ROUNDS_MAX {
            let counted: CountingRound = self.store.count_trials(&learn).await?;
            if !counted.is_behind() {
                break;
            }
        }
        let version = self.store.profiles_version().await?;
        for tenant in self.learned.list_outdated(version) {
            self.load_profiles(&*self.store, tenant, version).await?;
        }
        *self.learned.looked_at.lock() = Some(self.server.clock.tick());
        Ok(())
    }

    /// Reads the self-corrections.
    ///
    /// # Errors
    /// [`NoAnswer`]: the former ones stand.
    pub async fn learn_self_corrections(&self) -> Result<(), NoAnswer> {
        let tenants: Vec<TenantId> = self.learned.tenants.lock().keys().copied().collect();
        for tenant in tenants {
            let read = self.store.self_corrections(tenant).await?;
            self.learned.correct(tenant, SelfCorrections::restore(read));
        }
        Ok(())
    }

    /// Retry profiles of a tenant. While they cannot be read, the priors hold.
    pub(super) async fn profiles(&self, tenant: TenantId) -> Arc<Profiles> {
        self.read_profiles(&*self.store, tenant).await.unwrap_or_default()
    }

    pub(super) async fn read_profiles(
        &self,
        store: &dyn DecisionStore,
        tenant: TenantId,
    ) -> Result<Arc<Profiles>, NoAnswer> {
        match self.learned.find_profiles(tenant) {
            Some(profiles) => Ok(profiles),
            None => Box::pin(self.load_profiles(store, tenant, 0)).await,
        }
    }

    async fn load_profiles(
        &self,
        store: &dyn DecisionStore,
        tenant: TenantId,
        version: u64,
    ) -> Result<Arc<Profiles>, NoAnswer> {
        let (counts, residuals) = store.profiles(tenant).await?;
        // They have a pace of their own, since they are counted over days each time.
        let self_corrections = match self.learned.find_profiles(tenant) {
            Some(known) => known.self_corrections.clone(),
            None => SelfCorrections::restore(store.self_corrections(tenant).await?),
        };
        let (estimate, layer) = (Estimate::restore(&counts), Layer::restore(&residuals));
        let profiles = Arc::new(Profiles { estimate, layer, self_corrections });
        self.learned.tenants.lock().insert(tenant, (version, Arc::clone(&profiles)));
        Ok(profiles)
    }
}

/// Puts trials on top of stored residuals.
fn learn(stored: Vec<ResidualState>, trials: &[Trial]) -> Vec<ResidualState> {
    let mut layer = Layer::restore(&stored);
    trials.iter().for_each(|trial| layer.learn(trial));
    layer.kinds().map(|(kind, residual)| residual.state(kind)).collect()
}
