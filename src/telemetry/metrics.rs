//! metrics: the counters and histograms of the seam. Recording never waits: figures are summed in memory and exported
//! by a thread of their own.

use std::{borrow::Cow, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, MeterProvider, NoopMeterProvider},
};

use super::{names, tools::Tools};
use crate::domain::{
    call::Proposal, event::Settled, failure::FailureKind, ids::ToolName, redaction::Secrets, verdict::Verdict,
};

/// Bounds of the durations' buckets, in seconds. OpenTelemetry's own are made for milliseconds.
const SECONDS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
/// Bounds of the batch sizes' buckets, in appends.
const APPENDS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// What is counted. Clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    rpc_duration: Histogram<f64>,
    evaluations: Counter<u64>,
    records: Counter<u64>,
    advice: Counter<u64>,
    coercions: Counter<u64>,
    evaluate_duration: Histogram<f64>,
    record_duration: Histogram<f64>,
    commit_duration: Histogram<f64>,
    tools: Tools,
    commit_batch_size: Histogram<u64>,
    commit_conflicts: Counter<u64>,
    loops: Counter<u64>,
    leases_expired: Counter<u64>,
    cache_trees: Gauge<u64>,
    cache_size: Gauge<u64>,
    at_work: Gauge<u64>,
    waiting: Gauge<u64>,
    turned_away: Counter<u64>,
    policy_behind: Gauge<u64>,
    policy_unconfirmed: Gauge<f64>,
    certificate_left: Gauge<i64>,
    redactions: Counter<u64>,
    deleted: Counter<u64>,
}

impl Metrics {
    /// Metrics that count for `provider`.
    #[must_use]
    pub fn new(provider: &dyn MeterProvider) -> Self {
        let meter = provider.meter(names::SERVICE);
        let counter =
            |name, unit, description| meter.u64_counter(name).with_unit(unit).with_description(description).build();
        let seconds = |name, description| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        let gauge =
            |name, unit, description| meter.u64_gauge(name).with_unit(unit).with_description(description).build();
        Self {
            loops: counter(names::METRIC_LOOPS, "{loop}", "What loop detectors found."),
            leases_expired: counter(names::METRIC_LEASES_EXPIRED, "{call}", "Calls that nobody reported on in time."),
            cache_trees: gauge(names::METRIC_CACHE_TREES, "{tree}", "Call trees in memory."),
            cache_size: gauge(names::METRIC_CACHE_SIZE, "By", "About how much memory they take."),
            at_work: gauge(names::METRIC_AT_WORK, "{call}", "Evaluates that are being judged."),
            waiting: gauge(names::METRIC_WAITING, "{call}", "Evaluates that wait for their turn."),
            rpc_duration: seconds(names::METRIC_RPC_DURATION, "From a call to the end of its answer."),
            evaluations: counter(names::METRIC_EVALUATIONS, "{evaluation}", "Verdicts."),
            records: counter(names::METRIC_RECORDS, "{report}", "Reports on calls."),
            advice: counter(names::METRIC_ADVICE, "{advice}", "Answers to failures."),
            coercions: counter(names::METRIC_COERCIONS, "{call}", "Calls whose arguments had another type."),
            evaluate_duration: seconds(names::METRIC_EVALUATE_DURATION, "From the request to the committed verdict."),
            record_duration: seconds(names::METRIC_RECORD_DURATION, "From a report to the committed outcome."),
            tools: Tools::default(),
            commit_duration: seconds(names::METRIC_COMMIT_DURATION, "One commit of a batch."),
            commit_batch_size: meter
                .u64_histogram(names::METRIC_COMMIT_BATCH_SIZE)
                .with_unit("{append}")
                .with_description("Changes that went into one commit.")
                .with_boundaries(APPENDS.to_vec())
                .build(),
            commit_conflicts: counter(
                names::METRIC_COMMIT_CONFLICTS,
                "{conflict}",
                "Changes that lost a race and were judged again.",
            ),
            policy_behind: gauge(
                names::METRIC_POLICY_BEHIND,
                "{revision}",
                "Activations that the policy of this replica is older than the active one.",
            ),
            policy_unconfirmed: meter
                .f64_gauge(names::METRIC_POLICY_UNCONFIRMED)
                .with_unit("s")
                .with_description("Since this replica last read which policies are active.")
                .build(),
            certificate_left: meter
                .i64_gauge(names::METRIC_CERTIFICATE_LEFT)
                .with_unit("s")
                .with_description("How long a certificate still holds that this replica shows.")
                .build(),
            turned_away: counter(names::METRIC_TURNED_AWAY, "{request}", "Evaluates told at once of an overload."),
            redactions: counter(names::METRIC_REDACTIONS, "{value}", "Values that were not stored."),
            deleted: counter(names::METRIC_DELETED, "{row}", "Rows deleted since they were past their term."),
        }
    }

