//! Write queue: hands changes to the writer.

use std::sync::Arc;

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    sealed,
    writer::{Committed, Job},
};
use crate::{
    cache::Slot,
    error::Lost,
    sealing::{Access, Keyring},
};
use callgate_core::domain::event::Append;

/// A reserved slot of the queue, acquired before a tree is locked, so that sending never waits.
#[derive(Debug)]
pub struct QueueSlot(pub(super) mpsc::OwnedPermit<Job>, pub(super) Arc<Keyring>);

/// A queued change.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<Committed, Lost>>);

impl QueueSlot {
    /// Queues a change that was decided on the tree of `slot`.
    #[must_use]
    pub fn send(self, append: Append, slot: &Arc<Slot>) -> Pending {
        let (reply, committed) = oneshot::channel();
        let stored = match self.1.of(append.tenant) {
            Access::Plain => Some(None),
            Access::Keys(keys) => sealed::append(&append, &keys).map(|sealed| Some(Box::new(sealed))),
            Access::Locked => None,
        };
        match stored {
            Some(sealed) => {
                let (slot, since, span) = (Arc::clone(slot), Instant::now(), tracing::Span::current());
                drop(self.0.send(Job { append, sealed, slot, span, reply, since }));
            }
            // A change that cannot be encrypted is not stored.
            None => {
                slot.invalidate();
                let _ = reply.send(Err(Lost::Rejected));
            }
        }
        Pending(committed)
    }
}

impl Pending {
    /// Waits for the commit.
    ///
    /// # Errors
    /// [`Lost`]: the change was rejected, or the result is unknown.
    pub async fn committed(self) -> Result<Committed, Lost> {
        self.0.await.unwrap_or(Err(Lost::Unreachable))
    }
}
