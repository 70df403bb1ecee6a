//! The unary JSON and protobuf of the Connect protocol (`POST /callgate.v1.GateService/Evaluate`, `application/json`).
//! Each request becomes one of gRPC before authentication, so that credentials, roles, limits, deadlines and errors are
//! those of gRPC.

mod errors;
mod faults;
mod messages;
mod origins;
mod unary;

use std::{
    convert::Infallible,
    future::ready,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tonic::{
    body::Body,
    codegen::{Service, http as wire},
};
use tower::{Layer as _, service_fn};

use self::{
    messages::MethodMessages,
    origins::{Origins, Page},
    unary::Encoding,
};
use super::{
    hook_route::{always_an_answer, is_hook},
    server::Services,
    shortcut::ServiceResponse,
    status,
};

/// Services that also answer the Connect protocol.
#[derive(Debug, Clone)]
pub(super) struct Dialects {
    services: Services,
    messages: MethodMessages,
    origins: Arc<Origins>,
}

impl Dialects {
    /// Services that answer pages of these origins (CORS).
    pub(super) fn new(services: Services, origins: &[HeaderValue]) -> Self {
        Self { services, messages: MethodMessages::new(), origins: Arc::new(Origins::new(origins)) }
    }

    fn translate(&self, request: wire::Request<Body>) -> ServiceResponse {
        if is_hook(&request) {
            return always_an_answer(self.services.observe(request));
        }
        let kind = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if kind.starts_with(b"application/grpc") && !kind.starts_with(b"application/grpc-web") {
            return self.services.observe(request);
        }
        let is_post = request.method() == Method::POST;
        match (self.messages.of(request.uri().path()), Encoding::of(kind)) {
            (Some(method), Some(encoding)) if is_post => {
                Box::pin(unary::answer_unary(self.services.clone(), request, method, encoding))
            }
            // A request that any page may send without a preflight is no call: it is not read.
            (Some(_), _) => Box::pin(ready(Ok(no_call(is_post, kind)))),
            (None, _) => self.services.observe(request),
        }
    }
}

impl Service<wire::Request<Body>> for Dialects {
    type Response = wire::Response<Body>;
    type Error = Infallible;
    type Future = ServiceResponse;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: wire::Request<Body>) -> ServiceResponse {
        match self.origins.asks(request.headers()) {
            None | Some(Page::Local) => self.translate(request),
            Some(Page::Listed) => {
                let dialects = self.clone();
                Box::pin(self.origins.layer.layer(service_fn(move |request| dialects.translate(request))).call(request))
            }
            Some(Page::Foreign) => Box::pin(ready(Ok(errors::response(&status::origin_status())))),
        }
    }
}

/// The response to a request for a method in an unknown protocol.
fn no_call(is_post: bool, kind: &[u8]) -> wire::Response<Body> {
    let (status, code, name, value) = match is_post {
        true => (
            status::content_type_unknown(&String::from_utf8_lossy(kind)),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            HeaderName::from_static("accept-post"),
            "application/json, application/proto, application/grpc",
        ),
        false => (status::takes_post(), StatusCode::METHOD_NOT_ALLOWED, header::ALLOW, "POST"),
    };
    let mut answer = errors::response(&status);
    *answer.status_mut() = code;
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}
