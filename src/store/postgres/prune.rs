//! Retention job: one replica deletes expired rows in small parts. After each it pauses several times as long, and
//! longer while changes wait to be written.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::{
    QueuedChange, Store, clocks,
    decode::{LoadedRow, decode},
    retention,
    tables::{TABLES, Table},
    text_retention, trees,
};
use crate::error::StoreError;
use callgate_core::domain::{
    ids::{DEFAULT_TENANT, TenantId},
    time::Timestamp,
};

/// Advisory lock of the job: `callgate` and a number, as a key.
const LOCK: i64 = 0x6361_6c6c_0003;
/// Interval of the job, in milliseconds.
const EVERY_MS: u64 = 3_600_000;
/// Pause after a part, as a multiple of its duration.
const RESTS: u32 = 4;
const REST_MIN: Duration = Duration::from_millis(10);
const REST_MAX: Duration = Duration::from_secs(10);
/// Queue length of the writer at which deletion stops: half a batch.
const WAITING_MAX: usize = 256;
/// Judgments and reports per part; a larger tree is a part by itself.
const STEPS: u64 = 500;
/// Target duration of a part, and the initial time range of text erasure.
pub(super) const PART: Duration = Duration::from_millis(100);
const STRETCH_MS: u64 = 60_000;
/// Rows per part of small tables.
const ROWS: i64 = 2_000;
/// Timeout of one statement, for the largest tree.
const STATEMENT: &str = "set statement_timeout = '10min'; set lock_timeout = 5000; set client_min_messages = error";

/// Number of deleted rows by tenant and kind.
pub type DeletedRows = BTreeMap<(TenantId, &'static str), u64>;

/// Retention period of a tenant.
#[derive(Debug)]
struct Term {
    tenant: TenantId,
    words_days: Option<i32>,
    calls_days: Option<i32>,
    words_gone_before: Option<Timestamp>,
}

/// Pauses between parts.
pub(super) struct PrunePace<'s> {
    queue: &'s mpsc::Sender<QueuedChange>,
}

impl<'s> PrunePace<'s> {
    pub(super) const fn of(store: &'s Store) -> Self {
        Self { queue: &store.queue }
    }

    pub(super) async fn rest_after(&self, began: Instant) {
        sleep((began.elapsed() * RESTS).clamp(REST_MIN, REST_MAX)).await;
        while self.queue.max_capacity() - self.queue.capacity() > WAITING_MAX {
            sleep(REST_MAX / 10).await;
        }
    }
}

impl Store {
    /// Deletes expired rows as of `now`, the database's time. None if another replica is at it, or completed within the
    /// last hour, or the clocks are not trusted; `server` is the local time. May take long.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: deleted rows stay deleted, and the next run continues.
    pub async fn delete_old(&self, now: Timestamp, server: Timestamp) -> Result<Option<DeletedRows>, StoreError> {
        // On a connection of its own, which takes its lock with it.
        let mut conn = self.slow.separate().await?;
        sqlx::raw_sql(STATEMENT).execute(&mut conn).await?;
        let is_mine: bool =
            sqlx::query_scalar("select pg_try_advisory_lock($1)").bind(LOCK).fetch_one(&mut conn).await?;
        if !is_mine {
            return Ok(None);
        }
        let Some(by) = clocks::of_retention(&mut conn, now, server).await? else { return Ok(None) };
        if !is_due(&mut conn, now).await? {
            return Ok(None);
        }
        let mut pass = PrunePass {
            conn,
            now: by,
            pace: PrunePace::of(self),
            deleted: DeletedRows::new(),
            is_distributed: self.is_distributed,
        };
        pass.run().await?;
        // At the end, so that an interrupted run is continued by the next.
        let done = sqlx::query("update tenant set retained_at = to_timestamp($2 / 1000.0) where tenant_id = $1");
        done.bind(DEFAULT_TENANT.0).bind(now.as_millis()).execute(&mut pass.conn).await?;
        Ok(Some(pass.deleted))
    }
}

/// True unless a run completed within the hour. A completion in the future, by a clock since set back, does not count.
async fn is_due(conn: &mut PgConnection, now: Timestamp) -> LoadedRow<bool> {
    let is_due = sqlx::query_scalar(
        "select coalesce(retained_at, '-infinity') <= to_timestamp(($2 - $3) / 1000.0)
           or retained_at > to_timestamp(($2 + $3) / 1000.0) from tenant where tenant_id = $1",
    );
    let is_due = is_due.bind(DEFAULT_TENANT.0).bind(now.as_millis()).bind(super::row::big(EVERY_MS));
    Ok(is_due.fetch_one(conn).await?)
}

