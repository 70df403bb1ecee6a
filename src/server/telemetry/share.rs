//! Default sampling of calls, by rate. To make the spans of a call and to send them takes about half as long as to
//! judge it, so a busy server traces some hundreds a second, and one with less traces all.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use opentelemetry::{metrics::MeterProvider, trace::TraceId};

use super::names;

/// Calls of services that are traced in a second, unless `OTEL_TRACES_SAMPLER` is set.
pub(super) const PER_SECOND: u64 = 500;
/// As many values have a trace id's random bits, its last seven bytes (W3C Trace Context, level 2).
const VALUES: u64 = 1 << 56;

/// Keeps about so many calls a second. While calls are as many, it is the same traces that are kept, each with all its
/// calls.
#[derive(Debug)]
pub(super) struct SampleShare {
    per_second: u64,
    /// Calls of this second that the sampler keeps, and those of them that are traced.
    wanted: AtomicU64,
    kept: AtomicU64,
    /// Traces with smaller random bits are kept.
    below: AtomicU64,
}

impl SampleShare {
    pub(super) fn of(per_second: u64) -> Self {
        Self { per_second, wanted: 0.into(), kept: 0.into(), below: VALUES.into() }
    }

    /// Counts a call of that trace; true when it is traced.
    pub(super) fn keeps(&self, trace: TraceId) -> bool {
        self.wanted.fetch_add(1, Relaxed);
        let [.., a, b, c, d, e, f, g] = trace.to_bytes();
        let is_in = u64::from_be_bytes([0, a, b, c, d, e, f, g]) < self.below.load(Relaxed);
        // Twice as many while calls become more, or where all are of one trace.
        is_in && self.kept.fetch_add(1, Relaxed) < 2 * self.per_second
    }

    /// A second is over.
    pub(super) fn settle(&self) {
        let wanted = self.wanted.swap(0, Relaxed).max(self.per_second).max(1);
        self.kept.store(0, Relaxed);
        let below = u128::from(VALUES) * u128::from(self.per_second) / u128::from(wanted);
        self.below.store(u64::try_from(below).unwrap_or(VALUES), Relaxed);
    }

    pub(super) fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Observes the share, for as long as `provider` is there.
    pub(super) fn observe(self: Arc<Self>, provider: &dyn MeterProvider) {
        let meter = provider.meter(names::SERVICE);
        let gauge = meter.f64_observable_gauge(names::METRIC_TRACE_SHARE).with_unit("1");
        let gauge = gauge.with_description("Share of traces that are sampled.");
        let _ = gauge.with_callback(move |figures| figures.observe(self.share(), &[])).build();
    }

    /// Share of traces that are sampled, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub(super) fn share(&self) -> f64 {
        self.below.load(Relaxed) as f64 / VALUES as f64
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

    use super::*;

    fn traces(count: usize) -> Vec<TraceId> {
        (0..count).map(|_| RandomIdGenerator::default().new_trace_id()).collect()
    }

    fn sample_traces(share: &SampleShare, traces: &[TraceId]) -> Vec<TraceId> {
        traces.iter().copied().filter(|trace| share.keeps(*trace)).collect()
    }

    #[test]
    fn as_few_calls_as_may_be_are_all_traced() {
        let share = SampleShare::of(500);
        for _ in 0..3 {
            assert_eq!(sample_traces(&share, &traces(500)).len(), 500);
            share.settle();
        }
        assert!((share.share() - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn share_keeps_about_the_limit_and_every_call_of_a_sampled_trace() {
        let share = SampleShare::of(500);
        assert_eq!(sample_traces(&share, &traces(10_000)).len(), 1_000, "the first second");
        share.settle();
        assert!((share.share() - 0.05).abs() < 0.001, "{}", share.share());
        let traces = traces(5_000);
        let once = sample_traces(&share, &traces);
        assert!((150..350).contains(&once.len()), "{} of 5000", once.len());
        assert_eq!(sample_traces(&share, &traces), once, "the second call of each");
        share.settle();
        assert!((0.04..0.06).contains(&share.share()), "{}", share.share());
    }

    #[test]
    fn calls_of_one_trace_are_no_more() {
        let share = SampleShare::of(10);
        let trace = TraceId::from_bytes([0; 16]);
        for _ in 0..3 {
            assert_eq!(sample_traces(&share, &[trace; 1_000]).len(), 20);
            share.settle();
        }
    }

    #[test]
    fn share_is_one_again_after_a_quiet_second() {
        let share = SampleShare::of(500);
        sample_traces(&share, &traces(50_000));
        share.settle();
        share.settle();
        assert_eq!(sample_traces(&share, &traces(400)).len(), 400);
    }
}
