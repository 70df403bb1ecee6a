//! Due trees: those with open calls whose leases have or may have expired. Only due rows are read and changed; a call
//! settled in time costs one row per tree and lease at most.

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{
    decode::{LoadedRow, count, decode},
    row::big,
};
use callgate_core::domain::{
    ids::{SessionId, TenantId},
    shard::Shard,
    time::Timestamp,
};

/// Trees that are taken on at once.
pub(crate) const TAKEN_MAX: usize = 128;
/// Lease of a claimed tree in milliseconds, after which another replica claims it: the claimant may have died.
pub(crate) const TAKEN_MS: u64 = 20_000;

/// A due tree with open calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTree {
    /// Tenant.
    pub tenant: TenantId,
    /// The tree, by its root session.
    pub root: SessionId,
    /// Its version at the claim.
    pub version: u64,
}

/// A batch of due trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueTrees {
    /// Those with open calls; the others need no sweep.
    pub trees: Vec<DueTree>,
    /// True when there may be more.
    pub is_full: bool,
}

/// Never waits for a row that somebody else has locked: whoever has it locked moves the tree, or takes it on.
pub(super) async fn take(conn: &mut PgConnection, now: Timestamp, is_distributed: bool) -> LoadedRow<DueTrees> {
    // Over many nodes rows can neither be limited nor skipped: all that are due are taken at once.
    let due = match is_distributed {
        true => "due <= to_timestamp($1 / 1000.0) and $3 > 0",
        false => {
            "ctid = any(array(select ctid from call_tree where due <= to_timestamp($1 / 1000.0)
               order by due limit $3 for update skip locked))"
        }
    };
    let taken = sqlx::query(AssertSqlSafe(format!(
        "update call_tree set due = case when open_calls > 0 then to_timestamp($2 / 1000.0) end
         where {due} returning tenant_id, root_id, version, open_calls > 0 as is_open"
    )));
    let taken = taken.bind(now.as_millis()).bind(now.plus_ms(TAKEN_MS).as_millis()).bind(TAKEN_MAX as i64);
    let rows = taken.fetch_all(conn).await?;
    let tree = |row: &PgRow| -> LoadedRow<DueTree> {
        Ok(DueTree {
            tenant: TenantId(row.try_get("tenant_id")?),
            root: decode(row, "root_id")?,
            version: count(row, "version")?,
        })
    };
    let open = rows.iter().filter(|row| row.try_get("is_open").unwrap_or(true));
    // All are claimed by now: an unreadable one must not block the others.
    let readable = open.filter_map(|row| match tree(row) {
        Ok(tree) => Some(tree),
        Err(error) => {
            tracing::error!(%error, "leases of a call tree cannot be checked");
            None
        }
    });
    Ok(DueTrees { trees: readable.collect(), is_full: !is_distributed && rows.len() >= TAKEN_MAX })
}

pub(super) async fn put_off(conn: &mut PgConnection, tree: &DueTree, due: Option<Timestamp>) -> LoadedRow<()> {
    let put_off = sqlx::query(
        "update call_tree set due = to_timestamp($4 / 1000.0)
         where shard = $5 and tenant_id = $1 and root_id = $2 and version = $3",
    )
    .bind(tree.tenant.0)
    .bind(tree.root.as_str())
    .bind(big(tree.version))
    .bind(due.map(Timestamp::as_millis))
    .bind(Shard::of(tree.tenant, &tree.root).0);
    put_off.execute(conn).await?;
    Ok(())
}