struct PrunePass<'s> {
    conn: PgConnection,
    now: Timestamp,
    pace: PrunePace<'s>,
    deleted: DeletedRows,
    is_distributed: bool,
}

impl PrunePass<'_> {
    async fn run(&mut self) -> LoadedRow<()> {
        let terms = self.terms().await?;
        for term in &terms {
            self.erase_texts(term).await?;
        }
        self.trees(&terms).await?;
        // Over many nodes no statement on a table that all have asks about one that is cut by shard; policies are few.
        let left = if self.is_distributed { "policies" } else { "" };
        for Table { name, expire, .. } in &TABLES {
            if let Some((kind, which)) = expire.filter(|(kind, _)| *kind != left) {
                self.small(kind, name, which).await?;
            }
        }
        self.months().await
    }

    fn count(&mut self, tenant: TenantId, kind: &'static str, rows: u64) {
        if rows > 0 {
            *self.deleted.entry((tenant, kind)).or_default() += rows;
        }
    }

    fn before(&self, days: i32) -> Timestamp {
        Timestamp::from_millis(self.now.as_millis() - i64::from(days) * 86_400_000)
    }

    /// Retention periods of active tenants; data of suspended tenants is kept.
    async fn terms(&mut self) -> LoadedRow<Vec<Term>> {
        let terms = sqlx::query(
            "select tenant_id, words_days, calls_days,
               (extract(epoch from words_gone_before) * 1000)::bigint as words_ms
             from tenant where state = 'active' and (words_days is not null or calls_days is not null) order by 1",
        );
        let terms = terms.fetch_all(&mut self.conn).await?;
        let term = |row: &sqlx::postgres::PgRow| {
            Ok(Term {
                tenant: TenantId(row.try_get("tenant_id")?),
                words_days: row.try_get("words_days")?,
                calls_days: row.try_get("calls_days")?,
                words_gone_before: decode(row, "words_ms")?,
            })
        };
        terms.iter().map(term).collect()
    }

    /// Erases texts in time ranges, whose length adapts to their contents.
    async fn erase_texts(&mut self, term: &Term) -> LoadedRow<()> {
        let (tenant, Some(days)) = (term.tenant, term.words_days) else { return Ok(()) };
        let (to, now) = (self.before(days), self.now);
        let mut from = match term.words_gone_before {
            Some(from) => {
                let erased =
                    text_retention::erase_asked(&mut self.conn, tenant, from, now, self.is_distributed).await?;
                self.count(tenant, "words", erased);
                from
            }
            None => match text_retention::first(&mut self.conn, tenant).await? {
                Some(first) => first,
                None => return Ok(()),
            },
        };
        let mut stretch = STRETCH_MS;
        while from < to {
            let began = Instant::now();
            let until = from.plus_ms(stretch).min(to);
            let erased = text_retention::erase(&mut self.conn, tenant, (from, until), now, self.is_distributed).await?;
            let gone =
                sqlx::query("update tenant set words_gone_before = to_timestamp($2 / 1000.0) where tenant_id = $1");
            gone.bind(tenant.0).bind(until.as_millis()).execute(&mut self.conn).await?;
            self.count(tenant, "words", erased);
            stretch = if began.elapsed() > PART { (stretch / 2).max(1_000) } else { stretch.saturating_mul(2) };
            from = until;
            self.pace.rest_after(began).await;
        }
        Ok(())
    }

    /// Scans all trees once, in key order.
    async fn trees(&mut self, terms: &[Term]) -> LoadedRow<()> {
        let mut before = BTreeMap::new();
        for (tenant, days) in terms.iter().filter_map(|term| Some((term.tenant, term.calls_days?))) {
            let silent = self.before(days);
            self.gone_before(&[tenant], silent).await?;
            before.insert(tenant, silent);
        }
        let mut place = trees::TreeKey::start();
        while !before.is_empty() {
            let began = Instant::now();
            let page = trees::page(&mut self.conn, &place).await?;
            let Some(last) = page.last() else { return Ok(()) };
            place = last.place.clone();
            self.pace.rest_after(began).await;
            let due: Vec<(&trees::StoredTree, Timestamp)> = page
                .iter()
                .filter_map(|head| Some((head, *before.get(&head.tenant())?)))
                .filter(|(head, before)| head.last_at < *before)
                .collect();
            for part in group_trees(&due) {
                let began = Instant::now();
                let tenant = part[0].0.tenant();
                let gone = trees::delete_silent(&mut self.conn, part, self.now, true).await?;
                self.count(tenant, "trees", gone.trees);
                self.count(tenant, "calls", gone.rows);
                self.pace.rest_after(began).await;
            }
        }
        Ok(())
    }

    /// Records the time before which a tenant's data may be deleted: rebuilds start there.
    async fn gone_before(&mut self, tenants: &[TenantId], silent: Timestamp) -> LoadedRow<()> {
        let tenants: Vec<i64> = tenants.iter().map(|tenant| tenant.0).collect();
        retention::gone_before(&mut self.conn, Some(&tenants), silent).await
    }

    async fn small(&mut self, kind: &'static str, table: &str, which: &str) -> LoadedRow<()> {
        let which = format!("n.tenant_id = d.tenant_id and n.state = 'active' and {which}");
        let sql = match self.is_distributed {
            // Over many nodes rows have no place of their own; what goes there goes at once.
            true => format!("delete from {table} d using tenant n where $1 > 0 and {which} returning d.tenant_id"),
            false => format!(
                "delete from {table} d where d.ctid = any(array(
                   select d.ctid from {table} d join tenant n on {which} limit $1)) returning d.tenant_id"
            ),
        };
        loop {
            let began = Instant::now();
            let delete = sqlx::query_scalar(AssertSqlSafe(sql.as_str())).bind(ROWS).bind(self.now.as_millis());
            let mut tx = self.conn.begin().await?;
            if table == "policy" {
                // No activation and no rollout may refer to deleted policies (both check again afterwards).
                sqlx::query("lock table policy_activation, policy_rollout in share mode").execute(&mut *tx).await?;
            }
            let gone: Vec<i64> = delete.fetch_all(&mut *tx).await?;
            tx.commit().await?;
            gone.iter().for_each(|tenant| self.count(TenantId(*tenant), kind, 1));
            self.pace.rest_after(began).await;
            if (gone.len() as i64) < ROWS || self.is_distributed {
                return Ok(());
            }
        }
    }

    /// Drops expired monthly partitions.
    async fn months(&mut self) -> LoadedRow<()> {
        let days = sqlx::query_scalar("select months_days from tenant where tenant_id = $1").bind(DEFAULT_TENANT.0);
        let days: Option<i32> = days.fetch_one(&mut self.conn).await?;
        let Some(days) = days.and_then(|days| u32::try_from(days).ok()) else { return Ok(()) };
        let dropped = retention::drop_months(&mut self.conn, days, self.now, self.is_distributed).await?;
        self.count(DEFAULT_TENANT, "months", dropped.dropped.len() as u64 / 2);
        self.count(DEFAULT_TENANT, "trees_of_months", dropped.trees);
        Ok(())
    }
}

/// Groups of trees of one tenant with a bounded sum of steps.
fn group_trees<'a, 'h>(
    due: &'a [(&'h trees::StoredTree, Timestamp)],
) -> impl Iterator<Item = &'a [(&'h trees::StoredTree, Timestamp)]> {
    let mut steps = 0;
    due.chunk_by(move |(one, _), (next, _)| {
        steps += one.steps;
        let is_full = steps + next.steps > STEPS || one.tenant() != next.tenant();
        if is_full {
            steps = 0;
        }
        !is_full
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pruning_rests_after_each_part_and_while_changes_wait() {
        let (queue, _jobs) = mpsc::channel(2 * WAITING_MAX);
        let began = Instant::now();
        PrunePace { queue: &queue }.rest_after(began).await;
        assert!(began.elapsed() >= REST_MIN);
        let waiting = queue.reserve_many(WAITING_MAX + 1).await.expect("room");
        let pace = PrunePace { queue: &queue };
        let rest = pace.rest_after(Instant::now());
        assert!(tokio::time::timeout(REST_MIN * 3, rest).await.is_err(), "it waits");
        drop(waiting);
        pace.rest_after(Instant::now()).await;
    }
}
