//! The way of nearly all calls past the router. It finds one service among many by layers that box each body, request
//! and answer twice over, which costs as much as all that is decoded and encoded.
//!
//! Nobody waits for ever for the beginning of an answer, either way.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::timeout;

use tonic::{
    body::Body,
    codegen::{Service, http},
    server::NamedService,
    service::Routes,
};

use super::{service::left, status};

/// Longest time until an answer begins: the longest wait that may be asked for, the answer after it, and some for the
/// message to come in. A method that needs less is told in its own words, and sooner.
const BEGINS_WITHIN: Duration = Duration::from_secs(75);

/// One service at the front, and all that are looked up.
#[derive(Debug, Clone)]
pub(super) struct Shortcut<S> {
    pub(super) front: S,
    pub(super) others: Routes,
}

/// What a service answers.
pub(super) type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<S> Service<http::Request<Body>> for Shortcut<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + NamedService,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let others = Service::<http::Request<Body>>::poll_ready(&mut self.others, context);
        if others.is_pending() { others } else { self.front.poll_ready(context) }
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Answer {
        let limit = left(request.headers()).map_or(BEGINS_WITHIN, |left| left.min(BEGINS_WITHIN));
        let path = request.uri().path().strip_prefix('/').and_then(|path| path.strip_prefix(S::NAME));
        if let Some(method) = path.and_then(|method| method.strip_prefix('/')) {
            // tonic compresses every message of a stream or none, and most are short.
            if method == "Connect" {
                request.headers_mut().remove("grpc-accept-encoding");
            }
            Box::pin(within(limit, self.front.call(request)))
        } else {
            Box::pin(within(limit, self.others.call(request)))
        }
    }
}

async fn within(
    limit: Duration,
    answer: impl Future<Output = Result<http::Response<Body>, Infallible>>,
) -> Result<http::Response<Body>, Infallible> {
    timeout(limit, answer).await.unwrap_or_else(|_| Ok(status::deadline().into_http()))
}
