//! The way back to a client: one whole answer, or a stream of which the head goes first.

use std::{convert::Infallible, error::Error};

use http::{HeaderValue, Response, StatusCode, header, response::Parts};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use crate::mcp::events;

/// What clients take.
pub(super) const JSON: &str = "application/json";
/// A stream of events.
pub(super) const EVENTS: &str = "text/event-stream";
/// Parts of a stream that wait for their client.
const PARTS_MAX: usize = 16;

type Broken = Box<dyn Error + Send + Sync>;
/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Broken>;

/// The way back.
#[derive(Debug)]
pub(super) struct Reply {
    head: Option<oneshot::Sender<Response<Body>>>,
    parts: Option<mpsc::Sender<Result<Frame<Bytes>, Broken>>>,
}

impl Reply {
    /// A way, and where its answer comes.
    pub(super) fn new() -> (Self, oneshot::Receiver<Response<Body>>) {
        let (head, answer) = oneshot::channel();
        (Self { head: Some(head), parts: None }, answer)
    }

    /// True once the head is sent.
    pub(super) fn is_open(&self) -> bool {
        self.parts.is_some()
    }

    /// Done when the client has gone.
    pub(super) async fn gone(&mut self) {
        match (&mut self.head, &self.parts) {
            (_, Some(parts)) => parts.closed().await,
            (Some(head), None) => head.closed().await,
            (None, None) => std::future::pending().await,
        }
    }

    /// Sends the head of a stream.
    pub(super) fn open(&mut self, head: Parts) {
        let (sender, parts) = mpsc::channel(PARTS_MAX);
        let body = Response::from_parts(head, StreamBody::new(ReceiverStream::new(parts)).boxed_unsync());
        if let Some(head) = self.head.take() {
            // Whoever has gone is found out by the parts.
            let _ = head.send(body);
            self.parts = Some(sender);
        }
    }

    /// Sends a message as an event, and the head before it if need be.
    pub(super) async fn event(&mut self, message: &str) {
        if !self.is_open() {
            self.open(head(StatusCode::OK, EVENTS));
        }
        self.part(Bytes::from(events::event(message))).await;
    }

    /// Sends a part of a stream.
    pub(super) async fn part(&mut self, bytes: Bytes) {
        if let Some(parts) = &self.parts {
            let _ = parts.send(Ok(Frame::data(bytes))).await;
        }
    }

    /// Ends a stream as one that is broken.
    pub(super) async fn tear(self, why: String) {
        if let Some(parts) = &self.parts {
            let _ = parts.send(Err(why.into())).await;
        }
    }

    /// Sends a whole answer.
    pub(super) fn whole(self, head: Parts, body: Bytes) {
        if let Some(sender) = self.head {
            let _ = sender.send(whole(head, body));
        }
    }
}

/// A whole answer.
pub(super) fn whole(mut head: Parts, body: Bytes) -> Response<Body> {
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync())
}

/// The head of an answer of the proxy's own.
pub(super) fn head(status: StatusCode, kind: &'static str) -> Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = status;
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    head.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head
}
