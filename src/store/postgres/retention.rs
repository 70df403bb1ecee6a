//! Retention of months: inactive trees are dropped, then whole partitions of their months of birth; active trees of
//! those months move to the current one. Writers never wait for a partition. The ledger stays, so that old writes
//! remain known.

use std::{path::Path, time::Duration};

use chrono::{Days, NaiveDate};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
    postgres::PgConnectOptions,
};

use super::{
    SCHEMA, clocks,
    clocks::Clocks,
    connect,
    copied::{self, CopyError},
    distribute,
    maintain::{self, month, partition},
    tables::{self, RetentionRule, RowOwner, TABLES},
    trees,
};
use crate::error::StoreError;
use callgate_core::domain::{tenant::MONTHS_DAYS_MIN, time::Timestamp};

/// Minimum retention period, in days.
pub const RETAIN_DAYS_MIN: u32 = MONTHS_DAYS_MIN;
/// Result of a retention run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionResult {
    /// Dropped call trees.
    pub trees: u64,
    /// Active call trees moved to the current month.
    pub moved: u64,
    /// Dropped partitions.
    pub dropped: Vec<String>,
}

/// Drops trees that were inactive for `days` days and born in such an old month, moves active ones to the current
/// month, and drops the partitions of those months. Safe beside running servers: a dropped session restarts empty. At
/// least [`RETAIN_DAYS_MIN`] days are kept. `server` is the local time; the returned `Clocks` show the delay applied.
/// Nothing is dropped while the clocks disagree. With a folder in `export`, each partition is written to a file there
/// before anything is dropped.
///
/// # Errors
/// [`CopyError`] when the database cannot be used or a file cannot be written; dropped data stays dropped, and the next
/// run continues.
pub async fn retain(
    options: PgConnectOptions,
    days: u32,
    server: Timestamp,
    export: Option<&Path>,
) -> Result<(Clocks, RetentionResult), CopyError> {
    let options = options
        .options([("search_path", SCHEMA), ("lock_timeout", "5000"), ("idle_in_transaction_session_timeout", "2000")])
        .application_name("callgate retention")
        .log_statements(log::LevelFilter::Off)
        .log_slow_statements(log::LevelFilter::Off, Duration::ZERO);
    let (mut conn, _) = connect::first(options).await?;
    let is_distributed = distribute::is_distributed(&mut conn).await?;
    let now = maintain::now(&mut conn).await?;
    let clocks = clocks::check_clocks(&mut conn, now, server).await?;
    Ok(match clocks.of_retention() {
        Some(by) => {
            if let Some(folder) = export {
                export_months(&mut conn, days, by, folder).await?;
            }
            (clocks, drop_months(&mut conn, days, by, is_distributed).await?)
        }
        None => (clocks, RetentionResult::default()),
    })
}

/// The day before which call trees are inactive, and the first month that stays.
fn limits(days: u32, now: Timestamp) -> (NaiveDate, NaiveDate) {
    let silent = NaiveDate::from_epoch_days(now.day())
        .and_then(|today| today.checked_sub_days(Days::new(days.max(RETAIN_DAYS_MIN).into())))
        .unwrap_or_default();
    // Whole months only: the one that this day is in goes when it is over.
    (silent, month(silent.to_epoch_days(), 0))
}

/// Writes the partitions that [`drop_months`] drops. Their inactive trees get no more rows; active ones are in the
/// files too, although they stay.
async fn export_months(conn: &mut PgConnection, days: u32, now: Timestamp, folder: &Path) -> Result<(), CopyError> {
    for first in months(conn, limits(days, now).1).await? {
        for table in tables::ending(RetentionRule::WithMonth) {
            let name = partition(table, first);
            let there = sqlx::query_scalar("select to_regclass($1 || '.' || $2) is not null").bind(SCHEMA).bind(&name);
            if there.fetch_one(&mut *conn).await? {
                copied::copy_partition(conn, &name, folder).await?;
            }
        }
    }
    Ok(())
}

/// [`retain`] at the time `now`.
pub(super) async fn drop_months(
    conn: &mut PgConnection,
    days: u32,
    now: Timestamp,
    is_distributed: bool,
) -> Result<RetentionResult, StoreError> {
    let (silent, before) = limits(days, now);
    let midnight = Timestamp::from_millis(i64::from(silent.to_epoch_days()) * 86_400_000);
    gone_before(conn, None, midnight).await?;
    let trees = drop_trees(conn, before, midnight, now).await?;
    let mut retained = RetentionResult { trees, ..RetentionResult::default() };
    for first in months(conn, before).await? {
        retained.moved += move_on(conn, first).await?;
        for table in tables::ending(RetentionRule::WithMonth) {
            retained.dropped.extend(drop_partition(conn, table, first, is_distributed).await?);
        }
    }
    Ok(retained)
}

