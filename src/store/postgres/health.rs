//! Shared health of tools: each replica adds its observations and reads those of others.

use std::sync::LazyLock;

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    Store,
    columns::{FLOAT8, INT2, INT4, INT8, TEXT, columns, unnest},
    decode::{LoadedRow, at, decode},
    row::code,
};
use crate::error::StoreError;
use callgate_core::domain::{
    failure::FailureKind,
    health::{Cooldown, HealthObservations, HealthRow},
    ids::{TenantId, ToolName},
    time::Timestamp,
};

columns! {
    /// One row per observed tool.
    SeenColumns / SeenRow {
        tenant_id: i64 => INT8, tool: String => TEXT, succeeded_ms: Option<i64> => INT8, failures: i32 => INT4,
        failing_ms: Option<i64> => INT8, cooldown_failure: Option<i16> => INT2,
        cooldown_since_ms: Option<i64> => INT8, cooldown_until_ms: Option<i64> => INT8,
        retries: f64 => FLOAT8,
    }
}

impl Store {
    /// Adds this replica's observations; returns the new rows. The retry budget refills by `per_minute`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; nothing was added then.
    pub async fn add_health(&self, seen: &[HealthObservations], per_minute: f64) -> Result<Vec<HealthRow>, StoreError> {
        self.readers.read(async |conn| add(conn, seen, per_minute).await).await
    }

    /// Health rows changed since.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn changed_health(&self, since: Timestamp) -> Result<Vec<HealthRow>, StoreError> {
        self.readers.read(async |conn| read_changes(conn, since).await).await
    }

    /// Claims the probe of a half-open circuit; false when another replica has it. A tool without a row can be claimed.
    /// The claim expires at `until`, which also identifies it.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn claim_probe(&self, tenant: TenantId, tool: &ToolName, until: Timestamp) -> Result<bool, StoreError> {
        self.readers.read_of(&[tenant], async |conn| claim(conn, tenant, tool, until).await).await
    }

    /// Releases an unused claim, unless it belongs to another replica by now.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the claim then expires.
    pub async fn release_probe(&self, tenant: TenantId, tool: &ToolName, until: Timestamp) -> Result<(), StoreError> {
        self.readers.read_of(&[tenant], async |conn| release(conn, tenant, tool, until).await).await
    }
}

/// Also used in `returning` clauses, where Citus requires expressions independent of settings: by its type, `extract`
/// of a time with a zone is not.
static ROW: LazyLock<String> = LazyLock::new(|| {
    let times = ["failing_since", "cooldown_since", "cooldown_until", "probe_until", "used_at", "changed_at"];
    let times = times.map(|at| format!("(extract(epoch from h.{at} at time zone 'utc') * 1000)::bigint as {at}"));
    format!("h.tenant_id, h.tool, h.failures, h.cooldown_failure, h.retries_used, {}", times.join(", "))
});

