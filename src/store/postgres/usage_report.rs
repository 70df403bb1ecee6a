//! Usage of a period: from the hourly rollup as far as it is counted, and from the view of calls after that.

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store,
    decode::{LoadedRow, corrupt, count},
};
use crate::error::StoreError;
use callgate_core::domain::{
    ids::TenantId,
    time::Timestamp,
    usage_report::{UsageDimension, UsageGroup, UsageReport, UsageTotals},
};

/// Most groups of a property that are read, the most expensive.
const GROUPS_MAX: i64 = 1_000;

/// Rows of the rollup before the first hour that is not counted.
const COUNTED: &str =
    "select h.hour as at, h.tool, h.agent_id, h.model, h.outcome, h.judgments, h.calls, h.saved_calls,
    h.saved_micros, h.cost_micros, h.input_tokens, h.output_tokens, h.cache_read_tokens, h.cache_write_tokens,
    h.duration_ms, h.durations
  from calls_hourly h where h.tenant_id = $1";

/// The same of calls, as the rollup counts them.
const STORED: &str = "select c.judged_at as at, c.tool, c.agent_id, c.model, c.outcome, 1 as judgments,
    (c.round = 1)::int as calls, c.saved_calls, c.saved_micros, c.cost_micros, c.input_tokens, c.output_tokens,
    c.cache_read_tokens, c.cache_write_tokens, c.duration_ms, (c.duration_ms is not null)::int as durations
  from calls c where c.tenant_id = $1";

impl Store {
    /// The first hour of the tenant that the hourly rollup does not have; none before its first run.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn uncounted_hour(&self, tenant: TenantId) -> Result<Option<Timestamp>, StoreError> {
        let hour = "select (extract(epoch from calls_counted_before) * 1000)::bigint from tenant where tenant_id = $1";
        let read = async |conn: &mut PgConnection| {
            let hour: Option<Option<i64>> = sqlx::query_scalar(hour).bind(tenant.0).fetch_optional(conn).await?;
            Ok(hour.flatten().map(Timestamp::from_millis))
        };
        self.readers.read_of(&[tenant], read).await
    }

    /// Usage in a half-open period of full hours that the rollup has counted.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn counted_usage(&self, tenant: TenantId, period: UsagePeriod) -> Result<UsageReport, StoreError> {
        self.readers.read_of(&[tenant], async |conn| sum(conn, tenant, period, (COUNTED, "h.hour")).await).await
    }

    /// Usage in a half-open period, from each of its calls.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn stored_usage(&self, tenant: TenantId, period: UsagePeriod) -> Result<UsageReport, StoreError> {
        self.readers.read_of(&[tenant], async |conn| sum(conn, tenant, period, (STORED, "c.judged_at")).await).await
    }
}

/// A half-open period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsagePeriod {
    pub from: Timestamp,
    pub until: Timestamp,
    /// Times are hours, not days.
    pub is_hourly: bool,
}

