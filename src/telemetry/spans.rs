//! spans: one for each question and report, below the caller's span. Without a collector nobody wants them, and they
//! cost a comparison.

use http::HeaderMap;
use opentelemetry::trace::{TraceContextExt as _, TraceId};
use tracing::{Span, field::Empty, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{context, names};

/// The span of one question, below the caller's if `headers` name one. Instrument the gate's work with it, so that it is
/// the current span when [`evaluated`](super::verdict::evaluated) is told the verdict.
#[must_use]
pub fn evaluate_span(headers: &HeaderMap) -> Span {
    below_caller(open_evaluate("server"), headers)
}

/// The span of many questions in one request. Each verdict told inside it gets a span of its own below it.
#[must_use]
pub fn batch_span(headers: &HeaderMap) -> Span {
    below_caller(info_span!(names::SPAN_BATCH, { names::OTEL_KIND } = "server"), headers)
}

/// The span of one report, below the caller's if `headers` name one.
#[must_use]
pub fn record_span(headers: &HeaderMap) -> Span {
    let span = info_span!(
        names::SPAN_RECORD,
        { names::OTEL_KIND } = "server",
        { names::SESSION } = Empty,
        { names::CALL_ID } = Empty,
        { names::OUTCOME } = Empty,
        { names::FAILURE_KIND } = Empty,
        { names::RETRYABLE } = Empty,
        { names::RETRY_AFTER_MS } = Empty,
        { names::SEQ } = Empty,
    );
    below_caller(span, headers)
}

/// Where a verdict's attributes go: the current span if it is a question's, else a new one below it.
pub(super) fn of_verdict() -> Span {
    let current = Span::current();
    if current.is_disabled() || current.has_field(names::DECISION) {
        current
    } else {
        open_evaluate("internal")
    }
}

fn open_evaluate(kind: &'static str) -> Span {
    info_span!(
        names::SPAN_EVALUATE,
        { names::OTEL_KIND } = kind,
        { names::TENANT } = Empty,
        { names::SESSION } = Empty,
        { names::CALL_ID } = Empty,
        { names::TOOL } = Empty,
        { names::DECISION } = Empty,
        { names::WOULD } = Empty,
        { names::RULE } = Empty,
        { names::REASON } = Empty,
        { names::LEVEL } = Empty,
        { names::COUNT } = Empty,
        { names::ATTEMPT } = Empty,
        { names::FINGERPRINT } = Empty,
        { names::REPLAYED } = Empty,
        { names::ENFORCED } = Empty,
        { names::RETRY_AFTER_MS } = Empty,
        { names::SEQ } = Empty,
    )
}

fn below_caller(span: Span, headers: &HeaderMap) -> Span {
    if !span.is_disabled()
        && let Some(parent) = context::extract(headers)
    {
        // It fails only where no collector is wanted; the span is then a root, or nothing.
        let _ = span.set_parent(parent.0);
    }
    span
}

/// The trace of a span, for the log lines inside it.
pub(super) fn trace_id(span: &Span) -> Option<TraceId> {
    let context = span.context();
    let span = context.span();
    let told = span.span_context();
    told.is_valid().then(|| told.trace_id())
}