/// Records the time before which tenants' data may be deleted (of all tenants, without any): rebuilds start there.
pub(super) async fn gone_before(
    conn: &mut PgConnection,
    tenants: Option<&[i64]>,
    silent: Timestamp,
) -> Result<(), StoreError> {
    let gone = sqlx::query(
        "update tenant set calls_gone_before = to_timestamp($2 / 1000.0)
         where ($1::int8[] is null or tenant_id = any($1))
           and coalesce(calls_gone_before, '-infinity') < to_timestamp($2 / 1000.0)",
    );
    gone.bind(tenants).bind(silent.as_millis()).execute(conn).await?;
    Ok(())
}

/// Drops inactive trees without open calls in one scan in key order. Calls and outcomes go with their month.
async fn drop_trees(
    conn: &mut PgConnection,
    before: NaiveDate,
    silent: Timestamp,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let (mut dropped, mut place) = (0, trees::TreeKey::start());
    loop {
        let page = trees::page(conn, &place).await?;
        let Some(last) = page.last() else { return Ok(dropped) };
        place = last.place.clone();
        let is_old = |head: &&trees::StoredTree| head.epoch < before.to_epoch_days() && head.last_at < silent;
        let old: Vec<_> = page.iter().filter(is_old).map(|head| (head, silent)).collect();
        dropped += trees::delete_silent(conn, &old, now, false).await?.trees;
    }
}

/// Moves the active trees of a month to the current day as their epoch, one by one with all their rows: decisions stay
/// the same. A concurrent append waits, conflicts, and reloads the tree.
async fn move_on(conn: &mut PgConnection, first: NaiveDate) -> Result<u64, StoreError> {
    let living = sqlx::query(
        "select shard, tenant_id, root_id, epoch::text as epoch, (now() at time zone 'utc')::date::text as today
         from call_tree where epoch >= $1::date and epoch < $1::date + interval '1 month'",
    );
    let living = living.bind(first.to_string()).fetch_all(&mut *conn).await?;
    for tree in &living {
        let mut tx = conn.begin().await?;
        // First, as by who appends; a statement after it sees all that was appended before.
        for (table, found_by) in TABLES.iter().filter_map(|table| Some((table.name, table.epoch?))) {
            let of_tree = match found_by {
                RowOwner::Session => {
                    "session_id in (select session_id from session
                       where shard = $1 and tenant_id = $2 and root_id = $3)"
                }
                _ => "root_id = $3",
            };
            let sql = format!(
                "update {table} set epoch = $5::date
                 where shard = $1 and tenant_id = $2 and epoch = $4::date and {of_tree}"
            );
            let moved = sqlx::query(AssertSqlSafe(sql))
                .bind(tree.try_get::<i16, _>("shard")?)
                .bind(tree.try_get::<i64, _>("tenant_id")?)
                .bind(tree.try_get::<String, _>("root_id")?)
                .bind(tree.try_get::<String, _>("epoch")?);
            moved.bind(tree.try_get::<String, _>("today")?).execute(&mut *tx).await?;
        }
        tx.commit().await?;
    }
    Ok(living.len() as u64)
}

/// The earlier months with a partition, oldest first.
async fn months(conn: &mut PgConnection, before: NaiveDate) -> Result<Vec<NaiveDate>, StoreError> {
    let names: Vec<String> = sqlx::query_scalar(
        "select distinct to_date(substring(c.relname from '_(\\d{4}_\\d{2})$'), 'YYYY_MM')::text from pg_class c
         where c.relnamespace = $1::regnamespace and c.relkind = 'r' and c.relname ~ ('^(' || $2 || ')_\\d{4}_\\d{2}$')
         order by 1",
    )
    .bind(SCHEMA)
    .bind(tables::ending(RetentionRule::WithMonth).collect::<Vec<_>>().join("|"))
    .fetch_all(conn)
    .await?;
    let months = names.iter().filter_map(|first| first.parse::<NaiveDate>().ok());
    Ok(months.filter(|first| *first < before).collect())
}

/// Drops a partition, if it exists. It is first detached concurrently, which waits for its users without blocking them;
/// an interrupted detach is completed. Citus cannot do that: writers then wait for earlier ones, at most [`retain`]'s
/// `lock_timeout`.
async fn drop_partition(
    conn: &mut PgConnection,
    table: &str,
    first: NaiveDate,
    is_distributed: bool,
) -> Result<Option<String>, StoreError> {
    let partition = partition(table, first);
    let state: Option<Option<bool>> = sqlx::query_scalar(
        "select i.inhdetachpending from pg_class c left join pg_inherits i on i.inhrelid = c.oid
         where c.relnamespace = $1::regnamespace and c.relname = $2",
    )
    .bind(SCHEMA)
    .bind(&partition)
    .fetch_optional(&mut *conn)
    .await?;
    let Some(is_pending) = state else { return Ok(None) };
    if let Some(is_pending) = is_pending.filter(|_| !is_distributed) {
        let how = if is_pending { "finalize" } else { "concurrently" };
        let detach = format!("alter table {SCHEMA}.{table} detach partition {SCHEMA}.{partition} {how}");
        conn.execute(AssertSqlSafe(detach)).await?;
    }
    conn.execute(AssertSqlSafe(format!("drop table {SCHEMA}.{partition}"))).await?;
    Ok(Some(partition))
}
