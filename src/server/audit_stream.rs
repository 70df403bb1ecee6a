//! Export of the audit log to the collector of log lines: every committed entry, in the order of its tenant.

use std::time::Duration;

use crate::{
    gate::{Gate, NoAnswer},
    telemetry::AuditExporter,
};

/// Entries of one export.
const ENTRIES_MAX: u32 = 500;
/// Lifetime of a claim, longer than an export may take (`OTEL_BLRP_EXPORT_TIMEOUT`). Entries that the collector did not
/// accept are exported again after it, by this replica or another.
const CLAIM: Duration = Duration::from_secs(45);

/// Exports all entries that no replica has exported.
pub(super) async fn export_entries(exporter: &AuditExporter, gate: &Gate) -> Result<(), NoAnswer> {
    while let Some(batch) = gate.store.claim_audit_batch(ENTRIES_MAX, CLAIM).await? {
        exporter.export(batch.tenant, &batch.entries, gate.store.now()).await.map_err(NoAnswer::Fault)?;
        if let Some(newest) = batch.entries.last() {
            gate.store.settle_audit_batch(batch.tenant, newest.number).await?;
        }
    }
    Ok(())
}
