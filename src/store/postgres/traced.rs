//! The spans of batches: who makes them is none of the store's business.

use std::fmt;

use sqlx::postgres::PgConnectOptions;
use tracing::Span;

use super::{SCHEMA, writer::Job};

/// Makes a span of each batch that is sent.
pub trait Traced: Send + Sync + fmt::Debug {
    /// A batch of so many changes is about to be sent, for who has these spans; the span that it gives ends with the
    /// batch, or with the last who keeps it.
    fn begun(&self, calls: &mut dyn Iterator<Item = &Span>, changes: usize) -> Span;

    /// It was not stored: `why` is of a closed set, and `code` the SQLSTATE, if the database said one.
    fn failed(&self, batch: &Span, why: &'static str, code: Option<&str>);
}

impl Traced for () {
    fn begun(&self, _: &mut dyn Iterator<Item = &Span>, _: usize) -> Span {
        Span::none()
    }

    fn failed(&self, _: &Span, _: &'static str, _: Option<&str>) {}
}

/// The database and its schema, as telemetry names them.
#[must_use]
pub fn namespace(options: &PgConnectOptions) -> String {
    format!("{}|{SCHEMA}", options.get_database().unwrap_or_default())
}

/// The span of a batch, one chain a tree.
pub(super) fn begun(traced: &dyn Traced, chains: &[Vec<Job>]) -> Span {
    let mut calls = chains.iter().flatten().map(|job| &job.span).filter(|span| !span.is_disabled());
    traced.begun(&mut calls, chains.iter().map(Vec::len).sum())
}

/// The SQLSTATE of an error of the database.
pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}
