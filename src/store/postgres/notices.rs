//! Webhook notifications of approval requests: one replica claims each. Times are the database's.

use std::time::Duration;

use sqlx::Row as _;

use super::{
    Store,
    decode::{LoadedRow, decode},
};
use crate::error::StoreError;
use callgate_core::domain::{ids::TenantId, time::Timestamp};

/// A claimed notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedNotification {
    /// The approval request.
    pub approval_id: String,
    /// Number of attempts, this one included.
    pub attempts: u32,
}

/// Result of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Notifications for this replica to send.
    pub mine: Vec<ClaimedNotification>,
    /// Notifications sent before, by any replica.
    pub told: Vec<String>,
}

impl Store {
    /// Claims the first `max` of these requests that are neither notified nor claimed, for a time. Each comes with its
    /// expiry.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: none was claimed, or the result is unknown.
    pub async fn claim_notices(
        &self,
        tenant: TenantId,
        questions: &[(String, Timestamp)],
        (max, lasts): (usize, Duration),
    ) -> Result<Claims, StoreError> {
        let (ids, ends): (Vec<&str>, Vec<i64>) =
            questions.iter().map(|(id, expires)| (id.as_str(), expires.as_millis())).unzip();
        let told = "select approval_id from approval_notice
            where tenant_id = $1 and approval_id = any($2) and delivered_at is not null";
        let told = sqlx::query_scalar(told).bind(tenant.0).bind(ids.clone());
        // In one order, so that two replicas wait for each other and never in a circle.
        let sql = "insert into approval_notice as n (tenant_id, approval_id, claimed_until, next_at, expires_at)
            select $1, q.id, now() + $4 * interval '1 second', now(), to_timestamp(q.ends / 1000.0)
              from unnest($2::text[], $3::bigint[]) with ordinality as q (id, ends, nr)
              left join approval_notice o on o.tenant_id = $1 and o.approval_id = q.id
              where o.approval_id is null
                or o.delivered_at is null and o.next_at <= now() and o.claimed_until <= now()
              order by q.nr limit $5
            on conflict (tenant_id, approval_id) do update
              set claimed_until = excluded.claimed_until, attempts = n.attempts + 1
              where n.delivered_at is null and n.next_at <= now() and n.claimed_until <= now()
            returning approval_id, attempts";
        let claim = sqlx::query(sql).bind(tenant.0).bind(ids).bind(ends).bind(seconds(lasts));
        let claim = claim.bind(i64::try_from(max).unwrap_or(i64::MAX));
        let claimed = |row: &sqlx::postgres::PgRow| {
            Ok(ClaimedNotification { approval_id: row.try_get("approval_id")?, attempts: decode(row, "attempts")? })
        };
        self.readers
            .read(async |conn| {
                let told = told.fetch_all(&mut *conn).await?;
                let mine: LoadedRow<Vec<ClaimedNotification>> =
                    claim.fetch_all(conn).await?.iter().map(claimed).collect();
                Ok(Claims { mine: mine?, told })
            })
            .await
    }

    /// Records a delivery; or, with `again`, a retry after that time. Deletes obsolete rows.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: it may be sent once more.
    pub async fn note_notice(
        &self,
        tenant: TenantId,
        approval_id: &str,
        again: Option<Duration>,
    ) -> Result<(), StoreError> {
        let update = "update approval_notice set claimed_until = now(),
              delivered_at = case when $3::bigint is null then now() end,
              next_at = now() + coalesce($3, 0) * interval '1 second'
            where tenant_id = $1 and approval_id = $2";
        let update = sqlx::query(update).bind(tenant.0).bind(approval_id).bind(again.map(seconds));
        let old = "delete from approval_notice where tenant_id = $1 and expires_at < now() - interval '1 day'";
        let delete = sqlx::query(old).bind(tenant.0);
        self.readers
            .read(async |conn| {
                update.execute(&mut *conn).await?;
                Ok(delete.execute(conn).await.map(drop)?)
            })
            .await
    }
}

fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}
