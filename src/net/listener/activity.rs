//! Activity of a connection: received bytes and open requests.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, service::Service};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::Peer;

/// Length of the HTTP/2 preface; a whole HTTP/1 request may be shorter.
const PREFACE_BYTES: usize = 24;
/// Maximum linger time for a client that still sends after the last response.
const LINGER: Duration = Duration::from_secs(2);

/// Activity counters of one connection.
#[derive(Debug, Default)]
pub(super) struct Vitals {
    read: AtomicUsize,
    begun: AtomicUsize,
    open: AtomicUsize,
}

impl Vitals {
    /// True once the client has sent more than the preface.
    pub(super) fn has_spoken(&self) -> bool {
        self.read.load(Ordering::Relaxed) >= PREFACE_BYTES || self.begun() > 0
    }

    /// Total number of requests.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// True while a request is open.
    pub(super) fn is_busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }
}

/// An open request, until dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<Vitals>);

impl ActiveRequest {
    fn new(vitals: &Arc<Vitals>) -> Self {
        vitals.begun.fetch_add(1, Ordering::Relaxed);
        vitals.open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(vitals))
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Service wrapper that adds the peer to each request, and keeps it open until its response is sent.
#[derive(Debug)]
pub(super) struct RequestTracker<S> {
    pub(super) service: S,
    pub(super) peer: Arc<Peer>,
    pub(super) vitals: Arc<Vitals>,
}

impl<S, B> Service<Request<Incoming>> for RequestTracker<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<TrackedBody<B>>;
    type Error = Infallible;
    type Future = PendingResponse<S::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.peer));
        PendingResponse { open: Some(ActiveRequest::new(&self.vitals)), answer: self.service.call(request) }
    }
}

/// A response in progress.
#[derive(Debug)]
pub(super) struct PendingResponse<F> {
    open: Option<ActiveRequest>,
    answer: F,
}

impl<F, B> Future for PendingResponse<F>
where
    F: Future<Output = Result<Response<B>, Infallible>> + Unpin,
{
    type Output = Result<Response<TrackedBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(context);
        answer.map(|Ok(response)| Ok(response.map(|body| TrackedBody { body, _open: self.open.take() })))
    }
}

/// A response body that keeps its request open until dropped.
#[derive(Debug)]
pub(super) struct TrackedBody<B> {
    body: B,
    _open: Option<ActiveRequest>,
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that notices its first bytes.
#[derive(Debug)]
pub(super) struct FirstByteStream<IO> {
    pub(super) io: IO,
    pub(super) vitals: Arc<Vitals>,
    /// End of the linger time, once the write side is closed.
    pub(super) lingers: Option<Pin<Box<Sleep>>>,
}

impl<IO: AsyncRead + Unpin> AsyncRead for FirstByteStream<IO> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buf);
        // Only the first bytes matter.
        let heard = self.vitals.read.load(Ordering::Relaxed);
        if heard < PREFACE_BYTES {
            self.vitals.read.store(heard + buf.filled().len() - before, Ordering::Relaxed);
        }
        read
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for FirstByteStream<IO> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    /// Lingers after the shutdown of the write side: closing over unread bytes resets the connection, and a client that
    /// still sends the body of a refused request may lose the response.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, lingers, .. } = &mut *self;
        if lingers.is_none() {
            ready!(Pin::new(&mut *io).poll_shutdown(context))?;
        }
        let lingers = lingers.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut bytes = [0; 8 << 10];
        while lingers.as_mut().poll(context).is_pending() {
            let mut rest = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut *io).poll_read(context, &mut rest));
            if read.is_err() || rest.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
