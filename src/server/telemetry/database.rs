//! Spans of database queries for calls, by the conventions for databases. A commit serves many calls: each call has a
//! span of its own for its way into it, with a link to the span of the batch that it joined. That one hangs below the
//! first of the calls that are traced, and links back to the others.

use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use tracing::{Span, field::Empty, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{names, sampling};
use callgate_core::domain::ids::TraceId;

/// Calls that a batch links back to; the SDK keeps no more links by itself.
const LINKS_MAX: usize = 128;
/// Summary of a batch's statement.
const APPEND: &str = "SELECT append";
/// Summary of the statements that load a tree.
const LOAD: &str = "SELECT call_tree call outcome";

/// A span of kind client: its parent, its name here, its name for collectors, and the summary of its statement.
macro_rules! client {
    ($parent:expr, $span:expr, $name:expr, $summary:expr, $namespace:expr) => {
        info_span!(
            parent: $parent,
            $span,
            { names::OTEL_NAME } = $name,
            { names::OTEL_KIND } = "client",
            { names::OTEL_STATUS } = Empty,
            { names::DB_SYSTEM } = "postgresql",
            { names::DB_NAMESPACE } = $namespace,
            { names::DB_OPERATION } = "SELECT",
            { names::DB_SUMMARY } = $summary,
            { names::DB_BATCH_SIZE } = Empty,
            { names::DB_STATUS } = Empty,
            { names::ERROR_TYPE } = Empty,
        )
    };
}

/// The trace of the current span, or of the caller where there is no span.
#[must_use]
pub fn trace_id() -> Option<TraceId> {
    sampling::trace_id(&Span::current()).map(|id| TraceId(id.to_bytes()))
}

/// The span of a change on its way into a commit, below the current one; disabled where that is not traced.
#[must_use]
pub fn commit_span(namespace: &str) -> Span {
    below_current(|current| client!(current, names::SPAN_COMMIT, names::SPAN_COMMIT, APPEND, namespace))
}

/// The span of the loading of a call tree, below the current one; disabled where that is not traced.
#[must_use]
pub fn load_span(namespace: &str) -> Span {
    below_current(|current| client!(current, names::SPAN_LOAD, LOAD, LOAD, namespace))
}

/// The change of that span was committed with this batch.
pub fn link_batch(span: &Span, batch: &Span) {
    if !span.is_disabled()
        && let Some(batch) = context(batch)
    {
        span.add_link(batch);
    }
}

/// The change of that span lost, for a reason of a closed set.
pub fn record_conflict(span: &Span, why: &'static str) {
    span.record(names::ERROR_TYPE, why);
    span.record(names::OTEL_STATUS, "ERROR");
}

/// The span of a batch of so many changes, for the calls of these spans; disabled where none of them is traced.
pub fn batch_span<'a>(mut calls: impl Iterator<Item = &'a Span>, changes: usize, namespace: &str) -> Span {
    let Some(first) = calls.find(|span| sampled_context(span).is_some()) else { return Span::none() };
    let batch = client!(first, names::SPAN_COMMIT_BATCH, APPEND, APPEND, namespace);
    if changes > 1 {
        batch.record(names::DB_BATCH_SIZE, i64::try_from(changes).unwrap_or(i64::MAX));
    }
    for call in calls.filter_map(sampled_context).take(LINKS_MAX) {
        batch.add_link(call);
    }
    batch
}

/// A batch was not stored: why, of a closed set, and the SQLSTATE, if there is one.
pub fn record_failure(batch: &Span, why: &'static str, code: Option<&str>) {
    batch.record(names::OTEL_STATUS, "ERROR");
    batch.record(names::ERROR_TYPE, code.unwrap_or(why));
    if let Some(code) = code {
        batch.record(names::DB_STATUS, code);
    }
}

fn below_current(make: impl FnOnce(&Span) -> Span) -> Span {
    let current = Span::current();
    if sampled_context(&current).is_some() { make(&current) } else { Span::none() }
}

fn context(span: &Span) -> Option<SpanContext> {
    if span.is_disabled() {
        return None;
    }
    let told = span.context().span().span_context().clone();
    told.is_valid().then_some(told)
}

