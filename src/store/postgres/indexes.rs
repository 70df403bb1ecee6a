//! Concurrent index builds on partitioned tables: a migration creates an index on the parent alone, and each existing
//! partition gets its own without blocking writes.

use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};

use super::{SCHEMA, decode::LoadedRow};

/// Advisory lock of the builder: `callgate` and a number, as a key.
const LOCK: i64 = 0x6361_6c6c_0002;

/// Missing partition indexes: `(partition, index, what follows USING)`. An invalid one, left by an interruption, is
/// recognized by its name.
const MISSING: &str = "select p.relname as partition, i.relname as index, h.inhrelid::regclass::text as at,
      substring(pg_get_indexdef(i.oid) from ' USING (.*)$') as method,
      to_regclass($1 || '.' || p.relname || '_' || i.relname)::text as half_built
    from pg_index x join pg_class i on i.oid = x.indexrelid and i.relkind = 'I' and not x.indisvalid
    join pg_inherits h on h.inhparent = x.indrelid join pg_class p on p.oid = h.inhrelid
    where i.relnamespace = $1::regnamespace and not exists (
      select from pg_inherits a join pg_index c on c.indexrelid = a.inhrelid
      where a.inhparent = x.indexrelid and c.indrelid = h.inhrelid)
    order by 1, 2";

/// Builds missing indexes, unless another replica does; returns their number. Slow.
pub(super) async fn build(conn: &mut PgConnection) -> LoadedRow<usize> {
    conn.execute("set statement_timeout = 0").await?;
    // The lock ends with the connection.
    if !sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(LOCK).fetch_one(&mut *conn).await? {
        return Ok(0);
    }
    let missing = sqlx::query(MISSING).bind(SCHEMA).fetch_all(&mut *conn).await?;
    for row in &missing {
        let (partition, index): (String, String) = (row.try_get("partition")?, row.try_get("index")?);
        let (at, method): (String, String) = (row.try_get("at")?, row.try_get("method")?);
        let name = format!("{partition}_{index}");
        if let Some(half_built) = row.try_get::<Option<String>, _>("half_built")? {
            conn.execute(AssertSqlSafe(format!("drop index concurrently {half_built}"))).await?;
        }
        conn.execute(AssertSqlSafe(format!("create index concurrently {name} on {at} using {method}"))).await?;
        let attach = format!("alter index {SCHEMA}.{index} attach partition {SCHEMA}.{name}");
        conn.execute(AssertSqlSafe(attach)).await?;
        tracing::info!(index = name, "built an index of a partition");
    }
    Ok(missing.len())
}
