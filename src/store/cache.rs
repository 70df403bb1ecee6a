//! Call trees in memory, ahead of their commits. A slot may be stale: another replica may have moved its tree. A stale
//! slot can only cause a change to be refused, never a wrong one to be accepted, since every append names the version
//! it was decided on; and an answer that needs no append is confirmed against the database before it is given.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use lru::LruCache;
use tokio::sync::watch;

use super::error::StoreError;
use crate::domain::{
    event::Event,
    ids::{CallId, SessionId, TenantId},
    tree::CallTree,
};

/// Bytes of the trees kept in memory: some 100,000 sessions of a call each, or some 6,000 with all that a tree
/// remembers.
const BYTES_MAX: usize = 512 << 20;
/// Sessions whose root is kept in memory.
const SESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(200_000).unwrap();
/// What a slot costs beside its tree.
const SLOT_BYTES: usize = 512;
/// A tree is weighed again after so many events, and later the more there is to weigh.
const WEIGHED_EVERY: u64 = 8;
/// Bytes of a tree for which it is weighed one event later.
const WEIGHED_BYTES: usize = 4_096;

/// Trees that other replicas change too, of which what is stored is kept in memory beside what is decided.
const SHARED_MAX: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// Trees whose forgotten calls are kept in mind.
const FORGOTTEN_TREES_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();
/// Forgotten calls of one tree that are kept in mind.
const FORGOTTEN_CALLS_MAX: usize = 64;

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
    /// The tree as it is stored, for one that other replicas change too: whoever loses against them reads only what
    /// they have changed.
    stored: Mutex<Option<CallTree>>,
    committed: watch::Sender<u64>,
    /// About how many bytes it takes, and the version from which on it is weighed again.
    bytes: AtomicUsize,
    weigh_at: AtomicU64,
}

impl Slot {
    fn new(tree: CallTree, is_shared: bool) -> Self {
        let (committed, _) = watch::channel(tree.version);
        let stored = Mutex::new(is_shared.then(|| tree.clone()));
        let (bytes, weigh_at) = weighed(&tree);
        Self {
            root: tree.root.clone(),
            tree: Mutex::new(Some(tree)),
            stored,
            committed,
            bytes: AtomicUsize::new(bytes),
            weigh_at: AtomicU64::new(weigh_at),
        }
    }

    /// Weighs the tree again when it may have grown.
    fn weigh(&self) {
        if *self.committed.borrow() < self.weigh_at.load(Ordering::Relaxed) {
            return;
        }
        if let Some((bytes, weigh_at)) = self.advance(|tree| weighed(tree)) {
            self.bytes.store(bytes, Ordering::Relaxed);
            self.weigh_at.store(weigh_at, Ordering::Relaxed);
        }
    }

    /// The tree's root session.
    #[must_use]
    pub fn root(&self) -> &SessionId {
        &self.root
    }

    /// Runs `decide` on the tree while nobody else can; nothing may be awaited inside. None when the slot was
    /// invalidated and its tree has to be loaded again.
    pub fn advance<T>(&self, decide: impl FnOnce(&mut CallTree) -> T) -> Option<T> {
        lock(&self.tree).as_mut().map(decide)
    }

    /// Events were committed, the last of them with `version`.
    pub(super) fn committed(&self, events: &[Event], version: u64) {
        let mut stored = lock(&self.stored);
        *stored = stored.take().and_then(|tree| tree.caught_up(events));
        drop(stored);
        self.committed.send_if_modified(|known| {
            let newer = version > *known;
            *known = version.max(*known);
            newer
        });
    }

    /// Waits until everything up to `version` is committed; false when the slot was invalidated instead.
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
    pub(super) fn is_invalidated(&self) -> bool {
        lock(&self.tree).is_none()
    }

    /// A change was refused: what was decided after it stands on nothing.
    pub(super) fn invalidate(&self) {
        lock(&self.tree).take();
        // Whoever waits for a commit that will not come has to look again.
        self.committed.send_replace(u64::MAX);
    }
}

/// The bytes of a tree, and the version from which on it is weighed again.
fn weighed(tree: &CallTree) -> (usize, u64) {
    let bytes = tree.bytes();
    (bytes + SLOT_BYTES, tree.version + WEIGHED_EVERY + (bytes / WEIGHED_BYTES) as u64)
}

