//! Distribution of the schema by Citus: the rows of a call tree are colocated on the node of their shard, small tables
//! are replicated to every node. Idempotent; later runs include new tables.

use sqlx::{AssertSqlSafe, PgConnection, postgres::PgConnectOptions};

use super::{
    SCHEMA, maintain,
    tables::{TABLES, Table},
};
use crate::error::{OpenError, StoreError};

/// Result of `callgate database distribute`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistributionResult {
    /// Nodes that hold shards.
    pub workers: u32,
    /// Newly distributed tables.
    pub tables: Vec<&'static str>,
}

/// Migrates the schema on the coordinator, and distributes the rest.
///
/// # Errors
/// [`OpenError::Citus`] without the extension or a worker, or with connected servers: nothing was changed then. Others
/// as for opening a store.
pub async fn distribute(options: PgConnectOptions) -> Result<DistributionResult, OpenError> {
    let (mut conn, _) = super::connect::first(super::usual(options)).await?;
    let workers = workers(&mut conn).await?;
    // A server that wrote to one database would go on doing so.
    let writers = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name like 'callgate writer%'";
    let writers: i64 = sqlx::query_scalar(writers).fetch_one(&mut conn).await?;
    if writers > 0 && !is_distributed(&mut conn).await? {
        return Err(OpenError::Citus("servers are connected to it; stop them first"));
    }
    maintain::prepare(&mut conn).await?;
    let tables = distribute_tables(&mut conn).await?;
    Ok(DistributionResult { workers, tables })
}

async fn workers(conn: &mut PgConnection) -> Result<u32, OpenError> {
    let has_extension = sqlx::query_scalar("select exists (select from pg_extension where extname = 'citus')");
    if !has_extension.fetch_one(&mut *conn).await? {
        return Err(OpenError::Citus("it has no extension `citus`; create it there and on every worker"));
    }
    let workers = sqlx::query_scalar("select count(*) from citus_get_active_worker_nodes()");
    let workers: i64 = workers.fetch_one(conn).await?;
    match u32::try_from(workers) {
        Ok(workers) if workers > 0 => Ok(workers),
        _ => Err(OpenError::Citus("its coordinator knows no worker; add each with citus_add_node")),
    }
}

/// True for a distributed database.
pub(super) async fn is_distributed(conn: &mut PgConnection) -> Result<bool, StoreError> {
    let known = "select to_regclass('pg_dist_partition') is not null";
    if !sqlx::query_scalar(known).fetch_one(&mut *conn).await? {
        return Ok(false);
    }
    let cut = "select exists (select from pg_dist_partition where logicalrelid = to_regclass('call_tree'))";
    Ok(sqlx::query_scalar(cut).fetch_one(conn).await?)
}

/// Distributes the remaining tables; returns their names.
pub(super) async fn distribute_tables(conn: &mut PgConnection) -> Result<Vec<&'static str>, StoreError> {
    let (by_shard, everywhere): (Vec<&Table>, Vec<&Table>) = TABLES.iter().partition(|table| table.shard);
    let mut done = Vec::new();
    for &Table { name: table, shard, .. } in everywhere.into_iter().chain(by_shard) {
        // Equal shards lie together.
        let beside = if table == "call_tree" { "none".to_owned() } else { format!("{SCHEMA}.call_tree") };
        let call = match shard {
            true => format!("create_distributed_table('{SCHEMA}.{table}', 'shard', colocate_with => '{beside}')"),
            false => format!("create_reference_table('{SCHEMA}.{table}')"),
        };
        let known = "select exists (select from pg_dist_partition where logicalrelid = $1::regclass)";
        if sqlx::query_scalar(known).bind(format!("{SCHEMA}.{table}")).fetch_one(&mut *conn).await? {
            continue;
        }
        sqlx::query(AssertSqlSafe(format!("select {call}"))).execute(&mut *conn).await?;
        // Removes the coordinator's invisible copy of distributed rows.
        let emptied = format!("select truncate_local_data_after_distributing_table('{SCHEMA}.{table}')");
        sqlx::query(AssertSqlSafe(emptied)).execute(&mut *conn).await?;
        done.push(table);
    }
    // It is called on the node of a tree.
    let append = format!("select create_distributed_function('{SCHEMA}.audit_append(bigint, text, text[])')");
    sqlx::query(AssertSqlSafe(append)).execute(conn).await?;
    Ok(done)
}
