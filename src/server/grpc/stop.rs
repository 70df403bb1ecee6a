//! The end of a server: who only waits is told at once, calls in progress are answered, and nobody else is waited for.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{sync::watch, time::sleep};
use tonic::{
    Extensions, Status,
    body::Body,
    codegen::{Service, http},
    server::NamedService,
};

use super::status;
use callgate_net::listener::Peer;

/// How often it is looked whether the last call is answered.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Whether the server is ending, and how many calls it still owes an answer. Clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    ending: watch::Sender<bool>,
    /// True once the connection ends that somebody waits on.
    leaving: Option<watch::Sender<bool>>,
    owed: Arc<AtomicUsize>,
}

impl Stop {
    /// Ends the waiting of everybody.
    pub(super) fn begin(&self) {
        self.ending.send_replace(true);
    }

    /// The same for who waits on the connection of this request: it may end before the server does.
    pub(super) fn of(&self, request: &Extensions) -> Self {
        let leaving = request.get::<Arc<Peer>>().map(|peer| peer.is_leaving.clone());
        Self { leaving, ..self.clone() }
    }

    /// Done once the server is ending, or the connection.
    pub(super) async fn begun(&self) {
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
    pub(super) fn subscribed(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// What is waited for, unless the server ends first.
    pub(super) async fn or<T>(&self, wait: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::select! {
            done = wait => done,
            () = self.begun() => Err(status::shutting_down()),
        }
    }

    /// Done once no call is owed an answer.
    pub(super) async fn answered(&self) {
        while self.owed.load(Ordering::Acquire) > 0 {
            sleep(LOOK_EVERY).await;
        }
    }

    /// An answer is owed until this is dropped.
    pub(super) fn owe(&self) -> Owed {
        self.owed.fetch_add(1, Ordering::AcqRel);
        Owed(Arc::clone(&self.owed))
    }

    /// A service whose calls are counted until they are answered.
    pub(super) fn counts<S>(&self, service: S) -> Counted<S> {
        Counted { service, stop: self.clone() }
    }
}

/// An answer that is owed.
#[derive(Debug)]
pub(super) struct Owed(Arc<AtomicUsize>);

impl Drop for Owed {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A service whose calls are counted.
#[derive(Debug, Clone)]
pub(super) struct Counted<S> {
    service: S,
    stop: Stop,
}

impl<S: NamedService> NamedService for Counted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Owing<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Owing { owed: Some(self.stop.owe()), answer: self.service.call(request) }
    }
}

/// An answer on its way. It is owed until it is there.
#[derive(Debug)]
pub(super) struct Owing<F> {
    owed: Option<Owed>,
    answer: F,
}

impl<F: Future + Unpin> Future for Owing<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let answer = Pin::new(&mut self.answer).poll(context);
        if answer.is_ready() {
            self.owed = None;
        }
        answer
    }
}
