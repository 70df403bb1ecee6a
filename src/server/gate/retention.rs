//! Retention: deletes data past its retention period on one replica at a time, logged and counted.

use std::{collections::BTreeMap, time::Duration};

use super::{NoAnswer, Privacy, privacy::KEPT};
use callgate_core::domain::{ids::TenantId, tenant::TenantState, time::Timestamp};
use callgate_store::Clocks;

impl Privacy {
    /// The database's time, and this machine's.
    #[must_use]
    pub fn times(&self) -> (Timestamp, Timestamp) {
        (self.store.now(), self.server.clock.now())
    }

    /// Deletes the data past its retention period by these [`Privacy::times`], if it is time for that, the clocks
    /// agree, and no other replica does; true when this one did. To be called now and then, by every replica. It may
    /// take long: it goes slowly, so that agents do not feel it.
    ///
    /// # Errors
    /// [`NoAnswer`]: the rest is deleted the next time.
    pub async fn delete_old(&self, (now, server): (Timestamp, Timestamp)) -> Result<bool, NoAnswer> {
        let Some(deleted) = self.store.delete_old(now, server).await? else { return Ok(false) };
        let mut told: BTreeMap<TenantId, Vec<String>> = BTreeMap::new();
        for ((tenant, kind), rows) in deleted {
            self.server.metrics.record_deletions(kind, rows);
            told.entry(tenant).or_default().push(format!("{kind} {rows}"));
        }
        for (tenant, kinds) in told {
            tracing::info!(tenant = tenant.0, "deleted, since it was past its term: {}", kinds.join(", "));
        }
        Ok(true)
    }

    /// Compares the clocks of retention, and reports their difference. To be called each minute, by every replica.
    ///
    /// # Errors
    /// [`NoAnswer`]: the clocks are not trusted until the next run.
    pub async fn look_at_clocks(&self, (now, server): (Timestamp, Timestamp)) -> Result<Clocks, NoAnswer> {
        let clocks = self.store.look_at_clocks(now, server).await?;
        let held_back = Duration::from_millis(clocks.gap_ms);
        self.server.metrics.clocks(Duration::from_millis(clocks.apart_ms.unsigned_abs()), held_back);
        if !clocks.agree() {
            let apart = clocks.apart_ms / 1_000;
            tracing::error!("this server's clock is {apart} s from the database's: it deletes nothing past its term");
        }
        Ok(clocks)
    }

    /// Counts the stored data of tenants with quotas on it, and erases that of deleted ones, a part at a time. To be
    /// called now and then, by every replica: one of them counts.
    ///
    /// # Errors
    /// [`NoAnswer`]: the rest is done the next time.
    pub async fn look_after_tenants(&self) -> Result<(), NoAnswer> {
        self.store.drop_marks(KEPT).await?;
        for tenant in self.server.tenants() {
            if tenant.state == TenantState::Deleted && !self.erased.lock().contains(&tenant.id) {
                if self.store.erase_tenant(tenant.id).await? {
                    self.erased.lock().insert(tenant.id);
                }
            } else if tenant.quotas.sessions.is_some() || tenant.quotas.stored_bytes.is_some() {
                self.store.count_usage(tenant.id).await?;
            }
        }
        Ok(())
    }

    /// Counts the tenants with a retention period, and all tenants.
    #[must_use]
    pub fn with_terms(&self) -> (usize, usize) {
        let tenants = self.server.tenants();
        let has_terms = tenants.iter().filter(|tenant| tenant.terms != Default::default()).count();
        (has_terms, tenants.len())
    }
}
