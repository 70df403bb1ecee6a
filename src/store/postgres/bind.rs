//! Row-level security: a second guard of tenant isolation. Every table with a tenant shows the role `callgate_reader`
//! only rows of the tenants named by the connection. Reads use that role; views use the logged-in role instead.

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::SCHEMA;
use crate::error::StoreError;
use callgate_core::domain::ids::TenantId;

/// Role of reads.
const ROLE: &str = "callgate_reader";
/// Setting with the tenants of a connection.
const TENANTS: &str = "callgate.tenants";
/// Advisory lock for granting rights: `callgate` and a number, as a key.
const LOCK: i64 = 0x6361_6c6c_0002;

/// Policy of each table: rows of the tenants named for this read, or of those that the logged-in role may see through a
/// view. Evaluated once per table and statement.
const VISIBLE: &str = "tenant_id = any ((select case when current_user = 'callgate_reader'
  then string_to_array(current_setting('callgate.tenants', true), ',')::bigint[]
  else callgate.readable_tenants() end)::bigint[])";

/// Missing grants and policies of the role; none at most starts. Partitions are read by their own names.
const LACKING: &str = "with relation as (
    select c.oid, c.relname::text as name, c.relkind, c.relrowsecurity, c.relowner, exists (
        select from pg_attribute a
        where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped) as has_tenant
    from pg_class c where c.relnamespace = 'callgate'::regnamespace
      and c.relkind in ('r', 'p', 'v') and c.relname <> '_sqlx_migrations')
  select name, case when relkind = 'v' then 'view' when has_tenant then 'bound' else 'free' end
  from relation
  where case relkind
      when 'v' then relowner <> 'callgate_reader'::regrole
      else not has_table_privilege('callgate_reader', oid, 'select, insert, update, delete')
        or (has_tenant and not relrowsecurity) end
  order by relkind = 'v', name";

/// Grants the role its rights if missing; true when reads can use it.
///
/// # Errors
/// [`StoreError`] when the database cannot be asked.
pub(super) async fn prepare(conn: &mut PgConnection) -> Result<bool, StoreError> {
    let known = "select exists (select from pg_roles where rolname = 'callgate_reader')";
    if !sqlx::query_scalar(known).fetch_one(&mut *conn).await? {
        return Ok(false);
    }
    if let Err(error) = give(conn).await {
        tracing::warn!(%error, "the privileges of the role callgate_reader could not be granted");
        return Ok(false);
    }
    let acts = format!("set role {ROLE}; reset role");
    Ok(sqlx::raw_sql(AssertSqlSafe(acts)).execute(conn).await.is_ok())
}

async fn give(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    if sqlx::query(LACKING).fetch_optional(&mut *conn).await?.is_none() {
        return Ok(());
    }
    let mut tx = conn.begin().await?;
    tx.execute("set local lock_timeout = 15000").await?;
    sqlx::query("select pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await?;
    let lacking: Vec<(String, String)> = sqlx::query_as(LACKING).fetch_all(&mut *tx).await?;
    tx.execute(AssertSqlSafe(format!("grant usage, create on schema {SCHEMA} to {ROLE}"))).await?;
    for (name, kind) in lacking {
        let give = match kind.as_str() {
            "view" => format!("alter view {SCHEMA}.{name} owner to {ROLE}"),
            "bound" => format!(
                "alter table {SCHEMA}.{name} enable row level security;
                 drop policy if exists of_tenant on {SCHEMA}.{name};
                 create policy of_tenant on {SCHEMA}.{name} to {ROLE} using ({VISIBLE});
                 grant select, insert, update, delete on {SCHEMA}.{name} to {ROLE}"
            ),
            _ => format!("grant select, insert, update, delete on {SCHEMA}.{name} to {ROLE}"),
        };
        sqlx::raw_sql(AssertSqlSafe(give)).execute(&mut *tx).await?;
    }
    // It had to be able to make the views that it was given.
    tx.execute(AssertSqlSafe(format!("revoke create on schema {SCHEMA} from {ROLE}"))).await?;
    tx.commit().await
}

/// Restricts a connection to these tenants; without any, to those of the logged-in role.
pub(super) fn statement(whose: &[TenantId]) -> String {
    if whose.is_empty() {
        return format!("reset role; reset {TENANTS}");
    }
    let names: Vec<String> = whose.iter().map(|tenant| tenant.0.to_string()).collect();
    format!("set role {ROLE}; set {TENANTS} = '{}'", names.join(","))
}

/// True when reads can be restricted by the database; otherwise logs that.
pub(super) async fn is_bound(conn: &mut PgConnection, is_distributed: bool) -> Result<bool, StoreError> {
    // On a distributed database rows are read by the nodes' own login.
    if !is_distributed && prepare(conn).await? {
        return Ok(true);
    }
    let others: i64 = sqlx::query_scalar("select count(*) - 1 from tenant").fetch_one(conn).await?;
    let why = if is_distributed { "Citus distributes it" } else { "its user may not set the role callgate_reader" };
    if others > 0 {
        tracing::warn!(
            others,
            "row-level security is off in this database, since {why}: only callgate's statements separate tenants, and \
             analysts read the rows of all tenants"
        );
    } else {
        tracing::info!("row-level security is off in this database, since {why}; it has one tenant only");
    }
    Ok(false)
}
