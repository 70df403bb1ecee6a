//! What is said about the work, and to whom: log lines to stderr; these, spans and metrics to a collector. This room
//! owns OpenTelemetry and knows the nouns it reports on; it must not know the store, the network's service, the gate or
//! the engine. No clock either: durations come in as arguments.
//!
//! Nothing here may hold up an answer: log lines, spans and metrics wait in bounded queues for threads of their own,
//! and a collector that is away costs one log line.
//!
//! - `names`: every name that is said, once.
//! - `attributes`: what is said of a verdict and of a report, once for spans and log lines.
//! - `setup`: [`Telemetry::start`] installs it all, [`Telemetry::shutdown`] flushes it.
//! - `verdict`: the one log line of a decision or a report, and the span's attributes.
//! - `waits`: how often a call was told to wait.
//! - `policy`: the one log line of a policy that became active.
//! - `rpc`: the span and the duration of each call of a service.
//! - `door`: whether a call is traced, decided as it comes in; `share`: how many are.
//! - `spans`, `context`: the spans, hung below the caller's.
//! - `database`: the spans of what the database is asked.
//! - `metrics`: counters, histograms and gauges; `few`: whose figures are told apart.
//! - `lines`: the thread that writes log lines.
//! - `logs`: the log lines as records, each in its trace.
//! - `scrape`: the same figures, for who comes and asks.
//! - `environment`: what the standard's variables ask for.
//! - `otlp`, `post`, `watch`: the exporters, what those over HTTP send with, and who looks after them.

#[macro_use]
mod attributes;

pub mod context;
pub mod database;
mod door;
mod environment;
mod few;
mod lines;
mod logs;
pub mod metrics;
pub mod names;
mod otlp;
mod plain;
pub mod policy;
mod post;
pub mod rpc;
mod scrape;
mod setup;
mod share;
mod spans;
#[cfg(test)]
mod testing;
pub mod verdict;
mod waits;
mod watch;

pub use metrics::Metrics;
pub use otlp::ProbeOutcome;
pub use scrape::Scrape;
pub use setup::{LineFormat, Telemetry, TelemetryError, TelemetrySettings, probe};
pub use spans::{batch_span, evaluate_span, record_span};
pub use waits::WaitTracker;
