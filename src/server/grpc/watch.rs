//! Watches: repeated reads of the store, and a message for each change.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Code, Status};

use super::shutdown::Stop;
use callgate_core::domain::ids::{SessionId, TenantId};

/// Polling interval of a watch.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Messages that a slow watcher may leave untaken before its watch waits for it.
const UNTAKEN_MAX: usize = 64;

/// Stream of a watch.
pub(super) type WatchStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Something that is watched.
pub(super) trait WatchPoll: Send + 'static {
    /// Message of the watch.
    type Message: Send + 'static;

    /// Polls for changes since the last poll.
    fn poll_changes(&mut self) -> impl Future<Output = Result<Vec<Self::Message>, Status>> + Send;
}

/// Sends changes until the receiver is dropped, a read fails, or the server ends.
pub(super) fn watch<L: WatchPoll>(watched: L, stop: Stop) -> WatchStream<L::Message> {
    let (to, from) = mpsc::channel(UNTAKEN_MAX);
    tokio::spawn(async move {
        if let Err(status) = stop.or(send_changes(watched, &to)).await {
            let _ = to.send(Err(status)).await;
        }
    });
    Box::pin(ReceiverStream::new(from))
}

async fn send_changes<L: WatchPoll>(
    mut watched: L,
    to: &mpsc::Sender<Result<L::Message, Status>>,
) -> Result<(), Status> {
    loop {
        for told in watched.poll_changes().await? {
            if to.send(Ok(told)).await.is_err() {
                return Ok(());
            }
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = to.closed() => return Ok(()),
        }
    }
}

/// Watches of sessions, with one read for all watchers of a session (single-flight). Clones share them.
#[derive(Debug)]
pub(super) struct SharedWatches<T>(Arc<Mutex<BTreeMap<Key, LastRead<T>>>>);

type Key = (TenantId, SessionId);

/// Result of the last read; none before the first.
type LastRead<T> = watch::Sender<Option<Result<T, Status>>>;

impl<T> Clone for SharedWatches<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for SharedWatches<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + Sync + 'static> SharedWatches<T> {
    /// Sends the result of `look` whenever it `differs`, until the receiver is dropped, a read fails, or the server
    /// ends. Watchers of the same session share its reads.
    pub(super) fn watch<F>(
        &self,
        session: Key,
        look: impl Fn() -> F + Send + 'static,
        differs: fn(&T, &T) -> bool,
        stop: Stop,
    ) -> WatchStream<T>
    where
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let mut all = self.0.lock();
        let seen = match all.get(&session) {
            Some(seen) => seen.subscribe(),
            None => {
                let (found, seen) = watch::channel(None);
                all.insert(session.clone(), found.clone());
                tokio::spawn(self.clone().looks(session, found, look, differs));
                seen
            }
        };
        drop(all);
        let (to, from) = mpsc::channel(UNTAKEN_MAX);
        tokio::spawn(async move {
            if let Err(status) = stop.or(pass_on(seen, &to)).await {
                let _ = to.send(Err(status)).await;
            }
        });
        Box::pin(ReceiverStream::new(from))
    }

    /// Looks while anybody watches.
    async fn looks<F>(self, session: Key, found: LastRead<T>, look: impl Fn() -> F + Send, differs: fn(&T, &T) -> bool)
    where
        F: Future<Output = Result<T, Status>> + Send,
    {
        loop {
            let pace = sleep(LOOK_EVERY);
            tokio::pin!(pace);
            match look().await {
                Ok(new) => {
                    found.send_if_modified(|seen| {
                        let is_news = !matches!(seen, Some(Ok(old)) if !differs(old, &new));
                        if is_news {
                            *seen = Some(Ok(new));
                        }
                        is_news
                    });
                }
                // Under overload, watchers with a former result wait for a new one.
                Err(status) if status.code() == Code::ResourceExhausted && found.borrow().is_some() => {}
                Err(status) => {
                    self.0.lock().remove(&session);
                    found.send_replace(Some(Err(status)));
                    return;
                }
            }
            // A look that takes long is made less often: half of the time is the others'.
            let pause = if pace.is_elapsed() { LOOK_EVERY } else { Duration::ZERO };
            tokio::select! {
                () = async { pace.await; sleep(pause).await } => {}
                () = found.closed() => {}
            }
            let mut all = self.0.lock();
            if found.receiver_count() == 0 {
                all.remove(&session);
                return;
            }
        }
    }
}

async fn pass_on<T: Clone>(
    mut seen: watch::Receiver<Option<Result<T, Status>>>,
    to: &mpsc::Sender<Result<T, Status>>,
) -> Result<(), Status> {
    loop {
        let told = seen.borrow_and_update().clone();
        if let Some(told) = told
            && to.send(Ok(told?)).await.is_err()
        {
            return Ok(());
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { return Ok(()) },
            () = to.closed() => return Ok(()),
        }
    }
}
