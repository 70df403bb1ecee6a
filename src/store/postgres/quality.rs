//! Tool quality counts, read from the calls of an hour.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;
use sqlx::{
    PgConnection, Postgres, Row as _,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{
    Store,
    codes::{ALLOW, ERROR, INVALID_ARGUMENT, RUNNING, SUCCESS, UNKNOWN},
    decode::{LoadedRow, corrupt, count, decode, name},
    sealed::{ARGUMENTS, Opener, length_condition},
};
use crate::error::StoreError;
use callgate_core::domain::{
    finding::Level,
    ids::{CallId, SessionId, TenantId, ToolName},
    quality::{
        CallName, EVIDENCE_MAX, EqualResults, Flaw, NearPair, PAIRS_MAX, QualityHour, StoredName, ToolCounts, ToolHour,
    },
    shard::Shard,
    time::Timestamp,
    violation::SelfCorrectionCount,
};

/// Maximum number of tools per hour, those with the most calls.
const TOOLS_MAX: i64 = 2_000;
/// Maximum number of fields with corrections.
const FIELDS_MAX: i64 = 10_000;
/// Maximum length of compared arguments, in bytes.
const ARGUMENTS_LONGEST: usize = 4_096;
/// Maximum number of unknown names per hour.
const UNKNOWN_MAX: i64 = 100;

/// Half-open period.
pub(super) type CountedHours = (Timestamp, Timestamp);

impl Store {
    /// Recent self-correction counts, the most frequent first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn self_corrections(&self, tenant: TenantId) -> Result<Vec<SelfCorrectionCount>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| self_corrections(conn, tenant).await).await
    }

    /// True if anything was judged or reported in that period.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn has_calls(&self, tenant: TenantId, span: CountedHours) -> Result<bool, StoreError> {
        let sql = "select exists (select from call c where c.tenant_id = $1 and c.at >= to_timestamp($2 / 1000.0)
           and c.at < to_timestamp($3 / 1000.0))";
        let (from, until) = (span.0.as_millis(), span.1.as_millis());
        let read = async |conn: &mut PgConnection| {
            Ok(sqlx::query_scalar(sql).bind(tenant.0).bind(from).bind(until).fetch_one(conn).await?)
        };
        self.slow.read_of(&[tenant], read).await
    }

    /// Counts of that period's calls, at most an hour, all of which are read.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn quality_hour(&self, tenant: TenantId, span: CountedHours) -> Result<QualityHour, StoreError> {
        let opener = self.opener(tenant);
        let read = async |conn: &mut PgConnection| {
            Ok(QualityHour {
                tools: tools(conn, tenant, span).await?,
                near_pairs: NearPair::by_tool(equal_results(conn, tenant, span, &opener).await?),
                loop_ends: loop_ends(conn, tenant, span).await?,
                unknown: unknown_tools(conn, tenant, span).await?,
            })
        };
        self.slow.read_of(&[tenant], read).await
    }

    /// Existence of these calls in the store.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn check_stored(&self, tenant: TenantId, calls: &[&StoredName]) -> Result<Vec<bool>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| read_stored_flags(conn, tenant, calls).await).await
    }
}

