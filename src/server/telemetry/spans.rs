//! Spans of Evaluates and reports, below the caller's span. Without a collector they are disabled, and cost a
//! comparison.

use http::HeaderMap;
use opentelemetry::{KeyValue, trace::TraceContextExt as _};
use tracing::{Span, field::Empty, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{names, sampling::TraceContext};
use callgate_core::domain::finding::Finding;

/// A span whose attributes get their values later.
macro_rules! declared {
    ([$span:expr, $kind:expr] $($name:ident = $value:expr,)+) => {
        info_span!($span, { names::OTEL_KIND } = $kind, $({ names::$name } = Empty,)+)
    };
}

/// The span of one Evaluate, below the caller's if `headers` name one, as they do for a request on a stream; else below
/// the current one, that of the call of the service. Instrument the gate's work with it, so that it is the current span
/// when [`log_verdict`](super::verdict::evaluated) gets the verdict.
#[must_use]
pub fn evaluate_span(headers: &HeaderMap) -> TraceContext {
    TraceContext::below(headers, open_evaluate)
}

/// The span of many Evaluates in one request. Each verdict inside it gets a span of its own below it.
#[must_use]
pub fn batch_span(headers: &HeaderMap) -> TraceContext {
    TraceContext::below(headers, || info_span!(names::SPAN_BATCH, { names::OTEL_KIND } = "internal"))
}

/// The span of one report, below the caller's if `headers` name one.
#[must_use]
pub fn record_span(headers: &HeaderMap) -> TraceContext {
    TraceContext::below(headers, || report_attributes!(declared [names::SPAN_RECORD, "internal"] unsaid))
}

/// Span for a verdict's attributes: the current one if it is an Evaluate's, else a new one below it.
pub(super) fn of_verdict() -> Span {
    let current = Span::current();
    if current.is_disabled() || current.has_field(names::DECISION) { current } else { open_evaluate() }
}

fn open_evaluate() -> Span {
    verdict_attributes!(declared [names::SPAN_EVALUATE, "internal"] unsaid, unsaid)
}

/// Records a rule's finding as an event of the verdict's span.
pub(super) fn note_finding(span: &Span, finding: &Finding) {
    let mut told = vec![
        KeyValue::new(names::RULE, finding.rule.to_string()),
        KeyValue::new(names::DECISION, finding.decision.as_str()),
        KeyValue::new(names::REASON, finding.reason.as_str()),
        KeyValue::new(names::ENFORCED, finding.enforced),
    ];
    told.extend(finding.level.map(|level| KeyValue::new(names::LEVEL, level.as_str())));
    told.extend(finding.count.map(|count| KeyValue::new(names::COUNT, i64::from(count))));
    span.add_event(names::EVENT_FINDING, told);
}

/// True for a span that is exported: there is a collector, and its trace is sampled.
pub(super) fn is_kept(span: &Span) -> bool {
    !span.is_disabled() && span.context().span().is_recording()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use opentelemetry::trace::{SpanKind, TracerProvider as _};
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};
    use tracing_subscriber::{Registry, prelude::*};

    use super::*;
    use crate::telemetry::{
        setup,
        testing::{self, LoggedEvent, Spans, allow, loop_broken},
        verdict::{log_outcome, log_verdict},
    };
    use callgate_core::domain::{
        failure::FailureKind,
        finding::{Decision, Level},
        outcome::OutcomeStatus,
    };

    /// The spans and lines of `work`, as a collector and a log get them.
    fn trace_work(work: impl FnOnce()) -> (Vec<SpanData>, Vec<LoggedEvent>) {
        let spans = Spans::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        let layer = setup::spans_to(provider.tracer(names::SERVICE));
        let ears = testing::LogCapture::default();
        tracing::subscriber::with_default(Registry::default().with(layer).with(ears.clone()), work);
        let exported = spans.0.lock().unwrap().clone();
        (exported, ears.log_lines())
    }

    fn is_listed(name: &str) -> bool {
        [names::FIELDS, names::CONVENTIONS].concat().contains(&name)
    }

    fn attributes(span: &SpanData) -> BTreeMap<String, String> {
        span.attributes.iter().map(|attribute| (attribute.key.to_string(), attribute.value.to_string())).collect()
    }

    fn headers() -> http::HeaderMap {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        http::HeaderMap::from_iter([(
            http::HeaderName::from_static("traceparent"),
            traceparent.parse().expect("a header"),
        )])
    }

    #[test]
    fn the_span_of_an_evaluate_hangs_below_the_callers_and_carries_the_verdict() {
        let verdict = loop_broken(Decision::Deny, Level::Critical, 20);
        let (spans, lines) = trace_work(|| {
            let span = evaluate_span(&headers());
            span.in_scope(|| log_verdict(&verdict, &testing::proposal("charge_card"), 0, []));
        });
        let [span] = spans.as_slice() else { panic!("{} spans", spans.len()) };
        assert_eq!((&*span.name, &span.span_kind), (names::SPAN_EVALUATE, &SpanKind::Internal));
        assert_eq!(span.span_context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert_eq!(lines[0].fields["callgate.trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");

        let found = attributes(span);
        assert_eq!(found.len(), span.attributes.len(), "an attribute appears twice");
        for (name, value) in [
            ("gen_ai.conversation.id", "s1"),
            ("gen_ai.tool.name", "charge_card"),
            ("callgate.decision", "DENY"),
            ("callgate.rule", "repeat"),
            ("callgate.reason", "no_progress"),
            ("callgate.level", "critical"),
            ("callgate.count", "20"),
            ("callgate.enforced", "true"),
        ] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
        let number = span.attributes.iter().find(|attribute| attribute.key.as_str() == names::COUNT).expect("a count");
        assert_eq!(number.value, opentelemetry::Value::I64(20), "a number is told as one");
        // The log line of a broken loop is an event as well.
        let [event, _] = &span.events[..] else { panic!("{:?}", span.events) };
        let told: BTreeMap<_, _> = event.attributes.iter().map(|a| (a.key.as_str(), a.value.to_string())).collect();
        assert_eq!(
            (&*event.name, &*told[names::RULE], &*told[names::DECISION]),
            (names::EVENT_FINDING, "repeat", "DENY")
        );
        for (name, value) in &found {
            assert!(is_listed(name), "{name} is not in names.rs");
            assert!(!value.contains(testing::SECRET), "{name} says {value}");
        }
    }

    #[test]
    fn each_verdict_of_a_batch_has_its_own_span() {
        let (spans, _) = trace_work(|| {
            batch_span(&headers()).in_scope(|| {
                log_verdict(&allow(), &testing::proposal("charge_card"), 0, []);
                log_verdict(&allow(), &testing::proposal("send_mail"), 0, []);
            });
        });
        let [one, other, batch] = spans.as_slice() else { panic!("{} spans", spans.len()) };
        assert_eq!(batch.name, names::SPAN_BATCH);
        assert_eq!(attributes(one)["gen_ai.tool.name"], "charge_card");
        assert_eq!(attributes(other)["gen_ai.tool.name"], "send_mail");
        for span in [one, other] {
            assert_eq!((&*span.name, span.parent_span_id), (names::SPAN_EVALUATE, batch.span_context.span_id()));
        }
    }

    #[test]
    fn the_span_of_a_report_carries_the_outcome() {
        let (spans, _) = trace_work(|| {
            let settled =
                testing::settled_event(OutcomeStatus::Error, Some(FailureKind::RateLimited), Some((true, 40_000)));
            record_span(&http::HeaderMap::new()).in_scope(|| log_outcome(&settled));
        });
        let [span] = spans.as_slice() else { panic!("{} spans", spans.len()) };
        assert_eq!(span.name, names::SPAN_RECORD);
        let found = attributes(span);
        assert_eq!(found["callgate.outcome"], "error");
        assert_eq!(found["callgate.failure_kind"], "rate_limited");
        assert_eq!(found["callgate.retry_after_ms"], "40000");
        assert!(found.keys().all(|name| is_listed(name)), "{found:?}");
    }
}
