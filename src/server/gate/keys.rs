//! Encryption keys of tenants, and their presence on this server. A tenant with encrypted values is known by the mark
//! of the key of its hashes in the database. A replica without that key, or with another one, would not recognize the
//! calls that the others have let through, and does not serve the tenant.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{Identities, NoAnswer};
use callgate_core::domain::{
    hashing::Hashing,
    ids::TenantId,
    tenant::{Tenant, TenantState},
};
use callgate_store::Store;
use callgate_store::sealing::{TenantKeys, TenantStorage};

/// Problems with the keys of tenants, each logged once.
#[derive(Debug, Default)]
pub(super) struct KeyProblems(Mutex<BTreeMap<TenantId, Problem>>);

/// The tenant's name, and the problem.
type Problem = (String, String);

impl KeyProblems {
    fn has(&self, tenant: TenantId) -> bool {
        self.0.lock().contains_key(&tenant)
    }

    fn report_problem(&self, tenant: &Tenant, problem: String) {
        tracing::error!("{problem}");
        self.0.lock().insert(tenant.id, (tenant.name.clone(), problem));
    }
}

impl Identities {
    /// These are the keys from now on, by the names of their tenants.
    ///
    /// # Errors
    /// [`NoAnswer`]: they hold within a second.
    pub async fn set_tenant_keys(&self, named: BTreeMap<String, Arc<TenantKeys>>) -> Result<(), NoAnswer> {
        self.store.keyring().set(named);
        self.key_problems.0.lock().clear();
        self.read_tenants().await.map(drop)
    }

    /// Decrypts a tenant's values with its keys among these, for work on a database. Encryption begins by it for no
    /// tenant.
    ///
    /// # Errors
    /// [`NoAnswer`]: the tenant cannot be read, or its calls are known by another fingerprint key.
    pub async fn open_with(
        &self,
        tenant: TenantId,
        mut named: BTreeMap<String, Arc<TenantKeys>>,
    ) -> Result<(), NoAnswer> {
        let mut known = self.store.tenants().await?.into_iter().map(|(tenant, ..)| tenant);
        let Some(tenant) = known.find(|known| known.id == tenant) else { return Err(NoAnswer::TenantUnknown) };
        named.retain(|name, _| *name == tenant.name && tenant.mark.is_some());
        if named.values().any(|keys| keys.hashing().mark() != tenant.mark) {
            return Err(NoAnswer::KeyMissing(other_fingerprint(&tenant.name)));
        }
        self.store.keyring().set(named);
        self.store.keyring().know(tenant.id, &tenant.name, tenant.mark);
        Ok(())
    }

    /// Problems with the tenants' keys on this server.
    #[must_use]
    pub fn key_problems(&self) -> Vec<String> {
        let keyring = self.store.keyring();
        let problems = self.key_problems.0.lock();
        let of_named = problems.values().filter(|(name, _)| keyring.find_keys(name).is_some());
        of_named.map(|(_, problem)| problem.clone()).collect()
    }

    /// Tenants that have keys, and are not there.
    #[must_use]
    pub fn keys_of_nobody(&self) -> Vec<String> {
        let known: Vec<String> = self.server.tenants().iter().map(|tenant| tenant.name.clone()).collect();
        self.store.keyring().names().into_iter().filter(|name| !known.contains(name)).collect()
    }

    /// Takes over how a tenant's values are stored; the first replica that has its keys turns encryption on.
    pub(super) async fn know_keys(&self, store: &Store, tenant: &mut Tenant) -> Result<(), NoAnswer> {
        let keyring = self.store.keyring();
        let name = tenant.name.clone();
        if let Some(keys) = keyring.find_keys(&name)
            && let Some(mark) = keys.hashing().mark()
            && tenant.state != TenantState::Deleted
            && !self.key_problems.has(tenant.id)
        {
            if tenant.mark.is_none() {
                tenant.mark = store.adopt_keys(tenant, mark, keys.anew).await?;
                match tenant.mark {
                    Some(_) => tracing::info!(tenant = name, key = keys.newest(), "its values are now encrypted"),
                    None => self.key_problems.report_problem(tenant, has_history(&name)),
                }
            }
            if tenant.mark.is_some_and(|known| known != mark) {
                self.key_problems.report_problem(tenant, other_fingerprint(&name));
            }
        }
        match keyring.know(tenant.id, &name, tenant.mark) {
            TenantStorage::Keys(keys) => self.server.policy.hash_by(tenant.id, keys.hashing()),
            TenantStorage::Plain => self.server.policy.hash_by(tenant.id, &Hashing::default()),
            TenantStorage::Locked if tenant.state == TenantState::Deleted => {}
            TenantStorage::Locked if !self.key_problems.has(tenant.id) => {
                self.key_problems.report_problem(tenant, describe_locked(&name))
            }
            TenantStorage::Locked => {}
        }
        Ok(())
    }
}

fn has_history(tenant: &str) -> String {
    format!(
        "tenant {tenant:?} has keys (--keys), and writes from before, which are known by hashes without a key: with \
         one they would not be known again, and a write that was done could be done twice. Nothing of it is sealed. \
         Set `anew: true` for the tenant if that is what you want"
    )
}

fn other_fingerprint(tenant: &str) -> String {
    format!(
        "tenant {tenant:?} has another fingerprint key (--keys) than the one its stored calls are known by: nothing of \
         it is judged or told here. Name the same key on every server, and keep it over rotations"
    )
}

fn describe_locked(tenant: &str) -> String {
    format!(
        "the values of tenant {tenant:?} are sealed, and this server has no keys of it (--keys): nothing of it is \
         judged or told here; other tenants are served"
    )
}
