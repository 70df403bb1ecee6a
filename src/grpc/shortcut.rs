//! The way of nearly all calls past the router. It finds one service among many by layers that box each body, request
//! and answer twice over, which costs as much as all that is decoded and encoded.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{
    body::Body,
    codegen::{Service, http},
    server::NamedService,
    service::Routes,
};

/// One service at the front, and all that are looked up.
#[derive(Debug, Clone)]
pub(super) struct Shortcut<S> {
    pub(super) front: S,
    pub(super) others: Routes,
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

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
        let path = request.uri().path().strip_prefix('/').and_then(|path| path.strip_prefix(S::NAME));
        if let Some(method) = path.and_then(|method| method.strip_prefix('/')) {
            // tonic compresses every message of a stream or none, and most are short.
            if method == "Connect" {
                request.headers_mut().remove("grpc-accept-encoding");
            }
            Box::pin(self.front.call(request))
        } else {
            Box::pin(self.others.call(request))
        }
    }
}
