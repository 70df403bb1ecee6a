//! Setup of telemetry: installs it, and flushes it at the end.

use std::{io::IsTerminal as _, sync::Arc};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::{metrics::SdkMeterProvider, trace::SdkTracer};
use tracing::{Level, Subscriber};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt as _, LevelFilter, filter_fn},
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::{SubscriberInitExt as _, TryInitError},
};

use super::{
    AuditExporter, Metrics, Scrape,
    environment::{self, OtelEnvironment},
    log_writer::{self, LogWriter},
    logs::Records,
    metrics, names,
    otlp::{self, Otlp, ProbeOutcome},
    sampling::TraceSampler,
    scrape,
    share::SampleShare,
};

/// Default filter of log lines.
const FILTER_DEFAULT: &str = "warn,callgate=info";

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LineFormat {
    /// For people; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object a line, every field at its top level.
    Json,
}

/// Settings of telemetry. The standard's `OTEL_*` variables are read too (docs/telemetry.md#setting-it-up).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Format of log lines.
    pub log_format: LineFormat,
    /// Directives as `tracing_subscriber::EnvFilter` reads them: `info,callgate::decision=debug`. None: warnings of
    /// all, and callgate's own lines from info.
    pub log_filter: Option<String>,
    /// The collector's address, as `http://host:4317`, before that of the environment. Without either there are no
    /// spans, and metrics only for scrapes.
    pub otlp_endpoint: Option<String>,
}

/// Errors of the installation of telemetry.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter is not one.
    #[error("the log filter {filter:?} cannot be read: {why}")]
    Filter {
        /// As given.
        filter: String,
        /// The fault.
        why: String,
    },
    /// The collector's address is not one.
    #[error("the OTLP endpoint {endpoint:?} cannot be used: {why}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// The fault.
        why: String,
    },
    /// A variable of the environment has an invalid value.
    #[error("{name} cannot be applied: {why}")]
    Variable {
        /// Its name; its value may be a secret.
        name: String,
        /// The fault and its fix.
        why: String,
    },
    /// The metrics cannot be served.
    #[error("metrics cannot be served at /metrics: {0}")]
    Scrape(String),
    /// Exporters need one to send with.
    #[error("spans and metrics can only be exported from within an async runtime")]
    NoRuntime,
    /// Something else listens to the process's log lines already.
    #[error("telemetry is installed already: {0}")]
    Installed(#[from] TryInitError),
}

/// Installed telemetry. Keep it until the end, then [`shutdown`](Self::shutdown); dropped earlier, it hangs up on the
/// collector.
#[derive(Debug)]
#[must_use]
pub struct Telemetry {
    metrics: Metrics,
    scrape: Scrape,
    otlp: Option<Otlp>,
    warnings: Vec<String>,
    /// Sampler of calls; none without spans.
    door: Option<TraceSampler>,
    /// Meter provider; dropped, no more metrics are exported.
    _meters: SdkMeterProvider,
    /// Writer of log lines; none in tests.
    lines: Option<LogWriter>,
}

impl Telemetry {
    /// Installs logging for the whole process and, with an OTLP endpoint, the export of spans and metrics. A collector
    /// that does not answer is no error: it may come later.
    ///
    /// # Errors
    /// [`TelemetryError`]: a setting is wrong, there is no async runtime for the exporters, or it was called before.
    pub fn start(settings: &TelemetrySettings) -> Result<Self, TelemetryError> {
        let environment = environment::of_process();
        let (writer, lines) = log_writer::start();
        let (subscriber, telemetry) = build(settings, &environment, writer, std::io::stderr().is_terminal())?;
        subscriber.try_init()?;
        let telemetry = Self { lines: Some(lines), ..telemetry };
        telemetry.door.iter().cloned().for_each(TraceSampler::guard);
        telemetry.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(telemetry)
    }

    /// The metrics to count with.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Exporter of audit entries; none where log lines are not exported.
    #[must_use]
    pub fn audit_exporter(&self) -> Option<Arc<AuditExporter>> {
        self.otlp.as_ref().and_then(|otlp| otlp.audit.clone())
    }

    /// The present metrics, in the text format of Prometheus.
    #[must_use]
    pub fn scrape(&self) -> Scrape {
        self.scrape.clone()
    }

    /// Sends the rest to the collector, within two seconds, and writes the waiting lines, within one; the rest is lost.
    pub async fn shutdown(self) {
        if let Some(otlp) = self.otlp {
            otlp.shutdown().await;
        }
        drop(self.lines);
    }
}

