//! Erasure of shared data: ledger rows, which stay anonymized for duplicate protection; and findings of other trees
//! that refer to an erased call.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    super::{
        codes::OF_TREE,
        decode::{LoadedRow, decode},
    },
    Forgetting, Trees, before, mark, shards,
};
use callgate_core::domain::{
    effect::DuplicateScope,
    fingerprint::{ExclusionScope, Fingerprint, LedgerKey},
    ids::{AgentId, SessionId},
    shard::Shard,
};

/// Anonymizes ledger rows of these trees that others share. Returns their calls, all of them, also after an interrupted
/// run.
pub(super) async fn unname(
    conn: &mut PgConnection,
    of: &Forgetting<'_>,
    roots: &[SessionId],
) -> LoadedRow<Vec<[u8; 32]>> {
    let trees = Trees::of(of.tenant, roots);
    let calls = sqlx::query(AssertSqlSafe(format!(
        "select distinct agent_id, share, fingerprint from call
         where shard = any($1) and tenant_id = $2 and root_id = any($3) and attempt is not null and share > {OF_TREE}"
    )));
    let calls = calls.bind(&trees.shards).bind(of.tenant.0).bind(&trees.roots).fetch_all(&mut *conn).await?;
    let (mut places, mut keys, mut fingerprints) = (Vec::new(), Vec::new(), Vec::new());
    for call in &calls {
        let fingerprint: Fingerprint = decode(call, "fingerprint")?;
        let agent: Option<AgentId> = decode(call, "agent_id")?;
        let reach = match (decode(call, "share")?, &agent) {
            (DuplicateScope::Tenant, _) => ExclusionScope::Tenant,
            (DuplicateScope::Agent, Some(agent)) => ExclusionScope::Agent(agent),
            // It is in the tree's own shard, and goes with it.
            (DuplicateScope::Agent, None) | (DuplicateScope::Tree, _) => continue,
        };
        let key = LedgerKey::of(reach, &fingerprint);
        let root = roots.first().map(|root| Shard::of_ledger(of.tenant, root, &key).0);
        places.extend(root);
        keys.push(key.0.to_vec());
        fingerprints.push(fingerprint.0);
    }
    if !keys.is_empty() {
        let update = sqlx::query(
            "update ledger l set root_id = $3, session_id = $3, call_id = $3, digest = null, revision = revision + 1
             from unnest($1::int2[], $2::bytea[]) as x(shard, ledger_key)
             where l.shard = x.shard and l.tenant_id = $4 and l.ledger_key = x.ledger_key and l.root_id = any($5)",
        );
        let update = update.bind(places).bind(keys).bind(&of.run.nobody).bind(of.tenant.0).bind(&trees.roots);
        update.execute(conn).await?;
    }
    Ok(fingerprints)
}

/// Removes references to the calls of these trees from other trees' findings.
pub(super) async fn unquote(
    conn: &mut PgConnection,
    of: &Forgetting<'_>,
    part: u16,
    fingerprints: &[[u8; 32]],
    roots: &[SessionId],
) -> LoadedRow<()> {
    let trees = Trees::of(of.tenant, roots);
    let sessions = sqlx::query_scalar(
        "select distinct session_id from session where shard = any($1) and tenant_id = $2 and root_id = any($3)",
    );
    let sessions: Vec<String> =
        sessions.bind(&trees.shards).bind(of.tenant.0).bind(&trees.roots).fetch_all(&mut *conn).await?;
    let update = sqlx::query_scalar(
        "update call c set findings = (
           select jsonb_agg(case when f.finding -> 'reuse' ->> 0 = any($5) then f.finding - 'reuse' else f.finding end
             order by f.place) from jsonb_array_elements(c.findings) with ordinality f(finding, place))
         where c.shard = any($1) and c.tenant_id = $2 and c.fingerprint = any($3) and not c.root_id = any($4)
           and c.findings is not null
           and exists (select from jsonb_array_elements(c.findings) f where f -> 'reuse' ->> 0 = any($5))
         returning c.root_id",
    );
    let fingerprints: Vec<&[u8]> = fingerprints.iter().map(|fingerprint| &fingerprint[..]).collect();
    let update = update.bind(shards(part)).bind(of.tenant.0).bind(fingerprints).bind(&trees.roots).bind(sessions);
    let mut told: Vec<String> = update.fetch_all(&mut *conn).await?;
    told.sort_unstable();
    told.dedup();
    // They have it in memory, too.
    mark(conn, of.tenant, of.run, told.iter().map(String::as_str), &[]).await
}

/// Deletes or anonymizes ledger rows of a session whose tree was dropped before; the ledger outlives trees.
pub(super) async fn anonymize_ledger_rows(
    conn: &mut PgConnection,
    of: &Forgetting<'_>,
    part: u16,
    session: &SessionId,
) -> LoadedRow<u64> {
    let mut gone = 0;
    let theirs = format!(
        "shard = any($1) and tenant_id = $2 and $3 in (root_id, session_id) and permitted_at < {}",
        before("$5")
    );
    for sql in [
        format!("delete from ledger where {theirs} and get_byte(ledger_key, 0) < 128 and $4 is not null"),
        format!(
            "update ledger set root_id = $4, session_id = $4, call_id = $4, digest = null, revision = revision + 1
             where {theirs}"
        ),
    ] {
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(shards(part)).bind(of.tenant.0);
        let query = query.bind(session.as_str()).bind(&of.run.nobody).bind(of.run.at.as_millis());
        gone += query.execute(&mut *conn).await?.rows_affected();
    }
    Ok(gone)
}
