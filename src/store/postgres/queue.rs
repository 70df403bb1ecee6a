//! Write queue: hands changes to the writer.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    sealed,
    writer::{CommittedChange, QueuedChange},
};
use crate::{
    cache::Slot,
    error::{ConflictCause, OverloadedPart, StoreError},
    sealing::{Keyring, TenantStorage},
};
use callgate_core::domain::event::Append;

/// Longest wait for a slot in the writer's queue.
const WAIT: Duration = Duration::from_millis(200);

/// A slot in the writer's queue, taken before a tree is locked: whoever has one can send without waiting.
#[derive(Debug)]
pub struct QueueSlot(mpsc::OwnedPermit<QueuedChange>, Arc<Keyring>);

/// A queued change.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<CommittedChange, ConflictCause>>);

impl QueueSlot {
    pub(crate) async fn reserve(
        queue: &mpsc::Sender<QueuedChange>,
        keyring: &Arc<Keyring>,
    ) -> Result<Self, StoreError> {
        match timeout(WAIT, queue.clone().reserve_owned()).await {
            Ok(Ok(permit)) => Ok(Self(permit, Arc::clone(keyring))),
            Ok(Err(_)) => Err(StoreError::Stopped),
            Err(_) => Err(StoreError::Overloaded(OverloadedPart::WriteQueue)),
        }
    }

    /// Sends a change that was decided on the tree of `slot`.
    #[must_use]
    pub fn send(self, append: Append, slot: &Arc<Slot>) -> Pending {
        let (reply, committed) = oneshot::channel();
        let stored = match self.1.of(append.tenant) {
            TenantStorage::Plain => Some(None),
            TenantStorage::Keys(keys) => sealed::append(&append, &keys).map(|sealed| Some(Box::new(sealed))),
            TenantStorage::Locked => None,
        };
        match stored {
            Some(sealed) => {
                let (slot, since, span) = (Arc::clone(slot), Instant::now(), tracing::Span::current());
                drop(self.0.send(QueuedChange { append, sealed, slot, span, reply, since }));
            }
            // A change that cannot be encrypted is not stored.
            None => {
                let _ = reply.send(Err(ConflictCause::Rejected));
                // The sender holds the lock of the tree.
                let slot = Arc::clone(slot);
                tokio::spawn(async move { slot.invalidate() });
            }
        }
        Pending(committed)
    }
}

impl Pending {
    /// Waits for the commit.
    ///
    /// # Errors
    /// [`ConflictCause`]: the change was rejected, or the result is unknown.
    pub async fn wait_for_commit(self) -> Result<CommittedChange, ConflictCause> {
        self.0.await.unwrap_or(Err(ConflictCause::Unreachable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Slots;
    use callgate_core::{
        domain::{
            control::{Control, ControlEvent},
            ids::{DEFAULT_TENANT, SessionId},
            time::Timestamp,
            tree::CallTree,
        },
        engine,
    };

    #[tokio::test]
    async fn change_without_its_key_is_refused_while_its_tree_is_locked() {
        let (keyring, session) = (Arc::new(Keyring::default()), SessionId::parse("session", "s").expect("valid"));
        let TenantStorage::Locked = keyring.know(DEFAULT_TENANT, "default", Some([1; 8])) else {
            panic!("it has no key")
        };
        let (jobs, _queue) = mpsc::channel(1);
        let queue = QueueSlot::reserve(&jobs, &keyring).await.expect("a slot");
        let slot = Slots::default().put_tree(CallTree::new(DEFAULT_TENANT, session.clone(), Timestamp::default()));
        let (by, reason, control) = (None, None, Control::Compacted);
        let compacted = ControlEvent { seq: 1, at: Timestamp::default(), session, by, reason, control };
        let pending = slot.advance(|tree| queue.send(engine::advance(tree, compacted.into()), &slot)).expect("whole");
        assert_eq!(pending.wait_for_commit().await.map(drop), Err(ConflictCause::Rejected));
        tokio::task::yield_now().await;
        assert!(slot.is_invalidated());
    }
}
