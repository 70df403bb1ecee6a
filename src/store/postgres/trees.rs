//! Deletion of whole call trees, for retention and erasure. A tree's own row goes first: a concurrent append waits,
//! finds nothing, and starts a new tree.

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{
    codes::UNKNOWN,
    decode::{LoadedRow, decode, name},
    tables::{self, RetentionRule},
};
use callgate_core::domain::{
    ids::{SessionId, TenantId},
    shard::Shard,
    time::Timestamp,
};

/// Trees per statement.
const PAGE: i64 = 2_000;

/// Position in the key order of trees.
#[derive(Debug, Clone)]
pub(super) struct TreeKey {
    shard: i16,
    tenant: i64,
    root: String,
}

impl TreeKey {
    /// Before the first tree.
    pub(super) const fn start() -> Self {
        Self { shard: -1, tenant: 0, root: String::new() }
    }
}

/// Row of a tree.
#[derive(Debug, Clone)]
pub(super) struct StoredTree {
    pub(super) place: TreeKey,
    /// Epoch, in days since the Unix epoch.
    pub(super) epoch: i32,
    /// Last activity.
    pub(super) last_at: Timestamp,
    /// Number of requested calls.
    pub(super) steps: u64,
}

impl StoredTree {
    pub(super) const fn tenant(&self) -> TenantId {
        TenantId(self.place.tenant)
    }
}

/// Result of a deletion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeletedCounts {
    pub(super) trees: u64,
    /// Number of judgments and reports.
    pub(super) rows: u64,
}

/// The next trees after a position; empty at the end.
pub(super) async fn page(conn: &mut PgConnection, after: &TreeKey) -> LoadedRow<Vec<StoredTree>> {
    let page = sqlx::query(
        "select shard, tenant_id, root_id, epoch - date '1970-01-01' as day, steps,
           (extract(epoch from last_at) * 1000)::bigint as last_ms
         from call_tree where (shard, tenant_id, root_id) > ($1, $2, $3) order by 1, 2, 3 limit $4",
    );
    let page = page.bind(after.shard).bind(after.tenant).bind(&after.root).bind(PAGE);
    let head = |row: &PgRow| {
        Ok(StoredTree {
            place: TreeKey {
                shard: row.try_get("shard")?,
                tenant: row.try_get("tenant_id")?,
                root: row.try_get("root_id")?,
            },
            epoch: row.try_get("day")?,
            last_at: decode(row, "last_ms")?,
            steps: decode(row, "steps")?,
        })
    };
    page.fetch_all(conn).await?.iter().map(head).collect()
}

/// Condition that nothing retains a tree `t` at `now` (milliseconds): no running call, no open approval request, no
/// `once` write with an unknown outcome, no uncounted retry.
fn is_done(now: &str) -> String {
    let of_tree = "s.shard = t.shard and s.tenant_id = t.tenant_id and s.root_id = t.root_id";
    let same = |alias: &str| {
        format!(
            "{alias}.shard = s.shard and {alias}.tenant_id = s.tenant_id and {alias}.epoch = t.epoch
               and {alias}.session_id = s.session_id"
        )
    };
    format!(
        "t.open_calls = 0
         and not exists (select from session s join call c on {c} where {of_tree}
           and c.approval_id is not null and c.approval_expires_at > to_timestamp({now} / 1000.0))
         and not exists (select from session s join outcome o on {o} join call c on {c} and c.seq = o.permit_seq
           where {of_tree} and o.status = {UNKNOWN} and c.once and not exists (
             select from outcome n where n.shard = o.shard and n.tenant_id = o.tenant_id and n.epoch = o.epoch
               and n.session_id = o.session_id and n.permit_seq = o.permit_seq and n.seq > o.seq))
         and not exists (select from session s join retry_trial w on {w} where {of_tree})",
        c = same("c"),
        o = same("o"),
        w = same("w"),
    )
}

/// Deletes those trees that have been inactive since `silent` (per tree) and have nothing open, in one transaction.
/// `with_calls` includes their calls and outcomes, which otherwise go with their month.
pub(super) async fn delete_silent(
    conn: &mut PgConnection,
    heads: &[(&StoredTree, Timestamp)],
    now: Timestamp,
    with_calls: bool,
) -> LoadedRow<DeletedCounts> {
    let mut tx = sqlx::Connection::begin(conn).await?;
    let delete = format!(
        "delete from call_tree t using unnest($1::int2[], $2::int8[], $3::text[], $4::int8[])
           as x(shard, tenant_id, root_id, before_ms)
         where t.shard = x.shard and t.tenant_id = x.tenant_id and t.root_id = x.root_id
           and t.last_at < to_timestamp(x.before_ms / 1000.0) and {}
         returning t.shard, t.tenant_id, t.root_id, t.epoch - date '1970-01-01' as day",
        is_done("$5::int8")
    );
    let of = |head: &&StoredTree| head.place.clone();
    let places: Vec<TreeKey> = heads.iter().map(|(head, _)| of(head)).collect();
    let before: Vec<i64> = heads.iter().map(|(_, before)| before.as_millis()).collect();
    let delete = sqlx::query(AssertSqlSafe(delete))
        .bind(places.iter().map(|place| place.shard).collect::<Vec<_>>())
        .bind(places.iter().map(|place| place.tenant).collect::<Vec<_>>())
        .bind(places.iter().map(|place| place.root.clone()).collect::<Vec<_>>())
        .bind(before)
        .bind(now.as_millis());
    let gone = delete.fetch_all(&mut *tx).await?;
    let tree = |row: &PgRow| {
        Ok((row.try_get("shard")?, row.try_get("tenant_id")?, row.try_get("root_id")?, row.try_get("day")?))
    };
    let gone: Vec<DeletedTree> = gone.iter().map(tree).collect::<LoadedRow<_>>()?;
    let rows = delete_below(&mut tx, &gone, with_calls).await?;
    tx.commit().await?;
    Ok(DeletedCounts { trees: gone.len() as u64, rows })
}

