//! Retry report queries: days from the rollup, the newest retries from the calls.

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::{
    Store,
    codes::{ERROR, RUNNING, UNKNOWN},
    decode::{LoadedRow, at, count, decode},
    row::code,
};
use crate::error::StoreError;
use callgate_core::domain::{
    failure::FailureKind,
    ids::{TenantId, ToolName},
    retries::{RETRIES_MAX, RetryFilter, RetryGroup, TrialDay},
    time::Timestamp,
};

impl Store {
    /// Retries by UTC day, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn trial_days(&self, tenant: TenantId, of: RetryFilter<'_>) -> Result<Vec<TrialDay>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| days(conn, tenant, of).await).await
    }

    /// The matching ones of the tenant's newest retries, grouped by prediction; and the start of the covered period if
    /// there were more.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn retries(
        &self,
        tenant: TenantId,
        of: RetryFilter<'_>,
    ) -> Result<(Vec<RetryGroup>, Option<Timestamp>), StoreError> {
        self.readers.read_of(&[tenant], async |conn| retries(conn, tenant, of).await).await
    }
}

async fn days(conn: &mut PgConnection, tenant: TenantId, of: RetryFilter<'_>) -> LoadedRow<Vec<TrialDay>> {
    let rows = sqlx::query(
        "select (extract(epoch from date_trunc('day', hour, 'UTC')) * 1000)::bigint as day,
           sum(trials)::bigint as trials, sum(successes)::bigint as successes
         from retry_hourly
         where tenant_id = $1 and kind = 0 and hour >= date_trunc('day', now(), 'UTC') - make_interval(days => $4 - 1)
           and ($2::text is null or tool = $2) and ($3::int2 is null or failure = $3)
         group by 1 order by 1",
    );
    let failure = of.failure.map(|failure| code(&FailureKind::ALL, &failure));
    let rows = rows.bind(tenant.0).bind(of.tool.map(ToolName::as_str)).bind(failure).bind(of.days);
    let rows = rows.fetch_all(conn).await?;
    let day = |row: &sqlx::postgres::PgRow| {
        Ok(TrialDay { at: at(row, "day")?, trials: count(row, "trials")?, successes: count(row, "successes")? })
    };
    rows.iter().map(day).collect()
}

async fn retries(
    conn: &mut PgConnection,
    tenant: TenantId,
    of: RetryFilter<'_>,
) -> LoadedRow<(Vec<RetryGroup>, Option<Timestamp>)> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "with newest as materialized (
           select c.* from call c
           where c.tenant_id = $1 and c.retry_kind = 0 and c.at >= now() - make_interval(days => $4)
           order by c.at desc limit $5),
         ended as (
           select c.tool, c.retry_failure as failure, coalesce(c.probe, false) as probe, c.at, o.follow_up_ok as ok,
             c.p_predicted as p, least(floor(c.p_predicted * 10), 9)::smallint as tenth,
             o.status in ({ERROR}, {UNKNOWN}) as failed, c.retryable_said,
             coalesce(c.cost_micros, 0) + coalesce(o.cost_micros, 0) as cost,
             coalesce(c.input_tokens, 0) + coalesce(c.output_tokens, 0) + coalesce(c.cache_read_tokens, 0)
               + coalesce(c.cache_write_tokens, 0) + coalesce(o.input_tokens, 0) + coalesce(o.output_tokens, 0)
               + coalesce(o.cache_read_tokens, 0) + coalesce(o.cache_write_tokens, 0) as tokens,
             coalesce(c.waited_ms, 0) + coalesce(o.duration_ms, 0) as lost
           from newest c
           join lateral (
             select x.* from outcome x
             where x.shard = c.shard and x.tenant_id = c.tenant_id and x.epoch = c.epoch
               and x.session_id = c.session_id and x.permit_seq = c.seq and x.status > {RUNNING}
             order by x.seq desc limit 1) o on true
           where ($2::text is null or c.tool = $2) and ($3::int2 is null or c.retry_failure = $3))
         select tool, failure, probe, tenth, count(*) as retries, count(*) filter (where ok) as succeeded,
           count(*) filter (where failed) as failed,
           count(*) filter (where failed and not coalesce(retryable_said, true)) as against_advice,
           count(*) filter (where ok is not null) as known, sum(p) filter (where ok is not null) as predicted,
           sum(cost) filter (where failed)::bigint as cost, sum(tokens) filter (where failed)::bigint as tokens,
           sum(lost) filter (where failed)::bigint as lost, (extract(epoch from max(at)) * 1000)::bigint as last_at,
           back_to
         from (select case when count(*) = $5 then (extract(epoch from min(at)) * 1000)::bigint end as back_to
               from newest) b
         left join ended on true
         group by tool, failure, probe, tenth, back_to order by tool, failure, probe, tenth"
    )));
    let failure = of.failure.map(|failure| code(&FailureKind::ALL, &failure));
    let rows = rows
        .bind(tenant.0)
        .bind(of.tool.map(ToolName::as_str))
        .bind(failure)
        .bind(of.days)
        .bind(i64::from(RETRIES_MAX));
    let rows = rows.fetch_all(conn).await?;
    let back_to = rows.first().map_or(Ok(None), |row| decode(row, "back_to"))?;
    let one = |row: &sqlx::postgres::PgRow| {
        let tenth: Option<i16> = row.try_get("tenth")?;
        Ok(RetryGroup {
            tool: decode(row, "tool")?,
            failure: decode(row, "failure")?,
            probe: row.try_get("probe")?,
            tenth: tenth.and_then(|tenth| u8::try_from(tenth).ok()),
            retries: count(row, "retries")?,
            succeeded: count(row, "succeeded")?,
            failed: count(row, "failed")?,
            against_advice: count(row, "against_advice")?,
            known: count(row, "known")?,
            predicted: row.try_get::<Option<f64>, _>("predicted")?.unwrap_or(0.0),
            cost_micros: count(row, "cost")?,
            tokens: count(row, "tokens")?,
            lost_ms: count(row, "lost")?,
            last_at: at(row, "last_at")?,
        })
    };
    // The covered period is returned even without results, in a row of its own.
    let found = rows.iter().filter(|row| !matches!(row.try_get::<Option<&str>, _>("tool"), Ok(None)));
    Ok((found.map(one).collect::<LoadedRow<_>>()?, back_to))
}
