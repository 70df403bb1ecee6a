//! In-process client of the services, for the pages of the console. It presents the credential of the page's user, so
//! that roles, tenants, limits, errors and the audit are those of a call from outside.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use tonic::{
    body::Body,
    codegen::{Service, http as wire},
};

use super::{server::Services, shortcut::ServiceResponse};
use callgate_net::listener::Peer;
use callgate_proto::BY;

/// The services, without a network between.
#[derive(Debug, Clone)]
pub struct Inside(pub(super) Services);

impl Inside {
    /// A client with the peer, headers and token of a request.
    #[must_use]
    pub fn asked_by(&self, peer: Option<Arc<Peer>>, headers: &HeaderMap, bearer: Option<HeaderValue>) -> Insider {
        let forwarded = headers.get_all(FORWARDED).iter().next_back().cloned();
        let shown = [(header::AUTHORIZATION, bearer), (FORWARDED, forwarded)];
        let shown = shown.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Insider { services: self.0.clone(), peer, shown }
    }
}

/// The header in which a proxy names its client's address.
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The services as one caller asks them: what generated clients take for a connection.
#[derive(Debug, Clone)]
pub struct Insider {
    services: Services,
    peer: Option<Arc<Peer>>,
    shown: HeaderMap,
}

impl Insider {
    /// With the name that its caller gives where the server knows no credentials.
    #[must_use]
    pub fn with_name(mut self, name: HeaderValue) -> Self {
        self.shown.insert(BY, name);
        self
    }
}

impl Service<wire::Request<Body>> for Insider {
    type Response = wire::Response<Body>;
    type Error = Infallible;
    type Future = ServiceResponse;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: wire::Request<Body>) -> ServiceResponse {
        for (name, value) in &self.shown {
            request.headers_mut().insert(name, value.clone());
        }
        if let Some(peer) = &self.peer {
            request.extensions_mut().insert(Arc::clone(peer));
        }
        self.services.observe(request)
    }
}
