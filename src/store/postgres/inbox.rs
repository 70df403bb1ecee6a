//! Operator queries: approval requests, stored calls, and recently active sessions.

mod call;
mod call_lines;
mod calls;
mod filter;
pub(super) mod names;
mod sessions;
mod trial_calls;

use sqlx::{PgConnection, Row as _, postgres::PgRow};

pub use self::trial_calls::TriedTree;
use super::{
    Store,
    codes::RUNNING,
    decode::{LoadedRow, at, count, decode, effect, usage, whole},
    edits::chosen,
    findings,
    sealed::{self, Opener},
};
use crate::{decision_store::DecisionStore as _, error::StoreError};
use callgate_core::domain::{
    effect::Resource,
    ids::{CallId, SessionId, TenantId},
    inbox::{ApprovalQuery, Question, QuestionState, Resolution, StoredCall},
    outcome::Guard,
    shard::Shard,
    time::Timestamp,
};

/// Maximum number of calls per query.
const CALLS_MAX: i64 = 100_000;

impl Store {
    /// Approval requests, newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn questions(&self, tenant: TenantId, wanted: &ApprovalQuery) -> Result<Vec<Question>, StoreError> {
        if let Some(memory) = &self.memory {
            return memory.questions(tenant, wanted).await;
        }
        let opener = self.opener(tenant);
        self.readers.read_of(&[tenant], async |conn| questions(conn, tenant, wanted, &opener).await).await
    }

    /// Stored calls since a time, of one call tree or all, of one id or any, by tree and in order; the newest 100,000
    /// of them.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn stored_calls(
        &self,
        tenant: TenantId,
        since: Timestamp,
        root: Option<&SessionId>,
        call_id: Option<&CallId>,
    ) -> Result<Vec<StoredCall>, StoreError> {
        let opener = self.opener(tenant);
        self.slow
            .read_of(&[tenant], async |conn| read_stored(conn, tenant, since, (root, call_id), &opener).await)
            .await
    }
}

/// Columns of a stored call `c` with its outcome `o`.
const STORED: &str = "c.session_id, c.root_id, c.seq, c.call_id, c.run_id, c.agent_id, c.tool,
    coalesce(c.arguments, '') as arguments, c.justification,
    (extract(epoch from c.at) * 1000)::bigint as at_ms, c.decision,
    c.findings::text as findings, c.policy_version, o.status, o.seq as settled_seq, o.result, o.error_message,
    o.whole_bytes, o.whole_sha256, o.failure, o.retryable, o.retry_after_ms, o.guard, o.repeat,
    o.is_complete, o.total_matches, u.*, o.input_tokens as reported_input_tokens,
    o.output_tokens as reported_output_tokens, o.cache_read_tokens as reported_cache_read_tokens,
    o.cache_write_tokens as reported_cache_write_tokens, o.cost_micros as reported_cost_micros,
    encode(c.witness, 'hex') as witness, encode(o.witness, 'hex') as witness_after,
    encode(c.trace_id, 'hex') as trace_id, encode(o.trace_id, 'hex') as report_trace_id,
    exists (select from session_event e where e.shard = c.shard and e.tenant_id = c.tenant_id
      and e.root_id = c.root_id
      and e.epoch = c.epoch and e.kind = 'answered' and e.session_id = c.session_id
      and (e.detail ->> 'call_id' = c.call_id and (e.detail ->> 'approved')::boolean
        or c.attempt is not null and e.detail #>> '{edit,digest}' = encode(c.args_digest, 'hex') and e.seq < c.seq
          and c.at < to_timestamp((e.detail #>> '{edit,until_ms}')::bigint / 1000.0)
          and e.detail #>> '{edit,policy}' = c.policy_version
          and not exists (select from call n where n.shard = c.shard and n.tenant_id = c.tenant_id
            and n.epoch = c.epoch and n.session_id = c.session_id and n.seq > e.seq and n.seq < c.seq
            and n.args_digest = c.args_digest and n.attempt is not null))) as approved";
/// The outcome `o` of a call `c`, if any, and the usage `u` of all its judgments.
fn outcome() -> String {
    format!(
        "left join lateral (
    select x.* from outcome x where x.shard = c.shard and x.tenant_id = c.tenant_id and x.epoch = c.epoch
      and x.session_id = c.session_id and x.permit_seq = c.seq and x.status > {RUNNING}
    order by x.seq desc limit 1) o on true
  left join lateral (
    select sum(x.input_tokens)::bigint as input_tokens, sum(x.output_tokens)::bigint as output_tokens,
      sum(x.cache_read_tokens)::bigint as cache_read_tokens, sum(x.cache_write_tokens)::bigint as cache_write_tokens,
      sum(x.cost_micros)::bigint as cost_micros
    from call x where x.shard = c.shard and x.tenant_id = c.tenant_id and x.epoch = c.epoch
      and x.session_id = c.session_id and x.call_id = c.call_id) u on true"
    )
}
/// Condition of the last judgment of a call `c`.
const JUDGED_LAST: &str = "not exists (select from call l where l.shard = c.shard and l.tenant_id = c.tenant_id
    and l.epoch = c.epoch
      and l.session_id = c.session_id and l.call_id = c.call_id and l.round > c.round)";

