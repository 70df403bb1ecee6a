//! What is too old is dropped: trees that have been silent for so long, and then, as whole partitions, the months in
//! which they were born; trees of those months that still live move on to the present one. Nobody who writes waits for
//! a partition. The ledger stays, so that a write of long ago is still known.

use std::time::Duration;

use chrono::{Days, NaiveDate};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
    postgres::PgConnectOptions,
};

use super::{
    SCHEMA, connect,
    decode::name,
    distribute,
    maintain::{month, partition},
};
use crate::{
    domain::{
        ids::{SessionId, TenantId},
        shard::Shard,
    },
    store::error::{OpenError, StoreError},
};

/// Fewest days that are kept.
pub const RETAIN_DAYS_MIN: u32 = 30;
/// Trees that are looked at by one statement.
const PAGE: i64 = 2_000;
/// The tables whose months are partitions.
const TABLES: [&str; 2] = ["call", "outcome"];

/// What was dropped, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retained {
    /// Call trees that were dropped.
    pub trees: u64,
    /// Call trees that still live, and were moved to the present month.
    pub moved: u64,
    /// Partitions that were dropped.
    pub dropped: Vec<String>,
}

/// Drops the trees that have been silent for more than `days` days and were born in a month that is as old, moves those
/// that were not silent to the present month, and drops the partitions of those months. Safe beside running servers: a
/// dropped session that is heard of again begins anew. At least [`RETAIN_DAYS_MIN`] days are kept.
///
/// # Errors
/// [`OpenError`] when the database cannot be used; what was dropped until then stays dropped, and the next one goes on.
pub async fn retain(options: PgConnectOptions, days: u32) -> Result<Retained, OpenError> {
    let options = options
        .options([("search_path", SCHEMA), ("lock_timeout", "5000"), ("idle_in_transaction_session_timeout", "2000")])
        .application_name("callgate retention")
        .log_statements(log::LevelFilter::Off)
        .log_slow_statements(log::LevelFilter::Off, Duration::ZERO);
    let (mut conn, _) = connect::first(options).await?;
    let is_distributed = distribute::is_distributed(&mut conn).await?;
    let today: i32 =
        sqlx::query_scalar("select (now() at time zone 'utc')::date - date '1970-01-01'").fetch_one(&mut conn).await?;
    let silent = NaiveDate::from_epoch_days(today)
        .and_then(|today| today.checked_sub_days(Days::new(days.max(RETAIN_DAYS_MIN).into())))
        .unwrap_or_default();
    // Whole months only: the one that this day is in goes when it is over.
    let before = month(silent.to_epoch_days(), 0);
    let trees = drop_trees(&mut conn, before, silent).await?;
    let mut retained = Retained { trees, ..Retained::default() };
    for first in months(&mut conn, before).await? {
        retained.moved += move_on(&mut conn, first).await?;
        for table in TABLES {
            retained.dropped.extend(drop_partition(&mut conn, table, first, is_distributed).await?);
        }
    }
    Ok(retained)
}

/// Drops what has been silent, going once through all trees in the order of their key.
async fn drop_trees(conn: &mut PgConnection, before: NaiveDate, silent: NaiveDate) -> Result<u64, StoreError> {
    let mut dropped = 0;
    let mut last = (-1_i16, 0_i64, String::new());
    loop {
        let page = sqlx::query(
            "with page as materialized (
               select shard, tenant_id, root_id, epoch, last_at from call_tree
               where (shard, tenant_id, root_id) > ($1, $2, $3) order by 1, 2, 3 limit $4),
             gone as (
               delete from call_tree t using page p where t.shard = p.shard and t.tenant_id = p.tenant_id
                 and t.root_id = p.root_id and t.epoch < $5::date and t.last_at < $6::timestamptz
               returning t.shard, t.tenant_id, t.root_id),
             events as (
               delete from session_event e using gone g where e.shard = g.shard and e.tenant_id = g.tenant_id
                 and e.root_id = g.root_id),
             owners as (
               delete from session_owner o using gone g where o.shard = g.shard and o.tenant_id = g.tenant_id
                 and o.root_id = g.root_id),
             sessions as (
               delete from session s using gone g where s.shard = g.shard and s.tenant_id = g.tenant_id
                 and s.root_id = g.root_id
               returning s.tenant_id, s.session_id, s.root_id)
             select (select count(*) from page) as seen, (select count(*) from gone) as gone,
               (select array_agg(tenant_id order by session_id) from sessions) as tenants,
               (select array_agg(session_id order by session_id) from sessions) as sessions,
               (select array_agg(root_id order by session_id) from sessions) as roots,
               p.shard, p.tenant_id, p.root_id
             from page p order by p.shard desc, p.tenant_id desc, p.root_id desc limit 1",
        );
        let page = page.bind(last.0).bind(last.1).bind(&last.2).bind(PAGE);
        let Some(row) = page.bind(before.to_string()).bind(silent.to_string()).fetch_optional(&mut *conn).await? else {
            return Ok(dropped);
        };
        drop_names(conn, row.try_get("tenants")?, row.try_get("sessions")?, row.try_get("roots")?).await?;
        dropped += u64::try_from(row.try_get::<i64, _>("gone")?).unwrap_or(0);
        last = (row.try_get("shard")?, row.try_get("tenant_id")?, row.try_get("root_id")?);
        if row.try_get::<i64, _>("seen")? < PAGE {
            return Ok(dropped);
        }
    }
}

