//! Telemetry: log lines to stderr, and log lines, spans and metrics to a collector. This module owns OpenTelemetry and
//! knows the nouns it reports on; it must not know the store, the network's service, the gate or the engine. It has no
//! clock: durations come in as arguments.
//!
//! Nothing here holds up an answer: log lines, spans and metrics wait in bounded queues for threads of their own, and
//! an unavailable collector costs one log line.
//!
//! - `names`: every name of a span, metric, attribute and log field, once.
//! - `attributes`: the attributes of verdicts and reports, once for spans and log lines.
//! - `setup`: [`Telemetry::start`] installs it all, [`Telemetry::shutdown`] flushes it.
//! - `verdict`: the one log line of a decision or a report, and the span's attributes.
//! - `waits`: count of the `WAIT`s of a call.
//! - `policy`: the one log line of a policy that became active.
//! - `rpc`: the span and the duration of each call of a service.
//! - `sampling`: sampling of calls, decided as they come in; `share`: the default sampling rate.
//! - `spans`, `context`: the spans, hung below the caller's.
//! - `database`: the spans of database queries.
//! - `metrics`: counters, histograms and gauges; `bounded_set`: the limit on label values.
//! - `log_writer`: the thread that writes log lines.
//! - `logs`: the log lines as records, each in its trace; `audit_records`: audit entries as records.
//! - `scrape`: the same metrics in the text format of Prometheus.
//! - `environment`: the settings by `OTEL_*` variables.
//! - `otlp`, `post`, `watch`: the exporters, their HTTP client, and their timeouts and log lines.

#[macro_use]
mod attributes;

mod audit_records;
mod bounded_set;
pub mod context;
pub mod database;
mod environment;
mod error_texts;
mod log_writer;
mod logs;
pub mod metrics;
pub mod names;
mod otlp;
pub mod policy;
mod post;
pub mod rpc;
mod sampling;
mod scrape;
mod setup;
mod share;
mod spans;
#[cfg(test)]
mod testing;
pub mod verdict;
mod waits;
mod watch;

pub use audit_records::AuditExporter;
pub use metrics::Metrics;
pub use otlp::ProbeOutcome;
pub use scrape::Scrape;
pub use setup::{LineFormat, Telemetry, TelemetryError, TelemetrySettings, probe};
pub use spans::{batch_span, evaluate_span, record_span};
pub use waits::WaitTracker;
