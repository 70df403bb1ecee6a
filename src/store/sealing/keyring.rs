//! The keys of all tenants on this server.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;

use super::TenantKeys;
use callgate_core::domain::{hashing::KeyMark, ids::TenantId};

/// How a tenant's values are stored.
#[derive(Debug, Clone)]
pub enum Access {
    /// As they are.
    Plain,
    /// Sealed.
    Keys(Arc<TenantKeys>),
    /// Sealed, and its keys are not here.
    Locked,
}

/// The keys that a file names, and those of tenants that are known. A tenant is known once somebody has said how its
/// values are stored: until then, as they are.
#[derive(Debug, Default)]
pub struct Keyring {
    named: ArcSwap<BTreeMap<String, Arc<TenantKeys>>>,
    known: ArcSwap<BTreeMap<TenantId, Access>>,
}

impl Keyring {
    /// These are the keys from now on, by the names of their tenants.
    pub fn set(&self, named: BTreeMap<String, Arc<TenantKeys>>) {
        self.named.store(Arc::new(named));
    }

    /// The keys of a tenant of that name.
    #[must_use]
    pub fn named(&self, tenant: &str) -> Option<Arc<TenantKeys>> {
        self.named.load().get(tenant).cloned()
    }

    /// The names of tenants that have keys.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.named.load().keys().cloned().collect()
    }

    /// Takes over how a tenant's values are stored: `mark` tells the key of its hashes, where it has one.
    pub fn know(&self, tenant: TenantId, name: &str, mark: Option<KeyMark>) -> Access {
        let keys = self.named(name).filter(|keys| mark.is_some() && keys.hashing().mark() == mark);
        let access = match (mark, keys) {
            (None, _) => Access::Plain,
            (Some(_), Some(keys)) => Access::Keys(keys),
            (Some(_), None) => Access::Locked,
        };
        let is_new = match (&access, self.of(tenant)) {
            (Access::Plain, Access::Plain) | (Access::Locked, Access::Locked) => false,
            (Access::Keys(keys), Access::Keys(before)) => !Arc::ptr_eq(keys, &before),
            _ => true,
        };
        if is_new {
            self.known.rcu(|known| {
                let mut known = BTreeMap::clone(known);
                known.insert(tenant, access.clone());
                known
            });
        }
        access
    }

    /// How a tenant's values are stored.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> Access {
        let known = self.known.load();
        if known.is_empty() { Access::Plain } else { known.get(&tenant).cloned().unwrap_or(Access::Plain) }
    }

    /// True for a tenant whose keys are not here, though its values are sealed.
    #[must_use]
    pub fn is_locked(&self, tenant: TenantId) -> bool {
        matches!(self.of(tenant), Access::Locked)
    }
}
