//! Maintenance: partitions and durability settings.

use chrono::{Datelike as _, Months, NaiveDate};
use sqlx::{Connection, Executor as _, PgConnection};

use super::{
    SCHEMA,
    connect::{DURABLE, be_durable},
    migrations,
    tables::{self, RetentionRule},
};
use crate::error::{OpenError, StoreError};
use callgate_core::domain::time::Timestamp;

/// Number of months with partitions ahead of time.
const MONTHS_AHEAD: u32 = 2;

/// Migrates the schema, and rejects a server that would lose acknowledged rows.
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
            "the database has full_page_writes = off: a crash of the machine may destroy pages, unless the file \
             system writes them atomically"
        );
    }
    // Two replicas that start at once would both try: the loser finds it there.
    let schema = format!("create schema if not exists {SCHEMA}");
    if let Err(error) = conn.execute(sqlx::AssertSqlSafe(schema)).await
        && !is_already_there(&error)
    {
        return Err(error.into());
    }
    migrations::apply(conn).await?;
    Ok(make_partitions(conn).await?)
}

fn is_already_there(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    matches!(code.as_deref(), Some("42P06" | "42P07" | "23505"))
}

/// Creates the partitions of this month and the next ones; safe to run concurrently.
pub(super) async fn make_partitions(conn: &mut PgConnection) -> Result<(), StoreError> {
    let today: i32 =
        sqlx::query_scalar("select (now() at time zone 'utc')::date - date '1970-01-01'").fetch_one(&mut *conn).await?;
    for ahead in 0..=MONTHS_AHEAD {
        let first = month(today, ahead);
        let next = month(today, ahead + 1);
        for table in tables::ending(RetentionRule::WithMonth) {
            let partition = partition(table, first);
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

/// The partition of a table for the trees born in the month that starts on `first`.
pub(super) fn partition(table: &str, first: NaiveDate) -> String {
    format!("{table}_{}", first.format("%Y_%m"))
}

/// The first day of the month `ahead` months after that of `day`.
pub(super) fn month(day: i32, ahead: u32) -> NaiveDate {
    let date = NaiveDate::from_epoch_days(day).unwrap_or_default();
    date.with_day(1).and_then(|first| first.checked_add_months(Months::new(ahead))).unwrap_or(date)
}

/// The database's time.
pub(super) async fn now(conn: &mut PgConnection) -> Result<Timestamp, StoreError> {
    let millis: i64 =
        sqlx::query_scalar("select (extract(epoch from clock_timestamp()) * 1000)::bigint").fetch_one(conn).await?;
    Ok(Timestamp::from_millis(millis))
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