/// One scan for all groupings. Rows are first summed by all properties, so that prices join few of them.
fn statement(is_hourly: bool, (source, at): (&str, &str)) -> String {
    let unit = if is_hourly { "hour" } else { "day" };
    format!(
        "with summed as (
           select date_trunc('{unit}', s.at, 'utc') as start, (s.at at time zone 'utc')::date as day, s.tool,
              s.agent_id,
             s.model, sum(s.calls) as calls, sum(s.saved_calls) as not_run,
             sum(s.judgments) filter (where s.outcome = 'error') as failed, sum(s.cost_micros) as cost_micros,
             sum(s.saved_micros) as saved_micros, sum(s.input_tokens) as input, sum(s.output_tokens) as output,
             sum(s.cache_read_tokens) as cache_read, sum(s.cache_write_tokens) as cache_write,
             sum(s.duration_ms) as duration_ms, sum(s.durations) as durations
           from ({source} and {at} >= to_timestamp($2 / 1000.0) and {at} < to_timestamp($3 / 1000.0)) s
           group by 1, 2, 3, 4, 5),
         priced as (
           select x.*, x.input + x.output + x.cache_read + x.cache_write as tokens,
             case when p.model is null then x.input + x.output + x.cache_read + x.cache_write else 0 end as unpriced,
             coalesce(x.input::float8 * p.input_micros + x.output::float8 * p.output_micros
               + x.cache_read::float8 * p.cache_read_micros + x.cache_write::float8 * p.cache_write_micros, 0) / 1e6
               as priced_micros
           from summed x
           left join (
             select *, lead(valid_from, 1, 'infinity') over (partition by model order by valid_from) as valid_before
             from model_price
           ) p on p.model = x.model and x.day >= p.valid_from and x.day < p.valid_before),
         grouped as (
           select grouping(start, tool, agent_id, model) as kind,
              (extract(epoch from start) * 1000)::bigint as start_ms,
             tool, agent_id, model, sum(calls)::bigint as calls, sum(not_run)::bigint as not_run,
             sum(failed)::bigint as failed, sum(cost_micros)::bigint as cost_micros,
             sum(saved_micros)::bigint as saved_micros, sum(tokens)::bigint as tokens,
              sum(unpriced)::bigint as unpriced,
             sum(priced_micros)::bigint as priced_micros, sum(duration_ms)::bigint as duration_ms,
             sum(durations)::bigint as durations
           from priced group by grouping sets ((), (start), (tool), (agent_id), (model)))
         select * from (
           select *, row_number() over (
             partition by kind order by coalesce(cost_micros, 0) + coalesce(priced_micros, 0) desc, calls desc, start_ms
           ) as place from grouped) g
         where place <= {GROUPS_MAX}"
    )
}

async fn sum(
    conn: &mut PgConnection,
    tenant: TenantId,
    period: UsagePeriod,
    source: (&str, &str),
) -> LoadedRow<UsageReport> {
    let rows = sqlx::query(AssertSqlSafe(statement(period.is_hourly, source)));
    let rows = rows.bind(tenant.0).bind(period.from.as_millis()).bind(period.until.as_millis());
    let rows = rows.fetch_all(conn).await?;
    let mut report = UsageReport { from: period.from, until: period.until, ..UsageReport::default() };
    for row in &rows {
        let totals = decode_totals(row)?;
        // A bit a column, that of the last one lowest; set where the row is not grouped by it.
        let (dimension, column) = match row.try_get::<i32, _>("kind")? {
            0b1111 => {
                report.total = totals;
                continue;
            }
            0b0111 => (UsageDimension::Time, None),
            0b1011 => (UsageDimension::Tool, Some("tool")),
            0b1101 => (UsageDimension::Agent, Some("agent_id")),
            0b1110 => (UsageDimension::Model, Some("model")),
            _ => return Err(corrupt("usage is grouped by an unknown column")),
        };
        let start = row.try_get::<Option<i64>, _>("start_ms")?.map(Timestamp::from_millis);
        let name = column.map(|column| row.try_get::<Option<String>, _>(column)).transpose()?.flatten();
        report.groups.push(UsageGroup { dimension, name: name.unwrap_or_default(), start, totals });
    }
    Ok(report)
}

fn decode_totals(row: &PgRow) -> LoadedRow<UsageTotals> {
    Ok(UsageTotals {
        calls: count(row, "calls")?,
        not_run: count(row, "not_run")?,
        failed: count(row, "failed")?,
        cost_micros: count(row, "cost_micros")?,
        saved_micros: count(row, "saved_micros")?,
        tokens: count(row, "tokens")?,
        unpriced_tokens: count(row, "unpriced")?,
        priced_micros: count(row, "priced_micros")?,
        duration_ms: count(row, "duration_ms")?,
        durations: count(row, "durations")?,
    })
}
