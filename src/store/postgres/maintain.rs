//! What keeps the database in order: schema, partitions and safety settings.

use std::sync::LazyLock;

use chrono::{Datelike as _, Months, NaiveDate};
use sqlx::{
    Connection, Executor as _, PgConnection, SqlStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{
    SCHEMA,
    connect::{DURABLE, be_durable},
    distribute,
};
use crate::{
    domain::time::Timestamp,
    store::error::{OpenError, StoreError},
};

/// Months whose partitions are made ahead of time.
const MONTHS_AHEAD: u32 = 2;

// The files of `migrations/` as build.rs found them: `FILES`, each with its version, what it does, and its text. sqlx's
// own macro for that would compile the whole driver a second time, for the compiler.
include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The advisory lock of whoever migrates: `callgate` and a number, as a key.
const LOCK: i64 = 0x6361_6c6c_0001;
/// Longest wait for it, or for any lock of a migration.
const LOCK_WAIT_MS: u64 = 15_000;
/// Longest silence of whoever has it, after which the server ends its session.
const SILENCE_MS: u64 = 5_000;

pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let migration = |(version, does, text): &(i64, &'static str, &'static str)| {
        Migration::new(*version, (*does).into(), MigrationType::Simple, SqlStr::from_static(text), false)
    };
    let mut migrator = Migrator::with_migrations(FILES.iter().map(migration).collect());
    migrator.set_locking(false);
    migrator
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
    migrate(conn).await?;
    Ok(make_partitions(conn).await?)
}

/// One process at a time, by a lock that nobody can hold for ever: sqlx's own would be waited for without end, and a
/// server notices only after hours that the replica which had it is gone.
async fn migrate(conn: &mut PgConnection) -> Result<(), OpenError> {
    let is_locked = !is_up_to_date(conn).await?;
    if is_locked {
        for setting in
            [format!("set lock_timeout = {LOCK_WAIT_MS}"), format!("set idle_session_timeout = {SILENCE_MS}")]
        {
            conn.execute(sqlx::AssertSqlSafe(setting)).await?;
        }
        let locked = sqlx::query("select pg_advisory_lock($1)").bind(LOCK).execute(&mut *conn).await;
        locked.map_err(|error| match StoreError::from(error) {
            StoreError::Overloaded(_) => OpenError::Migrate(format!(
                "another process has been doing that for {} s; start again when it is done",
                LOCK_WAIT_MS / 1_000
            )),
            error => error.into(),
        })?;
    }
    is_of_this_schema(conn).await?;
    // `run` would do the same, but its future cannot be sent to another thread.
    MIGRATIONS.run_direct(None, conn, false).await?;
    if is_locked {
        if distribute::is_distributed(conn).await? {
            distribute::all(conn).await?;
        }
        sqlx::query("select pg_advisory_unlock($1)").bind(LOCK).execute(&mut *conn).await?;
        conn.execute("set idle_session_timeout = 0").await?;
    }
    Ok(())
}

/// Refuses a schema that these migrations do not lead on from, and says what to do. The first release's are one new
/// baseline: what was stored by a build before it has other tables under the same numbers.
async fn is_of_this_schema(conn: &mut PgConnection) -> Result<(), OpenError> {
    if !is_there(conn).await? {
        return Ok(());
    }
    let applied = sqlx::query_as("select version, checksum from _sqlx_migrations order by version");
    let applied: Vec<(i64, Vec<u8>)> = applied.fetch_all(conn).await?;
    let text_of = |version: i64| MIGRATIONS.iter().find(|migration| migration.version == version);
    let other = applied.iter().any(|(version, sum)| text_of(*version).is_some_and(|known| *known.checksum != **sum));
    let newer = applied.iter().find(|(version, _)| text_of(*version).is_none());
    if other {
        return Err(OpenError::Migrate(format!(
            "the schema `{SCHEMA}` of this database was made by a build of callgate from before its first release, and \
             its tables cannot be brought up to date. Give callgate an empty database (createdb callgate, and name it \
             in the database URL), or, if nothing in this one is needed any more: drop schema {SCHEMA} cascade"
        )));
    }
    newer.map_or(Ok(()), |(version, _)| {
        Err(OpenError::Migrate(format!(
            "migration {version} was applied to this database, and this build of callgate does not have it: a newer \
             one has been here. Start that one, or one that is newer still"
        )))
    })
}

async fn is_there(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(conn).await
}

/// True when every migration was applied; whether they are the same ones is checked with them.
async fn is_up_to_date(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    if !is_there(conn).await? {
        return Ok(false);
    }
    let versions: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.version).collect();
    let applied = sqlx::query_scalar(
        "select count(*) = cardinality($1) from _sqlx_migrations where version = any($1) and success",
    );
    applied.bind(versions).fetch_one(conn).await
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

/// The partition of a table for the trees that were born in the month that begins so.
pub(super) fn partition(table: &str, first: NaiveDate) -> String {
    format!("{table}_{}", first.format("%Y_%m"))
}

/// The first day of the month that lies `ahead` months after that of `day`.
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
