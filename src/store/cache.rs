//! Call trees in memory, ahead of their commits. A slot may be stale: another replica may have moved its tree. A stale
//! slot can only cause a change to be refused, never a wrong one to be accepted, since every append names the version
//! it was decided on; and an answer that needs no append is confirmed against the database before it is given.

mod reports;
mod slot;

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::watch;

use self::reports::Reports;
pub use self::slot::Slot;
use super::error::StoreError;
use callgate_core::domain::{
    ids::{CallId, SessionId, TenantId},
    time::Timestamp,
    tree::CallTree,
};

/// Sessions whose root is kept in memory.
const SESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(200_000).unwrap();
/// What a slot costs beside its tree.
const SLOT_BYTES: usize = 400;
/// Trees whose forgotten calls are kept in mind.
const FORGOTTEN_TREES_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();
/// Forgotten calls of one tree that are kept in mind.
const FORGOTTEN_CALLS_MAX: usize = 512;

type Key = (TenantId, SessionId);

/// What is known of a tree here.
#[derive(Debug)]
enum Known {
    /// It is in memory.
    Here(Arc<Slot>),
    /// It was, until others moved it, who may do so again: as it was last known to be stored, for whoever loads it.
    Moved(Option<Box<CallTree>>),
}

/// Trees by when they were last asked for, as many as go into `max` bytes.
#[derive(Debug)]
struct Trees {
    by_use: LruCache<Key, (Known, usize)>,
    bytes: usize,
    max: usize,
}

impl Trees {
    fn new(max: usize) -> Self {
        Self { by_use: LruCache::unbounded(), bytes: 0, max }
    }

    fn get(&mut self, key: &Key) -> Option<Arc<Slot>> {
        let (Known::Here(slot), counted) = self.by_use.get_mut(key)? else { return None };
        let bytes = slot.bytes();
        self.bytes = self.bytes - *counted + bytes;
        *counted = bytes;
        let slot = Arc::clone(slot);
        self.forget();
        Some(slot)
    }

    fn set(&mut self, key: Key, known: Known, bytes: usize) {
        self.bytes += bytes;
        if let Some((_, before)) = self.by_use.put(key, (known, bytes)) {
            self.bytes -= before;
        }
        self.forget();
    }

    /// True when others have moved it since it was first here.
    fn is_shared(&self, key: &Key) -> bool {
        matches!(self.by_use.peek(key), Some((Known::Moved(_), _)))
    }

    /// The slot is of no use any more: what is known to be stored stays.
    fn moved(&mut self, key: Key, slot: &Arc<Slot>) {
        if !matches!(self.by_use.peek(&key), Some((Known::Here(known), _)) if Arc::ptr_eq(known, slot)) {
            return;
        }
        let stored = slot.take_stored();
        let bytes = SLOT_BYTES + stored.as_deref().map_or(0, CallTree::bytes);
        self.set(key, Known::Moved(stored), bytes);
    }

    fn take_stored(&mut self, key: &Key) -> Option<Box<CallTree>> {
        let (Known::Moved(stored), counted) = self.by_use.get_mut(key)? else { return None };
        self.bytes = self.bytes - *counted + SLOT_BYTES;
        *counted = SLOT_BYTES;
        stored.take()
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
        self.loads.lock().remove(&self.key);
    }
}

/// All trees in memory, and which session belongs to which.
#[derive(Debug)]
pub struct Slots {
    loads: Arc<Loads>,
    trees: Mutex<Trees>,
    roots: Mutex<LruCache<Key, SessionId>>,
    forgotten: Mutex<LruCache<Key, Vec<(SessionId, CallId)>>>,
    /// Reports that go first.
    pub reports: Reports,
}

impl Default for Slots {
    fn default() -> Self {
        Self::within(Self::BYTES_MAX)
    }
}

impl Slots {
    /// Bytes of the trees kept in memory, unless told otherwise: 100,000 sessions of four calls each, or some 10,000
    /// with all that a tree remembers (`tests/memory.rs`).
    pub const BYTES_MAX: usize = 590_000_000;

    /// As many trees as go into so many bytes.
    #[must_use]
    pub fn within(bytes: usize) -> Self {
        Self {
            loads: Arc::default(),
            trees: Mutex::new(Trees::new(bytes)),
            roots: Mutex::new(LruCache::new(SESSIONS_MAX)),
            forgotten: Mutex::new(LruCache::new(FORGOTTEN_TREES_MAX)),
            reports: Reports::default(),
        }
    }

