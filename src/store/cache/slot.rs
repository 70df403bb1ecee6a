//! One tree in memory.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::SLOT_BYTES;
use callgate_core::domain::{event::Event, ids::SessionId, tree::CallTree};

/// A tree is weighed again after so many events, and later the more there is to weigh.
const WEIGHED_EVERY: u64 = 8;
/// Bytes of a tree for which it is weighed one event later.
const WEIGHED_BYTES: usize = 4_096;

/// One tree in memory.
#[derive(Debug)]
pub struct Slot {
    root: SessionId,
    /// None once a change of it was refused: what was decided after that change stands on nothing.
    tree: Mutex<Option<CallTree>>,
    /// The tree as it is stored, for one that other replicas change too: whoever loses against them reads only what
    /// they have changed.
    stored: Mutex<Option<Box<CallTree>>>,
    /// The version that is committed, and whoever waits for it to move.
    committed: AtomicU64,
    moved: Notify,
    /// About how many bytes it takes, and the version from which on it is weighed again.
    pub(super) bytes: AtomicUsize,
    weigh_at: AtomicU64,
}

impl Slot {
    pub(super) fn new(tree: CallTree, is_shared: bool) -> Self {
        let stored = is_shared.then(|| Box::new(tree.clone()));
        let (bytes, weigh_at) = weighed(&tree, is_shared);
        Self {
            root: tree.root.clone(),
            committed: AtomicU64::new(tree.version),
            tree: Mutex::new(Some(tree)),
            stored: Mutex::new(stored),
            moved: Notify::new(),
            bytes: AtomicUsize::new(bytes),
            weigh_at: AtomicU64::new(weigh_at),
        }
    }

    /// Weighs the tree again when it may have grown.
    pub(super) fn weigh(&self) {
        if self.committed.load(Ordering::Relaxed) < self.weigh_at.load(Ordering::Relaxed) {
            return;
        }
        let is_shared = self.stored.lock().is_some();
        if let Some((bytes, weigh_at)) = self.advance(|tree| weighed(tree, is_shared)) {
            self.bytes.store(bytes, Ordering::Relaxed);
            self.weigh_at.store(weigh_at, Ordering::Relaxed);
        }
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The tree as it is stored, for whoever reads what was changed since.
    pub(super) fn take_stored(&self) -> Option<Box<CallTree>> {
        self.stored.lock().take()
    }

    /// The tree's root session.
    #[must_use]
    pub fn root(&self) -> &SessionId {
        &self.root
    }

    /// Runs `decide` on the tree while nobody else can; nothing may be awaited inside. None when the slot was
    /// invalidated and its tree has to be loaded again.
    pub fn advance<T>(&self, decide: impl FnOnce(&mut CallTree) -> T) -> Option<T> {
        self.tree.lock().as_mut().map(decide)
    }

    /// Events were committed, the last of them with `version`.
    pub(crate) fn committed(&self, events: &[Event], version: u64) {
        let mut stored = self.stored.lock();
        if stored.as_mut().is_some_and(|tree| !tree.catch_up(events)) {
            *stored = None;
        }
        drop(stored);
        if self.committed.fetch_max(version, Ordering::AcqRel) < version {
            self.moved.notify_waiters();
        }
    }

    /// Waits until everything up to `version` is committed; false when the slot was invalidated instead.
    pub async fn wait_for(&self, version: u64) -> bool {
        loop {
            // Hears of everything from here on.
            let moved = self.moved.notified();
            if self.committed.load(Ordering::Acquire) >= version {
                return self.tree.lock().is_some();
            }
            moved.await;
        }
    }

    /// True when everything up to `version` is committed, by changes of this slot.
    #[must_use]
    pub fn has_committed(&self, version: u64) -> bool {
        self.committed.load(Ordering::Acquire) >= version && self.tree.lock().is_some()
    }

    /// True when a change was refused: what was decided on it must not be stored, though another replica may have moved
    /// the tree to the very version that it names.
    pub(crate) fn is_invalidated(&self) -> bool {
        self.tree.lock().is_none()
    }

    /// A change was refused: what was decided after it stands on nothing.
    pub(crate) fn invalidate(&self) {
        let tree = self.tree.lock().take();
        // One that nothing was decided on since is the stored one.
        let committed = self.committed.load(Ordering::Acquire);
        if let Some(tree) = tree.filter(|tree| tree.version == committed && committed > 0) {
            self.stored.lock().get_or_insert_with(|| Box::new(tree));
        }
        // Whoever waits for a commit that will not come has to look again.
        self.committed.store(u64::MAX, Ordering::Release);
        self.moved.notify_waiters();
    }
}

/// The bytes of a tree, and the version from which on it is weighed again.
pub(super) fn weighed(tree: &CallTree, is_shared: bool) -> (usize, u64) {
    let bytes = tree.bytes() * (1 + usize::from(is_shared));
    (bytes + SLOT_BYTES, tree.version + WEIGHED_EVERY + (bytes / WEIGHED_BYTES) as u64)
}
