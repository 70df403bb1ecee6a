//! The spans of the store's batches, as telemetry makes them: neither knows the other.

use tracing::Span;

use crate::telemetry::database;
use callgate_store::BatchSpans;

/// Makes them for one database.
#[derive(Debug)]
pub(super) struct BatchTracer {
    /// The database and its schema.
    pub namespace: String,
}

impl BatchSpans for BatchTracer {
    fn begin_batch(&self, calls: &mut dyn Iterator<Item = &Span>, changes: usize) -> Span {
        database::batch_span(calls, changes, &self.namespace)
    }

    fn record_failure(&self, batch: &Span, why: &'static str, code: Option<&str>) {
        database::record_failure(batch, why, code);
    }
}
