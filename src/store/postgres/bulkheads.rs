//! Leases of calls in flight under concurrency limits. One row per limit serializes its claims.

use super::Store;
use crate::error::StoreError;
use callgate_core::domain::{
    bulkhead::{BulkheadClaim, BulkheadTurn},
    ids::{CallId, SessionId, TenantId},
    time::Timestamp,
};

impl Store {
    /// Gives a call its turn under a limit.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; a lease that it may have committed expires.
    pub async fn claim_bulkhead(&self, tenant: TenantId, claim: &BulkheadClaim) -> Result<BulkheadTurn, StoreError> {
        let now = self.now();
        let place: i64 = self
            .readers
            .read_of(&[tenant], async |conn| {
                let claimed = sqlx::query_scalar("select bulkhead_claim($1, $2, $3, $4, $5, $6, $7, $8)")
                    .bind(tenant.0)
                    .bind(&*claim.limit)
                    .bind(i64::from(claim.max))
                    .bind(claim.session.as_str())
                    .bind(claim.call_id.as_str())
                    .bind(&claim.fingerprint.0[..])
                    .bind(now.as_millis())
                    .bind(claim.until.as_millis());
                Ok(claimed.fetch_one(conn).await?)
            })
            .await?;
        Ok(u64::try_from(place).map_or(BulkheadTurn::InFlight { is_new: false }, |place| match place {
            0 => BulkheadTurn::InFlight { is_new: true },
            place => BulkheadTurn::Queued { place },
        }))
    }

    /// Ends the leases of a call.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the leases then expire.
    pub async fn release_bulkheads(
        &self,
        tenant: TenantId,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<(), StoreError> {
        let release =
            "delete from bulkhead_lease where tenant_id = $1 and session_id = $2 and call_id = $3 and in_flight";
        self.readers
            .read_of(&[tenant], async |conn| {
                let release = sqlx::query(release).bind(tenant.0).bind(session.as_str()).bind(call_id.as_str());
                release.execute(conn).await?;
                Ok(())
            })
            .await
    }

    /// Extends the leases of a call.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the leases then end before the call's.
    pub async fn extend_bulkheads(
        &self,
        tenant: TenantId,
        session: &SessionId,
        call_id: &CallId,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let extend = "update bulkhead_lease set lease_until = greatest(lease_until, to_timestamp($4 / 1000.0))
            where tenant_id = $1 and session_id = $2 and call_id = $3 and in_flight";
        self.readers
            .read_of(&[tenant], async |conn| {
                let extend = sqlx::query(extend).bind(tenant.0).bind(session.as_str()).bind(call_id.as_str());
                extend.bind(until.as_millis()).execute(conn).await?;
                Ok(())
            })
            .await
    }
}
