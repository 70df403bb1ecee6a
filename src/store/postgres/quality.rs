//! Tool quality, read back: the view's days added up, and the calls behind them.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    Store,
    decode::{Loaded, count, member, name},
    sealed::{ARGUMENTS, Opener, within},
};
use crate::{
    domain::{
        finding::Level,
        ids::{CallId, SessionId, TenantId, ToolName},
        quality::{CallName, EqualResults, Flaw, ToolQuality, UnknownTool},
        violation::SelfCorrectionCount,
    },
    store::error::StoreError,
};

/// Calls that show a flaw.
const EVIDENCE_MAX: i64 = 5;
/// Tools of one report.
const TOOLS_MAX: i64 = 500;
/// Fields whose corrections are read back.
const FIELDS_MAX: i64 = 10_000;
/// Pairs with equal results that are compared.
const PAIRS_MAX: i64 = 2_000;
/// Longest arguments that are compared, in bytes.
const ARGUMENTS_MAX: usize = 4_096;
/// Names of tools that do not exist of one report.
const UNKNOWN_MAX: i64 = 100;
/// A judgement `c` has a finding of a loop, as the view `findings` tells them.
const IN_LOOP: &str = "exists (select from jsonb_array_elements(c.findings) f (finding)
  where f.finding ->> 'level' is not null and f.finding ->> 'rule' not in ('budget', 'growth', 'unknown_tool'))";

impl Store {
    /// How well tools suit agents, over the last days; one tool, or all.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tool_quality(
        &self,
        tenant: TenantId,
        tool: Option<&ToolName>,
        days: i32,
    ) -> Result<Vec<ToolQuality>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| quality(conn, tenant, tool, days).await).await
    }

    /// What refusals for arguments came to lately, the most frequent first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn self_corrections(&self, tenant: TenantId) -> Result<Vec<SelfCorrectionCount>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| self_corrections(conn, tenant).await).await
    }

    /// Pairs of successes of one tool in one session with the same result and other arguments, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn equal_results(
        &self,
        tenant: TenantId,
        tool: Option<&ToolName>,
        days: i32,
    ) -> Result<Vec<EqualResults>, StoreError> {
        let opener = self.opener(tenant);
        self.readers.read_of(&[tenant], async |conn| equal_results(conn, tenant, tool, days, &opener).await).await
    }

    /// Names of tools that do not exist, the most called first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn unknown_tools(
        &self,
        tenant: TenantId,
        tool: Option<&ToolName>,
        days: i32,
    ) -> Result<Vec<UnknownTool>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| unknown_tools(conn, tenant, tool, days).await).await
    }

    /// Runs of sessions by the highest level that a loop in them reached.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn loop_ends(&self, tenant: TenantId, days: i32) -> Result<Vec<(Level, u64)>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| loop_ends(conn, tenant, days).await).await
    }
}

async fn self_corrections(conn: &mut PgConnection, tenant: TenantId) -> Loaded<Vec<SelfCorrectionCount>> {
    let rows = sqlx::query(
        "select tool, field, rule, refusals, corrected from self_corrections
         where tenant_id = $1 order by refusals desc, tool, field, rule limit $2",
    );
    let rows = rows.bind(tenant.0).bind(FIELDS_MAX).fetch_all(conn).await?;
    let counts = rows.iter().map(|row| {
        Ok(SelfCorrectionCount {
            tool: name(ToolName::parse, row.try_get("tool")?)?,
            field: row.try_get("field")?,
            rule: row.try_get("rule")?,
            refusals: count(row, "refusals")?,
            corrected: count(row, "corrected")?,
        })
    });
    counts.collect()
}

