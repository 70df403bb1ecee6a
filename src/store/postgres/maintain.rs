//! What keeps the database in order: schema, partitions, safety settings, and leases that ran out.

use std::sync::LazyLock;

use chrono::{Datelike as _, Months, NaiveDate};
use sqlx::{
    Connection, Executor as _, PgConnection, Row as _, SqlStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{
    SCHEMA,
    connect::{DURABLE, be_durable},
    decode,
};
use crate::{
    domain::{
        ids::{CallId, SessionId, TenantId},
        time::Timestamp,
    },
    store::error::{OpenError, StoreError},
};

/// Months whose partitions are made ahead of time.
const MONTHS_AHEAD: u32 = 2;
/// Expired leases handled in one go.
const EXPIRED_MAX: i64 = 500;

// The files of `migrations/` as build.rs found them: `FILES`, each with its version, what it does, and its text. sqlx's
// own macro for that would compile the whole driver a second time, for the compiler.
include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let migration = |(version, does, text): &(i64, &'static str, &'static str)| {
        Migration::new(*version, (*does).into(), MigrationType::Simple, SqlStr::from_static(text), false)
    };
    Migrator::with_migrations(FILES.iter().map(migration).collect())
});

/// Brings the schema up to date, and refuses a server that would lose acknowledged rows.
pub(super) async fn prepare(conn: &mut PgConnection) -> Result<(), OpenError> {
    let value: String = sqlx::query_scalar("show synchronous_commit").fetch_one(&mut *conn).await?;
    if !DURABLE.contains(&value.as_str()) {
        return Err(OpenError::Unsafe { setting: "synchronous_commit", value });
    }
    let durability = be_durable(conn).await?;
    if let Some((setting, value)) = durability.unsafe_one() {
        return Err(OpenError::Unsafe { setting, value });
    }
    if durability.full_page_writes != "on" {
        tracing::warn!(
            "the database has full_page_writes = off: unless its file system writes pages as a whole, a crash \
            of the machine may destroy them"
        );
    }
    // Two replicas that start at once would both try: the loser finds it there.
    let schema = format!("create schema if not exists {SCHEMA}");
    if let Err(error) = conn.execute(sqlx::AssertSqlSafe(schema)).await
        && !is_already_there(&error)
    {
        return Err(error.into());
    }
    // `run` would do the same, but its future cannot be sent to another thread.
    MIGRATIONS.run_direct(None, conn, false).await?;
    Ok(make_partitions(conn).await?)
}

fn is_already_there(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("42P06" | "42P07" | "23505"))
}

/// Makes the partitions of this month and the next ones; another replica may be doing the same.
pub(super) async fn make_partitions(conn: &mut PgConnection) -> Result<(), StoreError> {
    let today: i32 =
        sqlx::query_scalar("select (now() at time zone 'utc')::date - date '1970-01-01'").fetch_one(&mut *conn).await?;
    for ahead in 0..=MONTHS_AHEAD {
        let first = month(today, ahead);
        let next = month(today, ahead + 1);
        for table in ["call", "outcome"] {
            let partition = format!("{table}_{}", first.format("%Y_%m"));
            let sql = format!(
                "create table if not exists {SCHEMA}.{partition} partition of {SCHEMA}.{table}
                 for values from ('{first}') to ('{next}')"
            );
            let mut tx = Connection::begin(&mut *conn).await?;
            match tx.execute(sqlx::AssertSqlSafe(sql)).await {
                Ok(_) => tx.commit().await?,
                Err(error) if is_already_there(&error) => tx.rollback().await?,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// The first day of the month that lies `ahead` months after that of `day`.
fn month(day: i32, ahead: u32) -> NaiveDate {
    let date = NaiveDate::from_epoch_days(day).unwrap_or_default();
    date.with_day(1).and_then(|first| first.checked_add_months(Months::new(ahead))).unwrap_or(date)
}

/// The database's time.
pub(super) async fn now(conn: &mut PgConnection) -> Result<Timestamp, StoreError> {
    let millis: i64 =
        sqlx::query_scalar("select (extract(epoch from clock_timestamp()) * 1000)::bigint").fetch_one(conn).await?;
    Ok(Timestamp::from_millis(millis))
}

/// A call whose lease ran out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredLease {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its session.
    pub session: SessionId,
    /// The call.
    pub call_id: CallId,
}

/// Calls whose lease ran out between `since` and `until` and that nobody reported on. Heartbeats extend a lease.
pub(super) async fn expired_leases(
    conn: &mut PgConnection,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<ExpiredLease>, StoreError> {
    let sql = "select c.tenant_id, c.session_id, c.call_id from call c left join lateral (
           select bool_or(o.status > 0) as is_settled, max(o.lease_until) as lease_until from outcome o
           where o.tenant_id = c.tenant_id and o.epoch = c.epoch and o.session_id = c.session_id and o.permit_seq =
           c.seq
         ) o on true
         where c.lease_until >= to_timestamp($1 / 1000.0) and c.lease_until < to_timestamp($2 / 1000.0)
           and not coalesce(o.is_settled, false)
           and greatest(c.lease_until, o.lease_until) < to_timestamp($2 / 1000.0)
         order by c.lease_until limit $3";
    let rows =
        sqlx::query(sql).bind(since.as_millis()).bind(until.as_millis()).bind(EXPIRED_MAX).fetch_all(conn).await?;
    let mut expired = Vec::with_capacity(rows.len());
    for row in &rows {
        expired.push(ExpiredLease {
            tenant: TenantId(row.try_get("tenant_id")?),
            session: decode::name(SessionId::parse, row.try_get("session_id")?)?,
            call_id: decode::name(CallId::parse, row.try_get("call_id")?)?,
        });
    }
    Ok(expired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_each_other_over_the_year() {
        let november = Timestamp::from_millis(1_795_219_200_000).day();
        let months: Vec<String> = (0..=3).map(|ahead| month(november, ahead).to_string()).collect();
        assert_eq!(months, ["2026-11-01", "2026-12-01", "2027-01-01", "2027-02-01"]);
    }
}