    /// Metrics that nobody collects.
    #[must_use]
    pub fn none() -> Self {
        Self::new(&NoopMeterProvider::new())
    }

    /// An Evaluate was answered with `verdict` after `took`, commit included. Counts what the policy would have said:
    /// the mode tells whether it was applied.
    pub fn evaluated(&self, verdict: &Verdict, proposal: &Proposal, took: Duration) {
        let rule = verdict.winner().map_or(Cow::Borrowed(names::NONE), |finding| finding.rule.clone());
        let mode = if verdict.is_enforced() { "enforce" } else { "shadow" };
        let labels = [
            KeyValue::new(names::DECISION, verdict.would.as_str()),
            KeyValue::new(names::RULE, rule),
            KeyValue::new(names::REASON, verdict.winner().map_or(names::NONE, |finding| finding.reason.as_str())),
            KeyValue::new(names::MODE, mode),
            KeyValue::new(names::TOOL, self.tools.label(&proposal.request.tool, proposal.declared)),
        ];
        self.evaluations.add(1, &labels);
        self.evaluate_duration.record(took.as_secs_f64(), &[]);
        if verdict.replayed {
            return;
        }
        for (finding, level) in verdict.findings.iter().filter_map(|finding| Some((finding, finding.level?))) {
            let labels = [
                KeyValue::new(names::RULE, finding.rule.clone()),
                KeyValue::new(names::LEVEL, level.as_str()),
                KeyValue::new(names::MODE, if finding.enforced { "enforce" } else { "shadow" }),
            ];
            self.loops.add(1, &labels);
        }
    }

    /// What this replica holds in memory: call trees, and about how many bytes they take.
    pub fn cached(&self, (trees, bytes): (usize, usize)) {
        self.cache_trees.record(trees as u64, &[]);
        self.cache_size.record(bytes as u64, &[]);
    }

    /// How many Evaluates are being judged, and how many wait for their turn.
    pub fn admitted(&self, (at_work, waiting): (usize, usize)) {
        self.at_work.record(at_work as u64, &[]);
        self.waiting.record(waiting as u64, &[]);
    }

    /// A call of a service ended after `took`, with the status of that name.
    pub(super) fn rpc(&self, method: &'static str, status: &'static str, took: Duration) {
        let labels = [
            KeyValue::new(names::RPC_SYSTEM, "grpc"),
            KeyValue::new(names::RPC_METHOD, method),
            KeyValue::new(names::RPC_STATUS, status),
            KeyValue::new(names::ERROR_TYPE, status),
        ];
        // Whoever succeeds has no error.
        let labels = if status == names::RPC_OK { &labels[..3] } else { &labels[..] };
        self.rpc_duration.record(took.as_secs_f64(), labels);
    }

    /// Arguments of a call were read as another type.
    pub fn coerced(&self, tool: &ToolName) {
        self.coercions.add(1, &[KeyValue::new(names::TOOL, self.tools.label(tool, true))]);
    }

