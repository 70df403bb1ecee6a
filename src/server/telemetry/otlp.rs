//! OTLP exporters: send spans, metrics and log lines to collectors, by gRPC or over HTTP. Spans and lines wait in
//! bounded queues and are dropped when those are full; metrics are sums, so the next export makes up for a lost one.
//! Threads of the SDK's own send all of them, and never hold up an answer.
//!
//! There are no retries: the next export is the retry, and Postgres holds the record.

use std::{sync::Arc, time::Duration};

use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, Protocol as Spoken, RetryPolicy, SpanExporter,
    WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    logs::{BatchConfigBuilder as LogBatches, BatchLogProcessor, LogBatch, LogExporter as _, SdkLoggerProvider},
    metrics::{
        MeterProviderBuilder, PeriodicReader, SdkMeterProvider, data::ResourceMetrics,
        exporter::PushMetricExporter as _,
    },
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanExporter as _},
};
use tokio::{
    pin,
    runtime::Handle,
    sync::{oneshot, watch},
    time::timeout,
};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::{
    audit_records::AuditExporter,
    environment::{Destination, DestinationTls, ExportPlan, Protocol},
    error_texts::plain,
    names,
    post::{Cause, CollectorClient},
    setup::TelemetryError,
    watch::{CollectorLink, Signal, WatchedExporter},
};

/// Longest time to send the rest at shutdown.
const FLUSH_MAX: Duration = Duration::from_millis(1_500);
/// After that, longest time for the exporters to notice the hang-up.
const HANG_UP_MAX: Duration = Duration::from_millis(500);

/// The exporters at work.
#[derive(Debug)]
pub(super) struct Otlp {
    pub(super) traces: Option<SdkTracerProvider>,
    pub(super) logs: Option<SdkLoggerProvider>,
    pub(super) audit: Option<Arc<AuditExporter>>,
    meters: SdkMeterProvider,
    hang_up: watch::Sender<bool>,
    lines: Vec<CollectorLink>,
}

/// The lines to collectors, one for each of them.
struct CollectorConnections {
    runtime: Handle,
    hung_up: watch::Receiver<bool>,
    lines: Vec<(String, CollectorLink)>,
}

impl CollectorConnections {
    fn to(&mut self, destination: &Destination) -> CollectorLink {
        let collector = destination.collector();
        if let Some((_, line)) = self.lines.iter().find(|(to, _)| *to == collector) {
            return line.clone();
        }
        let line = CollectorLink::new(&collector, destination.hint(), self.hung_up.clone(), self.runtime.clone());
        self.lines.push((collector, line.clone()));
        line
    }
}

/// The exporter of one signal, by the protocol of its destination.
macro_rules! exporter {
    ($signal:expr, $exporter:ty, $to:expr, $lines:expr) => {{
        let to: &Destination = $to;
        let refused = |error: ExporterBuildError| unusable(to, error.to_string());
        let line = $lines.to(to);
        let cause = Cause::default();
        let (endpoint, builder) = (to.endpoint.to_string(), <$exporter>::builder());
        let exporter = match to.protocol {
            Protocol::Grpc => {
                let builder = builder.with_tonic().with_endpoint(endpoint).with_timeout(to.timeout);
                let builder = builder.with_retry_policy(RetryPolicy::disabled());
                match &to.tls {
                    Some(given) => builder.with_tls_config(tls(given)).build(),
                    None => builder.build(),
                }
            }
            Protocol::Http => {
                let client = CollectorClient::new(to, $lines.runtime.clone(), cause.clone());
                let client = client.map_err(|why| unusable(to, why))?;
                let builder = builder.with_http().with_endpoint(endpoint).with_timeout(to.timeout);
                let builder = builder.with_retry_policy(RetryPolicy::disabled()).with_protocol(Spoken::HttpBinary);
                builder.with_http_client(client).build()
            }
        };
        WatchedExporter::new(exporter.map_err(refused)?, $signal, to.timeout, (line, cause))
    }};
}

