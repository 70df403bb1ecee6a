//! Middleware: one span and one duration for each call of a service, up to the end of its response.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, header::HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Code, Status, body::Body, codegen::http as wire};

use super::{roles, server::Services, shortcut::ServiceResponse, status};
use crate::telemetry::rpc::ServerCall;
use callgate_net::clock::{Clock, Tick};

impl Services {
    /// Opens the span of the call, and forwards the request.
    pub(super) fn observe(&self, mut request: wire::Request<Body>) -> ServiceResponse {
        let Some(method) = roles::method(request.uri().path()) else { return self.authenticate(request) };
        let call = ServerCall::begin_call(method, request.headers_mut(), Arc::clone(&self.0.metrics));
        let traced = call.traced().clone();
        let open = OpenCall(Some((call, Clock::System.tick())));
        let answer = traced.in_scope(|| self.authenticate(request));
        let observed = async move {
            let Ok(answer) = answer.await;
            Ok(observe_answer(answer, open))
        };
        if traced.is_nowhere() { Box::pin(observed) } else { Box::pin(traced.run_within(observed)) }
    }
}

fn observe_answer(answer: wire::Response<Body>, mut open: OpenCall) -> wire::Response<Body> {
    if let Some(status) = answer.headers().get(STATUS) {
        open.end_call(code(status));
        return answer;
    }
    answer.map(|body| Body::new(ObservedBody { body, open }))
}

const STATUS: &str = "grpc-status";

fn code(status: &HeaderValue) -> Code {
    Code::from_bytes(status.as_bytes())
}

/// A call without an end yet. One that is dropped was called off by its caller.
struct OpenCall(Option<(ServerCall, Tick)>);

impl OpenCall {
    fn end_call(&mut self, code: Code) {
        if let Some((call, begun)) = self.0.take() {
            call.end_call(status::to_code_name(code), is_the_servers_fault(code), Clock::System.elapsed_since(begun));
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.end_call(Code::Cancelled);
    }
}

/// A response body that is observed to its end: the status is in the trailers.
struct ObservedBody {
    body: Body,
    open: OpenCall,
}

impl ObservedBody {
    fn ends(&mut self, trailers: Option<&HeaderMap>) {
        // Without a status in the trailers it is unknown.
        self.open.end_call(trailers.and_then(|trailers| trailers.get(STATUS)).map_or(Code::Unknown, code));
    }
}

impl HttpBody for ObservedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.ends(Some(trailers));
                }
            }
            Some(Err(status)) => {
                let code = status.code();
                self.open.end_call(code);
            }
            None => self.ends(None),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// True for codes that OpenTelemetry's conventions for gRPC take for errors of a server: the others are the caller's.
fn is_the_servers_fault(code: Code) -> bool {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
    matches!(code, Unknown | DeadlineExceeded | Unimplemented | Internal | Unavailable | DataLoss)
}