async fn self_corrections(conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<Vec<SelfCorrectionCount>> {
    let rows = sqlx::query(
        "select tool, field, rule, refusals, corrected from self_corrections
         where tenant_id = $1 order by refusals desc, tool, field, rule limit $2",
    );
    let rows = rows.bind(tenant.0).bind(FIELDS_MAX).fetch_all(conn).await?;
    let counts = rows.iter().map(|row| {
        Ok(SelfCorrectionCount {
            tool: decode(row, "tool")?,
            field: row.try_get("field")?,
            rule: row.try_get("rule")?,
            refusals: count(row, "refusals")?,
            corrected: count(row, "corrected")?,
        })
    });
    counts.collect()
}

/// Counts by tool of existing tools' calls, each once, by its first judgment. The outcome of a permit is its last
/// report except heartbeats. The view `tool_quality` counts the same by day.
static TOOLS: LazyLock<String> = LazyLock::new(|| {
    format!(
        r#"with judged as (
     select c.*, s.status, s.is_complete, s.settled_failure,
       jsonb_path_exists(c.findings,
         '$[*] ? (@.level != null && @.rule != "budget" && @.rule != "growth" && @.rule != "unknown_tool")') as in_loop,
       c.reason = 'validation_error' and jsonb_path_exists(c.findings,
         '$[*] ? (@.rule == $rule).violations[*] ? (@.keyword != "condition" && @.keyword != "require_reason")',
         jsonb_build_object('rule', c.rule)) as is_refused
     from call c
     left join lateral (
       select o.status, o.is_complete, o.failure as settled_failure from outcome o
       where o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
         and o.session_id = c.session_id and o.permit_seq = c.seq and o.status > {RUNNING}
       order by o.seq desc limit 1) s on true
     where c.tenant_id = $1 and c.at >= to_timestamp($2 / 1000.0) and c.at < to_timestamp($3 / 1000.0)),
   asked as materialized (
     select shard, epoch, session_id, call_id, min(tool) as tool, max(at) as at, max(seq) as seq,
       bool_or(round = 1)::integer as calls, count(attempt) as permitted, count(status) as settled,
       count(*) filter (where status = {SUCCESS}) as successes, count(*) filter (where status = {ERROR}) as failed,
       count(*) filter (where retry_kind = 0) as retries, coalesce(bool_or(in_loop), false)::integer as loops,
       coalesce(bool_or(reason = 'duplicate_call_blocked'), false)::integer as duplicates,
       coalesce(bool_or(is_refused), false)::integer as refused_arguments,
       coalesce(bool_or(is_refused), false)::integer
         + count(*) filter (where settled_failure = {INVALID_ARGUMENT}) as bad_arguments,
       bool_or(coerced is not null)::integer as coercions, min(coerced::text) as fields,
       coalesce(bool_or(decision > {ALLOW} and rule = 'budget'), false)::integer as over_budget,
       count(*) filter (where status = {UNKNOWN}) as unknown_outcomes,
       count(*) filter (where status = {SUCCESS} and is_complete is null) as silent
     from judged
     group by shard, epoch, session_id, call_id
     having not coalesce(bool_or(decision > {ALLOW} and rule = 'unknown_tool'), false)),
   shown as (
     select a.tool, f.flaw, a.shard, a.epoch, a.session_id, a.call_id,
       row_number() over (partition by a.tool, f.flaw order by a.at desc, a.seq desc) as n
     from asked a cross join lateral (values (0, retries), (1, loops), (2, duplicates), (3, bad_arguments),
       (4, coercions), (5, unknown_outcomes), (6, failed), (7, silent)) f (flaw, shown)
     where f.shown > 0),
   evidence as (
     select tool, jsonb_agg(jsonb_build_array(flaw, shard, epoch - date '1970-01-01', session_id, call_id)
       order by flaw, n)::text as evidence
     from shown where n <= $5 group by tool),
   coerced as (
     select tool, jsonb_object_agg(field, calls)::text as coerced
     from (
       select a.tool, regexp_replace(x.field, '\[\d+\]', '[]', 'g') as field,
         count(distinct (a.session_id, a.call_id)) as calls
       from asked a cross join lateral jsonb_array_elements_text(a.fields::jsonb) as x (field)
       where a.fields is not null group by 1, 2) f
     group by tool)
   select t.*, e.evidence, k.coerced
   from (
     select tool, sum(calls)::bigint as calls, sum(permitted)::bigint as permitted, sum(settled)::bigint as settled,
       sum(successes)::bigint as successes, sum(failed)::bigint as failed, sum(retries)::bigint as retries,
       sum(loops)::bigint as loops, sum(duplicates)::bigint as duplicates,
       sum(refused_arguments)::bigint as refused_arguments, sum(bad_arguments)::bigint as bad_arguments,
       sum(coercions)::bigint as coercions, sum(over_budget)::bigint as over_budget,
       sum(unknown_outcomes)::bigint as unknown_outcomes, sum(silent)::bigint as silent
     from asked group by tool order by sum(calls) desc, tool limit $4) t
   left join evidence e on e.tool = t.tool left join coerced k on k.tool = t.tool"#
    )
});