    /// A call of a tool, which the policy declares or not, was reported on, and the report answered after `took`,
    /// commit included.
    pub fn recorded(&self, settled: &Settled, (tool, is_declared): (&ToolName, bool), took: Duration) {
        let failure = KeyValue::new(names::FAILURE_KIND, settled.failure.map_or(names::NONE, FailureKind::as_str));
        let labels = [
            KeyValue::new(names::OUTCOME, settled.status.as_str()),
            failure.clone(),
            KeyValue::new(names::TOOL, self.tools.label(tool, is_declared)),
        ];
        self.records.add(1, &labels);
        self.record_duration.record(took.as_secs_f64(), &[]);
        if settled.by_lease {
            self.leases_expired.add(1, &[]);
        }
        if let Some(advice) = &settled.advice {
            let labels = [
                failure,
                KeyValue::new(names::RETRYABLE, advice.retryable),
                KeyValue::new(names::BASIS, advice.basis.as_str()),
                KeyValue::new(names::PROBE, advice.probe),
            ];
            self.advice.add(1, &labels);
        }
    }

    /// Secrets were left out of what was stored of a call.
    pub fn redacted(&self, secrets: &Secrets) {
        for (kind, count) in secrets.counts() {
            self.redactions.add(count.into(), &[KeyValue::new(names::REDACTION, kind.as_str())]);
        }
    }

    /// Rows of a `kind`, of a closed set, were deleted since they were past their term.
    pub fn deleted(&self, kind: &'static str, rows: u64) {
        self.deleted.add(rows, &[KeyValue::new(names::DELETED, kind)]);
    }

    /// A batch of `batch_size` changes was committed within `took`.
    pub fn committed(&self, batch_size: usize, took: Duration) {
        self.commit_batch_size.record(batch_size as u64, &[]);
        self.commit_duration.record(took.as_secs_f64(), &[]);
    }

    /// A change lost a race, for a `reason` of a closed set.
    pub fn conflict(&self, reason: &'static str) {
        self.commit_conflicts.add(1, &[KeyValue::new(names::CONFLICT_REASON, reason)]);
    }

    /// By how many activations the policy that judges is older than the active one, and how long ago that was read.
    pub fn policies(&self, behind: u64, unconfirmed: Duration) {
        self.policy_behind.record(behind, &[]);
        self.policy_unconfirmed.record(unconfirmed.as_secs_f64(), &[]);
    }

    /// For so many seconds holds the certificate that is shown there.
    pub fn certificate(&self, shown: &'static str, left: i64) {
        self.certificate_left.record(left, &[KeyValue::new(names::CERTIFICATE, shown)]);
    }

