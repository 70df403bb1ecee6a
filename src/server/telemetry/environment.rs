//! Settings by the standard's `OTEL_*` variables, read once and whole, so that no setting is ignored in silence. The
//! SDK would read some of them itself, and would not report those that it cannot follow.
//!
//! Settings that would send metrics nowhere, or to an unintended place, are rejected. Those that only tune are warned
//! of and left at their default, as the standard asks for it.

use std::{collections::BTreeMap, env, time::Duration};

use opentelemetry_sdk::trace::Sampler;

use super::{setup::TelemetryError, share, watch::Signal};

mod destination;
mod values;

pub(super) use destination::{Destination, DestinationTls, Protocol};
use values::Values;

/// Spans, and lines, that wait to be sent, unless a variable says otherwise; more are dropped.
const QUEUE: usize = 4_096;
/// The longest such queue that may be asked for.
const QUEUE_MAX: usize = 1 << 20;
/// Spans, or lines, of one export.
const BATCH: usize = 512;
/// Between two exports of spans, of lines, and of metrics.
const SPANS_EVERY: Duration = Duration::from_secs(5);
const LINES_EVERY: Duration = Duration::from_secs(1);
const METRICS_EVERY: Duration = Duration::from_secs(60);
/// Longest time for one export of a batch, and of metrics.
const BATCH_EXPORT_MAX: Duration = Duration::from_secs(30);

/// Variables that the SDK reads and follows by itself.
const OF_THE_SDK: [&str; 5] = [
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SERVICE_NAME",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
];

/// The process's variables of that name.
pub(super) type OtelEnvironment = BTreeMap<String, String>;

/// Those of this process that are set, and not to nothing.
pub(super) fn of_process() -> OtelEnvironment {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, value)| name.starts_with("OTEL_") && !value.is_empty())
        .collect()
}

/// Exported signals, with their destinations and settings.
#[derive(Debug)]
pub(super) struct ExportPlan {
    pub(super) traces: Option<Destination>,
    pub(super) metrics: Option<Destination>,
    pub(super) logs: Option<Destination>,
    pub(super) sampler: Sampler,
    /// Calls that are traced in a second, of those that the sampler keeps; none: all.
    pub(super) traced_per_second: Option<u64>,
    pub(super) spans: BatchSettings,
    pub(super) lines: BatchSettings,
    pub(super) metrics_every: Duration,
    /// Settings that are not followed: whole sentences.
    pub(super) warnings: Vec<String>,
}

/// Batching of spans or log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchSettings {
    pub(super) queue: usize,
    pub(super) batch: usize,
    pub(super) every: Duration,
}

impl ExportPlan {
    /// True when a signal goes to a collector.
    pub(super) fn exports(&self) -> bool {
        self.traces.is_some() || self.metrics.is_some() || self.logs.is_some()
    }
}