async fn tools(
    conn: &mut PgConnection,
    tenant: TenantId,
    span: CountedHours,
) -> LoadedRow<BTreeMap<ToolName, ToolHour>> {
    let rows = of_span(&TOOLS, tenant, span).bind(TOOLS_MAX).bind(EVIDENCE_MAX as i64).fetch_all(conn).await?;
    rows.iter().map(|row| Ok((decode(row, "tool")?, tool(row)?))).collect()
}

/// An example call, with the flaw's index.
#[derive(Deserialize)]
struct FlawExample(usize, i16, i32, String, String);

fn tool(row: &PgRow) -> LoadedRow<ToolHour> {
    let counts = ToolCounts {
        calls: count(row, "calls")?,
        permitted: count(row, "permitted")?,
        settled: count(row, "settled")?,
        successes: count(row, "successes")?,
        failed: count(row, "failed")?,
        retries: count(row, "retries")?,
        loops: count(row, "loops")?,
        duplicates: count(row, "duplicates")?,
        refused_arguments: count(row, "refused_arguments")?,
        bad_arguments: count(row, "bad_arguments")?,
        coercions: count(row, "coercions")?,
        over_budget: count(row, "over_budget")?,
        unknown_outcomes: count(row, "unknown_outcomes")?,
        silent: count(row, "silent")?,
    };
    let mut evidence: BTreeMap<Flaw, Vec<StoredName>> = BTreeMap::new();
    for FlawExample(flaw, shard, epoch, session, call_id) in read::<Vec<FlawExample>>(row.try_get("evidence")?)? {
        let name = call_name(&session, &call_id)?;
        evidence.entry(Flaw::ALL[flaw]).or_default().push(StoredName { name, shard: Shard(shard), epoch });
    }
    Ok(ToolHour { counts, evidence, coerced: read(row.try_get("coerced")?)? })
}

fn read<T: for<'de> Deserialize<'de> + Default>(json: Option<&str>) -> LoadedRow<T> {
    let read = |json| serde_json::from_str(json).map_err(|error| corrupt(&error.to_string()));
    json.map_or_else(|| Ok(T::default()), read)
}

fn of_span(sql: &str, tenant: TenantId, (from, until): CountedHours) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).bind(tenant.0).bind(from.as_millis()).bind(until.as_millis())
}

fn call_name(session: &str, call_id: &str) -> LoadedRow<CallName> {
    Ok(CallName { session: name(SessionId::parse, session)?, call_id: name(CallId::parse, call_id)? })
}

/// Pairs each success with the previous one of an equal result; the planner would underestimate a full join.
async fn equal_results(
    conn: &mut PgConnection,
    tenant: TenantId,
    span: CountedHours,
    opener: &Opener,
) -> LoadedRow<Vec<EqualResults>> {
    let sql = format!(
        "with done as (
           select c.shard, c.epoch, c.session_id, c.seq, c.fingerprint, lag(c.seq) over w as before,
             lag(c.fingerprint) over w as other
           from call c join outcome o on o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
             and o.session_id = c.session_id and o.permit_seq = c.seq and o.status = {SUCCESS}
           where c.tenant_id = $1 and c.at >= to_timestamp($2 / 1000.0) and c.at < to_timestamp($3 / 1000.0)
             and o.digest is not null
           window w as (partition by c.shard, c.epoch, c.session_id, c.tool, o.digest order by c.seq)),
         pairs as materialized (
           select * from done where other <> fingerprint order by epoch desc, seq desc limit $4)
         select b.tool, p.shard, p.epoch - date '1970-01-01' as day, p.session_id,
           a.call_id as first_id, a.seq as first_seq, a.arguments as first,
           b.call_id as second_id, b.seq as second_seq, b.arguments as second
         from pairs p
         join call a on a.shard = p.shard and a.tenant_id = $1 and a.epoch = p.epoch and a.session_id = p.session_id
           and a.seq = p.before
         join call b on b.shard = p.shard and b.tenant_id = $1 and b.epoch = p.epoch and b.session_id = p.session_id
           and b.seq = p.seq
         where {} and {}
         order by p.epoch desc, p.seq desc",
        length_condition("a.arguments", ARGUMENTS_LONGEST),
        length_condition("b.arguments", ARGUMENTS_LONGEST)
    );
    let pair = |row: &PgRow| {
        let session = row.try_get("session_id")?;
        let one = |id: &str, seq: &str, arguments: &str| -> LoadedRow<(StoredName, String)> {
            let place = StoredName {
                name: call_name(session, row.try_get(id)?)?,
                shard: Shard(row.try_get("shard")?),
                epoch: row.try_get("day")?,
            };
            Ok((place, opener.text(ARGUMENTS, session, count(row, seq)?, row.try_get(arguments)?)?))
        };
        Ok(EqualResults {
            tool: decode(row, "tool")?,
            first: one("first_id", "first_seq", "first")?,
            second: one("second_id", "second_seq", "second")?,
        })
    };
    of_span(&sql, tenant, span).bind(PAIRS_MAX).fetch_all(conn).await?.iter().map(pair).collect()
}

