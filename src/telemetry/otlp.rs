//! otlp: sends spans, metrics and log lines to a collector, over gRPC. Spans and lines wait in bounded queues and are
//! dropped when those are full; metrics are sums, so a lost export is made good by the next. All are sent by threads of
//! the SDK's own, and never is an answer held up.
//!
//! There are no retries: the next export is the retry, and what Postgres holds is the record.

use std::time::Duration;

use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, RetryPolicy, SpanExporter, WithExportConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    logs::{BatchConfigBuilder as LogBatches, BatchLogProcessor, SdkLoggerProvider},
    metrics::{MeterProviderBuilder, PeriodicReader, SdkMeterProvider},
    trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider},
};
use tokio::{
    pin,
    runtime::Handle,
    sync::{oneshot, watch},
    time::timeout,
};
use tonic::transport::{Certificate, ClientTlsConfig};

use super::{
    names,
    setup::TelemetryError,
    watch::{EXPORT_MAX, Line, Signal, Watched},
};

/// Spans, and lines, that wait to be sent; more are dropped.
const QUEUE_MAX: usize = 4_096;
/// Spans, or lines, of one export.
const BATCH_MAX: usize = 512;
/// Longest time to send what is left at the end.
const FLUSH_MAX: Duration = Duration::from_millis(1_500);
/// After that, longest time for the exporters to notice that nobody waits.
const HANG_UP_MAX: Duration = Duration::from_millis(500);

/// The standard's own variable: a file with the authorities that a collector's certificate may be of, beside the public
/// ones.
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";

/// The exporters at work.
#[derive(Debug)]
pub(super) struct Otlp {
    pub(super) traces: SdkTracerProvider,
    pub(super) logs: SdkLoggerProvider,
    meters: SdkMeterProvider,
    hang_up: watch::Sender<bool>,
}

/// Starts to export to the collector at `endpoint`, whether it answers or not; gives what `meters` counts with, too.
pub(super) fn start(endpoint: &str, meters: MeterProviderBuilder) -> Result<(Otlp, SdkMeterProvider), TelemetryError> {
    let wrong = |why: String| TelemetryError::Endpoint { endpoint: endpoint.to_owned(), why };
    let refused = |error: ExporterBuildError| wrong(error.to_string());
    let uri: http::Uri = endpoint.parse().map_err(|error| wrong(format!("{error}")))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it should read http://host:port or https://host:port".to_owned()));
    }
    let is_https = uri.scheme_str() == Some("https");
    let tls = is_https.then(tls).transpose().map_err(wrong)?;
    let runtime = Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let (hang_up, hung_up) = watch::channel(false);
    let line = Line::new(endpoint, hung_up, runtime);

    macro_rules! exporter {
        ($exporter:ty) => {{
            let builder = <$exporter>::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_MAX);
            let builder = builder.with_retry_policy(RetryPolicy::disabled());
            match &tls {
                Some(tls) => builder.with_tls_config(tls.clone()).build(),
                None => builder.build(),
            }
            .map_err(refused)?
        }};
    }
    let (spans, metrics, lines) = (exporter!(SpanExporter), exporter!(MetricExporter), exporter!(LogExporter));

    let batches = BatchConfigBuilder::default().with_max_queue_size(QUEUE_MAX).with_max_export_batch_size(BATCH_MAX);
    let processor = BatchSpanProcessor::new(Watched::new(spans, Signal::Traces, line.clone()), batches.build());
    let batches = LogBatches::default().with_max_queue_size(QUEUE_MAX).with_max_export_batch_size(BATCH_MAX);
    let lines = BatchLogProcessor::builder(Watched::new(lines, Signal::Logs, line.clone()));
    let lines = lines.with_batch_config(batches.build()).build();
    let logs = SdkLoggerProvider::builder().with_resource(resource()).with_log_processor(lines).build();
    let reader = PeriodicReader::builder(Watched::new(metrics, Signal::Metrics, line)).build();
    let meters = meters.with_reader(reader).build();
    let traces = SdkTracerProvider::builder().with_resource(resource()).with_span_processor(processor).build();
    Ok((Otlp { traces, logs, meters: meters.clone(), hang_up }, meters))
}

impl Otlp {
    /// Sends what is left, within [`FLUSH_MAX`] and [`HANG_UP_MAX`].
    pub(super) async fn shutdown(self) {
        let Self { traces, logs, meters, hang_up } = self;
        // The SDK's shutdown blocks, and a blocked thread of the runtime could not send what is waited for.
        let traces = apart(move || traces.shutdown_with_timeout(FLUSH_MAX + HANG_UP_MAX));
        let meters = apart(move || meters.shutdown_with_timeout(FLUSH_MAX + HANG_UP_MAX));
        let logs = apart(move || logs.shutdown_with_timeout(FLUSH_MAX + HANG_UP_MAX));
        let flushed = async {
            let _ = traces.await;
            let _ = logs.await;
            let _ = meters.await;
        };
        pin!(flushed);
        if timeout(FLUSH_MAX, &mut flushed).await.is_err() {
            hang_up.send_replace(true);
            let _ = timeout(HANG_UP_MAX, flushed).await;
        }
    }
}

/// How a collector behind `https` is known.
fn tls() -> Result<ClientTlsConfig, String> {
    let tls = ClientTlsConfig::new().with_enabled_roots();
    let Some(path) = std::env::var_os(CERTIFICATE) else { return Ok(tls) };
    let read = std::fs::read(&path);
    let authorities = read.map_err(|error| format!("{CERTIFICATE} {} cannot be read: {error}", path.display()))?;
    Ok(tls.ca_certificate(Certificate::from_pem(authorities)))
}

/// Runs `work` on a thread of its own. Not on one of the runtime's: the end of the process would wait for those.
fn apart(work: impl FnOnce() -> OTelSdkResult + Send + 'static) -> oneshot::Receiver<()> {
    let (done, finished) = oneshot::channel();
    let thread = std::thread::Builder::new().name("callgate-flush".to_owned()).spawn(move || {
        // What went wrong was said by the exporter.
        let _ = work();
        let _ = done.send(());
    });
    // Without a thread the sender is gone, and nothing is waited for.
    drop(thread);
    finished
}

/// Who sends: told to the collector with everything. Replicas must differ, or their sums would overwrite each other.
pub(super) fn resource() -> Resource {
    static INSTANCE: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| uuid::Uuid::now_v7().to_string());
    let given = Resource::builder().build();
    let mut ours = vec![KeyValue::new(names::SERVICE_VERSION, env!("CARGO_PKG_VERSION"))];
    if given.get(&Key::from_static_str(names::SERVICE_INSTANCE_ID)).is_none() {
        ours.push(KeyValue::new(names::SERVICE_INSTANCE_ID, INSTANCE.as_str()));
    }
    Resource::builder().with_service_name(names::SERVICE).with_attributes(ours).build()
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