/// Reads the plan of `environment`; `endpoint` is the collector of the command line, before that of the environment.
pub(super) fn read(environment: &OtelEnvironment, endpoint: Option<&str>) -> Result<ExportPlan, TelemetryError> {
    let mut values = Values::new(environment);
    let mut plan = ExportPlan {
        traces: None,
        metrics: None,
        logs: None,
        sampler: Sampler::ParentBased(Box::new(Sampler::AlwaysOn)),
        traced_per_second: Some(share::PER_SECOND),
        spans: BatchSettings { queue: QUEUE, batch: BATCH, every: SPANS_EVERY },
        lines: BatchSettings { queue: QUEUE, batch: BATCH, every: LINES_EVERY },
        metrics_every: METRICS_EVERY,
        warnings: Vec::new(),
    };
    if values.flag("OTEL_SDK_DISABLED") {
        plan.warnings = values.warnings;
        return Ok(plan);
    }
    let base = endpoint.or_else(|| values.text("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let mut to = |signal| destination::read(&mut values, signal, base);
    (plan.traces, plan.metrics, plan.logs) = (to(Signal::Traces)?, to(Signal::Metrics)?, to(Signal::Logs)?);
    if !plan.exports() {
        // Without an export the other warnings are irrelevant.
        plan.warnings = values.warnings;
        return Ok(plan);
    }
    if let Some(asked) = sampler(&mut values) {
        (plan.sampler, plan.traced_per_second) = (asked, None);
    }
    plan.spans = batches(&mut values, "OTEL_BSP", plan.spans, plan.traces.as_mut());
    plan.lines = batches(&mut values, "OTEL_BLRP", plan.lines, plan.logs.as_mut());
    plan.metrics_every = values.millis("OTEL_METRIC_EXPORT_INTERVAL", METRICS_EVERY);
    limit(plan.metrics.as_mut(), values.millis("OTEL_METRIC_EXPORT_TIMEOUT", BATCH_EXPORT_MAX));
    cannot(&mut values);
    plan.warnings = values.warnings;
    Ok(plan)
}

fn limit(destination: Option<&mut Destination>, export_max: Duration) {
    if let Some(destination) = destination {
        destination.timeout = destination.timeout.min(export_max);
    }
}

fn batches(
    values: &mut Values<'_>,
    prefix: &str,
    default: BatchSettings,
    to: Option<&mut Destination>,
) -> BatchSettings {
    let queue = values.count(&format!("{prefix}_MAX_QUEUE_SIZE"), default.queue, QUEUE_MAX);
    let batch = values.count(&format!("{prefix}_MAX_EXPORT_BATCH_SIZE"), default.batch.min(queue), queue);
    let every = values.millis(&format!("{prefix}_SCHEDULE_DELAY"), default.every);
    limit(to, values.millis(&format!("{prefix}_EXPORT_TIMEOUT"), BATCH_EXPORT_MAX));
    BatchSettings { queue, batch, every }
}

/// The sampler by the environment.
fn sampler(values: &mut Values<'_>) -> Option<Sampler> {
    const NAME: &str = "OTEL_TRACES_SAMPLER";
    let parent = |sampler| Some(Sampler::ParentBased(Box::new(sampler)));
    let name = values.text(NAME).unwrap_or_default().to_owned();
    let sampler = match name.as_str() {
        "" => None,
        "always_on" => Some(Sampler::AlwaysOn),
        "always_off" => Some(Sampler::AlwaysOff),
        "traceidratio" => Some(Sampler::TraceIdRatioBased(ratio(values))),
        "parentbased_always_on" => parent(Sampler::AlwaysOn),
        "parentbased_always_off" => parent(Sampler::AlwaysOff),
        "parentbased_traceidratio" => parent(Sampler::TraceIdRatioBased(ratio(values))),
        _ => {
            values.warn_ignored(
                NAME,
                "it should be always_on, always_off, traceidratio, or one of these with the prefix parentbased_; the \
                 default applies",
            );
            None
        }
    };
    if !name.ends_with("traceidratio") && values.text("OTEL_TRACES_SAMPLER_ARG").is_some() {
        values.warn_ignored("OTEL_TRACES_SAMPLER_ARG", "this sampler has no argument");
    }
    sampler
}

fn ratio(values: &mut Values<'_>) -> f64 {
    const NAME: &str = "OTEL_TRACES_SAMPLER_ARG";
    match values.text(NAME).map(str::parse::<f64>) {
        None => 1.0,
        Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => ratio,
        Some(_) => {
            values
                .warn_ignored(NAME, "it should be a number from 0 to 1, as 0.1 for every tenth trace; all are sampled");
            1.0
        }
    }
}

/// Warns of variables that neither callgate nor the SDK follows.
fn cannot(values: &mut Values<'_>) {
    let words = [
        (
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
            &["cumulative", "delta", "lowmemory"][..],
            "it should be cumulative, delta or lowmemory; it is cumulative",
        ),
        (
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
            &["explicit_bucket_histogram"],
            "histograms have fixed bounds",
        ),
        ("OTEL_METRICS_EXEMPLAR_FILTER", &["always_off"], "this SDK records no exemplars"),
        (
            "OTEL_PROPAGATORS",
            &["tracecontext", "tracecontext,baggage", "baggage,tracecontext"],
            "callers' traces are read from traceparent and tracestate",
        ),
    ];
    for (name, words, why) in words {
        values.warn_unless_one_of(name, words, why);
    }
    for name in values.ending_in("_INSECURE") {
        values.warn_ignored(&name, "the scheme of the endpoint decides: https:// with TLS, http:// without");
    }
    if values.text("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|text| text.split_terminator(',').any(|a| !a.contains('=')))
    {
        values
            .warn_ignored("OTEL_RESOURCE_ATTRIBUTES", "it should read name=value,name=value; other parts are dropped");
    }
    let unread = values.unread(&OF_THE_SDK);
    if !unread.is_empty() {
        values.warnings.push(format!("callgate does not read {}", unread.join(", ")));
    }
}

#[cfg(test)]
mod tests;