async fn unknown_tools(
    conn: &mut PgConnection,
    tenant: TenantId,
    span: CountedHours,
) -> LoadedRow<BTreeMap<ToolName, (u64, u64)>> {
    let sql = "select tool, count(distinct (session_id, call_id)) as calls, count(distinct session_id) as sessions
         from findings
         where tenant_id = $1 and judged_at >= to_timestamp($2 / 1000.0) and judged_at < to_timestamp($3 / 1000.0)
           and rule = 'unknown_tool'
         group by tool order by calls desc, tool limit $4";
    let one = |row: &PgRow| Ok((decode(row, "tool")?, (count(row, "calls")?, count(row, "sessions")?)));
    of_span(sql, tenant, span).bind(UNKNOWN_MAX).fetch_all(conn).await?.iter().map(one).collect()
}

async fn loop_ends(conn: &mut PgConnection, tenant: TenantId, span: CountedHours) -> LoadedRow<BTreeMap<Level, u64>> {
    let sql = "select level, count(*) as loops from (
           select max(array_position(array['warning', 'critical', 'break'], level))::int2 as level from findings
           where tenant_id = $1 and judged_at >= to_timestamp($2 / 1000.0) and judged_at < to_timestamp($3 / 1000.0)
             and is_loop
           group by root_id, session_id, run_from, rule) x
         group by level";
    let rows = of_span(sql, tenant, span).fetch_all(conn).await?;
    let one = |row: &PgRow| Ok((decode(row, "level")?, count(row, "loops")?));
    rows.iter().map(one).collect()
}

async fn read_stored_flags(conn: &mut PgConnection, tenant: TenantId, calls: &[&StoredName]) -> LoadedRow<Vec<bool>> {
    // The day is a column of its own: row-level security lets no expression choose rows by an index.
    let sql = "with x as materialized (
           select no, shard, date '1970-01-01' + day as epoch, session_id, call_id
           from unnest($2::int2[], $3::int4[], $4::text[], $5::text[]) with ordinality
             as x(shard, day, session_id, call_id, no))
         select exists (
           select from call c where c.shard = x.shard and c.tenant_id = $1 and c.epoch = x.epoch
             and c.session_id = x.session_id and c.call_id = x.call_id)
         from x order by x.no";
    let rows = sqlx::query_scalar(sql)
        .bind(tenant.0)
        .bind(calls.iter().map(|call| call.shard.0).collect::<Vec<_>>())
        .bind(calls.iter().map(|call| call.epoch).collect::<Vec<_>>())
        .bind(calls.iter().map(|call| call.name.session.as_str()).collect::<Vec<_>>())
        .bind(calls.iter().map(|call| call.name.call_id.as_str()).collect::<Vec<_>>());
    Ok(rows.fetch_all(conn).await?)
}
