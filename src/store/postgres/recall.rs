//! Recall of an evicted call.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    columns,
    decode::LoadedRow,
    load::{call_columns, outcome_columns, same_session_condition},
    point_queries,
    row::{CallRow, OutcomeRow},
    sealed::Opener,
};
use callgate_core::domain::{
    event::Event,
    ids::{CallId, SessionId, TenantId},
    shard::Shard,
};

/// All events of one call_id, oldest first; empty for an unknown one.
pub(super) async fn call(
    conn: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    call_id: &CallId,
    opener: &Opener,
) -> LoadedRow<Vec<Event>> {
    let Some(root) = point_queries::root(&mut *conn, tenant, session).await? else { return Ok(Vec::new()) };
    let of_call = "session s join call_tree t on t.shard = s.shard and t.tenant_id = s.tenant_id and t.root_id = $2
          join call c on c.shard = s.shard and c.tenant_id = s.tenant_id and c.epoch = t.epoch
          and c.session_id = s.session_id and c.call_id = $4";
    let of_session = "s.shard = $5 and s.tenant_id = $1 and s.session_id = $3";
    let calls = format!(
        "select {} from {of_call} where {of_session}",
        columns::select(&call_columns()).replace("#outcome", "outcome")
    );
    let outcomes = format!(
        "select {} from {of_call} join outcome o on {} and o.permit_seq = c.seq where {of_session}",
        columns::select(&outcome_columns()),
        same_session_condition("o", "c")
    );
    let bound = |sql: String| {
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(root.as_str());
        query.bind(session.as_str()).bind(call_id.as_str()).bind(Shard::of(tenant, &root).0)
    };
    let calls = bound(calls).fetch_all(&mut *conn).await?;
    let outcomes = bound(outcomes).fetch_all(&mut *conn).await?;
    let calls = calls.iter().map(|row| Ok(Event::Judged(Box::new(CallRow::read(row, opener)?))));
    let settled = |row| Ok(Event::Settled(Box::new(opener.open_report(OutcomeRow::read(row)?)?)));
    let mut events: Vec<Event> = calls.chain(outcomes.iter().map(settled)).collect::<LoadedRow<_>>()?;
    events.sort_by_key(Event::seq);
    Ok(events)
}