type Key = (TenantId, SessionId);

/// Trees by when they were last asked for, as many as go into `max` bytes.
#[derive(Debug)]
struct Trees {
    by_use: LruCache<Key, (Arc<Slot>, usize)>,
    bytes: usize,
    max: usize,
}

impl Trees {
    fn new(max: usize) -> Self {
        Self { by_use: LruCache::unbounded(), bytes: 0, max }
    }

    fn get(&mut self, key: &Key) -> Option<Arc<Slot>> {
        let (slot, counted) = self.by_use.get_mut(key)?;
        let bytes = slot.bytes.load(Ordering::Relaxed);
        self.bytes = self.bytes - *counted + bytes;
        *counted = bytes;
        let slot = Arc::clone(slot);
        self.forget();
        Some(slot)
    }

    fn put(&mut self, key: Key, slot: Slot) -> Arc<Slot> {
        if let Some(known) = self.get(&key) {
            return known;
        }
        let bytes = slot.bytes.load(Ordering::Relaxed);
        let slot = Arc::new(slot);
        self.by_use.put(key, (Arc::clone(&slot), bytes));
        self.bytes += bytes;
        self.forget();
        slot
    }

    fn remove(&mut self, key: &Key, slot: &Arc<Slot>) {
        if self.by_use.peek(key).is_some_and(|(known, _)| Arc::ptr_eq(known, slot))
            && let Some((_, bytes)) = self.by_use.pop(key)
        {
            self.bytes -= bytes;
        }
    }

    /// Forgets the trees that nobody has asked for the longest; never the last one asked for.
    fn forget(&mut self) {
        while self.bytes > self.max && self.by_use.len() > 1 {
            let Some((_, (_, bytes))) = self.by_use.pop_lru() else { return };
            self.bytes -= bytes;
        }
    }
}

/// Whose turn it is to load a tree.
#[derive(Debug)]
pub enum Turn {
    /// The caller's, until the value is dropped.
    Load(Loading),
    /// Somebody else's: wait for the end of it. An error that it has come to is everybody's.
    Wait(watch::Receiver<Option<StoreError>>),
}

/// A tree is being loaded.
#[derive(Debug)]
pub struct Loading {
    loads: Arc<Loads>,
    key: Key,
    failed: watch::Sender<Option<StoreError>>,
}

type Loads = Mutex<BTreeMap<Key, watch::Receiver<Option<StoreError>>>>;

impl Loading {
    /// The load came to an error.
    pub fn fail(&self, error: &StoreError) {
        self.failed.send_replace(Some(error.clone()));
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        lock(&self.loads).remove(&self.key);
    }
}

/// All trees in memory, and which session belongs to which.
#[derive(Debug)]
pub struct Slots {
    loads: Arc<Loads>,
    trees: Mutex<Trees>,
    roots: Mutex<LruCache<Key, SessionId>>,
    forgotten: Mutex<LruCache<Key, Vec<(SessionId, CallId)>>>,
    /// Trees that were changed by other replicas, as they were last known to be stored.
    shared: Mutex<LruCache<Key, Option<CallTree>>>,
}

impl Default for Slots {
    fn default() -> Self {
        Self::within(BYTES_MAX)
    }
}

impl Slots {
    /// As many trees as go into so many bytes.
    #[must_use]
    pub fn within(bytes: usize) -> Self {
        Self {
            loads: Arc::default(),
            trees: Mutex::new(Trees::new(bytes)),
            roots: Mutex::new(LruCache::new(SESSIONS_MAX)),
            forgotten: Mutex::new(LruCache::new(FORGOTTEN_TREES_MAX)),
            shared: Mutex::new(LruCache::new(SHARED_MAX)),
        }
    }

