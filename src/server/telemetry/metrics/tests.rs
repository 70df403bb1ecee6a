//! Tests of the metrics: each moves with its count, by bounded labels.

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
use crate::telemetry::testing;
use callgate_core::domain::{
    budget::{BudgetScope, Dimension, RemainingBudget},
    finding::{Decision, Level},
    ids::TenantId,
    outcome::OutcomeStatus,
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
                AggregatedMetrics::U64(MetricData::Gauge(gauge)) => {
                    gauge.data_points().map(|p| (labels(p.attributes()), p.value() as f64)).collect()
                }
                AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
                    gauge.data_points().map(|p| (labels(p.attributes()), p.value())).collect()
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

/// Expected result of the test below.
const EXPECTED: &[(&str, f64)] = &[
    (
        "callgate.advice [{advice}] callgate.failure_kind=rate_limited callgate.retry.basis=prior \
         callgate.retry.probe=false callgate.retry.repeat=by_client callgate.retryable=true",
        1.0,
    ),
    ("callgate.budget.used [] callgate.budget.scope=run callgate.budget=max_steps", 0.75),
    ("callgate.budget.used [] callgate.budget.scope=tenant callgate.budget=max_total_cost_usd", 1.5),
    ("callgate.coercions [{call}] gen_ai.tool.name=charge_card", 1.0),
    ("callgate.commit.batch_size [{append}]", 3.0),
    ("callgate.commit.conflicts [{conflict}] callgate.conflict.reason=version", 1.0),
    ("callgate.commit.duration [s]", 0.5),
    ("callgate.queue.wait.duration [s]", 0.5),
    ("callgate.tenant.evaluations [{evaluation}] callgate.decision=ALLOW callgate.tenant=1", 3.0),
    ("callgate.tenant.evaluations [{evaluation}] callgate.decision=DENY callgate.tenant=1", 2.0),
    (
        "callgate.findings [{finding}] callgate.decision=DENY callgate.mode=enforce callgate.reason=no_progress \
         callgate.rule=repeat",
        1.0,
    ),
    (
        "callgate.findings [{finding}] callgate.decision=DENY callgate.mode=shadow callgate.reason=no_progress \
         callgate.rule=repeat",
        1.0,
    ),
    ("callgate.double_effects [{call}]", 1.0),
    ("callgate.credentials.refused [{request}] callgate.refusal=role callgate.tenant=1", 1.0),
    ("callgate.credentials.refused [{request}] callgate.refusal=role callgate.tenant=none", 0.0),
    ("callgate.credentials.refused [{request}] callgate.refusal=too_many callgate.tenant=none", 0.0),
    ("callgate.credentials.refused [{request}] callgate.refusal=unchecked callgate.tenant=none", 0.0),
    ("callgate.credentials.refused [{request}] callgate.refusal=unknown callgate.tenant=none", 1.0),
    ("callgate.leases.expired [{call}]", 0.0),
    ("callgate.deleted [{row}] callgate.deleted.kind=trees", 2.0),
    ("callgate.evaluate.duration [s]", 2.5),
    (
        "callgate.evaluations [{evaluation}] callgate.decision=ALLOW callgate.mode=enforce \
         callgate.reason=none callgate.rule=none gen_ai.tool.name=charge_card",
        3.0,
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
        2.0,
    ),
    ("callgate.loops [{loop}] callgate.level=critical callgate.mode=enforce callgate.rule=repeat", 1.0),
    ("callgate.loops [{loop}] callgate.level=critical callgate.mode=shadow callgate.rule=repeat", 1.0),
    (
        "callgate.records [{report}] callgate.failure_kind=other callgate.outcome=negative \
         gen_ai.tool.name=charge_card",
        1.0,
    ),
    ("callgate.record.duration [s]", 2.0),
    (
        "callgate.records [{report}] callgate.failure_kind=rate_limited callgate.outcome=error \
         gen_ai.tool.name=_OTHER",
        1.0,
    ),
    ("callgate.shed [{request}]", 1.0),
];

#[test]
fn everything_is_counted_by_bounded_labels() {
    let figures = Figures::default();
    let reader = PeriodicReader::builder(figures.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let metrics = Metrics::new(&provider);

    let took = Duration::from_millis(500);
    let card = Proposal { declared: true, ..testing::proposal("charge_card") };
    let left = |scope, dimension, used, limit| RemainingBudget { scope, dimension, used, limit, extra: 0 };
    let spent = vec![left(BudgetScope::Run, Dimension::Steps, 3, 4), left(BudgetScope::Tenant, Dimension::Cost, 6, 4)];
    metrics.record_evaluate(&Verdict { left: spent.clone(), ..testing::allow() }, &card, took);
    metrics.record_evaluate(&Verdict { left: spent, replayed: true, ..testing::allow() }, &card, took);
    metrics.clone().record_evaluate(&testing::allow(), &card, took);
    metrics.record_evaluate(&testing::loop_broken(Decision::Deny, Level::Critical, 20), &card, took);
    metrics.record_evaluate(
        &testing::shadow_verdict(testing::loop_broken(Decision::Deny, Level::Critical, 20)),
        &card,
        took,
    );
    metrics.record_report(
        &testing::settled_event(OutcomeStatus::Success, None, None),
        (&card.request.tool, true),
        false,
        took,
    );
    let double = SettledEvent { double_effect: true, ..testing::settled_event(OutcomeStatus::Success, None, None) };
    metrics.record_report(&double, (&card.request.tool, true), false, took);
    let limited = Some(FailureKind::RateLimited);
    metrics.record_report(
        &testing::settled_event(OutcomeStatus::Error, limited, Some((true, 1_000))),
        (&card.request.tool, false),
        false,
        took,
    );
    let negative = testing::settled_event(OutcomeStatus::Error, Some(FailureKind::Other), None);
    metrics.record_report(&negative, (&card.request.tool, true), true, took);
    metrics.record_commit(3, took, took);
    metrics.conflict("version");
    metrics.turned_away();
    metrics.record_deletions("trees", 2);
    metrics.record_coercion(&card.request.tool);
    metrics.credential_refused(Some(card.request.tenant), "role");
    metrics.credential_refused(None, "unknown");
    provider.force_flush().expect("flushed");

    let found = figures.0.lock().unwrap().clone();
    assert_eq!(found, EXPECTED.iter().map(|(name, sum)| ((*name).to_owned(), *sum)).collect());
    for name in found.keys().map(|line| line.split(' ').next().unwrap()) {
        assert!(names::METRICS.contains(&name), "{name}");
    }
}

#[test]
fn gauges_of_lifetimes_are_computed_at_each_collection() {
    let (figures, seconds) = (Figures::default(), Arc::new(Mutex::new(90.0)));
    let reader = PeriodicReader::builder(figures.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let metrics = Metrics::new(&provider);
    let left = Arc::clone(&seconds);
    metrics.compute(move || {
        let left = *left.lock().unwrap();
        let used = 1.0 - left / 100.0;
        vec![
            Reading::Left(Lifetime::Certificate("server"), left, used),
            Reading::Left(Lifetime::Token(TenantId(7)), left, used),
            Reading::Backup(100.0 - left),
        ]
    });
    for (now, used) in [(90.0, 0.1), (25.0, 0.75)] {
        *seconds.lock().unwrap() = now;
        provider.force_flush().expect("flushed");
        let found = figures.0.lock().unwrap().clone();
        let told = |name: &str| found.get(name).map(|value| (value * 100.0).round() / 100.0);
        assert_eq!(told("callgate.certificate.remaining [s] callgate.certificate=server"), Some(now));
        assert_eq!(told("callgate.certificate.lifetime.used [] callgate.certificate=server"), Some(used));
        assert_eq!(told("callgate.token.left [s] callgate.tenant=7"), Some(now));
        assert_eq!(told("callgate.token.lifetime.used [] callgate.tenant=7"), Some(used));
        assert_eq!(told("callgate.backup.age [s]"), Some(100.0 - now));
    }
}

#[test]
fn budgets_are_counted_by_tenant_scope_and_level_and_reset_without_one() {
    let figures = Figures::default();
    let reader = PeriodicReader::builder(figures.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    let metrics = Metrics::new(&provider);
    let near = NearBudgets::from([((TenantId(1), BudgetScope::Agent), (3, 1))]);
    metrics.budgets(&[TenantId(1), TenantId(2)], &near);
    metrics.budgets(&[TenantId(1), TenantId(2)], &NearBudgets::new());
    metrics.budgets(&[TenantId(1), TenantId(2)], &near);
    provider.force_flush().expect("flushed");
    let found = figures.0.lock().unwrap().clone();
    let told = |level, scope, tenant| {
        let labels = format!("callgate.budget.level={level} callgate.budget.scope={scope} callgate.tenant={tenant}");
        found.get(&format!("callgate.budgets.near [{{budget}}] {labels}")).copied()
    };
    assert_eq!((told("near", "agent", 1), told("used_up", "agent", 1)), (Some(3.0), Some(1.0)));
    assert_eq!((told("near", "tenant", 1), told("used_up", "agent", 2)), (Some(0.0), Some(0.0)));
}

#[test]
fn without_a_collector_counting_is_harmless() {
    let metrics = Metrics::none();
    metrics.record_evaluate(&testing::allow(), &testing::proposal("charge_card"), Duration::ZERO);
    metrics.conflict("version");
}