async fn read_stored(
    conn: &mut PgConnection,
    tenant: TenantId,
    since: Timestamp,
    (root, call_id): (Option<&SessionId>, Option<&CallId>),
    opener: &Opener,
) -> LoadedRow<Vec<StoredCall>> {
    // Only given filters are compared, so that the planner can use indexes.
    let of_root = root.map_or("$3::text is null and $6::int2 is null", |_| "c.shard = $6 and c.root_id = $3");
    let of_call = call_id.map_or("$4::text is null", |_| "c.call_id = $4");
    let sql = format!(
        "select * from (
           select {STORED}
           from call c {}
           where c.tenant_id = $1 and c.at >= to_timestamp($2 / 1000.0) and {of_root} and {of_call}
             and {JUDGED_LAST}
           order by c.at desc limit $5) k
         order by root_id, seq",
        outcome()
    );
    let rows =
        sqlx::query(sqlx::AssertSqlSafe(sql)).bind(tenant.0).bind(since.as_millis()).bind(root.map(SessionId::as_str));
    let rows = rows.bind(call_id.map(CallId::as_str)).bind(CALLS_MAX).bind(root.map(|root| Shard::of(tenant, root).0));
    rows.fetch_all(conn).await?.iter().map(|row| call(row, opener)).collect()
}

fn call(row: &PgRow, opener: &Opener) -> LoadedRow<StoredCall> {
    let (session, seq, settled) = (row.try_get("session_id")?, count(row, "seq")?, count(row, "settled_seq")?);
    let result = match opener.optional_text(sealed::RESULT, session, settled, row.try_get("result")?)? {
        None => opener.optional_text(sealed::ERROR, session, settled, row.try_get("error_message")?)?,
        result => result,
    };
    Ok(StoredCall {
        session: session.to_owned(),
        root: row.try_get("root_id")?,
        seq,
        call_id: row.try_get("call_id")?,
        run: row.try_get("run_id")?,
        agent: row.try_get("agent_id")?,
        tool: row.try_get("tool")?,
        arguments: opener.text(sealed::ARGUMENTS, session, seq, row.try_get("arguments")?)?,
        justification: opener.optional_text(sealed::JUSTIFICATION, session, seq, row.try_get("justification")?)?,
        at: at(row, "at_ms")?,
        decision: decode(row, "decision")?,
        findings: findings::read(row.try_get("findings")?, opener, session, seq)?,
        policy: row.try_get("policy_version")?,
        usage: usage(row, "")?,
        status: decode(row, "status")?,
        failure: decode(row, "failure")?,
        reported: usage(row, "reported_")?,
        estimated: match (row.try_get("retryable")?, decode::<Option<Guard>>(row, "guard")?) {
            (Some(retryable), None) => Some((retryable, count(row, "retry_after_ms")?)),
            _ => None,
        },
        repeat: decode(row, "repeat")?,
        is_complete: row.try_get("is_complete")?,
        total_matches: decode(row, "total_matches")?,
        result,
        witness: row.try_get("witness")?,
        witness_after: row.try_get("witness_after")?,
        whole: whole(row)?,
        approved: row.try_get("approved")?,
        trace: row.try_get("trace_id")?,
        report_trace: row.try_get("report_trace_id")?,
    })
}

