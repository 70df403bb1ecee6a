//! The way in: every request of every service goes on with the identity of who sends it, or is answered here.

use std::{
    convert::Infallible,
    future::ready,
    sync::Arc,
    task::{Context, Poll},
};

use tonic::{
    body::Body,
    codegen::{Service, http},
};

use super::{shortcut::Answer, status};
use crate::{domain::identity::Identity, listener::Peer};

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
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = Answer>,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        // Where other machines can get at it, nobody is let in without a credential.
        if request.extensions().get::<Arc<Peer>>().is_none_or(|peer| peer.is_public) {
            return Box::pin(ready(Ok(status::unauthenticated().into_http())));
        }
        request.extensions_mut().insert(Arc::clone(&self.local));
        self.service.call(request)
    }
}
