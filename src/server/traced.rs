//! The spans of the store's batches, as telemetry makes them: neither knows the other.

use tracing::Span;

use crate::telemetry::database;
use callgate_store::Traced;

/// Makes them for one database.
#[derive(Debug)]
pub(super) struct Batches {
    /// The database and its schema.
    pub namespace: String,
}

impl Traced for Batches {
    fn begun(&self, calls: &mut dyn Iterator<Item = &Span>, changes: usize) -> Span {
        database::batch_span(calls, changes, &self.namespace)
    }

    fn failed(&self, batch: &Span, why: &'static str, code: Option<&str>) {
        database::failed(batch, why, code);
    }
}
