//! Counters and histograms of the gate. Recording never waits: metrics are summed in memory and exported by a thread of
//! their own.

mod computed;
mod instruments;
mod plane;
pub(super) mod process;
mod retries;
mod upkeep;

use std::{borrow::Cow, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, MeterProvider, NoopMeterProvider},
};

use opentelemetry_sdk::metrics::{Instrument, Stream};

use self::{
    computed::Sources, instruments::InstrumentFactory, plane::ServerMetrics, retries::RetryMetrics,
    upkeep::UpkeepMetrics,
};
pub use self::{
    computed::{Lifetime, Reading},
    upkeep::NearBudgets,
};
use super::{bounded_set::BoundedSet, names};
use callgate_core::domain::{
    call::Proposal, event::SettledEvent, failure::FailureKind, ids::ToolName, outcome::OutcomeStatus, profile::Trial,
    redaction::Secrets, verdict::Verdict,
};

/// Tools that have figures of their own.
const TOOLS_MAX: usize = 100;
/// Tenants that have.
const TENANTS_MAX: usize = 50;
/// Bounds of the batch sizes' buckets, in appends.
const APPENDS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// The metrics. Clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    rpc_duration: Histogram<f64>,
    evaluations: Counter<u64>,
    findings: Counter<u64>,
    budget_used: Histogram<f64>,
    by_tenant: Counter<u64>,
    tenants: BoundedSet<i64>,
    records: Counter<u64>,
    advice: Counter<u64>,
    retries: RetryMetrics,
    plane: ServerMetrics,
    coercions: Counter<u64>,
    evaluate_duration: Histogram<f64>,
    record_duration: Histogram<f64>,
    commit_duration: Histogram<f64>,
    tools: BoundedSet<ToolName>,
    commit_batch_size: Histogram<u64>,
    commit_conflicts: Counter<u64>,
    loops: Counter<u64>,
    leases_expired: Counter<u64>,
    double_effects: Counter<u64>,
    redactions: Counter<u64>,
    deleted: Counter<u64>,
    worker_runs: Counter<u64>,
    notifications: Counter<u64>,
    upkeep: UpkeepMetrics,
    computed: Sources,
}

/// Time series of the verdicts, at most. The SDK's own limit is 2,000 an instrument, past which all others share one
/// series: twenty for each tool.
const EVALUATIONS_MAX: usize = 20_000;

/// Raises the limit of time series for the instrument that needs more.
pub(super) fn of_many(instrument: &Instrument) -> Option<Stream> {
    let is_of_many = instrument.name() == names::METRIC_EVALUATIONS;
    is_of_many.then(|| Stream::builder().with_cardinality_limit(EVALUATIONS_MAX).build().ok()).flatten()
}

