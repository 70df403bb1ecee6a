//! Call summaries by key.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    super::{
        codes::RUNNING,
        decode::{LoadedRow, at, count, decode, member, usage},
        findings,
        sealed::{self, Opener},
    },
    filter::status,
};
use crate::sealing::MARK;
use callgate_core::domain::{
    calls::{CallJudgment, CallLine, CallPlace},
    effect::EffectKind,
    outcome::OutcomeStatus,
};

/// Maximum length of a summary's arguments, in characters.
const ARGUMENTS_MAX: usize = 300;

/// Key and position of a call.
#[derive(Debug)]
pub(super) struct CallKey {
    pub(super) shard: i16,
    pub(super) place: CallPlace,
    pub(super) session: String,
    pub(super) call_id: String,
}

/// Of a row that names it.
pub(super) fn key(row: &PgRow) -> LoadedRow<CallKey> {
    Ok(CallKey {
        shard: row.try_get("shard")?,
        place: CallPlace { last_us: row.try_get("last_us")?, root: row.try_get("root_id")?, seq: count(row, "seq")? },
        session: row.try_get("session_id")?,
        call_id: row.try_get("call_id")?,
    })
}

/// Columns of a judgment `c`.
pub(super) const JUDGEMENT: &str = "c.seq, (extract(epoch from c.at) * 1000)::bigint as at_ms, c.decision, c.would,
    c.rule, c.reason, c.findings::text as findings, c.attempt,
    (extract(epoch from c.lease_until) * 1000)::bigint as lease_ms, c.approval_id,
    (extract(epoch from c.approval_expires_at) * 1000)::bigint as approval_ms, c.policy_version,
    encode(c.trace_id, 'hex') as trace_id";

/// One judgment of a call of this session.
pub(super) fn judgement(row: &PgRow, session: &str, opener: &Opener) -> LoadedRow<CallJudgment> {
    let seq = count(row, "seq")?;
    Ok(CallJudgment {
        seq,
        at: at(row, "at_ms")?,
        decision: decode(row, "decision")?,
        would: decode(row, "would")?,
        rule: row.try_get("rule")?,
        reason: row.try_get("reason")?,
        findings: findings::read(row.try_get("findings")?, opener, session, seq)?,
        attempt: decode(row, "attempt")?,
        lease_until: decode(row, "lease_ms")?,
        approval: row.try_get("approval_id")?,
        approval_until: decode(row, "approval_ms")?,
        policy: row.try_get("policy_version")?,
        trace: row.try_get("trace_id")?,
    })
}

/// The calls of these keys, in their order.
pub(super) async fn read_calls(conn: &mut PgConnection, opener: &Opener, keys: &[CallKey]) -> LoadedRow<Vec<CallLine>> {
    let same = |x: &str| {
        format!(
            "{x}.shard = c.shard and {x}.tenant_id = c.tenant_id and {x}.epoch = c.epoch
             and {x}.session_id = c.session_id"
        )
    };
    let [f, x, y, z] = ["f", "x", "y", "z"].map(same);
    let sql = format!(
        "select k.shard, k.last_us, k.root_id, c.session_id, c.call_id, f.seq as first_seq, f.batch,
           (extract(epoch from f.at) * 1000)::bigint as first_ms, s.parent_id, s.depth, c.round, c.run_id, c.agent_id,
           c.tool, {JUDGEMENT},
           case when c.arguments like '{MARK}%' then c.arguments else left(c.arguments, {ARGUMENTS_MAX} + 1) end
             as arguments,
           {status} as status, o.failure, o.seq as settled_seq, o.error_line, o.gist,
           (extract(epoch from o.at) * 1000)::bigint as recorded_ms, o.duration_ms, o.result_bytes,
           encode(o.trace_id, 'hex') as report_trace, p.attempt as permitted,
           coalesce(u.input_tokens, 0)::bigint as input_tokens, coalesce(u.output_tokens, 0)::bigint as output_tokens,
           coalesce(u.cache_read_tokens, 0)::bigint as cache_read_tokens,
           coalesce(u.cache_write_tokens, 0)::bigint as cache_write_tokens,
           coalesce(u.cost_micros, 0)::bigint as cost_micros,
           r.retry_call, r.retry_kind, r.waited_ms, a.approval_id as asked, c.observed,
           encode(c.fingerprint, 'hex') as fingerprint, c.effect, c.resource
         from unnest($2::int2[], $3::text[], $4::text[], $5::text[], $6::int8[]) with ordinality
           as k(shard, root_id, session_id, call_id, last_us, no)
         join call_tree t on t.shard = k.shard and t.tenant_id = $1 and t.root_id = k.root_id
         join session s on s.shard = t.shard and s.tenant_id = t.tenant_id and s.session_id = k.session_id
         cross join lateral (
           select c.* from call c where c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
             and c.session_id = k.session_id and c.call_id = k.call_id order by c.round desc limit 1) c
         join call f on {f} and f.call_id = c.call_id and f.round = 1
         left join lateral (
           select x.seq, x.attempt, x.lease_until from call x where {x} and x.call_id = c.call_id
             and x.attempt is not null order by x.round desc limit 1) p on true
         left join lateral (
           select x.* from outcome x where {x} and x.permit_seq = p.seq
             order by (x.status = {RUNNING}), x.seq desc limit 1)
           o on true
         left join lateral (
           select sum(coalesce(x.cost_micros, 0) + coalesce(y.cost_micros, 0)) as cost_micros,
             sum(coalesce(x.input_tokens, 0) + coalesce(y.input_tokens, 0)) as input_tokens,
             sum(coalesce(x.output_tokens, 0) + coalesce(y.output_tokens, 0)) as output_tokens,
             sum(coalesce(x.cache_read_tokens, 0) + coalesce(y.cache_read_tokens, 0)) as cache_read_tokens,
             sum(coalesce(x.cache_write_tokens, 0) + coalesce(y.cache_write_tokens, 0)) as cache_write_tokens
           from call x left join lateral (
             select sum(z.cost_micros) as cost_micros, sum(z.input_tokens) as input_tokens,
               sum(z.output_tokens) as output_tokens, sum(z.cache_read_tokens) as cache_read_tokens,
               sum(z.cache_write_tokens) as cache_write_tokens
             from outcome z where {z} and z.permit_seq = x.seq) y on true
           where {x} and x.call_id = c.call_id) u on true
         left join lateral (
           select x.retry_kind, x.waited_ms, y.call_id as retry_call
           from call x join call y on {y} and y.seq = x.retry_of
           where {x} and x.call_id = c.call_id and x.retry_of is not null order by x.round desc limit 1) r on true
         left join lateral (
           select x.approval_id from call x where {x} and x.call_id = c.call_id and x.approval_id is not null
           order by x.round desc limit 1) a on true
         order by k.no",
        status = status(),
    );
    let shards: Vec<i16> = keys.iter().map(|key| key.shard).collect();
    let roots: Vec<&str> = keys.iter().map(|key| key.place.root.as_str()).collect();
    let sessions: Vec<&str> = keys.iter().map(|key| key.session.as_str()).collect();
    let calls: Vec<&str> = keys.iter().map(|key| key.call_id.as_str()).collect();
    let heard: Vec<i64> = keys.iter().map(|key| key.place.last_us).collect();
    let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(opener.tenant().0).bind(shards).bind(roots);
    let rows = query.bind(sessions).bind(calls).bind(heard).fetch_all(conn).await?;
    rows.iter().map(|row| decode_call(row, opener)).collect()
}

