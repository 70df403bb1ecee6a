//! Stored calls for a policy trial: the call trees, then each tree's calls in pages.

use sqlx::{PgConnection, Row as _};

use super::{
    super::{
        Store,
        decode::{LoadedRow, count, decode},
        sealed::Opener,
    },
    JUDGED_LAST, STORED, call, outcome,
};
use crate::error::StoreError;
use callgate_core::domain::{
    ids::{SessionId, TenantId},
    inbox::StoredCall,
    shard::Shard,
    time::Timestamp,
};

/// Calls per page. Each has arguments of at most a megabyte and a result of a quarter.
const PAGE: i64 = 32;

/// A call tree with matching calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedTree {
    /// Its root.
    pub root: SessionId,
    /// Number of matching calls.
    pub calls: u64,
}

impl Store {
    /// The call trees of the newest `max` requested calls in this period, oldest first; whether there are more, and
    /// when the oldest of these calls was judged, in microseconds.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tried_trees(
        &self,
        tenant: TenantId,
        (since, until): (Timestamp, Timestamp),
        max: u32,
    ) -> Result<(Vec<TriedTree>, bool, i64), StoreError> {
        self.slow.read_of(&[tenant], async |conn| trees(conn, tenant, (since, until), max).await).await
    }

    /// A page of a tree's calls after an event, from this microsecond on and before `until`, in order; and whether
    /// there may be more.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tried_calls(
        &self,
        tenant: TenantId,
        root: &SessionId,
        after: u64,
        (since_us, until): (i64, Timestamp),
    ) -> Result<(Vec<StoredCall>, bool), StoreError> {
        let opener = self.opener(tenant);
        self.slow.read_of(&[tenant], async |conn| calls(conn, &opener, root, after, (since_us, until)).await).await
    }
}

/// The newest calls, by the index `call_lately`.
async fn trees(
    conn: &mut PgConnection,
    tenant: TenantId,
    (since, until): (Timestamp, Timestamp),
    max: u32,
) -> LoadedRow<(Vec<TriedTree>, bool, i64)> {
    let sql = format!(
        "with newest as materialized (
           select c.root_id, c.at from call c
           where c.tenant_id = $1 and not c.observed and c.at >= to_timestamp($2 / 1000.0)
             and c.at < to_timestamp($3 / 1000.0) and {JUDGED_LAST}
           order by c.at desc limit $4 + 1),
         cut as (select n.at from newest n order by n.at desc offset $4 limit 1)
         select n.root_id, count(*) as calls, exists (select from cut) as is_more,
           (extract(epoch from min(n.at)) * 1000000)::bigint as first_us
         from newest n where n.at > coalesce((select at from cut), '-infinity')
         group by n.root_id order by min(n.at), n.root_id"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(tenant.0).bind(since.as_millis()).bind(until.as_millis());
    let rows = rows.bind(i64::from(max)).fetch_all(conn).await?;
    let (mut trees, mut is_more, mut since_us) = (Vec::with_capacity(rows.len()), false, i64::MAX);
    for row in &rows {
        is_more = row.try_get("is_more")?;
        since_us = since_us.min(row.try_get("first_us")?);
        trees.push(TriedTree { root: decode(row, "root_id")?, calls: count(row, "calls")? });
    }
    Ok((trees, is_more, since_us))
}

async fn calls(
    conn: &mut PgConnection,
    opener: &Opener,
    root: &SessionId,
    after: u64,
    (since_us, until): (i64, Timestamp),
) -> LoadedRow<(Vec<StoredCall>, bool)> {
    let tenant = opener.tenant();
    let sql = format!(
        "select {STORED}
         from (
           select c.* from call_tree t
           join session s on s.shard = t.shard and s.tenant_id = t.tenant_id and s.root_id = t.root_id
           cross join lateral (
             select c.* from call c
             where c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
               and c.session_id = s.session_id and c.seq > $4
               and c.at >= timestamptz 'epoch' + $5 * interval '1 microsecond'
               and c.at < to_timestamp($6 / 1000.0) and {JUDGED_LAST}
             order by c.seq limit $7) c
           where t.shard = $1 and t.tenant_id = $2 and t.root_id = $3
           order by c.seq limit $7) c {}
         order by c.seq",
        outcome()
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(Shard::of(tenant, root).0)
        .bind(tenant.0)
        .bind(root.as_str())
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(since_us)
        .bind(until.as_millis())
        .bind(PAGE)
        .fetch_all(conn)
        .await?;
    let calls = rows.iter().map(|row| call(row, opener)).collect::<LoadedRow<_>>()?;
    Ok((calls, rows.len() as i64 == PAGE))
}