impl Metrics {
    /// Metrics that count for `provider`.
    #[must_use]
    pub fn new(provider: &dyn MeterProvider) -> Self {
        let meter = provider.meter(names::SERVICE);
        let make = InstrumentFactory(&meter);
        let batch_size = meter.u64_histogram(names::METRIC_COMMIT_BATCH_SIZE).with_unit("{append}");
        let batch_size = batch_size.with_description("Changes per commit.");
        let counter = |name, unit, of| make.counter(name, unit, of);
        let tenants = BoundedSet::new(TENANTS_MAX);
        let metrics = Self {
            rpc_duration: make.seconds(names::METRIC_RPC_DURATION, "From a call of a method to the end of its answer."),
            evaluations: counter(names::METRIC_EVALUATIONS, "{evaluation}", "Verdicts."),
            findings: counter(names::METRIC_FINDINGS, "{finding}", "Findings of rules."),
            budget_used: make.shares(names::METRIC_BUDGET_USED, "Used share of a limit."),
            by_tenant: counter(names::METRIC_TENANT_EVALUATIONS, "{evaluation}", "Verdicts, by tenant."),
            computed: Sources::observed(&make, &tenants),
            upkeep: UpkeepMetrics::new(&make),
            tenants,
            records: counter(names::METRIC_RECORDS, "{report}", "Reports on calls."),
            advice: counter(names::METRIC_ADVICE, "{advice}", "Advice after failures."),
            retries: RetryMetrics::new(&make),
            plane: ServerMetrics::new(&make),
            coercions: counter(names::METRIC_COERCIONS, "{call}", "Calls with coerced arguments."),
            evaluate_duration: make
                .seconds(names::METRIC_EVALUATE_DURATION, "From the request to the committed verdict."),
            record_duration: make.seconds(names::METRIC_RECORD_DURATION, "From a report to the committed outcome."),
            commit_duration: make.seconds(names::METRIC_COMMIT_DURATION, "One commit of a batch."),
            tools: BoundedSet::new(TOOLS_MAX),
            commit_batch_size: batch_size.with_boundaries(APPENDS.to_vec()).build(),
            commit_conflicts: counter(
                names::METRIC_COMMIT_CONFLICTS,
                "{conflict}",
                "Changes that were decided again after a conflict.",
            ),
            loops: counter(names::METRIC_LOOPS, "{loop}", "Findings of loop detectors."),
            leases_expired: counter(names::METRIC_LEASES_EXPIRED, "{call}", "Leases that expired without a report."),
            double_effects: counter(names::METRIC_DOUBLE_EFFECTS, "{call}", "Calls of which two attempts succeeded."),
            redactions: counter(names::METRIC_REDACTIONS, "{value}", "Redacted secrets."),
            deleted: counter(names::METRIC_DELETED, "{row}", "Rows deleted after their retention period."),
            worker_runs: counter(names::METRIC_WORKER_RUNS, "{run}", "Runs of background workers."),
            notifications: counter(names::METRIC_NOTIFICATIONS, "{attempt}", "Attempts to send a notification."),
        };
        metrics.begin();
        metrics
    }

    /// Exports the counters of alerts from the start: the rise of a series that begins with 1 is invisible.
    fn begin(&self) {
        for counter in [&self.double_effects, &self.leases_expired, self.plane.turned_away_count()] {
            counter.add(0, &[]);
        }
        self.commit_conflicts.add(0, &[KeyValue::new(names::CONFLICT_REASON, "version")]);
    }

    /// Metrics without a collector.
    #[must_use]
    pub fn none() -> Self {
        Self::new(&NoopMeterProvider::new())
    }

    /// An Evaluate was answered with `verdict` after `took`, commit included. Counts the policy's own decision: the
    /// mode label has whether it was applied.
    pub fn record_evaluate(&self, verdict: &Verdict, proposal: &Proposal, took: Duration) {
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
        let tenant = self.tenants.label(&proposal.request.tenant.0, true);
        self.by_tenant.add(1, &[KeyValue::new(names::TENANT, tenant), labels[0].clone()]);
        self.evaluate_duration.record(took.as_secs_f64(), &[]);
        if verdict.replayed {
            return;
        }
        // Most limits of most calls are unused.
        for left in verdict.left.iter().filter(|left| left.used > 0) {
            let labels = [
                KeyValue::new(names::BUDGET_SCOPE, left.scope.as_str()),
                KeyValue::new(names::BUDGET, left.dimension.as_str()),
            ];
            self.budget_used.record(left.used as f64 / left.limit.max(1) as f64, &labels);
        }
        for finding in &*verdict.findings {
            let rule = KeyValue::new(names::RULE, finding.rule.clone());
            let mode = KeyValue::new(names::MODE, if finding.enforced { "enforce" } else { "shadow" });
            if let Some(level) = finding.level {
                self.loops.add(1, &[rule.clone(), KeyValue::new(names::LEVEL, level.as_str()), mode.clone()]);
            }
            let reason = KeyValue::new(names::REASON, finding.reason.as_str());
            self.findings.add(1, &[rule, reason, KeyValue::new(names::DECISION, finding.decision.as_str()), mode]);
        }
    }

    /// A call of a service ended after `took`, with the status of that name.
    pub(super) fn rpc(&self, method: &'static str, status: &'static str, took: Duration) {
        let labels = [
            KeyValue::new(names::RPC_SYSTEM, "grpc"),
            KeyValue::new(names::RPC_METHOD, method),
            KeyValue::new(names::RPC_STATUS, status),
            KeyValue::new(names::ERROR_TYPE, status),
        ];
        // A success has no error label.
        let labels = if status == names::RPC_OK { &labels[..3] } else { &labels[..] };
        self.rpc_duration.record(took.as_secs_f64(), labels);
    }

