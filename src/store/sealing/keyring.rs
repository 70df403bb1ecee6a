//! Keyring: the keys of all tenants on this server.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;

use super::TenantKeys;
use callgate_core::domain::{hashing::KeyMark, ids::TenantId};

/// Storage of a tenant's values.
#[derive(Debug, Clone)]
pub enum TenantStorage {
    /// Plain.
    Plain,
    /// Encrypted.
    Keys(Arc<TenantKeys>),
    /// Encrypted, with missing keys.
    Locked,
}

/// Keys from the file by name, and known tenants. A tenant's values are plain until its storage is known.
#[derive(Debug, Default)]
pub struct Keyring {
    named: ArcSwap<BTreeMap<String, Arc<TenantKeys>>>,
    known: ArcSwap<BTreeMap<TenantId, TenantStorage>>,
}

impl Keyring {
    /// Replaces the keys, by tenant name.
    pub fn set(&self, named: BTreeMap<String, Arc<TenantKeys>>) {
        self.named.store(Arc::new(named));
    }

    /// The keys of a tenant by name.
    #[must_use]
    pub fn find_keys(&self, tenant: &str) -> Option<Arc<TenantKeys>> {
        self.named.load().get(tenant).cloned()
    }

    /// The names of tenants with keys.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.named.load().keys().cloned().collect()
    }

    /// Records the storage of a tenant's values; `mark` identifies its hashing key, if any.
    pub fn know(&self, tenant: TenantId, name: &str, mark: Option<KeyMark>) -> TenantStorage {
        let keys = self.find_keys(name).filter(|keys| mark.is_some() && keys.hashing().mark() == mark);
        let access = match (mark, keys) {
            (None, _) => TenantStorage::Plain,
            (Some(_), Some(keys)) => TenantStorage::Keys(keys),
            (Some(_), None) => TenantStorage::Locked,
        };
        let is_new = match (&access, self.of(tenant)) {
            (TenantStorage::Plain, TenantStorage::Plain) | (TenantStorage::Locked, TenantStorage::Locked) => false,
            (TenantStorage::Keys(keys), TenantStorage::Keys(before)) => !Arc::ptr_eq(keys, &before),
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

    /// The storage of a tenant's values.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> TenantStorage {
        let known = self.known.load();
        if known.is_empty() {
            TenantStorage::Plain
        } else {
            known.get(&tenant).cloned().unwrap_or(TenantStorage::Plain)
        }
    }

    /// True for a tenant with encrypted values and missing keys.
    #[must_use]
    pub fn is_locked(&self, tenant: TenantId) -> bool {
        matches!(self.of(tenant), TenantStorage::Locked)
    }
}
