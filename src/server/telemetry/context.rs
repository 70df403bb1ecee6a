//! The caller's trace context, read from W3C `traceparent` and `tracestate` headers (gRPC metadata).

use http::HeaderMap;
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator as _},
    trace::TraceContextExt as _,
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// Longest `tracestate` that is propagated, in bytes: the minimum by W3C. It is kept with every span in the queue, so a
/// caller must not choose its size.
const TRACESTATE_BYTES_MAX: usize = 512;

/// The caller's span, below which ours hang.
#[derive(Debug, Clone)]
pub struct RemoteParent(pub(super) Context);

/// The headers of which the trace context is made.
pub(super) const HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// True with a trace context among the headers, well formed or not.
pub(super) fn are_in(headers: &HeaderMap) -> bool {
    headers.contains_key(HEADERS[0])
}

/// The caller's span, if the headers name a valid one. Anything malformed counts as none: a trace is never a reason to
/// refuse a request.
#[must_use]
pub fn extract(headers: &HeaderMap) -> Option<RemoteParent> {
    if !are_in(headers) {
        return None;
    }
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    let valid = context.span().span_context().is_valid();
    valid.then_some(RemoteParent(context))
}

/// Only the headers that make up the trace context.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let text = self.0.get(key)?.to_str().ok()?;
        (key != "tracestate" || text.len() <= TRACESTATE_BYTES_MAX).then_some(text)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn extract_parent(traceparent: &str, tracestate: Option<&str>) -> Option<RemoteParent> {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", traceparent.parse().expect("a header"));
        if let Some(tracestate) = tracestate {
            headers.insert("tracestate", tracestate.parse().expect("a header"));
        }
        extract(&headers)
    }

    #[test]
    fn the_callers_span_is_found() {
        let RemoteParent(context) = extract_parent(TRACEPARENT, Some("vendor=1")).expect("a parent");
        let span = context.span().span_context().clone();
        assert_eq!(span.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span.span_id().to_string(), "00f067aa0ba902b7");
        assert!(span.is_remote() && span.is_sampled());
        assert_eq!(span.trace_state().get("vendor"), Some("1"));
    }

    #[test]
    fn malformed_context_has_no_parent() {
        for traceparent in ["", "00", "00-0-0-00", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "é"] {
            assert!(extract_parent(traceparent, None).is_none(), "{traceparent}");
        }
        assert!(extract(&HeaderMap::new()).is_none());
    }

    #[test]
    fn a_long_tracestate_is_left_behind_and_the_trace_is_not() {
        let long = format!("vendor={}", "x".repeat(TRACESTATE_BYTES_MAX));
        let RemoteParent(context) = extract_parent(TRACEPARENT, Some(&long)).expect("a parent");
        assert_eq!(context.span().span_context().trace_state().header(), "");
    }
}
