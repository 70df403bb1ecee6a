//! Adapters between the listener and the services: request bodies, and boxed response futures.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::{body::Incoming, service::Service};
use tonic::{
    body::Body,
    codegen::{Service as Ask, http},
};

/// Services as the listener asks them. They are always ready, so readiness is not polled.
#[derive(Debug, Clone)]
pub struct Front<S>(pub S);

impl<S, F> Service<http::Request<Incoming>> for Front<S>
where
    S: Ask<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = F> + Clone,
    F: Future<Output = Result<http::Response<Body>, Infallible>>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = F;

    fn call(&self, request: http::Request<Incoming>) -> F {
        self.0.clone().call(request.map(Body::new))
    }
}

/// Services whose answers are to be pinned.
#[derive(Debug, Clone)]
pub(super) struct Pinned<S>(pub(super) S);

impl<S> Ask<http::Request<Body>> for Pinned<S>
where
    S: Ask<http::Request<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.call(request))
    }
}