/// Starts the exports of the plan, whether collectors respond or not; returns the provider of `meters`, too.
pub(super) fn start(
    plan: &ExportPlan,
    meters: MeterProviderBuilder,
) -> Result<(Otlp, SdkMeterProvider), TelemetryError> {
    let runtime = Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let (hang_up, hung_up) = watch::channel(false);
    let mut lines = CollectorConnections { runtime, hung_up, lines: Vec::new() };

    let traces = plan.traces.as_ref().map(|to| -> Result<_, TelemetryError> {
        let exporter = exporter!(Signal::Traces, SpanExporter, to, lines);
        let batches = BatchConfigBuilder::default().with_max_queue_size(plan.spans.queue);
        let batches = batches.with_max_export_batch_size(plan.spans.batch).with_scheduled_delay(plan.spans.every);
        let processor = BatchSpanProcessor::new(exporter, batches.build());
        let provider = SdkTracerProvider::builder().with_resource(resource());
        // Only sampled spans get so far.
        let provider = provider.with_sampler(Sampler::AlwaysOn);
        Ok(provider.with_span_processor(processor).build())
    });
    let traces = traces.transpose()?;
    let logs = plan.logs.as_ref().map(|to| -> Result<_, TelemetryError> {
        let exporter = exporter!(Signal::Logs, LogExporter, to, lines);
        let batches = LogBatches::default().with_max_queue_size(plan.lines.queue);
        let batches = batches.with_max_export_batch_size(plan.lines.batch).with_scheduled_delay(plan.lines.every);
        let processor = BatchLogProcessor::builder(exporter).with_batch_config(batches.build()).build();
        Ok(SdkLoggerProvider::builder().with_resource(resource()).with_log_processor(processor).build())
    });
    let logs = logs.transpose()?;
    let audit = plan.logs.as_ref().map(|to| -> Result<_, TelemetryError> {
        Ok(Arc::new(AuditExporter::new(exporter!(Signal::Logs, LogExporter, to, lines))))
    });
    let audit = audit.transpose()?;
    let meters = match &plan.metrics {
        None => meters,
        Some(to) => {
            let exporter = exporter!(Signal::Metrics, MetricExporter, to, lines);
            meters.with_reader(PeriodicReader::builder(exporter).with_interval(plan.metrics_every).build())
        }
    };
    let meters = meters.build();
    let lines = lines.lines.into_iter().map(|(_, line)| line).collect();
    Ok((Otlp { traces, logs, audit, meters: meters.clone(), hang_up, lines }, meters))
}

/// Sends an empty export of each signal, with the clients of [`start`]: the signal, its endpoint, and the collector's
/// rejection.
pub(super) async fn probe(plan: &ExportPlan) -> Result<Vec<ProbeOutcome>, TelemetryError> {
    let runtime = Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let (_hang_up, hung_up) = watch::channel(false);
    let mut lines = CollectorConnections { runtime, hung_up, lines: Vec::new() };
    let mut probed = Vec::new();
    let mut told = |signal: Signal, to: &Destination, said: OTelSdkResult| {
        let hint = to.hint().map_or_else(String::new, |hint| format!("; {hint}"));
        let refused = said.err().map(|error| format!("{}{hint}", plain(&error.to_string())));
        probed.push(ProbeOutcome { signal: signal.as_str(), endpoint: to.endpoint.to_string(), refused });
    };
    if let Some(to) = &plan.traces {
        let exporter = exporter!(Signal::Traces, SpanExporter, to, lines);
        told(Signal::Traces, to, exporter.export(Vec::new()).await);
    }
    if let Some(to) = &plan.metrics {
        let exporter = exporter!(Signal::Metrics, MetricExporter, to, lines);
        told(Signal::Metrics, to, exporter.export(&ResourceMetrics::default()).await);
    }
    if let Some(to) = &plan.logs {
        let exporter = exporter!(Signal::Logs, LogExporter, to, lines);
        told(Signal::Logs, to, exporter.export(LogBatch::new(&[])).await);
    }
    Ok(probed)
}

