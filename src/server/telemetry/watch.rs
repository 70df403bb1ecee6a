//! Watch over the exporters, between them and the SDK: no export is waited for too long, and an outage of a collector
//! is logged once instead of at every export.

use std::{future::Future, sync::Arc, time::Duration};

use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    logs::{LogBatch, LogExporter},
    metrics::{Temporality, data::ResourceMetrics, exporter::PushMetricExporter},
    trace::{SpanData, SpanExporter},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::{runtime::Handle, select, sync::watch, time::sleep};

use super::{names, post::Cause};

/// Signal of OpenTelemetry.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signal {
    Traces = 1,
    Metrics = 2,
    Logs = 4,
}

impl Signal {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// Time to gather failing signals before an outage is logged: signals go by times of their own.
const GATHER: Duration = Duration::from_secs(2);

/// Health of the collector. An outage is logged once, with all signals that it hits at first, and once more for each
/// that it hits later. Its end is logged once, when every signal gets through again.
#[derive(Debug)]
struct Collector {
    endpoint: String,
    /// Likely cause of an outage, logged with it after a semicolon.
    hint: String,
    state: Mutex<State>,
}

/// One bit for each signal.
#[derive(Debug, Default)]
struct State {
    failing: u8,
    /// Signals whose failure was logged since everything got through.
    said: u8,
    /// Cause, until it is logged.
    cause: Option<String>,
}

impl Collector {
    fn new(endpoint: &str, hint: String) -> Self {
        Self { endpoint: endpoint.to_owned(), hint, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// An export of `signal` ended; `cause` is its failure, where the exporter has none. True where that begins a
    /// failure to log.
    fn saw(&self, signal: Signal, result: &OTelSdkResult, cause: Option<String>) -> bool {
        let bit = signal as u8;
        let mut state = self.state();
        match result {
            Err(error) => {
                state.failing |= bit;
                if state.said & bit != 0 || state.cause.is_some() {
                    return false;
                }
                state.cause = Some(cause.unwrap_or_else(|| error.to_string()));
                true
            }
            Ok(()) => {
                let was_last = state.failing == bit;
                state.failing &= !bit;
                if was_last && std::mem::take(&mut state.said) != 0 {
                    drop(state);
                    tracing::info!(
                        { names::OTLP_ENDPOINT } = self.endpoint,
                        "the collector at {} accepts all signals again",
                        self.endpoint,
                    );
                }
                false
            }
        }
    }

    /// Logs the failing signals that were not logged, if they still fail.
    fn log_failures(&self) {
        let (failing, cause) = {
            let mut state = self.state();
            let cause = state.cause.take();
            let failing = state.failing;
            if failing & !state.said == 0 {
                return;
            }
            state.said |= failing;
            (failing, cause.unwrap_or_default())
        };
        let signals = describe_signals(failing);
        tracing::warn!(
            { names::OTLP_ENDPOINT } = self.endpoint,
            { names::OTLP_SIGNAL } = signals,
            { names::ERROR } = cause,
            "the collector at {} accepts no {signals}: they are dropped until it does, and requests are not affected; \
             logged once{}",
            self.endpoint,
            self.hint,
        );
    }
}

/// The signals of these bits: `traces, metrics and logs`.
fn describe_signals(bits: u8) -> String {
    let all = [Signal::Traces, Signal::Metrics, Signal::Logs].into_iter().filter(|signal| bits & *signal as u8 != 0);
    let mut names: Vec<&str> = all.map(Signal::as_str).collect();
    match (names.pop(), names.as_slice()) {
        (Some(last), [_, ..]) => format!("{} and {last}", names.join(", ")),
        (last, _) => last.unwrap_or_default().to_owned(),
    }
}

/// The line to the collector.
#[derive(Debug, Clone)]
pub(super) struct CollectorLink {
    collector: Arc<Collector>,
    hung_up: watch::Receiver<bool>,
    runtime: Handle,
}

impl CollectorLink {
    /// A line to the collector at `endpoint` until it is `hung_up`, timed by `runtime`: the SDK's threads are not the
    /// runtime's, and know no timer.
    pub(super) fn new(endpoint: &str, hint: Option<String>, hung_up: watch::Receiver<bool>, runtime: Handle) -> Self {
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        Self { collector: Arc::new(Collector::new(endpoint, hint)), hung_up, runtime }
    }

    /// Logs at the end the failures that were not logged yet.
    pub(super) fn end(&self) {
        self.collector.log_failures();
    }

    /// Waits for an export, but for no longer than `limit`, nor after the line is hung up.
    async fn bound_export(
        &self,
        signal: Signal,
        limit: Duration,
        cause: &Cause,
        export: impl Future<Output = OTelSdkResult> + Send,
    ) -> OTelSdkResult {
        let mut hung_up = self.hung_up.clone();
        let too_long = {
            let _inside = self.runtime.enter();
            sleep(limit)
        };
        let result = select! {
            biased;
            // An error means that the other end is gone: hung up as well.
            _ = hung_up.wait_for(|up| *up) => Err(OTelSdkError::InternalFailure("cut off at the end".to_owned())),
            result = export => result,
            () = too_long => Err(OTelSdkError::Timeout(limit)),
        };
        let cause = cause.take();
        if self.collector.saw(signal, &result, cause.clone()) {
            let collector = Arc::clone(&self.collector);
            self.runtime.spawn(async move {
                sleep(GATHER).await;
                collector.log_failures();
            });
        }
        // Over HTTP the exporter's own text has no cause.
        match (result, cause) {
            (Err(_), Some(cause)) => Err(OTelSdkError::InternalFailure(cause)),
            (result, _) => result,
        }
    }
}

/// An exporter with a time limit, and one log line for an outage.
#[derive(Debug)]
pub(super) struct WatchedExporter<E> {
    exporter: E,
    signal: Signal,
    limit: Duration,
    line: CollectorLink,
    cause: Cause,
}

impl<E> WatchedExporter<E> {
    /// `exporter`, which sends `signal` over a line within `limit`, and leaves its causes there.
    pub(super) fn new(exporter: E, signal: Signal, limit: Duration, (line, cause): (CollectorLink, Cause)) -> Self {
        Self { exporter, signal, limit, line, cause }
    }

    async fn bound_export(&self, export: impl Future<Output = OTelSdkResult> + Send) -> OTelSdkResult {
        self.line.bound_export(self.signal, self.limit, &self.cause, export).await
    }
}

impl<E: SpanExporter> SpanExporter for WatchedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.bound_export(self.exporter.export(batch)).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for WatchedExporter<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.bound_export(self.exporter.export(batch)).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for WatchedExporter<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.bound_export(self.exporter.export(metrics)).await
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;
    use crate::telemetry::testing::log_work;

    fn collector() -> Collector {
        Collector::new("http://127.0.0.1:4317", String::new())
    }

    fn failure() -> OTelSdkResult {
        Err(OTelSdkError::InternalFailure("connection refused".to_owned()))
    }

    #[test]
    fn an_outage_is_said_once_with_all_that_it_hits_and_its_end_once() {
        let collector = collector();
        let lines = log_work(|| {
            let begins = (0..1_000).map(|_| {
                let traces = collector.saw(Signal::Traces, &failure(), None);
                u32::from(traces) + u32::from(collector.saw(Signal::Metrics, &failure(), None))
            });
            assert_eq!(begins.sum::<u32>(), 1);
            collector.log_failures();
            collector.log_failures();
            assert!(collector.saw(Signal::Logs, &failure(), None), "it hits another one later");
            collector.log_failures();
            for signal in [Signal::Metrics, Signal::Traces, Signal::Logs, Signal::Traces] {
                collector.saw(signal, &Ok(()), None);
            }
        });
        let said: Vec<_> = lines.iter().map(|line| (line.level, line.message())).collect();
        let down = |what: &str| {
            format!(
                "the collector at http://127.0.0.1:4317 accepts no {what}: they are dropped until it does, and \
                 requests are not affected; logged once"
            )
        };
        let up = "the collector at http://127.0.0.1:4317 accepts all signals again";
        let (both, all) = (down("traces and metrics"), down("traces, metrics and logs"));
        let warn = tracing::Level::WARN;
        assert_eq!(said, [(warn, both.as_str()), (warn, all.as_str()), (tracing::Level::INFO, up)]);
        let mut fields = lines.iter().flat_map(|line| line.fields.keys());
        assert!(fields.all(|name| *name == "message" || names::FIELDS.contains(name)), "{lines:?}");
        assert!(lines[0].fields[names::ERROR].contains("connection refused"));
    }

    #[test]
    fn short_failure_is_not_logged() {
        let collector = collector();
        let lines = log_work(|| {
            assert!(collector.saw(Signal::Traces, &failure(), None));
            collector.saw(Signal::Traces, &Ok(()), None);
            collector.log_failures();
        });
        assert_eq!(lines.len(), 0, "{lines:?}");
        assert!(collector.saw(Signal::Traces, &failure(), None), "the next one is");
    }

    #[test]
    fn a_collector_of_traces_only_is_no_outage_again_and_again() {
        let collector = collector();
        let lines = log_work(|| {
            for _ in 0..1_000 {
                collector.saw(Signal::Traces, &Ok(()), None);
                if collector.saw(Signal::Metrics, &failure(), None) {
                    collector.log_failures();
                }
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
    }

    #[tokio::test]
    async fn an_export_ends_in_time_or_when_the_line_is_hung_up() {
        let (hang_up, hung_up) = watch::channel(false);
        let line = CollectorLink::new("http://127.0.0.1:4317", None, hung_up, Handle::current());
        let cause = Cause::default();
        let bounded = |limit, export| line.bound_export(Signal::Traces, Duration::from_millis(limit), &cause, export);
        let never = || Box::pin(std::future::pending::<OTelSdkResult>()) as Pin<Box<dyn Future<Output = _> + Send>>;

        let late = bounded(10, never()).await;
        assert!(matches!(late, Err(OTelSdkError::Timeout(_))), "{late:?}");
        assert!(bounded(60_000, Box::pin(async { Ok(()) })).await.is_ok());
        hang_up.send_replace(true);
        let cut = bounded(60_000, never()).await;
        assert!(matches!(cut, Err(OTelSdkError::InternalFailure(_))), "{cut:?}");
    }
}