    /// Trees in memory, and about how many bytes they take.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let trees = lock(&self.trees);
        (trees.by_use.len(), trees.bytes)
    }

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
        let slot = lock(&self.trees).get(&(tenant, root.clone()))?;
        slot.weigh();
        Some(slot)
    }

    /// Whose turn it is to load a tree: a hundred callers that miss it are one load, not a hundred.
    #[must_use]
    pub fn turn(&self, tenant: TenantId, root: &SessionId) -> Turn {
        let key = (tenant, root.clone());
        let mut loads = lock(&self.loads);
        if let Some(other) = loads.get(&key) {
            return Turn::Wait(other.clone());
        }
        let (failed, end) = watch::channel(None);
        loads.insert(key.clone(), end);
        Turn::Load(Loading { loads: Arc::clone(&self.loads), key, failed })
    }

    /// The slot of a tree that was just loaded, or the one that somebody else has put there meanwhile.
    pub fn put(&self, tree: CallTree) -> Arc<Slot> {
        let key = (tree.tenant, tree.root.clone());
        let is_shared = lock(&self.shared).contains(&key);
        let slot = Slot::new(tree, is_shared);
        lock(&self.trees).put(key, slot)
    }

    /// A tree that was in memory before, as it was stored once.
    #[must_use]
    pub fn take_stored(&self, tenant: TenantId, root: &SessionId) -> Option<CallTree> {
        lock(&self.shared).get_mut(&(tenant, root.clone()))?.take()
    }

    /// Drops a slot whose change was refused, unless another has taken its place.
    pub fn invalidate(&self, tenant: TenantId, slot: &Arc<Slot>) {
        slot.invalidate();
        let key = (tenant, slot.root.clone());
        let stored = lock(&slot.stored).take();
        let mut shared = lock(&self.shared);
        let known = shared.get_or_insert_mut(key.clone(), || None);
        if stored.is_some() {
            *known = stored;
        }
        drop(shared);
        lock(&self.trees).remove(&key, slot);
    }

    /// A call that its tree no longer remembers is asked about again: whoever loads the tree from now on recalls it.
    pub fn miss(&self, tenant: TenantId, root: &SessionId, session: &SessionId, call_id: &CallId) {
        let mut forgotten = lock(&self.forgotten);
        let calls = forgotten.get_or_insert_mut((tenant, root.clone()), Vec::new);
        let call = (session.clone(), call_id.clone());
        if !calls.contains(&call) {
            calls.push(call);
            let over = calls.len().saturating_sub(FORGOTTEN_CALLS_MAX);
            calls.drain(..over);
        }
    }

    /// The calls to recall when a tree is loaded.
    #[must_use]
    pub fn missed(&self, tenant: TenantId, root: &SessionId) -> Vec<(SessionId, CallId)> {
        lock(&self.forgotten).get(&(tenant, root.clone())).cloned().unwrap_or_default()
    }

    /// Forgets where a session belongs; it is looked up again.
    pub fn forget_root(&self, tenant: TenantId, session: &SessionId) {
        lock(&self.roots).pop(&(tenant, session.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{ids::DEFAULT_TENANT, time::Timestamp};

    fn root(n: usize) -> SessionId {
        SessionId::parse("session", &format!("s{n:02}")).expect("valid")
    }

    #[test]
    fn trees_are_kept_by_their_bytes_and_the_longest_unused_go_first() {
        let new = |n: usize| CallTree::new(DEFAULT_TENANT, root(n), Timestamp::default());
        let one = weighed(&new(0)).0;
        let slots = Slots::within(10 * one + one / 2);
        for n in 0..10 {
            slots.put(new(n));
        }
        assert_eq!(slots.size(), (10, 10 * one));
        slots.get(DEFAULT_TENANT, &root(0)).expect("kept");
        slots.put(new(10));
        let kept: Vec<usize> = (0..11).filter(|n| slots.get(DEFAULT_TENANT, &root(*n)).is_some()).collect();
        assert_eq!(kept, [0, 2, 3, 4, 5, 6, 7, 8, 9, 10]);

        let slot = slots.get(DEFAULT_TENANT, &root(5)).expect("kept");
        slot.bytes.store(8 * one, Ordering::Relaxed);
        slots.get(DEFAULT_TENANT, &root(5)).expect("kept, however much it has grown");
        assert_eq!(slots.size(), (3, 10 * one));
        slots.invalidate(DEFAULT_TENANT, &slot);
        assert_eq!(slots.size(), (2, 2 * one));
    }
}
