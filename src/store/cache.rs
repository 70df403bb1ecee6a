//! Call trees in memory, ahead of their commits. A slot may be stale: another replica may have moved its tree. A stale
//! slot can only cause a change to be refused, never a wrong one to be accepted, since every append names the version
//! it was decided on; and an answer that needs no append is confirmed against the database before it is given.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;
use tokio::sync::watch;

use crate::domain::{
    ids::{SessionId, TenantId},
    tree::CallTree,
};

/// Trees kept in memory.
const TREES_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// Sessions whose root is kept in memory.
const SESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).unwrap();

/// A lock that outlives a panic of its holder: a slot's tree is dropped then, not trusted.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One tree in memory.
#[derive(Debug)]
pub struct Slot {
    root: SessionId,
    /// None once a change of it was refused: what was decided after that change stands on nothing.
    tree: Mutex<Option<CallTree>>,
    committed: watch::Sender<u64>,
}

impl Slot {
    fn new(tree: CallTree) -> Self {
        let (committed, _) = watch::channel(tree.version);
        Self { root: tree.root.clone(), tree: Mutex::new(Some(tree)), committed }
    }

    /// The tree's root session.
    #[must_use]
    pub fn root(&self) -> &SessionId {
        &self.root
    }

    /// Runs `decide` on the tree while nobody else can; nothing may be awaited inside. None when the slot is spoilt and
    /// its tree has to be loaded again.
    pub fn advance<T>(&self, decide: impl FnOnce(&mut CallTree) -> T) -> Option<T> {
        lock(&self.tree).as_mut().map(decide)
    }

    /// A change up to `version` was committed.
    pub(super) fn committed(&self, version: u64) {
        self.committed.send_if_modified(|known| {
            let newer = version > *known;
            *known = version.max(*known);
            newer
        });
    }

    /// Waits until everything up to `version` is committed; false when the slot was spoilt instead.
    pub async fn wait_for(&self, version: u64) -> bool {
        let mut committed = self.committed.subscribe();
        let reached = committed.wait_for(|known| *known >= version).await.is_ok();
        reached && lock(&self.tree).is_some()
    }

    /// True when everything up to `version` is committed, by changes of this slot.
    #[must_use]
    pub fn has_committed(&self, version: u64) -> bool {
        *self.committed.borrow() >= version && lock(&self.tree).is_some()
    }

    /// True when a change was refused: what was decided on it must not be stored, though another replica may have moved
    /// the tree to the very version that it names.
    pub(super) fn is_spoilt(&self) -> bool {
        lock(&self.tree).is_none()
    }

    /// A change was refused: what was decided after it stands on nothing.
    pub(super) fn spoil(&self) {
        lock(&self.tree).take();
        // Whoever waits for a commit that will not come has to look again.
        self.committed.send_replace(u64::MAX);
    }
}

type Key = (TenantId, SessionId);

/// All trees in memory, and which session belongs to which.
#[derive(Debug)]
pub struct Slots {
    trees: Mutex<LruCache<Key, Arc<Slot>>>,
    roots: Mutex<LruCache<Key, SessionId>>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { trees: Mutex::new(LruCache::new(TREES_MAX)), roots: Mutex::new(LruCache::new(SESSIONS_MAX)) }
    }
}

impl Slots {
    /// The root of a session, if it is known here.
    #[must_use]
    pub fn root(&self, tenant: TenantId, session: &SessionId) -> Option<SessionId> {
        lock(&self.roots).get(&(tenant, session.clone())).cloned()
    }

    /// Remembers the root of a session.
    pub fn set_root(&self, tenant: TenantId, session: &SessionId, root: &SessionId) {
        lock(&self.roots).put((tenant, session.clone()), root.clone());
    }

    /// The slot of a tree, if it is in memory.
    #[must_use]
    pub fn get(&self, tenant: TenantId, root: &SessionId) -> Option<Arc<Slot>> {
        lock(&self.trees).get(&(tenant, root.clone())).cloned()
    }

    /// The slot of a tree that was just loaded, or the one that somebody else has put there meanwhile.
    pub fn put(&self, tree: CallTree) -> Arc<Slot> {
        let key = (tree.tenant, tree.root.clone());
        lock(&self.trees).get_or_insert(key, || Arc::new(Slot::new(tree))).clone()
    }

    /// Drops a slot whose change was refused, unless another has taken its place.
    pub fn spoil(&self, tenant: TenantId, slot: &Arc<Slot>) {
        slot.spoil();
        let key = (tenant, slot.root.clone());
        let mut trees = lock(&self.trees);
        if trees.peek(&key).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            trees.pop(&key);
        }
    }

    /// Forgets where a session belongs; it is looked up again.
    pub fn forget_root(&self, tenant: TenantId, session: &SessionId) {
        lock(&self.roots).pop(&(tenant, session.clone()));
    }
}
