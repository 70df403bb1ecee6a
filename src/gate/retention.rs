//! What is past its term: deleted by one replica at a time, told in the log and counted.

use std::collections::BTreeMap;

use super::{Gate, NoAnswer};
use callgate_core::domain::{ids::TenantId, time::Timestamp};

impl Gate {
    /// Deletes what is past its term at `now`, if it is time for that and no other replica does; true when this one
    /// did. To be called now and then, by every replica. It may take long: it goes slowly, so that agents do not feel
    /// it.
    ///
    /// # Errors
    /// [`NoAnswer`]: the rest is deleted the next time.
    pub async fn delete_old(&self, now: Timestamp) -> Result<bool, NoAnswer> {
        let Some(deleted) = self.store.delete_old(now).await? else { return Ok(false) };
        let mut told: BTreeMap<TenantId, Vec<String>> = BTreeMap::new();
        for ((tenant, kind), rows) in deleted {
            self.metrics.deleted(kind, rows);
            told.entry(tenant).or_default().push(format!("{kind} {rows}"));
        }
        for (tenant, kinds) in told {
            tracing::info!(tenant = tenant.0, "deleted, since it was past its term: {}", kinds.join(", "));
        }
        Ok(true)
    }

    /// How many of the tenants that are served have terms, and how many there are.
    #[must_use]
    pub fn with_terms(&self) -> (usize, usize) {
        let tenants = self.tenants();
        let has_terms = tenants.iter().filter(|tenant| tenant.terms != Default::default()).count();
        (has_terms, tenants.len())
    }
}