    /// Trees in memory, and about how many bytes they take.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let trees = self.trees.lock();
        (trees.by_use.len(), trees.bytes)
    }

    /// The root of a session, if it is known here.
    #[must_use]
    pub fn root(&self, tenant: TenantId, session: &SessionId) -> Option<SessionId> {
        self.roots.lock().get(&(tenant, session.clone())).cloned()
    }

    /// Remembers the root of a session.
    pub fn set_root(&self, tenant: TenantId, session: &SessionId, root: &SessionId) {
        self.roots.lock().put((tenant, session.clone()), root.clone());
    }

    /// The slot of a tree, if it is in memory.
    #[must_use]
    pub fn get(&self, tenant: TenantId, root: &SessionId) -> Option<Arc<Slot>> {
        let slot = self.trees.lock().get(&(tenant, root.clone()))?;
        slot.weigh();
        Some(slot)
    }

    /// Whose turn it is to load a tree: a hundred callers that miss it are one load, not a hundred.
    #[must_use]
    pub fn turn(&self, tenant: TenantId, root: &SessionId) -> Turn {
        let key = (tenant, root.clone());
        let mut loads = self.loads.lock();
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
        let is_shared = self.trees.lock().is_shared(&key);
        let slot = Arc::new(Slot::new(tree, is_shared));
        let mut trees = self.trees.lock();
        if let Some(known) = trees.get(&key) {
            return known;
        }
        let bytes = slot.bytes();
        trees.set(key, Known::Here(Arc::clone(&slot)), bytes);
        slot
    }

    /// A tree that was in memory before, as it was stored once.
    #[must_use]
    pub fn take_stored(&self, tenant: TenantId, root: &SessionId) -> Option<Box<CallTree>> {
        self.trees.lock().take_stored(&(tenant, root.clone()))
    }

    /// Drops a slot whose change was refused, unless another has taken its place.
    pub fn invalidate(&self, tenant: TenantId, slot: &Arc<Slot>) {
        slot.invalidate();
        self.trees.lock().moved((tenant, slot.root().clone()), slot);
    }

    /// A call that its tree no longer remembers is asked about again: whoever decides on it from now on recalls it.
    pub fn miss(&self, tenant: TenantId, root: &SessionId, session: &SessionId, call_id: &CallId) {
        let mut forgotten = self.forgotten.lock();
        let calls = forgotten.get_or_insert_mut((tenant, root.clone()), Vec::new);
        let call = (session.clone(), call_id.clone());
        if !calls.contains(&call) {
            calls.push(call);
            let over = calls.len().saturating_sub(FORGOTTEN_CALLS_MAX);
            calls.drain(..over);
        }
    }

    /// True when any call was asked about again that its tree had forgotten.
    #[must_use]
    pub fn has_missed(&self) -> bool {
        !self.forgotten.lock().is_empty()
    }

    /// True for a call that its tree is known to have forgotten.
    #[must_use]
    pub fn is_missed(&self, tenant: TenantId, root: &SessionId, session: &SessionId, call_id: &CallId) -> bool {
        let mut forgotten = self.forgotten.lock();
        let calls = forgotten.get(&(tenant, root.clone()));
        calls.is_some_and(|calls| calls.iter().any(|(of, missed)| missed == call_id && of == session))
    }

    /// Forgets every tree that `is_gone`, by whose it is, its root, and when it began, where that is known: whoever is
    /// at work on one loses, and finds nothing.
    pub fn forget_trees(&self, is_gone: impl Fn(TenantId, &SessionId, Option<Timestamp>) -> bool) {
        let mut trees = self.trees.lock();
        let began = |known: &Known| match known {
            Known::Here(slot) => slot.advance(|tree| tree.started_at),
            Known::Moved(stored) => stored.as_ref().map(|tree| tree.started_at),
        };
        let gone = trees.by_use.iter().filter(|((tenant, root), (known, _))| is_gone(*tenant, root, began(known)));
        for key in gone.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let Some((known, bytes)) = trees.by_use.pop(&key) else { continue };
            trees.bytes -= bytes;
            if let Known::Here(slot) = known {
                slot.invalidate();
                drop(slot.take_stored());
            }
        }
        drop(trees);
        let mut roots = self.roots.lock();
        let gone = roots.iter().filter(|((tenant, _), root)| is_gone(*tenant, root, None)).map(|(key, _)| key.clone());
        gone.collect::<Vec<_>>().iter().for_each(|key| drop(roots.pop(key)));
        drop(roots);
        let mut missed = self.forgotten.lock();
        let gone = missed.iter().map(|(key, _)| key).filter(|(tenant, root)| is_gone(*tenant, root, None)).cloned();
        gone.collect::<Vec<_>>().iter().for_each(|key| drop(missed.pop(key)));
    }

    /// Forgets where a session belongs; it is looked up again.
    pub fn forget_root(&self, tenant: TenantId, session: &SessionId) {
        self.roots.lock().pop(&(tenant, session.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{slot::weighed, *};
    use callgate_core::domain::ids::DEFAULT_TENANT;

    fn root(n: usize) -> SessionId {
        SessionId::parse("session", &format!("s{n:02}")).expect("valid")
    }

    #[test]
    fn trees_are_kept_by_their_bytes_and_the_longest_unused_go_first() {
        let born = |n: usize| CallTree::new(DEFAULT_TENANT, root(n), Timestamp::default());
        let new = |n: usize| CallTree { version: 1, ..born(n) };
        let one = weighed(&new(0), false).0;
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
        assert_eq!(slots.size(), (3, 3 * one), "it is still known as it is stored");
        let stored = slots.take_stored(DEFAULT_TENANT, &root(5)).expect("nothing was decided on it");
        assert_eq!((stored.root, slots.size()), (root(5), (3, 2 * one + SLOT_BYTES)));
        slots.put(new(5));
        assert_eq!(slots.size(), (3, 2 * one + weighed(&new(5), true).0), "from now on it is kept twice");
    }
}
