//! Owners of call trees, shared by all replicas.

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::{decode::LoadedRow, load::ShardSplit, point_queries};
use callgate_core::domain::{
    ids::{SessionId, TenantId},
    shard::Shard,
};

/// A tree, and its owner if it has none yet.
pub(super) type OwnerClaim = (TenantId, SessionId, Option<String>);

/// Reads the owners of trees. A tree without an owner gets the first claimant.
pub(super) async fn claim_owners(
    conn: &mut PgConnection,
    asked: &[OwnerClaim],
    cut: ShardSplit,
) -> LoadedRow<Vec<LoadedRow<Option<String>>>> {
    // A row may be dropped between the two: then there is room for this one.
    loop {
        insert(conn, asked).await?;
        let owners = owners(conn, asked, cut).await?;
        if asked.iter().zip(&owners).all(|((_, _, name), owner)| name.is_none() || owner.is_some()) {
            return Ok(owners.into_iter().map(Ok).collect());
        }
    }
}

async fn insert(conn: &mut PgConnection, asked: &[OwnerClaim]) -> LoadedRow<()> {
    let named: Vec<_> = asked.iter().filter_map(|(tenant, root, name)| Some((*tenant, root, name.as_ref()?))).collect();
    if named.is_empty() {
        return Ok(());
    }
    let shards: Vec<i16> = named.iter().map(|(tenant, root, _)| Shard::of(*tenant, root).0).collect();
    let tenants: Vec<i64> = named.iter().map(|(tenant, _, _)| tenant.0).collect();
    let roots: Vec<&str> = named.iter().map(|(_, root, _)| root.as_str()).collect();
    let names: Vec<&str> = named.iter().map(|(_, _, name)| name.as_str()).collect();
    // In one order, so that no two replicas wait for each other.
    let insert = sqlx::query(
        "insert into session_owner (shard, tenant_id, root_id, owner)
         select x.shard, x.tenant_id, x.root_id, x.owner
         from unnest($1::int2[], $2::int8[], $3::text[], $4::text[]) with ordinality
           as x(shard, tenant_id, root_id, owner, no)
         order by x.shard, x.tenant_id, x.root_id collate \"C\", x.no
         on conflict do nothing",
    );
    insert.bind(shards).bind(tenants).bind(roots).bind(names).execute(conn).await?;
    Ok(())
}

async fn owners(conn: &mut PgConnection, asked: &[OwnerClaim], cut: ShardSplit) -> LoadedRow<Vec<Option<String>>> {
    let shards: Vec<i16> = asked.iter().map(|(tenant, root, _)| Shard::of(*tenant, root).0).collect();
    let tenants: Vec<i64> = asked.iter().map(|(tenant, _, _)| tenant.0).collect();
    let roots: Vec<&str> = asked.iter().map(|(_, root, _)| root.as_str()).collect();
    let rows = sqlx::query(AssertSqlSafe(format!(
        "select x.no, o.owner
         from unnest($1::int2[], $2::int8[], $3::text[]) with ordinality as x(shard, tenant_id, root_id, no)
         join session_owner o on o.shard = x.shard and o.tenant_id = x.tenant_id and o.root_id = x.root_id{}",
        cut.shard_condition("o", "$1")
    )));
    let mut owners = vec![None; asked.len()];
    for row in rows.bind(shards).bind(tenants).bind(roots).fetch_all(conn).await? {
        owners[point_queries::request_index(&row)?] = row.try_get("owner")?;
    }
    Ok(owners)
}
