//! The way in: every request of every service goes on with the identity of who sends it, or is answered here.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use tonic::{
    body::Body,
    codegen::{Service, http},
};

use crate::domain::identity::Identity;

/// A service that knows who asks.
#[derive(Debug, Clone)]
pub(super) struct Authenticated<S> {
    service: S,
    local: Arc<Identity>,
}

impl<S> Authenticated<S> {
    pub(super) fn new(service: S) -> Self {
        Self { service, local: Arc::new(Identity::local()) }
    }
}

impl<S> Service<http::Request<Body>> for Authenticated<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.local));
        self.service.call(request)
    }
}
