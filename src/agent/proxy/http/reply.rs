//! Response to a client: one whole body, or a stream with its head first.

use std::{convert::Infallible, error::Error};

use http::{HeaderValue, Response, StatusCode, header, response::Parts};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use crate::mcp::events;

/// Content type of a whole response.
pub(super) const JSON: &str = "application/json";
/// Content type of an event stream.
pub(super) const EVENTS: &str = "text/event-stream";
/// Maximum number of queued parts per client.
const PARTS_MAX: usize = 16;

type BodyError = Box<dyn Error + Send + Sync>;
/// Body of a response.
pub(super) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Sender of a response.
#[derive(Debug)]
pub(super) struct ResponseSender {
    head: Option<oneshot::Sender<Response<Body>>>,
    parts: Option<mpsc::Sender<Result<Frame<Bytes>, BodyError>>>,
}

impl ResponseSender {
    /// A sender with the receiver of its response.
    pub(super) fn new() -> (Self, oneshot::Receiver<Response<Body>>) {
        let (head, answer) = oneshot::channel();
        (Self { head: Some(head), parts: None }, answer)
    }

    /// True once the head was sent.
    pub(super) fn is_open(&self) -> bool {
        self.parts.is_some()
    }

    /// Completes when the client has disconnected.
    pub(super) async fn wait_for_disconnect(&mut self) {
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
            // A disconnected client is detected by the parts.
            let _ = head.send(body);
            self.parts = Some(sender);
        }
    }

    /// Sends a message as an event, after the head.
    pub(super) async fn event(&mut self, message: &str) {
        if !self.is_open() {
            self.open(head(StatusCode::OK, EVENTS));
        }
        self.send_part(Bytes::from(events::event(message))).await;
    }

    /// Sends a part of a stream.
    pub(super) async fn send_part(&mut self, bytes: Bytes) {
        if let Some(parts) = &self.parts {
            let _ = parts.send(Ok(Frame::data(bytes))).await;
        }
    }

    /// Aborts a stream with an error.
    pub(super) async fn tear(self, why: String) {
        if let Some(parts) = &self.parts {
            let _ = parts.send(Err(why.into())).await;
        }
    }

    /// Sends a whole response.
    pub(super) fn whole(self, head: Parts, body: Bytes) {
        if let Some(sender) = self.head {
            let _ = sender.send(whole(head, body));
        }
    }
}

/// A whole response.
pub(super) fn whole(mut head: Parts, body: Bytes) -> Response<Body> {
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync())
}

/// The head of the proxy's own response.
pub(super) fn head(status: StatusCode, kind: &'static str) -> Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = status;
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    head.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head
}
