//! Hourly rollup of calls, and of their names: one replica counts each hour once it is over, and again the earlier
//! hours in which something changed. A count replaces all rows of its hour, so it may be interrupted and repeated.
//! Names have a mark of their own, since a build before them counts without them.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use super::{Store, decode::LoadedRow, inbox::names, prune::PrunePace};
use crate::error::StoreError;

/// Advisory lock of the job: `callgate` and a number, as a key.
const LOCK: i64 = 0x6361_6c6c_0005;
/// The failure of the optional index was logged.
static NOT_INDEXED: AtomicBool = AtomicBool::new(false);
const STATEMENT: &str = "set statement_timeout = '10min'; set lock_timeout = 5000; set jit = off";

/// Tenants with an hour that is over and not counted, or with deleted calls in counted ones. A tenant begins with the
/// hour of its first call. An hour is over 15 minutes after its end: by then nearly all outcomes are reported, and all
/// changes of it are committed.
const DUE: &str = "update tenant n set
    calls_counted_before = coalesce(n.calls_counted_before, (select date_trunc('hour', min(c.at), 'utc') from call c
      where c.tenant_id = n.tenant_id), date_trunc('hour', now() - interval '15 minutes', 'utc')),
    names_counted_before = coalesce(n.names_counted_before, (select date_trunc('hour', min(c.at), 'utc') from call c
      where c.tenant_id = n.tenant_id), date_trunc('hour', now() - interval '15 minutes', 'utc')),
    outcomes_counted_at = coalesce(n.outcomes_counted_at, now())
  where n.state = 'active' and (n.calls_counted_before is null or n.names_counted_before is null
    or least(n.calls_counted_before, n.names_counted_before)
      < date_trunc('hour', now() - interval '15 minutes', 'utc')
    or exists (select from forgotten f where f.tenant_id = n.tenant_id and f.hours is not null))
  returning n.tenant_id, now()::text,
    array(select f.forgotten_id from forgotten f where f.tenant_id = n.tenant_id and f.hours is not null)";

/// The hours to count, oldest first: those that are over, and counted ones with a later outcome or a deleted call. The
/// outcomes of ten minutes are read twice, because one may be committed after a later one. Hours with calls past their
/// retention period are left.
const HOURS: &str = "select h.hour::text from (
    select date_trunc('hour', c.at, 'utc') as hour from call c, tenant n
    where n.tenant_id = $1 and c.tenant_id = $1 and c.at >= least(n.calls_counted_before, n.names_counted_before)
    union
    select date_trunc('hour', c.at, 'utc') from tenant n
    join outcome o on o.tenant_id = $1 and o.at >= n.outcomes_counted_at - interval '10 minutes'
    join call c on c.shard = o.shard and c.tenant_id = $1 and c.epoch = o.epoch and c.session_id = o.session_id
      and c.seq = o.permit_seq
    where n.tenant_id = $1 and c.at < n.calls_counted_before
    union
    select unnest(f.hours) from forgotten f where f.tenant_id = $1 and f.forgotten_id = any($2)
  ) h join tenant n on n.tenant_id = $1 and h.hour >= coalesce(n.calls_gone_before, '-infinity')
  where h.hour < date_trunc('hour', $3::timestamptz - interval '15 minutes', 'utc')
  order by h.hour";

const COUNT: &str = "insert into call_hourly
  select tenant_id, $2::timestamptz, tool, agent_id, model, decision, rule, reason, outcome, failure, cause, count(*),
    count(*) filter (where round = 1), sum(saved_calls), sum(saved_micros), sum(cost_micros), sum(input_tokens),
    sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens), sum(duration_ms), count(duration_ms)
  from calls
  where tenant_id = $1 and judged_at >= $2::timestamptz and judged_at < $2::timestamptz + interval '1 hour'
  group by tenant_id, tool, agent_id, model, decision, rule, reason, outcome, failure, cause";

const NAMES: &str = "insert into call_name (tenant_id, hour, kind, name, word)
  select distinct $1::bigint, $2::timestamptz, v.kind, v.name, lower(v.name collate \"C\") from call c
  cross join lateral (values (0::smallint, c.agent_id), (1::smallint, c.user_id), (2::smallint, c.tool)) v(kind, name)
  where c.tenant_id = $1 and c.at >= $2::timestamptz and c.at < $2::timestamptz + interval '1 hour'
    and v.name is not null";

impl Store {
    /// Brings the hourly rollup up to date; true if this replica counted. False while another replica does, and when
    /// nothing is due. May take long.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: counted hours stay, and the next run continues.
    pub async fn roll_up(&self) -> Result<bool, StoreError> {
        // Over many nodes no statement counts rows of shards into a table that all nodes have.
        if self.is_distributed {
            return Ok(false);
        }
        // On a connection of its own, which takes its lock with it.
        let mut conn = self.slow.separate().await?;
        sqlx::raw_sql(STATEMENT).execute(&mut conn).await?;
        let is_mine: bool =
            sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(LOCK).fetch_one(&mut conn).await?;
        if !is_mine {
            return Ok(false);
        }
        // Without the index names are found by their beginning.
        if let Err(error) = names::index(&mut conn).await
            && !NOT_INDEXED.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "the index of names could not be made: names are found by their beginning");
        }
        let due: Vec<(i64, String, Vec<i64>)> = sqlx::query_as(DUE).fetch_all(&mut conn).await?;
        let pace = PrunePace::of(self);
        for tenant in &due {
            count_tenant(&mut conn, tenant, &pace).await?;
        }
        Ok(!due.is_empty())
    }
}

async fn count_tenant(
    conn: &mut PgConnection,
    (tenant, now, forgotten): &(i64, String, Vec<i64>),
    pace: &PrunePace<'_>,
) -> LoadedRow<()> {
    let hours = sqlx::query_scalar(HOURS).bind(tenant).bind(forgotten).bind(now).fetch_all(&mut *conn).await?;
    for hour in &hours as &Vec<String> {
        let began = Instant::now();
        let mut tx = conn.begin().await?;
        for statement in [
            "delete from call_hourly where tenant_id = $1 and hour = $2::timestamptz",
            "delete from call_name where tenant_id = $1 and hour = $2::timestamptz",
            COUNT,
            NAMES,
        ] {
            sqlx::query(statement).bind(tenant).bind(hour).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        pace.rest_after(began).await;
    }
    // At the end: an interrupted run counts its hours again.
    let mut tx = conn.begin().await?;
    let counted = "update tenant set outcomes_counted_at = $2::timestamptz,
          calls_counted_before = date_trunc('hour', $2::timestamptz - interval '15 minutes', 'utc'),
          names_counted_before = date_trunc('hour', $2::timestamptz - interval '15 minutes', 'utc')
        where tenant_id = $1";
    sqlx::query(counted).bind(tenant).bind(now).execute(&mut *tx).await?;
    let without = "update forgotten set hours = null where tenant_id = $1 and forgotten_id = any($2)";
    sqlx::query(without).bind(tenant).bind(forgotten).execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}
