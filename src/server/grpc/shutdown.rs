//! Graceful shutdown: waiting calls end at once, calls in progress are answered, and nothing else is waited for.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::sleep};
use tonic::{Extensions, Status};

use super::status;
use callgate_net::listener::Peer;

/// Polling interval for the end of the last call.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// State of shutdown, with the count of unanswered calls. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    ending: watch::Sender<bool>,
    /// True once the connection of a waiting caller ends.
    leaving: Option<watch::Sender<bool>>,
    owed: Arc<AtomicUsize>,
}

impl Stop {
    /// Ends the waiting of everybody.
    pub(super) fn begin(&self) {
        self.ending.send_replace(true);
    }

    /// The same for waits on the connection of this request: it may end before the server does.
    pub(super) fn of(&self, request: &Extensions) -> Self {
        let leaving = request.get::<Arc<Peer>>().map(|peer| peer.is_leaving.clone());
        Self { leaving, ..self.clone() }
    }

    /// Done once the server is ending, or the connection.
    pub(super) async fn wait_for_stop(&self) {
        // The senders are in `self`, so the waits end by the value alone.
        let of = async |ends: &watch::Sender<bool>| drop(ends.subscribe().wait_for(|ends| *ends).await);
        match &self.leaving {
            None => of(&self.ending).await,
            Some(leaving) => tokio::select! {
                () = of(&self.ending) => {}
                () = of(leaving) => {}
            },
        }
    }

    /// True once the server is ending.
    pub(super) fn subscribe(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// Awaits a result, unless the server or the connection ends first.
    pub(super) async fn or<T>(&self, wait: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::select! {
            done = wait => done,
            () = self.wait_for_stop() => Err(status::shutting_down()),
        }
    }

    /// Done once no call is owed an answer.
    pub(super) async fn wait_for_answers(&self) {
        while self.owed.load(Ordering::Acquire) > 0 {
            sleep(LOOK_EVERY).await;
        }
    }

    /// An answer is owed until this is dropped.
    pub(super) fn owe(&self) -> PendingAnswer {
        self.owed.fetch_add(1, Ordering::AcqRel);
        PendingAnswer(Arc::clone(&self.owed))
    }
}

/// An answer that is owed.
#[derive(Debug)]
pub(super) struct PendingAnswer(Arc<AtomicUsize>);

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
