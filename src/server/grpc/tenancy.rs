//! Whose plane is served: behind the way in, which says whose it is, and before every method. What takes long asks the
//! gate again.

use std::{
    convert::Infallible,
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tonic::{
    body::Body,
    codegen::{Service, http},
};

use super::status;
use crate::gate::ServerState;
use callgate_core::domain::identity::Identity;

/// Our own services; health and reflection tell nothing of a tenant.
const OURS: &str = "/callgate.v1.";
/// What asks the gate itself: a report ends what was let through before its tenant was suspended.
const BY_THEMSELVES: [&str; 2] = ["GateService/Record", "GateService/Connect"];

/// A service for tenants that are served.
#[derive(Debug, Clone)]
pub(super) struct Served<S> {
    service: S,
    server: Arc<ServerState>,
}

impl<S> Served<S> {
    pub(super) const fn new(service: S, server: Arc<ServerState>) -> Self {
        Self { service, server }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<S> Service<http::Request<Body>> for Served<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = Answer>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let is_checked = request.uri().path().strip_prefix(OURS).is_some_and(|method| !BY_THEMSELVES.contains(&method));
        if is_checked
            && let Some(identity) = request.extensions().get::<Arc<Identity>>()
            && let Err(not_served) = self.server.admits(identity.tenant)
        {
            return Box::pin(ready(Ok(status::gate(not_served).into_http())));
        }
        self.service.call(request)
    }
}
