//! Queries for operational metrics: queues, pending approvals, connections.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::{
    Store,
    codes::STOP,
    decode::{LoadedRow, at, count},
    read::Readers,
    writer::QUEUE_MAX,
};
use crate::error::StoreError;
use callgate_core::domain::{fleet::MINUTE_MS, ids::TenantId, time::Timestamp};

/// Maximum number of STOPs of the last hour per tenant, the newest.
const STOPS_MAX: i64 = 20_000;

/// Queued work and connections of this replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLoad {
    /// Changes that wait for a commit.
    pub queued: usize,
    /// Connections by purpose.
    pub pools: Vec<Pool>,
}

/// Connection pool statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Application name.
    pub name: &'static str,
    /// In use.
    pub used: usize,
    /// Open, and not in use.
    pub idle: usize,
    /// The most there may be.
    pub max: usize,
}

/// Open approval requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Questions {
    /// Number of open requests.
    pub open: u64,
    /// Number of waiting sessions.
    pub sessions: u64,
    /// Time of the oldest request.
    pub oldest: Option<Timestamp>,
}

impl Store {
    /// Current load.
    #[must_use]
    pub fn load(&self) -> StoreLoad {
        let classes = self.connection_classes.iter().flat_map(|(readers, slow)| [readers, slow]);
        let pools = classes.chain([&self.gatherers, self.pulse.connections()]).map(Readers::pool).collect();
        StoreLoad { queued: QUEUE_MAX - self.queue.capacity(), pools }
    }

    /// Sessions of these tenants whose last judgment within the hour is a STOP.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn stopped_sessions(&self, tenants: &[TenantId]) -> Result<u64, StoreError> {
        self.slow.read(async |conn| count_stopped_sessions(conn, tenants).await).await
    }

    /// Those of one tenant, for its operators.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn stopped_now(&self, tenant: TenantId) -> Result<u64, StoreError> {
        self.readers.read_of(&[tenant], async |conn| count_stopped_sessions(conn, &[tenant]).await).await
    }

    /// Number of the tenant's stopped sessions at each of these times, which are ends of minutes, in order.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn stopped_at(
        &self,
        tenant: TenantId,
        times: &[Timestamp],
    ) -> Result<BTreeMap<Timestamp, u64>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| stopped_at(conn, tenant, times).await).await
    }

    /// The open approval requests of these tenants.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn open_questions(&self, tenants: &[TenantId]) -> Result<Questions, StoreError> {
        self.slow.read(async |conn| questions(conn, tenants).await).await
    }
}

/// A later round of a call repeats its request: the first has its time.
async fn questions(conn: &mut PgConnection, tenants: &[TenantId]) -> LoadedRow<Questions> {
    let row = sqlx::query(
        "select count(distinct (c.tenant_id, c.approval_id)) as open,
           count(distinct (c.tenant_id, c.session_id)) as sessions,
           (extract(epoch from min(c.at)) * 1000)::bigint as oldest_ms
         from call c
         where c.tenant_id = any($1) and c.approval_id is not null and c.approval_expires_at > now()
           and not exists (select from session_event e where e.shard = c.shard and e.tenant_id = c.tenant_id
             and e.root_id = c.root_id and e.epoch = c.epoch and e.kind in ('answered', 'withdrawn')
             and e.detail ->> 'approval_id' = c.approval_id)",
    );
    let tenants: Vec<i64> = tenants.iter().map(|tenant| tenant.0).collect();
    let row = row.bind(tenants).fetch_one(conn).await?;
    let oldest: Option<i64> = row.try_get("oldest_ms")?;
    Ok(Questions {
        open: count(&row, "open")?,
        sessions: count(&row, "sessions")?,
        oldest: oldest.map(Timestamp::from_millis),
    })
}

/// Sessions whose newest judgment is a STOP of the last hour. It reads one row per session beside its STOPs, and at
/// most [`STOPS_MAX`] STOPs per tenant, which bounds its cost.
async fn count_stopped_sessions(conn: &mut PgConnection, tenants: &[TenantId]) -> LoadedRow<u64> {
    let row = sqlx::query(AssertSqlSafe(format!(
        "select count(*) as stopped from (
           select distinct c.shard, c.tenant_id, c.epoch, c.session_id from unnest($1::int8[]) t(id)
           cross join lateral (
             select c.shard, c.tenant_id, c.epoch, c.session_id from call c
             where c.tenant_id = t.id and c.decision = {STOP} and c.at > now() - interval '1 hour'
             order by c.at desc limit $2) c) s
         cross join lateral (
           select d.decision from call d
           where d.shard = s.shard and d.tenant_id = s.tenant_id and d.epoch = s.epoch and d.session_id = s.session_id
           order by d.seq desc limit 1) n
         where n.decision = {STOP}"
    )));
    let tenants: Vec<i64> = tenants.iter().map(|tenant| tenant.0).collect();
    count(&row.bind(tenants).bind(STOPS_MAX).fetch_one(conn).await?, "stopped")
}

/// A session is stopped from a STOP until its next judgment, for an hour at most. Of several within a minute the last
/// one counts.
async fn stopped_at(
    conn: &mut PgConnection,
    tenant: TenantId,
    times: &[Timestamp],
) -> LoadedRow<BTreeMap<Timestamp, u64>> {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "with stops as materialized (
           select s.session_id, s.at, least(s.at + interval '1 hour', n.at) as until
           from (
             select c.shard, c.epoch, c.session_id, max(c.seq) as seq, max(c.at) as at from call c
             where c.tenant_id = $1 and c.decision = {STOP}
               and c.at > to_timestamp($2 / 1000.0) - interval '1 hour' and c.at <= to_timestamp($3 / 1000.0)
             group by 1, 2, 3, floor(extract(epoch from c.at) / 60)) s
           left join lateral (
             select d.at from call d
             where d.shard = s.shard and d.tenant_id = $1 and d.epoch = s.epoch and d.session_id = s.session_id
               and d.seq > s.seq
             order by d.seq limit 1) n on true)
         select m.minute * 60000 as time_ms, count(distinct s.session_id) as stopped
         from stops s
         cross join lateral generate_series(
           ceil(extract(epoch from s.at) / 60)::bigint, ceil(extract(epoch from s.until) / 60)::bigint - 1) m(minute)
         where m.minute = any($4)
         group by 1"
    )));
    let [Some(first), Some(last)] = [times.first(), times.last()] else { return Ok(BTreeMap::new()) };
    let all: Vec<i64> = times.iter().map(|time| time.as_millis() / MINUTE_MS).collect();
    let rows = rows.bind(tenant.0).bind(first.as_millis()).bind(last.as_millis()).bind(all).fetch_all(conn).await?;
    let mut stopped: BTreeMap<Timestamp, u64> = times.iter().map(|time| (*time, 0)).collect();
    for row in &rows {
        stopped.insert(at(row, "time_ms")?, count(row, "stopped")?);
    }
    Ok(stopped)
}