/// Gives the trees that were born in a month and still live the present day as their epoch, one by one with all their
/// rows: what they have done is judged as before. Who appends to one meanwhile waits for it, finds it moved, and reads
/// it anew.
async fn move_on(conn: &mut PgConnection, first: NaiveDate) -> Result<u64, StoreError> {
    let living = sqlx::query(
        "select shard, tenant_id, root_id, epoch::text as epoch, (now() at time zone 'utc')::date::text as today
         from call_tree where epoch >= $1::date and epoch < $1::date + interval '1 month'",
    );
    let living = living.bind(first.to_string()).fetch_all(&mut *conn).await?;
    for tree in &living {
        let mut tx = conn.begin().await?;
        // First, as by who appends; a statement after it sees all that was appended before.
        for sql in [
            "update call_tree set epoch = $5::date
             where shard = $1 and tenant_id = $2 and root_id = $3 and epoch = $4::date",
            "update call set epoch = $5::date where shard = $1 and tenant_id = $2 and epoch = $4::date
               and session_id in (select session_id from session where shard = $1 and tenant_id = $2 and root_id = $3)",
            "update outcome set epoch = $5::date where shard = $1 and tenant_id = $2 and epoch = $4::date
               and session_id in (select session_id from session where shard = $1 and tenant_id = $2 and root_id = $3)",
            "update session_event set epoch = $5::date
             where shard = $1 and tenant_id = $2 and root_id = $3 and epoch = $4::date",
            "update retry_trial set epoch = $5::date where shard = $1 and tenant_id = $2 and epoch = $4::date
               and session_id in (select session_id from session where shard = $1 and tenant_id = $2 and root_id = $3)",
        ] {
            let moved =
                sqlx::query(sql).bind(tree.try_get::<i16, _>("shard")?).bind(tree.try_get::<i64, _>("tenant_id")?);
            let moved = moved.bind(tree.try_get::<String, _>("root_id")?).bind(tree.try_get::<String, _>("epoch")?);
            moved.bind(tree.try_get::<String, _>("today")?).execute(&mut *tx).await?;
        }
        tx.commit().await?;
    }
    Ok(living.len() as u64)
}

/// Drops the rows by which sub-sessions are found, in the shards of their names.
async fn drop_names(
    conn: &mut PgConnection,
    tenants: Option<Vec<i64>>,
    sessions: Option<Vec<String>>,
    roots: Option<Vec<String>>,
) -> Result<(), StoreError> {
    let (tenants, sessions) = (tenants.unwrap_or_default(), sessions.unwrap_or_default());
    let shard =
        |(tenant, session): (&i64, &String)| Ok(Shard::of(TenantId(*tenant), &name(SessionId::parse, session)?).0);
    let shards: Vec<i16> = tenants.iter().zip(&sessions).map(shard).collect::<Result<_, StoreError>>()?;
    let names = sqlx::query(
        "delete from session s using unnest($1::int2[], $2::int8[], $3::text[], $4::text[])
           as x(shard, tenant_id, session_id, root_id)
         where s.shard = x.shard and s.tenant_id = x.tenant_id and s.session_id = x.session_id
           and s.root_id = x.root_id",
    );
    names.bind(shards).bind(tenants).bind(sessions).bind(roots.unwrap_or_default()).execute(conn).await?;
    Ok(())
}

/// The months before that one that have a partition, the oldest first.
async fn months(conn: &mut PgConnection, before: NaiveDate) -> Result<Vec<NaiveDate>, StoreError> {
    let names: Vec<String> = sqlx::query_scalar(
        "select distinct to_date(substring(c.relname from '_(\\d{4}_\\d{2})$'), 'YYYY_MM')::text from pg_class c
         where c.relnamespace = $1::regnamespace and c.relkind = 'r' and c.relname ~ '^(call|outcome)_\\d{4}_\\d{2}$'
         order by 1",
    )
    .bind(SCHEMA)
    .fetch_all(conn)
    .await?;
    let months = names.iter().filter_map(|first| first.parse::<NaiveDate>().ok());
    Ok(months.filter(|first| *first < before).collect())
}

/// Drops a partition; none when it is not there. Its table is taken out first, concurrently: that waits for those who
/// use it, and lets nobody wait for itself. One that was interrupted at that is finished. Citus cannot do that: there
/// who writes waits until those before are done, for [`retain`]'s `lock_timeout` at most.
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