    /// An Evaluate was told at once that the server is overloaded.
    pub fn turned_away(&self) {
        self.turned_away.add(1, &[]);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex},
    };

    use opentelemetry_sdk::{
        error::OTelSdkResult,
        metrics::{
            PeriodicReader, SdkMeterProvider, Temporality,
            data::{AggregatedMetrics, MetricData, ResourceMetrics},
            exporter::PushMetricExporter,
        },
    };

    use super::*;
    use crate::{
        domain::{
            finding::{Decision, Level},
            outcome::OutcomeStatus,
        },
        telemetry::testing,
    };

    /// Metric and labels, to what was summed.
    #[derive(Debug, Clone, Default)]
    struct Figures(Arc<Mutex<BTreeMap<String, f64>>>);

    fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
        let mut labels: Vec<String> = attributes.map(|label| format!("{}={}", label.key, label.value)).collect();
        labels.sort();
        labels.join(" ")
    }

    impl PushMetricExporter for Figures {
        async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
            let mut figures = self.0.lock().unwrap();
            for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
                let points: Vec<(String, f64)> = match metric.data() {
                    AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                        sum.data_points().map(|p| (labels(p.attributes()), p.value() as f64)).collect()
                    }
                    AggregatedMetrics::U64(MetricData::Histogram(all)) => {
                        all.data_points().map(|p| (labels(p.attributes()), p.sum() as f64)).collect()
                    }
                    AggregatedMetrics::F64(MetricData::Histogram(all)) => {
                        all.data_points().map(|p| (labels(p.attributes()), p.sum())).collect()
                    }
                    other => panic!("{} is {other:?}", metric.name()),
                };
                let named = points.into_iter().map(|(labels, value)| {
                    (format!("{} [{}] {labels}", metric.name(), metric.unit()).trim_end().to_owned(), value)
                });
                figures.extend(named);
            }
            Ok(())
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }

        fn temporality(&self) -> Temporality {
            Temporality::Cumulative
        }
    }

    #[test]
    fn everything_is_counted_by_bounded_labels() {
        let figures = Figures::default();
        let reader = PeriodicReader::builder(figures.clone()).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        let metrics = Metrics::new(&provider);

        let took = Duration::from_millis(500);
        let card = Proposal { declared: true, ..testing::proposal("charge_card") };
        metrics.evaluated(&testing::allow(), &card, took);
        metrics.clone().evaluated(&testing::allow(), &card, took);
        metrics.evaluated(&testing::loop_broken(Decision::Deny, Level::Critical, 20), &card, took);
        metrics.evaluated(&testing::shadowed(testing::loop_broken(Decision::Deny, Level::Critical, 20)), &card, took);
        metrics.recorded(&testing::settled(OutcomeStatus::Success, None, None), (&card.request.tool, true), took);
        let limited = Some(FailureKind::RateLimited);
        metrics.recorded(
            &testing::settled(OutcomeStatus::Error, limited, Some((true, 1_000))),
            (&card.request.tool, false),
            took,
        );
        metrics.committed(3, took);
        metrics.conflict("version");
        metrics.turned_away();
        metrics.deleted("trees", 2);
        metrics.coerced(&card.request.tool);
        provider.force_flush().expect("flushed");

        let found = figures.0.lock().unwrap().clone();
        let expected = [
            (
                "callgate.advice [{advice}] callgate.failure_kind=rate_limited callgate.retry.basis=prior \
                 callgate.retry.probe=false callgate.retryable=true",
                1.0,
            ),
            ("callgate.coercions [{call}] gen_ai.tool.name=charge_card", 1.0),
            ("callgate.commit.batch_size [{append}]", 3.0),
            ("callgate.commit.conflicts [{conflict}] callgate.conflict.reason=version", 1.0),
            ("callgate.commit.duration [s]", 0.5),
            ("callgate.deleted [{row}] callgate.deleted.kind=trees", 2.0),
            ("callgate.evaluate.duration [s]", 2.0),
            (
                "callgate.evaluations [{evaluation}] callgate.decision=ALLOW callgate.mode=enforce \
                 callgate.reason=none callgate.rule=none gen_ai.tool.name=charge_card",
                2.0,
            ),
            (
                "callgate.evaluations [{evaluation}] callgate.decision=DENY callgate.mode=enforce \
                 callgate.reason=no_progress callgate.rule=repeat gen_ai.tool.name=charge_card",
                1.0,
            ),
            (
                "callgate.evaluations [{evaluation}] callgate.decision=DENY callgate.mode=shadow \
                 callgate.reason=no_progress callgate.rule=repeat gen_ai.tool.name=charge_card",
                1.0,
            ),
            (
                "callgate.records [{report}] callgate.failure_kind=none callgate.outcome=success \
                 gen_ai.tool.name=charge_card",
                1.0,
            ),
            ("callgate.loops [{loop}] callgate.level=critical callgate.mode=enforce callgate.rule=repeat", 1.0),
            ("callgate.loops [{loop}] callgate.level=critical callgate.mode=shadow callgate.rule=repeat", 1.0),
            ("callgate.record.duration [s]", 1.0),
            (
                "callgate.records [{report}] callgate.failure_kind=rate_limited callgate.outcome=error \
                 gen_ai.tool.name=_OTHER",
                1.0,
            ),
            ("callgate.turned_away [{request}]", 1.0),
        ];
        assert_eq!(found, expected.map(|(name, sum)| (name.to_owned(), sum)).into());
        for name in found.keys().map(|line| line.split(' ').next().unwrap()) {
            assert!(names::METRICS.contains(&name), "{name}");
        }
    }

    #[test]
    fn without_a_collector_counting_is_harmless() {
        let metrics = Metrics::none();
        metrics.evaluated(&testing::allow(), &testing::proposal("charge_card"), Duration::ZERO);
        metrics.conflict("version");
    }
}
