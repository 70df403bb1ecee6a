//! Session ownership: a credential works in the call trees that it owns, and in those of any name above its own. The
//! first credential that evaluates a call in a call tree owns it, on every replica.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use lru::LruCache;
use parking_lot::Mutex;

use super::{Decisions, NoAnswer};
use callgate_core::domain::{
    identity::Identity,
    ids::{SessionId, TenantId},
};
use callgate_net::clock::Tick;

/// Trees with an owner in the cache: it never changes while the tree exists.
const OWNERS_MAX: NonZeroUsize = NonZeroUsize::new(20_000).unwrap();

/// Longest age of a read owner that is relied on where a tree begins: another replica may have forgotten the tree with
/// its owner, and it begins anew.
const FRESH: Duration = Duration::from_millis(250);

/// Owner of a tree, and when it was read.
type Owner = (Arc<str>, Tick);

/// Cache of owners by root session.
#[derive(Debug)]
pub(super) struct Owners(Mutex<LruCache<(TenantId, SessionId), Owner>>);

impl Default for Owners {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(OWNERS_MAX)))
    }
}

impl Owners {
    /// Forgets the owners of trees that are `is_gone`.
    pub(super) fn forget(&self, is_gone: impl Fn(TenantId, &SessionId) -> bool) {
        let mut owners = self.0.lock();
        let gone = owners.iter().map(|(key, _)| key).filter(|(tenant, root)| is_gone(*tenant, root)).cloned();
        gone.collect::<Vec<_>>().iter().for_each(|key| drop(owners.pop(key)));
    }
}

/// Reasons to reject work in a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// It has another owner.
    #[error("the session was opened with another credential")]
    NotTheirs,
    /// The owner is unknown now.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

impl Decisions {
    /// May the caller work in this session? A tree without an owner becomes theirs, if they evaluate a call in it.
    ///
    /// # Errors
    /// [`WorkError`]: nothing was done.
    pub async fn works_in(
        &self,
        identity: &Identity,
        session: &SessionId,
        parent: Option<&SessionId>,
        opens: bool,
    ) -> Result<(), WorkError> {
        let Some(name) = identity.owner() else { return Ok(()) };
        if !opens && identity.may_work_in_all() {
            return Ok(());
        }
        let tenant = identity.tenant;
        let root = match (self.known_root(tenant, session).await?, parent) {
            (Some(root), _) => root,
            (None, Some(parent)) => self.known_root(tenant, parent).await?.unwrap_or_else(|| parent.clone()),
            (None, None) => session.clone(),
        };
        let key = (tenant, root);
        let known = self.server.owners.0.lock().get(&key).cloned();
        let owner = match known {
            Some((owner, _)) => Some(owner),
            None => {
                let read = match opens {
                    true => Some(self.store.claim_owner(tenant, &key.1, name).await.map_err(NoAnswer::from)?),
                    false => self.store.owner(tenant, &key.1).await.map_err(NoAnswer::from)?,
                };
                let owner: Option<Arc<str>> = read.map(Arc::from);
                if let Some(owner) = &owner {
                    self.server.owners.0.lock().put(key, (Arc::clone(owner), self.server.clock.tick()));
                }
                owner
            }
        };
        if identity.may_work_in(owner.as_deref()) { Ok(()) } else { Err(WorkError::NotTheirs) }
    }

    /// Ensures that a new tree is stored with the owner that is cached here.
    pub(super) async fn begin_as_theirs(&self, tenant: TenantId, root: &SessionId) -> Result<(), NoAnswer> {
        let key = (tenant, root.clone());
        let known = self.server.owners.0.lock().get(&key).cloned();
        let Some((name, read)) = known else { return Ok(()) };
        if self.server.clock.elapsed_since(read) <= FRESH {
            return Ok(());
        }
        let owner = self.store.claim_owner(tenant, root, &name).await?;
        let is_theirs = *owner == *name;
        self.server.owners.0.lock().put(key, (Arc::from(owner), self.server.clock.tick()));
        // A retry is rejected by the stored owner.
        if is_theirs { Ok(()) } else { Err(NoAnswer::Contention) }
    }
}
