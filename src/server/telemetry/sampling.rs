//! Sampling of calls, decided as they come in. An unsampled call gets no span: to make spans and throw them away costs
//! nearly as much as to send them. Its caller's trace context is kept all the same, for the log lines and the stored
//! row.

use std::{
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::HeaderMap;
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanKind, TraceContextExt as _, TraceId},
};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample};
use tokio::{task_local, time::interval};
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{context, share::SampleShare};

/// Sampler of this process. Without one every span is made that is enabled.
static DOOR: OnceLock<TraceSampler> = OnceLock::new();

task_local! {
    /// The caller's place in its trace, where that is not kept.
    static CALLER: SpanContext;
}

/// Sampling of calls.
#[derive(Debug, Clone)]
pub(super) struct TraceSampler {
    pub(super) sampler: Sampler,
    /// Share of the calls that the sampler keeps; none: all.
    pub(super) share: Option<Arc<SampleShare>>,
}

impl TraceSampler {
    /// From now on it decides for this process.
    pub(super) fn guard(self) {
        if let Some(share) = self.share.clone() {
            tokio::spawn(settle(share));
        }
        // Telemetry is installed once.
        let _ = DOOR.set(self);
    }

    /// Of a trace that begins here, the id is drawn for the decision alone: that of the spans is the SDK's.
    fn keeps(&self, parent: Option<&Context>) -> bool {
        let trace = match parent {
            Some(parent) => parent.span().span_context().trace_id(),
            None => RandomIdGenerator::default().new_trace_id(),
        };
        let decided = self.sampler.should_sample(parent, trace, "", &SpanKind::Server, &[], &[]);
        decided.decision != SamplingDecision::Drop && self.share.as_ref().is_none_or(|share| share.keeps(trace))
    }
}

/// Settles each second, and logs once that calls are sampled.
async fn settle(share: Arc<SampleShare>) {
    let mut seconds = interval(Duration::from_secs(1));
    let mut is_said = false;
    loop {
        seconds.tick().await;
        share.settle();
        if !is_said && share.share() < 1.0 {
            is_said = true;
            tracing::info!(
                "traces are sampled to about {} calls a second, because of the load; \
                 OTEL_TRACES_SAMPLER=parentbased_always_on traces all calls",
                share.per_second()
            );
        }
    }
}

/// Trace context of the work for a request: a span, or only its caller's trace.
#[derive(Debug, Clone)]
pub struct TraceContext {
    span: Span,
    caller: Option<SpanContext>,
}

impl TraceContext {
    /// The span that `make` makes, below the caller's if the headers name one, else below the current one; none where
    /// the trace is not kept.
    pub(super) fn begin_span(headers: &HeaderMap, make: impl FnOnce() -> Span) -> Self {
        let parent = context::extract(headers).map(|parent| parent.0);
        let is_inside = || parent.is_none() && !Span::current().is_disabled();
        let is_kept = DOOR.get().is_none_or(|door| is_inside() || door.keeps(parent.as_ref()));
        Self::place_span(parent, is_kept, make)
    }

    /// The same for a request on a connection or a stream, after the sampling of its own call.
    pub(super) fn below(headers: &HeaderMap, make: impl FnOnce() -> Span) -> Self {
        let stood_at_the_door = DOOR.get().is_some() && Span::current().is_disabled();
        if stood_at_the_door && !context::are_in(headers) {
            return Self { span: Span::none(), caller: caller() };
        }
        Self::begin_span(headers, make)
    }

    fn place_span(parent: Option<Context>, is_kept: bool, make: impl FnOnce() -> Span) -> Self {
        let span = if is_kept { make() } else { Span::none() };
        let caller = match parent {
            Some(parent) if span.is_disabled() => Some(parent.span().span_context().clone()),
            Some(parent) => {
                // It fails only where no collector is wanted; the span is then a root, or nothing.
                let _ = span.set_parent(parent);
                None
            }
            None => None,
        };
        Self { span, caller }
    }

    /// Its span; disabled where there is none.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// True where nothing is to be put around the work.
    #[must_use]
    pub fn is_nowhere(&self) -> bool {
        self.span.is_disabled() && self.caller.is_none()
    }