    /// Arguments of a call were read as another type.
    pub fn record_coercion(&self, tool: &ToolName) {
        self.coercions.add(1, &[KeyValue::new(names::TOOL, self.tools.label(tool, true))]);
    }

    /// A call of a tool, which the policy declares or not, was reported on, and the report answered after `took`,
    /// commit included.
    pub fn record_report(
        &self,
        settled: &SettledEvent,
        (tool, is_declared): (&ToolName, bool),
        is_check: bool,
        took: Duration,
    ) {
        let failure = KeyValue::new(names::FAILURE_KIND, settled.failure.map_or(names::NONE, FailureKind::as_str));
        // The tool works: its result is that something else does not.
        let is_negative =
            is_check && settled.status == OutcomeStatus::Error && settled.failure == Some(FailureKind::Other);
        let outcome = if is_negative { names::NEGATIVE } else { settled.status.as_str() };
        let labels = [
            KeyValue::new(names::OUTCOME, outcome),
            failure.clone(),
            KeyValue::new(names::TOOL, self.tools.label(tool, is_declared)),
        ];
        self.records.add(1, &labels);
        self.record_duration.record(took.as_secs_f64(), &[]);
        if settled.by_lease {
            self.leases_expired.add(1, &[]);
        }
        if settled.double_effect {
            self.double_effects.add(1, &[]);
        }
        if let Some(advice) = &settled.advice {
            let labels = [
                failure,
                KeyValue::new(names::RETRYABLE, advice.retryable),
                KeyValue::new(names::REPEAT, advice.repeat.as_str()),
                KeyValue::new(names::BASIS, advice.basis.as_str()),
                KeyValue::new(names::PROBE, advice.probe),
            ];
            self.advice.add(1, &labels);
        }
    }

    /// The outcome of a retry is known.
    pub fn record_retry(&self, trial: &Trial) {
        self.retries.record_trial(trial);
    }

    /// Secrets of a call were redacted before it was stored.
    pub fn record_redactions(&self, secrets: &Secrets) {
        for (kind, count) in secrets.counts() {
            self.redactions.add(count.into(), &[KeyValue::new(names::REDACTION, kind.as_str())]);
        }
    }

    /// Rows of a `kind`, of a closed set, were deleted since they were past their term.
    pub fn record_deletions(&self, kind: &'static str, rows: u64) {
        self.deleted.add(rows, &[KeyValue::new(names::DELETED, kind)]);
    }

    /// A background worker has run once.
    pub fn record_work(&self, worker: &'static str, is_ok: bool) {
        let outcome = if is_ok { "success" } else { "error" };
        self.worker_runs.add(1, &[KeyValue::new(names::WORKER, worker), KeyValue::new(names::OUTCOME, outcome)]);
    }

    /// An attempt to send a notification of `event`, of a closed set, ended with `result`.
    pub fn notified(&self, channel: &'static str, event: &'static str, result: &'static str) {
        self.notifications.add(1, &notification_labels(channel, event, result));
    }

    /// Notifications may be sent. The series of their results begin with 0, so that the first rise is visible.
    pub fn notifications_expected(&self, channel: &'static str) {
        for result in ["success", "error"] {
            self.notifications.add(0, &notification_labels(channel, names::NONE, result));
        }
    }

    /// A batch of `batch_size` changes was committed within `took`, after the oldest of them had `waited`.
    pub fn record_commit(&self, batch_size: usize, took: Duration, waited: Duration) {
        self.plane.record_commit_wait(waited);
        self.commit_batch_size.record(batch_size as u64, &[]);
        self.commit_duration.record(took.as_secs_f64(), &[]);
    }

    /// A change lost a race, for a `reason` of a closed set.
    pub fn conflict(&self, reason: &'static str) {
        self.commit_conflicts.add(1, &[KeyValue::new(names::CONFLICT_REASON, reason)]);
    }
}

fn notification_labels(channel: &'static str, event: &'static str, result: &'static str) -> [KeyValue; 3] {
    [(names::CHANNEL, channel), (names::NOTIFIED_EVENT, event), (names::OUTCOME, result)]
        .map(|(name, value)| KeyValue::new(name, value))
}

#[cfg(test)]
mod tests;