async fn add(conn: &mut PgConnection, seen: &[HealthObservations], per_minute: f64) -> LoadedRow<Vec<HealthRow>> {
    let mut rows = SeenColumns::default();
    let mut seen: Vec<&HealthObservations> = seen.iter().collect();
    // In one order for all replicas, so that they cannot wait for each other in a circle.
    seen.sort_by_key(|seen| (seen.tenant, &seen.tool));
    for seen in seen {
        let cooldown = seen.cooldown.as_ref();
        rows.push(SeenRow {
            tenant_id: seen.tenant.0,
            tool: seen.tool.to_string(),
            succeeded_ms: seen.succeeded_at.map(Timestamp::as_millis),
            failures: i32::try_from(seen.failures).unwrap_or(i32::MAX),
            failing_ms: seen.failing_since.map(Timestamp::as_millis),
            cooldown_failure: cooldown.map(|cooldown| code(&FailureKind::ALL, &cooldown.failure)),
            cooldown_since_ms: cooldown.map(|cooldown| cooldown.since.as_millis()),
            cooldown_until_ms: cooldown.map(|cooldown| cooldown.until.as_millis()),
            retries: seen.retries,
        });
    }
    let sql = format!(
        "insert into tool_health as h (tenant_id, tool, succeeded_at, failures, failing_since, cooldown_failure,
           cooldown_since, cooldown_until, retries_used, used_at, changed_at)
         select tenant_id, tool, to_timestamp(succeeded_ms / 1000.0), failures, to_timestamp(failing_ms / 1000.0),
           cooldown_failure, to_timestamp(cooldown_since_ms / 1000.0), to_timestamp(cooldown_until_ms / 1000.0),
           retries, now(), now()
         from {from}
         on conflict (tenant_id, tool) do update set
           succeeded_at = greatest(h.succeeded_at, excluded.succeeded_at),
           failures = case when {ended} then excluded.failures else h.failures + excluded.failures end,
           failing_since = case when {ended} then excluded.failing_since
             else coalesce(h.failing_since, excluded.failing_since) end,
           cooldown_failure = case {pick} then excluded.cooldown_failure {over} then null else h.cooldown_failure end,
           cooldown_since = case {pick} then excluded.cooldown_since {over} then null else h.cooldown_since end,
           cooldown_until = case {pick} then excluded.cooldown_until {over} then null else h.cooldown_until end,
           probe_until = case {pick} then null {over} then null else h.probe_until end,
           retries_used = greatest(0, greatest(0, h.retries_used
             - extract(epoch from {used_at} - h.used_at)::float8 / 60 * {per_minute}) + excluded.retries_used),
           used_at = {used_at}, changed_at = excluded.changed_at
         returning {row}",
        from = unnest(SeenColumns::LIST, 1),
        row = *ROW,
        // A waiter for the row lock may have an earlier time.
        used_at = "greatest(h.used_at, excluded.used_at)",
        // As a number in the text: Citus sends a parameter that only stands here on without its type.
        per_minute = format_args!("{:?}::float8", if per_minute.is_finite() { per_minute } else { 0.0 }),
        ended = "excluded.succeeded_at > coalesce(h.succeeded_at, '-infinity')",
        pick = "when excluded.cooldown_until >= coalesce(h.cooldown_until, '-infinity')",
        over = "when excluded.succeeded_at > h.cooldown_since",
    );
    let query = rows.bind(sqlx::query(sqlx::AssertSqlSafe(sql)));
    query.fetch_all(conn).await?.iter().map(row).collect()
}

async fn read_changes(conn: &mut PgConnection, since: Timestamp) -> LoadedRow<Vec<HealthRow>> {
    let sql = format!("select {} from tool_health h where h.changed_at > to_timestamp($1 / 1000.0)", *ROW);
    sqlx::query(sqlx::AssertSqlSafe(sql)).bind(since.as_millis()).fetch_all(conn).await?.iter().map(row).collect()
}

async fn claim(conn: &mut PgConnection, tenant: TenantId, tool: &ToolName, until: Timestamp) -> LoadedRow<bool> {
    let claimed = sqlx::query_scalar(
        "with claimed as (
           update tool_health set probe_until = to_timestamp($3 / 1000.0), changed_at = now()
           where tenant_id = $1 and tool = $2 and coalesce(probe_until, '-infinity') <= now() returning 1)
         select exists (select 1 from claimed)
           or not exists (select 1 from tool_health where tenant_id = $1 and tool = $2)",
    );
    Ok(claimed.bind(tenant.0).bind(tool.as_str()).bind(until.as_millis()).fetch_one(conn).await?)
}

async fn release(conn: &mut PgConnection, tenant: TenantId, tool: &ToolName, until: Timestamp) -> LoadedRow<()> {
    let release = "update tool_health set probe_until = null, changed_at = now()
        where tenant_id = $1 and tool = $2 and probe_until = to_timestamp($3 / 1000.0)";
    sqlx::query(release).bind(tenant.0).bind(tool.as_str()).bind(until.as_millis()).execute(conn).await?;
    Ok(())
}

fn row(row: &PgRow) -> LoadedRow<HealthRow> {
    let cooldown = decode::<Option<_>>(row, "cooldown_failure")?.map(|failure| -> LoadedRow<Cooldown> {
        Ok(Cooldown {
            failure,
            since: at(row, "cooldown_since")?,
            until: at(row, "cooldown_until")?,
            probe_until: decode(row, "probe_until")?,
        })
    });
    Ok(HealthRow {
        tenant: TenantId(row.try_get("tenant_id")?),
        tool: decode(row, "tool")?,
        failures: decode(row, "failures")?,
        failing_since: decode(row, "failing_since")?,
        cooldown: cooldown.transpose()?,
        retries_used: row.try_get("retries_used")?,
        used_at: at(row, "used_at")?,
        changed_at: at(row, "changed_at")?,
    })
}
