//! One row, by its key.

use sqlx::PgConnection;

use super::{
    columns,
    decode::{self, Loaded, name},
    row::LedgerColumns,
};
use crate::domain::{
    fingerprint::LedgerKey,
    ids::{SessionId, TenantId},
    ledger::LedgerRow,
    shard::Shard,
};

/// The root of a session; none for a session that nobody has heard of.
pub(super) async fn root(conn: &mut PgConnection, tenant: TenantId, session: &SessionId) -> Loaded<Option<SessionId>> {
    let root =
        sqlx::query_scalar("select root_id from session where shard = $3 and tenant_id = $1 and session_id = $2");
    let root: Option<String> =
        root.bind(tenant.0).bind(session.as_str()).bind(Shard::of(tenant, session).0).fetch_optional(conn).await?;
    root.map(|root| name(SessionId::parse, &root)).transpose()
}

/// The version of a tree; 0 when it has no event yet.
pub(super) async fn version(conn: &mut PgConnection, tenant: TenantId, root: &SessionId) -> Loaded<u64> {
    let version =
        sqlx::query_scalar("select version from call_tree where shard = $3 and tenant_id = $1 and root_id = $2");
    let version: Option<i64> =
        version.bind(tenant.0).bind(root.as_str()).bind(Shard::of(tenant, root).0).fetch_optional(conn).await?;
    Ok(u64::try_from(version.unwrap_or(0)).unwrap_or(0))
}

/// The ledger's row of `key`; none when there was no permit yet.
pub(super) async fn ledger(
    conn: &mut PgConnection,
    tenant: TenantId,
    root: &SessionId,
    key: &LedgerKey,
) -> Loaded<Option<LedgerRow>> {
    let columns = columns::read(LedgerColumns::LIST, "l", &["shard", "tenant_id", "ledger_key", "epoch"]);
    let row = format!(
        "select l.revision, {columns} from ledger l where l.shard = $3 and l.tenant_id = $1 and l.ledger_key = $2
           and l.revision > 0"
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(row));
    let Some(row) =
        row.bind(tenant.0).bind(&key.0[..]).bind(Shard::of_ledger(tenant, root, key).0).fetch_optional(conn).await?
    else {
        return Ok(None);
    };
    decode::ledger(&row).map(Some)
}
