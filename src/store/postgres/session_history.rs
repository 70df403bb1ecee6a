//! Past calls of a session, for restoring a model's context.

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{
    codes::{RUNNING, SUCCESS},
    decode::{LoadedRow, at, count, decode, effect, whole},
    marks, point_queries,
    sealed::{self, Opener},
};
use crate::sealing::MARK;
use callgate_core::domain::{
    gist::SuccessSummary,
    history::{PAST_TEXT_MAX, PastCall, PastOutcome},
    ids::{CallId, SessionId, TenantId},
    previous::StoredResult,
    reason::Reason,
    shard::Shard,
};

/// The canonical arguments of a call, as it was judged last.
pub(super) async fn arguments(
    conn: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    call_id: &CallId,
    opener: &Opener,
) -> LoadedRow<Option<String>> {
    let Some(root) = point_queries::root(&mut *conn, tenant, session).await? else { return Ok(None) };
    let arguments = sqlx::query(
        "select c.seq, c.arguments from call_tree t join call c on c.shard = t.shard and c.tenant_id = t.tenant_id
           and c.epoch = t.epoch
         where t.shard = $4 and t.tenant_id = $1 and t.root_id = $5 and c.session_id = $2
           and c.call_id = $3 order by c.round desc limit 1",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(call_id.as_str())
    .bind(Shard::of(tenant, &root).0)
    .bind(root.as_str());
    let Some(row) = arguments.fetch_optional(conn).await? else { return Ok(None) };
    opener.optional_text(sealed::ARGUMENTS, session.as_str(), count(&row, "seq")?, row.try_get("arguments")?)
}

/// The result of a call's last success, as far as it is stored.
pub(super) async fn result(
    conn: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    call_id: &CallId,
    opener: &Opener,
) -> LoadedRow<Option<StoredResult>> {
    // The call is known to exist: a missing row was deleted.
    let gone = StoredResult { is_gone: true, ..StoredResult::default() };
    let Some(root) = point_queries::root(&mut *conn, tenant, session).await? else { return Ok(Some(gone)) };
    let result = sqlx::query(AssertSqlSafe(format!(
        "select o.seq, o.inferred, o.result, o.result_bytes, o.total_matches, o.is_complete,
           o.whole_bytes, o.whole_sha256, o.at < n.words_gone_before as is_gone
         from call_tree t join tenant n on n.tenant_id = t.tenant_id
         join call c on c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
         join outcome o on o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
           and o.session_id = c.session_id
           and o.permit_seq = c.seq and o.status = {SUCCESS}
         where t.shard = $4 and t.tenant_id = $1 and t.root_id = $5 and c.session_id = $2
           and c.call_id = $3 order by o.seq desc limit 1"
    )))
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(call_id.as_str())
    .bind(Shard::of(tenant, &root).0)
    .bind(root.as_str());
    let Some(row) = result.fetch_optional(conn).await? else { return Ok(Some(gone)) };
    Ok(Some(StoredResult {
        is_gone: decode(&row, "is_gone")?,
        is_inferred: decode(&row, "inferred")?,
        text: opener.optional_text(sealed::RESULT, session.as_str(), count(&row, "seq")?, row.try_get("result")?)?,
        bytes: decode(&row, "result_bytes")?,
        whole: whole(&row)?,
        total_matches: decode(&row, "total_matches")?,
        is_complete: row.try_get("is_complete")?,
    }))
}

pub(super) async fn read(
    conn: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    most: usize,
    opener: &Opener,
) -> LoadedRow<Vec<PastCall>> {
    let Some(root) = point_queries::root(&mut *conn, tenant, session).await? else { return Ok(Vec::new()) };
    let sql = format!(
        "select c.seq, c.call_id, c.tool, c.fingerprint, c.effect, c.resource, c.once, c.idempotent,
           c.key_honoured, c.repeatable, c.in_steps, c.share,
           case when c.arguments like '{MARK}%' then c.arguments else left(c.arguments, {PAST_TEXT_MAX}) end
             as arguments,
           (extract(epoch from c.at) * 1000)::bigint as at_ms,
           c.decision, c.reason,
           case when c.attempt is not null then (extract(epoch from coalesce(
             (select max(r.lease_until) from outcome r where r.shard = c.shard and r.tenant_id = c.tenant_id
               and r.epoch = c.epoch
               and r.session_id = c.session_id and r.permit_seq = c.seq and r.status = {RUNNING}),
             c.lease_until)) * 1000)::bigint end as lease_ms,
           o.status, o.seq as settled_seq, o.failure, (extract(epoch from o.at) * 1000)::bigint as settled_ms, o.gist,
           o.made, o.result_bytes, o.whole_bytes is not null as is_cut, o.is_complete, o.total_matches,
           o.error_line as error, o.marks::text as marks,
           o.retryable, o.retry_after_ms, o.key_sent, o.inferred, o.double_effect
         from call_tree t
         cross join lateral (
           select c.* from call c where c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
             and c.session_id = $2 order by c.seq desc limit $3) c
         left join lateral (
           select o.* from outcome o where o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
             and o.session_id = c.session_id and o.permit_seq = c.seq and o.status > {RUNNING}
           order by o.seq desc limit 1) o on true
         where t.shard = $4 and t.tenant_id = $1 and t.root_id = $5 order by c.seq"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(session.as_str())
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .bind(Shard::of(tenant, &root).0)
        .bind(root.as_str());
    rows.fetch_all(conn).await?.iter().map(|row| past_call(row, session, opener)).collect()
}

fn past_call(row: &PgRow, session: &SessionId, opener: &Opener) -> LoadedRow<PastCall> {
    let text = |column: &str| row.try_get::<Option<String>, _>(column);
    let (session, seq) = (session.as_str(), count(row, "seq")?);
    let arguments = opener.optional_text(sealed::ARGUMENTS, session, seq, text("arguments")?)?;
    let mut effect = effect(row)?;
    effect.resource = opener.resource(session, seq, effect.resource.take())?;
    Ok(PastCall {
        seq,
        call_id: decode(row, "call_id")?,
        tool: decode(row, "tool")?,
        fingerprint: decode(row, "fingerprint")?,
        effect,
        arguments: arguments.map(|text| text.chars().take(PAST_TEXT_MAX).collect()),
        at: at(row, "at_ms")?,
        decision: decode(row, "decision")?,
        reason: text("reason")?.and_then(|reason| Reason::from_name(&reason)),
        lease_until: decode(row, "lease_ms")?,
        outcome: past_outcome(row, session, opener)?,
    })
}

fn past_outcome(row: &PgRow, session: &str, opener: &Opener) -> LoadedRow<Option<PastOutcome>> {
    let Some(status) = decode(row, "status")? else { return Ok(None) };
    let seq = count(row, "settled_seq")?;
    let open = |what: &str, column: &str| opener.optional_text(what, session, seq, row.try_get(column)?);
    let made = open(sealed::MADE, "made")?;
    let marks = row.try_get::<Option<String>, _>("marks")?.as_deref().map(marks::read).transpose()?;
    Ok(Some(PastOutcome {
        status,
        failure: decode(row, "failure")?,
        at: at(row, "settled_ms")?,
        // Of encrypted marks only the amount of information is readable here.
        is_act: made.is_some() || marks.is_some_and(|marks| marks.is_of_an_act()),
        key_sent: decode(row, "key_sent")?,
        is_inferred: decode(row, "inferred")?,
        is_double: decode(row, "double_effect")?,
        gist: open(sealed::GIST, "gist")?.map(|says| SuccessSummary { made, says }),
        result_bytes: decode(row, "result_bytes")?,
        is_cut: row.try_get("is_cut")?,
        is_complete: row.try_get("is_complete")?,
        total_matches: decode(row, "total_matches")?,
        error: open(sealed::ERROR_LINE, "error")?,
        retryable: row.try_get("retryable")?,
        retry_after_ms: count(row, "retry_after_ms")?,
    }))
}