    /// Does the work there.
    pub fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.caller {
            Some(caller) => CALLER.sync_scope(caller.clone(), work),
            None => self.span.in_scope(work),
        }
    }

    /// Does the work there.
    pub async fn run_within<F: Future>(self, work: F) -> F::Output {
        match self.caller {
            Some(caller) => CALLER.scope(caller, work).await,
            None => work.instrument(self.span).await,
        }
    }
}

fn caller() -> Option<SpanContext> {
    CALLER.try_with(SpanContext::clone).ok()
}

/// The trace of a span, or where there is none the caller's.
pub(super) fn trace_id(span: &Span) -> Option<TraceId> {
    if span.is_disabled() {
        return CALLER.try_with(SpanContext::trace_id).ok();
    }
    let context = span.context();
    let span = context.span();
    let told = span.span_context();
    told.is_valid().then(|| told.trace_id())
}

/// Trace context of the current work.
pub(super) fn current() -> Context {
    let span = Span::current();
    match caller() {
        Some(caller) if span.is_disabled() => Context::new().with_remote_span_context(caller),
        _ => span.context(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn parent(flags: &str) -> Context {
        let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
        let name = http::HeaderName::from_static("traceparent");
        let headers = HeaderMap::from_iter([(name, traceparent.parse().expect("a header"))]);
        context::extract(&headers).expect("a parent").0
    }

    #[test]
    fn a_callers_decision_stands_where_the_sampler_goes_by_it() {
        let by_parent = |root: Sampler| Sampler::ParentBased(Box::new(root));
        let keeps = |sampler: &Sampler, parent: Option<&Context>| door(sampler.clone()).keeps(parent);
        for root in [Sampler::AlwaysOn, Sampler::AlwaysOff] {
            assert!(keeps(&by_parent(root.clone()), Some(&parent("01"))));
            assert!(!keeps(&by_parent(root.clone()), Some(&parent("00"))));
            assert_eq!(keeps(&by_parent(root.clone()), None), root_keeps(&root));
        }
        assert!(keeps(&Sampler::AlwaysOn, Some(&parent("00"))));
        assert!(!keeps(&Sampler::AlwaysOff, Some(&parent("01"))));
    }

    fn door(sampler: Sampler) -> TraceSampler {
        TraceSampler { sampler, share: None }
    }

    fn root_keeps(root: &Sampler) -> bool {
        matches!(root, Sampler::AlwaysOn)
    }

    #[test]
    fn root_traces_are_sampled_by_the_configured_share() {
        let door = door(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(0.1))));
        let kept = (0..10_000).filter(|_| door.keeps(None)).count();
        assert!((800..1_200).contains(&kept), "{kept} of 10000");
    }

    #[test]
    fn no_more_are_traced_than_may_be_and_what_nobody_wants_counts_for_none() {
        let share = Arc::new(SampleShare::of(5));
        let door = TraceSampler { share: Some(share), ..door(Sampler::ParentBased(Box::new(Sampler::AlwaysOn))) };
        assert_eq!((0..100).filter(|_| door.keeps(Some(&parent("00")))).count(), 0);
        assert_eq!((0..100).filter(|_| door.keeps(None)).count(), 10);
        assert!(!door.keeps(Some(&parent("01"))));
    }

    #[tokio::test]
    async fn unsampled_trace_has_an_id_and_no_span() {
        let unmade = || panic!("a span was made");
        let traced = TraceContext::place_span(Some(parent("00")), false, unmade);
        assert!(traced.span().is_disabled() && !traced.is_nowhere());
        let told = || trace_id(&Span::current()).map(|id| id.to_string());
        assert_eq!(traced.in_scope(told).as_deref(), Some(TRACE));
        let context = traced.clone().run_within(async { (told(), current()) }).await;
        assert_eq!(context.0.as_deref(), Some(TRACE));
        assert_eq!(context.1.span().span_context().trace_id().to_string(), TRACE);
        assert_eq!(told(), None, "outside there is none");
        assert!(TraceContext::place_span(None, false, unmade).is_nowhere());
    }
}
