//! Usage counts of tenants for quotas, and erasure of deleted tenants.

use sqlx::{AssertSqlSafe, PgConnection};
use tokio::time::Instant;

use super::{Store, decode::LoadedRow};
use crate::error::StoreError;
use callgate_core::domain::ids::TenantId;

/// Rows per erasing statement: a few milliseconds of uncontended locks.
const ERASED_AT_ONCE: i64 = 2_000;

/// Tables of a tenant except the surviving ones (its name, its audit log and the position of that one's export), by
/// partition.
const TABLES: &str = "select c.oid::regclass::text from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
    where c.relnamespace = 'callgate'::regnamespace and c.relkind = 'r'
      and c.relname not in ('tenant', 'audit', 'audit_head', 'audit_stream') order by 1";

impl Store {
    /// Counts a tenant's stored data, unless another replica did recently: at most every 15 seconds, and less often if
    /// counting is slow.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the previous counts stay.
    pub async fn count_usage(&self, tenant: TenantId) -> Result<(), StoreError> {
        self.slow.read(async |conn| count(conn, tenant).await).await
    }

    /// Erases some data of a deleted tenant; true when nothing is left.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn erase_tenant(&self, tenant: TenantId) -> Result<bool, StoreError> {
        let is_distributed = self.is_distributed;
        self.slow.read(async |conn| erase(conn, tenant, is_distributed).await).await
    }
}

async fn count(conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<()> {
    let claim = "update tenant set used_at = now() where tenant_id = $1
        and coalesce(used_at, '-infinity') < now() - interval '15 seconds' and state = 'active'";
    if sqlx::query(claim).bind(tenant.0).execute(&mut *conn).await?.rows_affected() == 0 {
        return Ok(());
    }
    let began = Instant::now();
    let counted = sqlx::query_as(
        "select (select count(*) from call_tree where tenant_id = $1)::bigint,
           (coalesce((select sum(pg_column_size(c.*)) from call c where tenant_id = $1), 0)
             + coalesce((select sum(pg_column_size(o.*)) from outcome o where tenant_id = $1), 0))::bigint",
    );
    let (sessions, bytes): (i64, i64) = counted.bind(tenant.0).fetch_one(&mut *conn).await?;
    // The next count is due after ten times the duration of this one: counting takes at most a tenth of the load.
    let set = "update tenant set used_sessions = $2, used_bytes = $3, used_at = now() + make_interval(secs => $4)
        where tenant_id = $1";
    let rests = began.elapsed().as_secs_f64() * 10.0;
    sqlx::query(set).bind(tenant.0).bind(sessions).bind(bytes).bind(rests).execute(conn).await?;
    Ok(())
}

async fn erase(conn: &mut PgConnection, tenant: TenantId, is_distributed: bool) -> LoadedRow<bool> {
    let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut *conn).await?;
    let mut is_done = true;
    for table in tables {
        // On a distributed database rows have no `ctid`, so everything is erased at once.
        let some = match is_distributed {
            true => format!("delete from {table} where tenant_id = $1 and $2::bigint > 0"),
            false => format!(
                "delete from {table} where ctid = any(array(
                   select ctid from {table} where tenant_id = $1 limit $2 for update skip locked))"
            ),
        };
        let erase = sqlx::query(AssertSqlSafe(some)).bind(tenant.0).bind(ERASED_AT_ONCE);
        is_done &= erase.execute(&mut *conn).await?.rows_affected() == 0;
    }
    Ok(is_done)
}
