//! One span and one duration for each call of a service, by the conventions for RPC. The work of callgate hangs below.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tracing::{Span, field::Empty, info_span};

use super::{Metrics, context, names, sampling::TraceContext};

/// Status of a failed span.
const ERROR: &str = "ERROR";

/// A call of a service, from its coming in to the end of its answer.
#[derive(Debug)]
pub struct ServerCall {
    traced: TraceContext,
    method: &'static str,
    /// Shared: a copy counts up, and down again, for every instrument.
    metrics: Arc<Metrics>,
}

impl ServerCall {
    /// A call of `method`, as `package.Service/Method`, or [`names::OTHER`] for any other. Its span hangs below the
    /// caller's, which is taken out of the headers, so that spans of its work hang below its own.
    #[must_use]
    pub fn begin_call(method: &'static str, headers: &mut HeaderMap, metrics: Arc<Metrics>) -> Self {
        let traced = TraceContext::begin_span(headers, || open(method));
        context::HEADERS.iter().for_each(|name| drop(headers.remove(*name)));
        Self { traced, method, metrics }
    }

    /// Trace context of the work for this call.
    #[must_use]
    pub fn traced(&self) -> &TraceContext {
        &self.traced
    }

    /// It ended `took` after it began, with the status of that name (`OK`, `DEADLINE_EXCEEDED`). `failed`: that is the
    /// server's fault. Of a server's span any other status is none, since its caller had what it asked for.
    pub fn end_call(self, status: &'static str, failed: bool, took: Duration) {
        let span = self.traced.span();
        span.record(names::RPC_STATUS, status);
        if status != names::RPC_OK {
            span.record(names::ERROR_TYPE, status);
        }
        if failed {
            span.record(names::OTEL_STATUS, ERROR);
        }
        self.metrics.rpc(self.method, status, took);
    }
}

fn open(method: &'static str) -> Span {
    info_span!(
        names::SPAN_RPC,
        { names::OTEL_NAME } = method,
        { names::OTEL_KIND } = "server",
        { names::RPC_SYSTEM } = "grpc",
        { names::RPC_METHOD } = method,
        { names::RPC_STATUS } = Empty,
        { names::OTEL_STATUS } = Empty,
        { names::ERROR_TYPE } = Empty,
    )
}