/// State of an approval request.
const STATE: &str = "case when e.kind = 'withdrawn' then 'withdrawn' when e.detail -> 'edit' is not null then 'edited'
  when (e.detail ->> 'approved')::boolean then 'approved' when e.seq is not null then 'denied'
  when c.approval_expires_at > now() then 'pending' else 'expired' end";

/// An approval request starts with the first judgment that names it; later rounds of the call repeat it.
async fn questions(
    conn: &mut PgConnection,
    tenant: TenantId,
    wanted: &ApprovalQuery,
    opener: &Opener,
) -> LoadedRow<Vec<Question>> {
    // Only given filters are compared, so that the planner can use indexes.
    let of_id = wanted.approval_id.as_ref().map_or("$2::text is null", |_| "c.approval_id = $2");
    let of_session = wanted.session.as_ref().map_or("$3::text is null", |_| "c.session_id = $3");
    let of_tool = wanted.tool.as_ref().map_or("$8::text is null", |_| "c.tool = $8");
    let of_agent = wanted.agent.as_ref().map_or("$9::text is null", |_| "c.agent_id = $9");
    let in_time = match wanted.state {
        Some(QuestionState::Pending) => "c.approval_expires_at > now()",
        _ => "true",
    };
    let after = wanted.after.as_ref().map_or("$6::bigint is null and $7::text is null", |_| {
        "c.at <= timestamptz 'epoch' + $6::bigint * interval '1 millisecond'
          and (c.at < timestamptz 'epoch' + $6 * interval '1 millisecond' or c.approval_id > $7)"
    });
    let sql = format!(
        "select c.approval_id, c.session_id, c.seq, c.root_id, c.agent_id, c.call_id,
           c.tool, coalesce(c.arguments, '{{}}') as arguments, c.justification, c.findings::text as findings,
           c.args_digest, c.asked_by, c.host, c.effect, c.resource, c.once, c.idempotent, c.key_honoured, c.repeatable,
           c.in_steps, c.share, (extract(epoch from c.at) * 1000)::bigint as asked_ms,
           (extract(epoch from c.approval_expires_at) * 1000)::bigint as expires_ms, c.policy_version,
           {STATE} as state, e.seq is not null as closed, e.detail #>> '{{clears,resource}}' as cleared,
           (e.detail #>> '{{clears,until_ms}}')::bigint as cleared_until_ms, e.actor, e.reason as why,
           e.seq as closed_seq,
           (extract(epoch from e.at) * 1000)::bigint as resolved_ms,
           coalesce(e.detail #>> '{{edit,digest}}', w.edit ->> 'digest') as edited_digest,
           coalesce(e.detail #>> '{{edit,arguments}}', w.edit ->> 'arguments') as edited,
           (e.detail #>> '{{edit,until_ms}}')::bigint as edited_until_ms, coalesce(e.seq, w.seq) as edited_seq,
           array(select v.actor from session_event v where v.shard = c.shard and v.tenant_id = c.tenant_id
             and v.root_id = c.root_id and v.epoch = c.epoch and v.kind = 'seconded' and v.actor is not null
             and c.approval_id in (v.detail ->> 'approval_id', v.detail #>> '{{edit,approval_id}}') order by v.seq)
             as seconded_by
         from call c left join lateral (
           select e.* from session_event e where e.shard = c.shard and e.tenant_id = c.tenant_id
             and e.root_id = c.root_id
             and e.epoch = c.epoch and e.kind in ('answered', 'withdrawn')
             and e.detail ->> 'approval_id' = c.approval_id
           order by e.seq limit 1) e on true
         left join lateral (
           select v.seq, v.detail -> 'edit' as edit from session_event v where e.seq is null and v.shard = c.shard
             and v.tenant_id = c.tenant_id and v.root_id = c.root_id and v.epoch = c.epoch and v.kind = 'seconded'
             and v.detail #>> '{{edit,approval_id}}' = c.approval_id order by v.seq limit 1) w on true
         where c.tenant_id = $1 and c.approval_id is not null and {of_id} and {of_session} and {of_tool}
           and {of_agent} and {in_time} and {after}
           and ($4::text is null or $4 = {STATE})
           and not exists (select from call f where f.shard = c.shard and f.tenant_id = c.tenant_id
             and f.epoch = c.epoch and f.session_id = c.session_id and f.approval_id = c.approval_id
             and f.seq < c.seq)
         order by c.at desc, c.approval_id limit $5",
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(wanted.approval_id.as_deref())
        .bind(wanted.session.as_ref().map(SessionId::as_str))
        .bind(wanted.state.map(QuestionState::as_str))
        .bind(i64::try_from(wanted.max).unwrap_or(i64::MAX))
        .bind(wanted.after.as_ref().map(|(at, _)| at.as_millis()))
        .bind(wanted.after.as_ref().map(|(_, id)| id.as_str()))
        .bind(wanted.tool.as_deref())
        .bind(wanted.agent.as_deref());
    rows.fetch_all(conn).await?.iter().map(|row| question(row, opener)).collect()
}

fn question(row: &PgRow, opener: &Opener) -> LoadedRow<Question> {
    let (session, seq) = (row.try_get("session_id")?, count(row, "seq")?);
    let resolution = match row.try_get("closed")? {
        true => Some(Resolution {
            state: match row.try_get("state")? {
                "approved" => QuestionState::Approved,
                "edited" => QuestionState::Edited,
                "withdrawn" => QuestionState::Withdrawn,
                _ => QuestionState::Denied,
            },
            by: row.try_get::<Option<String>, _>("actor")?.unwrap_or_default(),
            reason: opener.optional_text(sealed::REASON, session, sealed::WHY, row.try_get("why")?)?,
            at: at(row, "resolved_ms")?,
            clears: match row.try_get::<Option<i64>, _>("cleared_until_ms")? {
                Some(until) => {
                    let cleared = count(row, "closed_seq")?;
                    let resource = opener.optional_text(sealed::CLEARED, session, cleared, row.try_get("cleared")?)?;
                    Some((resource.map(Resource::new), Timestamp::from_millis(until)))
                }
                None => None,
            },
            edited_until: decode(row, "edited_until_ms")?,
        }),
        false => None,
    };
    let mut effect = effect(row)?;
    effect.resource = opener.resource(session, seq, effect.resource.take())?;
    let edited = match row.try_get::<Option<&str>, _>("edited_digest")? {
        Some(digest) => Some(chosen(digest, row.try_get("edited")?, session, count(row, "edited_seq")?, opener)?),
        None => None,
    };
    Ok(Question {
        approval_id: row.try_get("approval_id")?,
        session: session.to_owned(),
        root: row.try_get("root_id")?,
        seq,
        agent: row.try_get("agent_id")?,
        asked_by: row.try_get("asked_by")?,
        host: row.try_get("host")?,
        call_id: row.try_get("call_id")?,
        tool: row.try_get("tool")?,
        arguments: opener.text(sealed::ARGUMENTS, session, seq, row.try_get("arguments")?)?,
        args_digest: decode(row, "args_digest")?,
        effect,
        justification: opener.optional_text(sealed::JUSTIFICATION, session, seq, row.try_get("justification")?)?,
        findings: findings::read(row.try_get("findings")?, opener, session, seq)?,
        asked_at: at(row, "asked_ms")?,
        expires_at: at(row, "expires_ms")?,
        policy: row.try_get("policy_version")?,
        seconded_by: row.try_get("seconded_by")?,
        edited,
        resolution,
    })
}