async fn quality(
    conn: &mut PgConnection,
    tenant: TenantId,
    tool: Option<&ToolName>,
    days: i32,
) -> Loaded<Vec<ToolQuality>> {
    let share = |(part, of): (&str, &str), name: &str| {
        format!("coalesce(sum({part})::float8 / nullif(sum({of}), 0), 0)::float8 as {name}")
    };
    let rates = Flaw::ALL.map(|flaw| share(flaw.share(), flaw.rate()));
    let sql = format!(
        "select tool, sum(calls)::bigint as calls, sum(permitted)::bigint as permitted, {rates}, {validation}, {budget}
         from tool_quality
         where tenant_id = $1 and ($2::text is null or tool = $2)
           and day > (now() at time zone 'utc')::date - $3::int4
         group by tool order by sum(calls) desc, tool limit $4",
        rates = rates.join(", "),
        validation = share(("refused_arguments", "calls"), "validation_refusal_rate"),
        budget = share(("over_budget", "calls"), "budget_refusal_rate"),
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(tenant.0).bind(tool.map(ToolName::as_str));
    let rows = query.bind(days).bind(TOOLS_MAX).fetch_all(&mut *conn).await?;
    let mut tools = rows.iter().map(one).collect::<Loaded<Vec<ToolQuality>>>()?;
    for quality in &mut tools {
        if let Some(flaw) = quality.worst() {
            quality.evidence = evidence(&mut *conn, tenant, &quality.tool, flaw, days).await?;
        }
    }
    Ok(tools)
}

fn one(row: &PgRow) -> Loaded<ToolQuality> {
    let mut rates = [0.0; Flaw::ALL.len()];
    for (rate, flaw) in rates.iter_mut().zip(Flaw::ALL) {
        *rate = row.try_get(flaw.rate())?;
    }
    Ok(ToolQuality {
        tool: name(ToolName::parse, row.try_get("tool")?)?,
        calls: count(row, "calls")?,
        permitted: count(row, "permitted")?,
        rates,
        validation_refusal_rate: row.try_get("validation_refusal_rate")?,
        budget_refusal_rate: row.try_get("budget_refusal_rate")?,
        evidence: Vec::new(),
    })
}

async fn evidence(
    conn: &mut PgConnection,
    tenant: TenantId,
    tool: &ToolName,
    flaw: Flaw,
    days: i32,
) -> Loaded<Vec<CallName>> {
    let of_outcome = |condition: &str| {
        format!(
            "exists (select from outcome o where o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
               and o.session_id = c.session_id and o.permit_seq = c.seq and {condition})"
        )
    };
    let shows = match flaw {
        Flaw::Retries => "c.retry_kind = 0".to_owned(),
        Flaw::Loops => IN_LOOP.to_owned(),
        Flaw::Duplicates => "c.reason = 'duplicate_call_blocked'".to_owned(),
        Flaw::Validation => format!("(c.reason = 'validation_error' or {})", of_outcome("o.failure = 8")),
        Flaw::Coercions => "c.coerced is not null".to_owned(),
        Flaw::UnknownOutcomes => of_outcome("o.status = 4"),
        Flaw::Failures => of_outcome("o.status = 2"),
        Flaw::MissingIsComplete => of_outcome("o.status = 1 and o.is_complete is null"),
    };
    let sql = format!(
        "select c.session_id, c.call_id from call c where c.tenant_id = $1 and c.tool = $2
           and c.at > now() - make_interval(days => $3) and {shows} order by c.at desc, c.seq desc limit $4"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(tenant.0).bind(tool.as_str()).bind(days).bind(EVIDENCE_MAX);
    query.fetch_all(conn).await?.iter().map(|row| call_name(row, "session_id", "call_id")).collect()
}

fn call_name(row: &PgRow, session: &str, call_id: &str) -> Loaded<CallName> {
    Ok(CallName {
        session: name(SessionId::parse, row.try_get(session)?)?,
        call_id: name(CallId::parse, row.try_get(call_id)?)?,
    })
}

async fn equal_results(
    conn: &mut PgConnection,
    tenant: TenantId,
    tool: Option<&ToolName>,
    days: i32,
    opener: &Opener,
) -> Loaded<Vec<EqualResults>> {
    let sql = format!(
        "with done as (
           select c.session_id, c.epoch, c.seq, c.call_id, c.tool, c.fingerprint, c.arguments, o.digest
           from call c join outcome o on o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
             and o.session_id = c.session_id and o.permit_seq = c.seq and o.status = 1
           where c.tenant_id = $1 and ($2::text is null or c.tool = $2) and c.at > now() - make_interval(days => $3)
             and {} and o.digest is not null)
         select a.tool, a.session_id, a.call_id as first_id, a.seq as first_seq, a.arguments as first,
           b.call_id as second_id, b.seq as second_seq, b.arguments as second
         from done a join done b on b.epoch = a.epoch and b.session_id = a.session_id and b.tool = a.tool
           and b.digest = a.digest and b.seq > a.seq and b.fingerprint <> a.fingerprint
         order by b.epoch desc, b.seq desc limit $4",
        within("c.arguments", ARGUMENTS_MAX)
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql));
    let rows = rows.bind(tenant.0).bind(tool.map(ToolName::as_str)).bind(days).bind(PAIRS_MAX);
    let pair = |row: &PgRow| {
        let session = row.try_get("session_id")?;
        let open =
            |arguments: &str, seq: &str| opener.text(ARGUMENTS, session, count(row, seq)?, row.try_get(arguments)?);
        Ok(EqualResults {
            tool: name(ToolName::parse, row.try_get("tool")?)?,
            first: (call_name(row, "session_id", "first_id")?, open("first", "first_seq")?),
            second: (call_name(row, "session_id", "second_id")?, open("second", "second_seq")?),
        })
    };
    rows.fetch_all(conn).await?.iter().map(pair).collect()
}

async fn unknown_tools(
    conn: &mut PgConnection,
    tenant: TenantId,
    tool: Option<&ToolName>,
    days: i32,
) -> Loaded<Vec<UnknownTool>> {
    let rows = sqlx::query(
        "select tool, count(distinct (session_id, call_id)) as calls, count(distinct session_id) as sessions
         from findings
         where tenant_id = $1 and rule = 'unknown_tool' and ($2::text is null or tool = $2)
           and judged_at > now() - make_interval(days => $3)
         group by tool order by calls desc, tool limit $4",
    );
    let rows = rows.bind(tenant.0).bind(tool.map(ToolName::as_str)).bind(days).bind(UNKNOWN_MAX);
    let one = |row: &PgRow| {
        Ok(UnknownTool {
            tool: name(ToolName::parse, row.try_get("tool")?)?,
            calls: count(row, "calls")?,
            sessions: count(row, "sessions")?,
        })
    };
    rows.fetch_all(conn).await?.iter().map(one).collect()
}

async fn loop_ends(conn: &mut PgConnection, tenant: TenantId, days: i32) -> Loaded<Vec<(Level, u64)>> {
    let rows = sqlx::query(
        "select level, count(*) as loops from (
           select max(array_position(array['warning', 'critical', 'break'], level))::int2 as level from findings
           where tenant_id = $1 and is_loop and judged_at > now() - make_interval(days => $2)
           group by root_id, session_id, run_from, rule) x
         group by level order by level",
    );
    let rows = rows.bind(tenant.0).bind(days).fetch_all(conn).await?;
    rows.iter()
        .map(|row| Ok((member(&Level::ALL, row.try_get::<i16, _>("level")? - 1)?, count(row, "loops")?)))
        .collect()
}
