//! The unary JSON and protobuf of the Connect protocol (`POST /callgate.v1.GateService/Evaluate`, `application/json`).
//! Each request becomes one of gRPC before anybody looks at who asks, so that credentials, roles, limits, deadlines and
//! errors are those of gRPC.

mod errors;
mod messages;
mod origins;
mod unary;

use std::{
    convert::Infallible,
    future::ready,
    task::{Context, Poll},
};

use http::{HeaderValue, Method, StatusCode, header};
use tonic::{
    body::Body,
    codegen::{Service, http as wire},
};
use tower_layer::Layer as _;

use self::{
    messages::Messages,
    origins::{Origins, Page},
    unary::Encoding,
};
use super::{
    hook_route::{always_an_answer, is_hook},
    shortcut::Answer,
    status,
};

/// A service that is also asked in other dialects.
#[derive(Debug, Clone)]
pub(super) struct Dialects<S> {
    spoken: Spoken<S>,
    origins: Origins,
}

/// The same, for whoever may ask.
#[derive(Debug, Clone)]
struct Spoken<S> {
    service: S,
    messages: Messages,
}

impl<S> Dialects<S> {
    /// Pages of these origins may ask.
    pub(super) fn new(service: S, origins: &[HeaderValue]) -> Self {
        Self { spoken: Spoken { service, messages: Messages::new() }, origins: Origins::new(origins) }
    }
}

impl<S> Service<wire::Request<Body>> for Dialects<S>
where
    S: Service<wire::Request<Body>, Response = wire::Response<Body>, Error = Infallible, Future = Answer>
        + Clone
        + Send
        + 'static,
{
    type Response = wire::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.spoken.poll_ready(context)
    }

    fn call(&mut self, request: wire::Request<Body>) -> Answer {
        match self.origins.asks(request.headers()) {
            None | Some(Page::Local) => self.spoken.call(request),
            Some(Page::Listed) => Box::pin(self.origins.layer.layer(self.spoken.clone()).call(request)),
            Some(Page::Foreign) => Box::pin(ready(Ok(errors::response(&status::origin_refused())))),
        }
    }
}

impl<S> Service<wire::Request<Body>> for Spoken<S>
where
    S: Service<wire::Request<Body>, Response = wire::Response<Body>, Error = Infallible, Future = Answer>
        + Clone
        + Send
        + 'static,
{
    type Response = wire::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: wire::Request<Body>) -> Answer {
        if is_hook(&request) {
            return always_an_answer(self.service.call(request));
        }
        let kind = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if kind.starts_with(b"application/grpc") && !kind.starts_with(b"application/grpc-web") {
            return self.service.call(request);
        }
        let is_post = request.method() == Method::POST;
        match (self.messages.of(request.uri().path()), Encoding::of(kind)) {
            (Some(method), Some(encoding)) if is_post => {
                Box::pin(unary::answered(self.service.clone(), request, method, encoding))
            }
            // What any page of a browser may send without asking is no call: it is not read.
            (Some(_), _) => Box::pin(ready(Ok(no_call(is_post)))),
            (None, _) => self.service.call(request),
        }
    }
}

/// The answer to a request that names a method, but is in no dialect.
fn no_call(is_post: bool) -> wire::Response<Body> {
    let mut answer = wire::Response::new(Body::empty());
    if is_post {
        *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    } else {
        *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    answer
}