/// A tree with a deleted row: shard, tenant, root, epoch in days since the Unix epoch.
pub(super) type DeletedTree = (i16, i64, String, i32);

/// Deletes everything below trees whose rows were deleted in this transaction, so that no call can join them. Returns
/// the number of judgments and reports.
pub(super) async fn delete_below(conn: &mut PgConnection, trees: &[DeletedTree], with_calls: bool) -> LoadedRow<u64> {
    let (shards, tenants): (Vec<i16>, Vec<i64>) = trees.iter().map(|tree| (tree.0, tree.1)).unzip();
    let (roots, days): (Vec<&str>, Vec<i32>) = trees.iter().map(|tree| (tree.2.as_str(), tree.3)).unzip();
    for table in tables::ending(RetentionRule::WithTree) {
        let sql = format!(
            "delete from {table} d using unnest($1::int2[], $2::int8[], $3::text[]) as x(shard, tenant_id, root_id)
             where d.shard = x.shard and d.tenant_id = x.tenant_id and d.root_id = x.root_id"
        );
        sqlx::query(AssertSqlSafe(sql)).bind(&shards).bind(&tenants).bind(&roots).execute(&mut *conn).await?;
    }
    let sessions = sqlx::query(
        "delete from session s using unnest($1::int2[], $2::int8[], $3::text[], $4::int4[])
           as x(shard, tenant_id, root_id, day)
         where s.shard = x.shard and s.tenant_id = x.tenant_id and s.root_id = x.root_id
         returning s.shard, s.tenant_id, s.session_id, s.root_id, x.day",
    );
    let sessions = sessions.bind(&shards).bind(&tenants).bind(&roots).bind(days).fetch_all(&mut *conn).await?;
    let mut of = Sessions::default();
    for row in &sessions {
        of.push(row)?;
    }
    // The rows by which sub-sessions are found, in the shards of their names.
    let names = sqlx::query(
        "delete from session s using unnest($1::int2[], $2::int8[], $3::text[], $4::text[])
           as x(shard, tenant_id, session_id, root_id)
         where s.shard = x.shard and s.tenant_id = x.tenant_id and s.session_id = x.session_id
           and s.root_id = x.root_id",
    );
    names.bind(&of.own_shards).bind(&of.tenants).bind(&of.names).bind(&of.roots).execute(&mut *conn).await?;
    let mut rows = 0;
    for table in tables::ending(RetentionRule::WithMonth).filter(|_| with_calls) {
        let sql = format!(
            "delete from {table} d using unnest($1::int2[], $2::int8[], $3::int4[], $4::text[])
               as x(shard, tenant_id, day, session_id)
             where d.shard = x.shard and d.tenant_id = x.tenant_id and d.epoch = date '1970-01-01' + x.day
               and d.session_id = x.session_id"
        );
        let delete = sqlx::query(AssertSqlSafe(sql)).bind(&of.shards).bind(&of.tenants).bind(&of.days).bind(&of.names);
        rows += delete.execute(&mut *conn).await?.rows_affected();
    }
    Ok(rows)
}

/// Sessions of trees, by column.
#[derive(Debug, Default)]
struct Sessions {
    shards: Vec<i16>,
    own_shards: Vec<i16>,
    tenants: Vec<i64>,
    names: Vec<String>,
    roots: Vec<String>,
    days: Vec<i32>,
}

impl Sessions {
    fn push(&mut self, row: &PgRow) -> LoadedRow<()> {
        let (tenant, session): (i64, String) = (row.try_get("tenant_id")?, row.try_get("session_id")?);
        self.own_shards.push(Shard::of(TenantId(tenant), &name(SessionId::parse, &session)?).0);
        self.shards.push(row.try_get("shard")?);
        self.tenants.push(tenant);
        self.names.push(session);
        self.roots.push(row.try_get("root_id")?);
        self.days.push(row.try_get("day")?);
        Ok(())
    }
}
