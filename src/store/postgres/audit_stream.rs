//! Audit entries for a collector, each tenant's in the order of their numbers. One replica at a time exports those of a
//! tenant; an entry counts as exported once the collector has accepted it, so that it may get an entry twice, and never
//! misses one.

use std::time::Duration;

use sqlx::Row as _;

use super::{Store, audit::open_entry, decode::count, row::big};
use crate::error::StoreError;
use callgate_core::domain::{audit::ChainEntry, ids::TenantId};

/// The next entries of a tenant.
#[derive(Debug)]
pub struct AuditBatch {
    /// The tenant.
    pub tenant: TenantId,
    /// At least one, by number.
    pub entries: Vec<ChainEntry>,
}

impl Store {
    /// Claims the next entries that were not exported, for the time `lasts`: those of one tenant, the one that was
    /// claimed longest ago. None when all are exported or claimed.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; a claim that was made ends by itself.
    pub async fn claim_audit_batch(&self, max: u32, lasts: Duration) -> Result<Option<AuditBatch>, StoreError> {
        let claim = sqlx::query(
            "insert into audit_stream as s (tenant_id, number, claimed_until)
               select h.tenant_id, 0, now() + $1 * interval '1 second'
               from audit_head h left join audit_stream d on d.tenant_id = h.tenant_id
               where h.number > coalesce(d.number, 0) and coalesce(d.claimed_until, '-infinity') < now()
               order by d.claimed_until nulls first limit 1
             on conflict (tenant_id) do update set claimed_until = excluded.claimed_until
               where s.claimed_until < now()
             returning tenant_id, number",
        );
        let claim = claim.bind(lasts.as_secs_f64());
        let claimed = self.readers.read(async |conn| {
            let Some(row) = claim.fetch_optional(conn).await? else { return Ok(None) };
            Ok(Some((TenantId(row.try_get("tenant_id")?), count(&row, "number")?)))
        });
        let Some((tenant, exported)) = claimed.await? else { return Ok(None) };
        let page = sqlx::query(
            "select *, (extract(epoch from at) * 1000000)::bigint as at_us from audit
             where tenant_id = $1 and number > $2 order by number limit $3",
        );
        let page = page.bind(tenant.0).bind(big(exported)).bind(i64::from(max));
        let opener = self.opener(tenant);
        let tenants = [tenant];
        let entries = self.readers.read_of(&tenants, async |conn| {
            page.fetch_all(conn).await?.iter().map(|row| open_entry(&opener, row)).collect()
        });
        let entries: Vec<ChainEntry> = entries.await?;
        Ok(Some(AuditBatch { tenant, entries }).filter(|batch| !batch.entries.is_empty()))
    }

    /// Notes that the collector has accepted a tenant's entries up to `number`, and ends the claim.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; then they are exported again.
    pub async fn settle_audit_batch(&self, tenant: TenantId, number: u64) -> Result<(), StoreError> {
        let settle = sqlx::query(
            "update audit_stream set number = greatest(number, $2), claimed_until = now() where tenant_id = $1",
        );
        let settle = settle.bind(tenant.0).bind(big(number));
        self.readers.read(async |conn| Ok(settle.execute(conn).await.map(drop)?)).await
    }
}