/// Probes the collectors of a server with this endpoint and this process's environment, by an empty export of each
/// signal. Returns the warnings about the environment too.
///
/// # Errors
/// [`TelemetryError`] when a server would not start with it.
pub async fn probe(endpoint: Option<&str>) -> Result<(Vec<ProbeOutcome>, Vec<String>), TelemetryError> {
    let plan = environment::read(&environment::of_process(), endpoint)?;
    Ok((otlp::probe(&plan).await?, plan.warnings))
}

/// Builds the parts that [`Telemetry::start`] installs, for tests on their own thread.
fn build<W>(
    settings: &TelemetrySettings,
    environment: &OtelEnvironment,
    writer: W,
    ansi: bool,
) -> Result<(Box<dyn Subscriber + Send + Sync>, Telemetry), TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = filter(settings.log_filter.as_deref())?;
    let (scrape, reader) = scrape::start().map_err(TelemetryError::Scrape)?;
    let meters =
        SdkMeterProvider::builder().with_view(metrics::of_many).with_resource(otlp::resource()).with_reader(reader);
    let plan = environment::read(environment, settings.otlp_endpoint.as_deref())?;
    let (otlp, meters) = if plan.exports() {
        let (otlp, meters) = otlp::start(&plan, meters)?;
        (Some(otlp), meters)
    } else {
        (None, meters.build())
    };
    let format = settings.log_format;
    // A line is complete by itself: without spans none is formatted for nothing.
    let events = filter_fn(|meta| meta.is_event());
    let (traces, logs) = otlp.as_ref().map_or((None, None), |otlp| (otlp.traces.as_ref(), otlp.logs.as_ref()));
    let subscriber: Box<dyn Subscriber + Send + Sync> = if traces.is_some() || logs.is_some() {
        // The hint keeps the filter's own level in force for all: without it every trace span of the HTTP/2 stack is
        // made and thrown away, a third of the server's time.
        let lines = lines_to(writer, format, ansi);
        let lines = lines.with_filter(filter.and(events.clone().with_max_level_hint(LevelFilter::TRACE)));
        let filter = self::filter(settings.log_filter.as_deref())?;
        let records = logs.map(Records::new);
        let records = records.with_filter(filter.and(events.with_max_level_hint(LevelFilter::TRACE)));
        let spans = traces.map(|traces| spans_to(traces.tracer(names::SERVICE)));
        Box::new(Registry::default().with(spans).with(lines).with(records))
    } else {
        // Here the filters stand over everything: where they stand over the lines alone, unwanted spans are made all
        // the same.
        Box::new(Registry::default().with(lines_to(writer, format, ansi)).with(events).with(filter))
    };
    let share = plan.traced_per_second.map(|calls| Arc::new(SampleShare::of(calls)));
    let door = plan.traces.is_some().then(|| TraceSampler { sampler: plan.sampler.clone(), share });
    let metrics = Metrics::new(&meters);
    metrics::process::observe(&meters);
    if let Some(share) = door.as_ref().and_then(|door| door.share.clone()) {
        share.observe(&meters);
    }
    let warnings = plan.warnings;
    Ok((subscriber, Telemetry { metrics, scrape, otlp, warnings, door, _meters: meters, lines: None }))
}

fn filter(directives: Option<&str>) -> Result<EnvFilter, TelemetryError> {
    let directives = directives.filter(|text| !text.trim().is_empty()).unwrap_or(FILTER_DEFAULT);
    let wrong = |why: String| TelemetryError::Filter { filter: directives.to_owned(), why };
    let filter = EnvFilter::builder().parse(directives).map_err(|error| wrong(error.to_string()))?;
    // OpenTelemetry logs every failed export; the exporters here log the first.
    let quiet = "opentelemetry=off".parse().map_err(|error| wrong(format!("{error}")))?;
    Ok(filter.add_directive(quiet))
}

fn lines_to<S, W>(writer: W, format: LineFormat, ansi: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = fmt::layer().with_writer(writer).with_ansi(ansi);
    match format {
        LineFormat::Text => lines.boxed(),
        LineFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    }
}

