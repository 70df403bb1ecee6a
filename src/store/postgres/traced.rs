//! Batch spans: an interface, so that the store is independent of telemetry.

use std::fmt;

use sqlx::postgres::PgConnectOptions;
use tracing::Span;

use super::{SCHEMA, writer::QueuedChange};

/// Creates a span for each batch.
pub trait BatchSpans: Send + Sync + fmt::Debug {
    /// Starts the span of a batch of `changes` changes, linked to these spans. It ends with the batch, or its last
    /// holder.
    fn begin_batch(&self, calls: &mut dyn Iterator<Item = &Span>, changes: usize) -> Span;

    /// Records a failure: `why` is of a closed set, `code` the SQLSTATE, if any.
    fn record_failure(&self, batch: &Span, why: &'static str, code: Option<&str>);
}

impl BatchSpans for () {
    fn begin_batch(&self, _: &mut dyn Iterator<Item = &Span>, _: usize) -> Span {
        Span::none()
    }

    fn record_failure(&self, _: &Span, _: &'static str, _: Option<&str>) {}
}

/// Database and schema, as named in telemetry.
#[must_use]
pub fn namespace(options: &PgConnectOptions) -> String {
    format!("{}|{SCHEMA}", options.get_database().unwrap_or_default())
}

/// The span of a batch, one chain per tree.
pub(super) fn begin_span(traced: &dyn BatchSpans, chains: &[Vec<QueuedChange>]) -> Span {
    let mut calls = chains.iter().flatten().map(|job| &job.span).filter(|span| !span.is_disabled());
    traced.begin_batch(&mut calls, chains.iter().map(Vec::len).sum())
}

/// The SQLSTATE of a database error.
pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}