fn decode_call(row: &PgRow, opener: &Opener) -> LoadedRow<CallLine> {
    let session: String = row.try_get("session_id")?;
    let (seq, settled) = (count(row, "seq")?, count(row, "settled_seq")?);
    let report = |what: &str, column: &str| opener.optional_text(what, &session, settled, row.try_get(column)?);
    let arguments = opener.optional_text(sealed::ARGUMENTS, &session, seq, row.try_get("arguments")?)?;
    let asked: Option<String> = row.try_get("asked")?;
    let last = judgement(row, &session, opener)?;
    let retry: Option<String> = row.try_get("retry_call")?;
    let kind = decode(row, "retry_kind")?;
    Ok(CallLine {
        place: CallPlace {
            last_us: row.try_get("last_us")?,
            root: row.try_get("root_id")?,
            seq: count(row, "first_seq")?,
        },
        parent: row.try_get("parent_id")?,
        depth: decode(row, "depth")?,
        batch: count(row, "batch")?,
        call_id: row.try_get("call_id")?,
        run: row.try_get("run_id")?,
        agent: row.try_get("agent_id")?,
        tool: row.try_get("tool")?,
        arguments: arguments.map(shorten_text),
        first_at: at(row, "first_ms")?,
        rounds: decode(row, "round")?,
        judgement: CallJudgment { approval: asked, attempt: decode(row, "permitted")?, ..last },
        status: code_of(row)?.map(|code| member(&OutcomeStatus::ALL, code)).transpose()?,
        failure: decode(row, "failure")?,
        error: report(sealed::ERROR_LINE, "error_line")?,
        gist: report(sealed::GIST, "gist")?,
        recorded_at: decode(row, "recorded_ms")?,
        duration_ms: decode(row, "duration_ms")?,
        usage: usage(row, "")?,
        retry_of: retry.zip(kind),
        waited_ms: decode(row, "waited_ms")?,
        observed: row.try_get("observed")?,
        fingerprint: row.try_get("fingerprint")?,
        report_trace: row.try_get("report_trace")?,
        effect: decode::<EffectKind>(row, "effect")?.as_str(),
        resource: opener.optional_text(sealed::RESOURCE, &session, seq, row.try_get("resource")?)?,
        result_bytes: decode(row, "result_bytes")?,
        session,
    })
}

/// Code of the outcome, as an integer: the type of a choice between columns and numbers.
fn code_of(row: &PgRow) -> LoadedRow<Option<i16>> {
    Ok(row.try_get::<Option<i32>, _>("status")?.and_then(|code| i16::try_from(code).ok()))
}

fn shorten_text(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(ARGUMENTS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}
