//! Telemetry settings of a measured server.

use std::time::Duration;

use clap::ValueEnum;

/// Export interval, so that each round contains its own telemetry only.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// Telemetry of a measured server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TelemetryLevel {
    /// Defaults of a server with a collector: spans of some hundred calls a second, metrics and log lines, by gRPC
    Default,
    /// Spans of every call, metrics and log lines, by gRPC
    Grpc,
    /// The same over HTTP
    Http,
    /// Spans of one call in ten, metrics and log lines, by gRPC
    Tenth,
}

impl TelemetryLevel {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Default => "by default",
            Self::Grpc => "all traced",
            Self::Http => "all, by HTTP",
            Self::Tenth => "one in ten",
        }
    }

    /// Environment variables for export to the collector at `url`.
    pub(super) fn variables(self, url: String) -> Vec<(&'static str, String)> {
        let protocol = if self == Self::Http { "http/protobuf" } else { "grpc" };
        let every = SEND_EVERY.as_millis().to_string();
        let mut variables = vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY", every.clone()),
            ("OTEL_BLRP_SCHEDULE_DELAY", every.clone()),
            ("OTEL_METRIC_EXPORT_INTERVAL", every),
        ];
        let sampler: &[(&str, &str)] = match self {
            Self::Default => &[],
            Self::Grpc | Self::Http => &[("OTEL_TRACES_SAMPLER", "parentbased_always_on")],
            Self::Tenth => &[("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.1")],
        };
        variables.extend(sampler.iter().map(|(name, value)| (*name, (*value).to_owned())));
        variables
    }
}
