//! Log lines as records for the collector, each in the trace of its span.

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use tracing::{Event, Metadata, Subscriber, subscriber::Interest};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::{names, sampling};

/// Bridge of log lines to OpenTelemetry. It does not learn of spans as they are entered, which would cost every poll of
/// every call; so each line gets its trace here.
pub(super) struct Records(OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>);

impl Records {
    pub(super) fn new(provider: &SdkLoggerProvider) -> Self {
        Self(OpenTelemetryTracingBridge::new(provider))
    }
}

impl<S> Layer<S> for Records
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::<S>::register_callsite(&self.0, metadata)
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        // Audit entries are exported by themselves, with their numbers and until the collector has them.
        if event.metadata().target() == names::TARGET_AUDIT {
            return;
        }
        let _trace = sampling::current().attach();
        Layer::<S>::on_event(&self.0, event, context);
    }
}