/// Its span context, if its trace is sampled.
fn sampled_context(span: &Span) -> Option<SpanContext> {
    context(span).filter(SpanContext::is_sampled)
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanKind, Status, TracerProvider as _};
    use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData};
    use tracing_subscriber::{Registry, prelude::*};

    use super::*;
    use crate::telemetry::{record_span, setup, testing::Spans};

    fn trace_work(sampler: Sampler, work: impl FnOnce()) -> Vec<SpanData> {
        let spans = Spans::default();
        let provider = SdkTracerProvider::builder().with_sampler(sampler).with_simple_exporter(spans.clone()).build();
        let layer = setup::spans_to(provider.tracer(names::SERVICE));
        tracing::subscriber::with_default(Registry::default().with(layer), work);
        spans.0.lock().unwrap().clone()
    }

    fn report() -> Span {
        record_span(&http::HeaderMap::new()).span().clone()
    }

    fn says(span: &SpanData, name: &str) -> Option<String> {
        span.attributes.iter().find(|told| told.key.as_str() == name).map(|told| told.value.to_string())
    }

    #[test]
    fn client_span_of_a_call_and_span_of_its_batch_link_each_other() {
        let (mut of_call, mut of_other) = (None, None);
        let spans = trace_work(Sampler::AlwaysOn, || {
            let calls = [report(), report()];
            let ways = [&calls[0], &calls[1]].map(|call| call.in_scope(|| commit_span("gate|callgate")));
            let batch = batch_span(calls.iter(), 2, "gate|callgate");
            ways.iter().for_each(|way| link_batch(way, &batch));
            (of_call, of_other) = (calls[0].in_scope(trace_id), calls[1].in_scope(trace_id));
        });
        let of = |name: &str| -> Vec<&SpanData> { spans.iter().filter(|span| span.name == name).collect() };
        let ([batch], [one, other]) = (&of(APPEND)[..], &of(names::SPAN_COMMIT)[..]) else { panic!("{spans:#?}") };
        let (of_call, of_other) = (of_call.expect("a trace"), of_other.expect("a trace"));
        let trace = |span: &SpanData| TraceId(span.span_context.trace_id().to_bytes());
        assert_ne!(of_call, of_other);
        assert_eq!(trace(batch), of_call, "it is part of the first call's trace");
        assert_eq!(
            batch.links.iter().map(|l| TraceId(l.span_context.trace_id().to_bytes())).collect::<Vec<_>>(),
            [of_other]
        );
        for way in [one, other] {
            assert_eq!(
                way.links.iter().map(|l| l.span_context.span_id()).collect::<Vec<_>>(),
                [batch.span_context.span_id()]
            );
            assert_eq!(says(way, names::DB_NAMESPACE).as_deref(), Some("gate|callgate"));
        }
        for span in [batch, one, other] {
            assert_eq!((&span.span_kind, &span.status), (&SpanKind::Client, &Status::Unset));
            assert_eq!(says(span, names::DB_SYSTEM).as_deref(), Some("postgresql"));
            assert_eq!(says(span, names::DB_SUMMARY).as_deref(), Some(APPEND));
        }
        assert_eq!(says(batch, names::DB_BATCH_SIZE).as_deref(), Some("2"));
    }

    #[test]
    fn failed_batch_is_an_error_with_its_sqlstate() {
        let spans = trace_work(Sampler::AlwaysOn, || {
            let call = report();
            let way = call.in_scope(|| commit_span("gate|callgate"));
            let batch = batch_span(std::iter::once(&call), 1, "gate|callgate");
            record_failure(&batch, "rejected", Some("42501"));
            record_conflict(&way, "rejected");
        });
        let of = |name: &str| spans.iter().find(|span| span.name == name).expect("a span");
        let (batch, way) = (of(APPEND), of(names::SPAN_COMMIT));
        assert_eq!(says(batch, names::DB_STATUS).as_deref(), Some("42501"));
        assert_eq!(says(way, names::ERROR_TYPE).as_deref(), Some("rejected"));
        assert!([batch, way].iter().all(|span| matches!(span.status, Status::Error { .. })));
        assert_eq!(says(batch, names::DB_BATCH_SIZE), None, "one change is no batch");
    }

    #[test]
    fn unsampled_trace_has_no_span() {
        let spans = trace_work(Sampler::AlwaysOff, || {
            let call = report();
            assert!(call.in_scope(|| commit_span("gate|callgate")).is_disabled());
            assert!(call.in_scope(|| load_span("gate|callgate")).is_disabled());
            assert!(batch_span(std::iter::once(&call), 1, "gate|callgate").is_disabled());
        });
        assert!(spans.is_empty());
        assert!(commit_span("gate|callgate").is_disabled() && trace_id().is_none(), "nor without a collector");
    }
}
