//! Batched point queries: rows by key for many callers at once.

use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{
    columns,
    decode::{self, LoadedRow, at, count, decode},
    load::ShardSplit,
    row::LedgerRowOut,
};
use callgate_core::domain::{
    fingerprint::LedgerKey,
    ids::{SessionId, TenantId},
    ledger::LedgerRow,
    shard::Shard,
    time::Timestamp,
};

/// A session and its parent, which counts for an unknown session.
pub(super) type SessionKey = (TenantId, SessionId, Option<SessionId>);

/// The call tree of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTree {
    /// Its root.
    pub root: SessionId,
    /// Its day of birth, in days since the Unix epoch, for a root only: a sub-session may be in another shard than its
    /// tree.
    pub by_parent: bool,
    /// Its day of birth, in days since the Unix epoch, for a root: a sub-session may be in another shard than its tree.
    pub epoch: Option<i32>,
}

/// The root of a session; none for an unknown session.
pub(super) async fn root(
    conn: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
) -> LoadedRow<Option<SessionId>> {
    let found = find(conn, &[(tenant, session.clone(), None)], ShardSplit::ByShard).await?;
    Ok(found.into_iter().next().transpose()?.flatten().map(|found| found.root))
}

/// The request index of a row: `no`, from 1.
pub(super) fn request_index(row: &PgRow) -> LoadedRow<usize> {
    let no = usize::try_from(row.try_get::<i64, _>("no")?).unwrap_or(0);
    no.checked_sub(1).ok_or_else(|| decode::corrupt("an answer that nobody asked for"))
}

/// Roots of sessions with the data for loading their trees; none where session and parent are unknown.
pub(super) async fn find(
    conn: &mut PgConnection,
    sought: &[SessionKey],
    cut: ShardSplit,
) -> LoadedRow<Vec<LoadedRow<Option<SessionTree>>>> {
    let names: Vec<(usize, TenantId, &SessionId)> = sought
        .iter()
        .enumerate()
        .flat_map(|(at, (tenant, session, parent))| {
            std::iter::once(session).chain(parent).map(move |name| (at, *tenant, name))
        })
        .collect();
    let shards: Vec<i16> = names.iter().map(|(_, tenant, session)| Shard::of(*tenant, session).0).collect();
    let tenants: Vec<i64> = names.iter().map(|(_, tenant, _)| tenant.0).collect();
    let sessions: Vec<&str> = names.iter().map(|(_, _, session)| session.as_str()).collect();
    let bound = cut.shard_condition("s", "$1");
    let rows = sqlx::query(AssertSqlSafe(format!(
        "select x.no, s.root_id, t.epoch - date '1970-01-01' as day
         from unnest($1::int2[], $2::int8[], $3::text[]) with ordinality as x(shard, tenant_id, session_id, no)
         join session s on s.shard = x.shard and s.tenant_id = x.tenant_id and s.session_id = x.session_id
           {bound}
         left join call_tree t on t.shard = s.shard and t.tenant_id = s.tenant_id and t.root_id = s.root_id
         order by x.no desc",
    )));
    let rows = rows.bind(shards).bind(tenants).bind(sessions).fetch_all(conn).await?;
    let mut found: Vec<LoadedRow<Option<SessionTree>>> = sought.iter().map(|_| Ok(None)).collect();
    // The session's own row comes after its parent's.
    for row in &rows {
        let (at, _, session) = names[request_index(row)?];
        let by_parent = *session != sought[at].1;
        found[at] = decode(row, "root_id")
            .and_then(|root| Ok(Some(SessionTree { root, by_parent, epoch: row.try_get("day")? })));
    }
    Ok(found)
}

/// Row of a tree: version, day of birth, and start, which distinguishes a recreated tree from an erased one.
pub(super) type TreeHead = (u64, i32, Timestamp);

/// Rows of trees; none without an event.
pub(super) async fn heads(
    conn: &mut PgConnection,
    trees: &[(TenantId, SessionId)],
    cut: ShardSplit,
) -> LoadedRow<Vec<LoadedRow<Option<TreeHead>>>> {
    let shards: Vec<i16> = trees.iter().map(|(tenant, root)| Shard::of(*tenant, root).0).collect();
    let tenants: Vec<i64> = trees.iter().map(|(tenant, _)| tenant.0).collect();
    let roots: Vec<&str> = trees.iter().map(|(_, root)| root.as_str()).collect();
    let rows = sqlx::query(AssertSqlSafe(format!(
        "select x.no, t.version, t.epoch - date '1970-01-01' as day,
           (extract(epoch from t.started_at) * 1000)::bigint as started_ms
         from unnest($1::int2[], $2::int8[], $3::text[]) with ordinality as x(shard, tenant_id, root_id, no)
         join call_tree t on t.shard = x.shard and t.tenant_id = x.tenant_id and t.root_id = x.root_id{}",
        cut.shard_condition("t", "$1")
    )));
    let mut heads: Vec<LoadedRow<Option<TreeHead>>> = trees.iter().map(|_| Ok(None)).collect();
    for row in rows.bind(shards).bind(tenants).bind(roots).fetch_all(conn).await? {
        heads[request_index(&row)?] = Ok(Some((count(&row, "version")?, row.try_get("day")?, at(&row, "started_ms")?)));
    }
    Ok(heads)
}

static LEDGER: LazyLock<String> = LazyLock::new(|| {
    let columns = columns::read(LedgerRowOut::LIST, "l", &["shard", "tenant_id", "ledger_key", "epoch"]);
    format!(
        "select x.no, l.revision, {}
         from unnest($1::int2[], $2::int8[], $3::bytea[]) with ordinality as x(shard, tenant_id, ledger_key, no)
         join ledger l on l.shard = x.shard and l.tenant_id = x.tenant_id and l.ledger_key = x.ledger_key",
        columns::select(&columns)
    )
});

/// Ledger rows of writes; none without a permit.
pub(super) async fn ledger(
    conn: &mut PgConnection,
    keys: &[(TenantId, SessionId, LedgerKey)],
    cut: ShardSplit,
) -> LoadedRow<Vec<LoadedRow<Option<LedgerRow>>>> {
    let shards: Vec<i16> = keys.iter().map(|(tenant, root, key)| Shard::of_ledger(*tenant, root, key).0).collect();
    let tenants: Vec<i64> = keys.iter().map(|(tenant, _, _)| tenant.0).collect();
    let wanted: Vec<&[u8]> = keys.iter().map(|(_, _, key)| &key.0[..]).collect();
    let rows = sqlx::query(AssertSqlSafe(LEDGER.clone() + &cut.shard_condition("l", "$1")))
        .bind(shards)
        .bind(tenants)
        .bind(wanted);
    let mut ledger: Vec<LoadedRow<Option<LedgerRow>>> = keys.iter().map(|_| Ok(None)).collect();
    for row in rows.fetch_all(conn).await? {
        ledger[request_index(&row)?] = LedgerRowOut::read(&row).map(Some);
    }
    Ok(ledger)
}