/// Result of a probe of a signal's destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutcome {
    /// `traces`, `metrics` or `logs`.
    pub signal: &'static str,
    /// Its endpoint.
    pub endpoint: String,
    /// The collector's rejection; none where it accepts the signal.
    pub refused: Option<String>,
}

impl Otlp {
    /// Sends the rest, within [`FLUSH_MAX`] and [`HANG_UP_MAX`].
    pub(super) async fn shutdown(self) {
        let Self { traces, logs, meters, hang_up, lines, .. } = self;
        // The SDK's shutdown blocks, and a blocked thread of the runtime could not send the rest.
        let longest = FLUSH_MAX + HANG_UP_MAX;
        let traces = traces.map(|traces| run_on_thread(move || traces.shutdown_with_timeout(longest)));
        let logs = logs.map(|logs| run_on_thread(move || logs.shutdown_with_timeout(longest)));
        let meters = run_on_thread(move || meters.shutdown_with_timeout(longest));
        let flushed = async {
            for signal in [traces, logs, Some(meters)].into_iter().flatten() {
                let _ = signal.await;
            }
        };
        pin!(flushed);
        if timeout(FLUSH_MAX, &mut flushed).await.is_err() {
            hang_up.send_replace(true);
            let _ = timeout(HANG_UP_MAX, flushed).await;
        }
        lines.iter().for_each(CollectorLink::end);
    }
}

fn unusable(to: &Destination, why: String) -> TelemetryError {
    TelemetryError::Endpoint { endpoint: to.endpoint.to_string(), why }
}

/// TLS settings for a collector behind `https`.
fn tls(given: &DestinationTls) -> ClientTlsConfig {
    let mut tls = ClientTlsConfig::new().with_enabled_roots();
    if let Some(authorities) = &given.authorities {
        tls = tls.ca_certificate(Certificate::from_pem(authorities));
    }
    match &given.identity {
        Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
        None => tls,
    }
}

/// Runs `work` on a thread of its own. Not on one of the runtime's: the end of the process would wait for those.
fn run_on_thread(work: impl FnOnce() -> OTelSdkResult + Send + 'static) -> oneshot::Receiver<()> {
    let (done, finished) = oneshot::channel();
    let thread = std::thread::Builder::new().name("callgate-flush".to_owned()).spawn(move || {
        // The exporter has logged its errors.
        let _ = work();
        let _ = done.send(());
    });
    // Without a thread the sender is gone, and nothing is waited for.
    drop(thread);
    finished
}

/// Resource of this process, sent with every export. Replicas must differ, or their sums would overwrite each other.
pub(super) fn resource() -> Resource {
    static INSTANCE: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| uuid::Uuid::now_v7().to_string());
    let given = Resource::builder().build();
    let mut ours = vec![KeyValue::new(names::SERVICE_VERSION, env!("CARGO_PKG_VERSION"))];
    if given.get(&Key::from_static_str(names::SERVICE_INSTANCE_ID)).is_none() {
        ours.push(KeyValue::new(names::SERVICE_INSTANCE_ID, INSTANCE.as_str()));
    }
    // The SDK names a service without a name by its program.
    let name = given.get(&Key::from_static_str(names::SERVICE_NAME)).map(|name| name.to_string());
    if name.is_none_or(|name| name.is_empty() || name.starts_with("unknown_service")) {
        ours.push(KeyValue::new(names::SERVICE_NAME, names::SERVICE));
    }
    Resource::builder().with_attributes(ours).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_names_the_service_its_version_and_its_replica() {
        let resource = resource();
        let get = |name: &'static str| resource.get(&Key::from_static_str(name)).map(|value| value.to_string());
        assert_eq!(get("service.name").as_deref(), Some("callgate"));
        assert_eq!(get(names::SERVICE_VERSION).as_deref(), Some(env!("CARGO_PKG_VERSION")));
        assert!(get(names::SERVICE_INSTANCE_ID).is_some_and(|id| !id.is_empty()));
    }
}