/// Our spans, with our warnings as their events. Spans of other crates are left out, those of the exporter's own
/// requests among them.
pub(super) fn spans_to<S>(tracer: SdkTracer) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let ours =
        filter_fn(|meta| meta.target().starts_with(names::SERVICE) && (meta.is_span() || *meta.level() <= Level::WARN));
    let layer: OpenTelemetryLayer<S, SdkTracer> = OpenTelemetryLayer::new(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false);
    layer.with_filter(ours.with_max_level_hint(LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{
        testing::{self, LogBuffer},
        verdict,
    };
    use callgate_core::domain::{finding::Decision, reason::Reason};

    fn write_settings(settings: &TelemetrySettings) -> String {
        let paper = LogBuffer::default();
        let (subscriber, telemetry) = build(settings, &OtelEnvironment::new(), paper.clone(), false).expect("built");
        tracing::subscriber::with_default(subscriber, || {
            let proposal = testing::proposal("charge_card");
            let span = crate::telemetry::evaluate_span(&http::HeaderMap::new());
            span.in_scope(|| {
                verdict::log_verdict(&testing::allow(), &proposal, 0, []);
                let refused = testing::refused_verdict(Decision::Deny, "same_call", Reason::OutcomeUnknown);
                verdict::log_verdict(&refused, &proposal, 0, []);
                tracing::info!(target: "sqlx::query", "select 1");
                tracing::error!(target: "opentelemetry_sdk", "BatchSpanProcessor.ExportError");
            });
        });
        telemetry.metrics().conflict("version");
        paper.text()
    }

    fn json(filter: Option<&str>) -> TelemetrySettings {
        TelemetrySettings { log_format: LineFormat::Json, log_filter: filter.map(str::to_owned), otlp_endpoint: None }
    }

    #[test]
    fn json_is_one_object_a_line_with_dotted_fields() {
        let text = write_settings(&json(None));
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [line] = lines.as_slice() else { panic!("{text}") };
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["message"], "deny charge_card: outcome_unknown (same_call)");
        assert_eq!(line["target"], names::TARGET_DECISION);
        assert_eq!(line[names::DECISION], "DENY");
        assert_eq!(line[names::RULE], "same_call");
        assert_eq!(line[names::SEQ], 41);
        assert_eq!(line[names::REPLAYED], false);
        assert!(line.get(names::WOULD).is_none());
        assert!(line["timestamp"].is_string());
    }

    #[test]
    fn text_says_the_same_without_colours_in_a_file() {
        let text = write_settings(&TelemetrySettings::default());
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(" INFO callgate::decision: deny charge_card: outcome_unknown (same_call) "), "{text}");
        assert!(text.contains(r#"callgate.decision="DENY""#), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn the_filter_is_what_is_asked_for() {
        let lines = |filter| write_settings(&json(Some(filter))).lines().count();
        assert_eq!(lines("callgate::decision=debug"), 2);
        assert_eq!(lines("info"), 2, "ours and the query");
        assert_eq!(lines("off"), 0);
        assert_eq!(lines(" "), 1, "an empty filter is none");
        assert_eq!(lines("trace"), 3, "whatever is asked for, the SDK's own lines stay out");
    }

    #[test]
    fn without_a_collector_no_span_is_made() {
        let (subscriber, _telemetry) =
            build(&TelemetrySettings::default(), &OtelEnvironment::new(), std::io::sink, false).expect("built");
        tracing::subscriber::with_default(subscriber, || {
            let headers = http::HeaderMap::new();
            assert!(crate::telemetry::evaluate_span(&headers).span().is_disabled());
            assert!(crate::telemetry::record_span(&headers).span().is_disabled());
        });
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let none = OtelEnvironment::new();
        let error = |settings: TelemetrySettings| {
            build(&settings, &none, std::io::sink, false).map(|_| ()).unwrap_err().to_string()
        };
        assert!(error(json(Some("callgate=loud"))).starts_with(r#"the log filter "callgate=loud" cannot be read: "#));
        for endpoint in ["collector:4317", "grpc://collector:4317", "http://", "http://a b"] {
            let settings =
                TelemetrySettings { otlp_endpoint: Some(endpoint.to_owned()), ..TelemetrySettings::default() };
            let said = tokio::runtime::Runtime::new().unwrap().block_on(async { error(settings) });
            assert!(said.starts_with(&format!("the OTLP endpoint {endpoint:?} cannot be used: ")), "{said}");
        }
        let settings = TelemetrySettings {
            otlp_endpoint: Some("http://127.0.0.1:4317".to_owned()),
            ..TelemetrySettings::default()
        };
        assert_eq!(error(settings), TelemetryError::NoRuntime.to_string());
    }
}
