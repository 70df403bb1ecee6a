//! Where the listener's requests become those of the services.

use std::{convert::Infallible, future::Future};

use hyper::{body::Incoming, service::Service};
use tonic::{
    body::Body,
    codegen::{Service as Ask, http},
};

/// Services as the listener asks them. They are always ready, so that nobody asks them whether they are.
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
