//! Policies with the hashing of their tenants.

use std::{collections::BTreeMap, sync::Arc};

use super::policies::{ActivePolicy, Judges};
use callgate_core::{
    domain::{hashing::Hashing, ids::TenantId},
    policy::Policy,
};

impl ActivePolicy {
    /// Sets a tenant's hashing from now on, whatever its policy.
    pub(super) fn hash_by(&self, tenant: TenantId, hashing: &Hashing) {
        if self.built_in(tenant).hashing.mark() == hashing.mark() {
            return;
        }
        let _known = self.revisions.lock();
        self.keyed.rcu(|keyed| {
            let mut keyed = BTreeMap::clone(keyed);
            keyed.insert(tenant, with_hashing(&self.built_in, hashing));
            keyed
        });
        self.judges.rcu(|judges| {
            let mut judges = Judges::clone(judges);
            if let Some(Some(policy)) = judges.get_mut(&tenant) {
                *policy = with_hashing(policy, hashing);
            }
            judges
        });
        self.rollouts.hash_by(tenant, hashing);
    }
}

/// The policy with a tenant's hashing.
pub(super) fn with_hashing(policy: &Arc<Policy>, hashing: &Hashing) -> Arc<Policy> {
    if policy.hashing.mark() == hashing.mark() {
        return Arc::clone(policy);
    }
    let mut own = Policy::clone(policy);
    own.hashing = hashing.clone();
    Arc::new(own)
}
