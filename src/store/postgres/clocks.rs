//! Clock sanity for retention. Each server checks the clocks once a minute and records the database's time. A jump of
//! the database's clock between checks is a gap: servers were down, or the clock was wrong. Rows before a gap may be
//! younger than their time stamps, so that retention is delayed by the gap until a person confirms the clock.

use sqlx::{Connection as _, PgConnection, Row as _};

use super::{
    Store, connect,
    decode::{LoadedRow, decode},
    row::big,
};
use crate::error::{OpenError, StoreError};
use callgate_core::domain::{ids::DEFAULT_TENANT, time::Timestamp};

/// Maximum difference between the clocks of database and server, in milliseconds; beyond it that server deletes
/// nothing.
const APART_MAX_MS: u64 = 300_000;
/// Maximum interval of checks without a gap, in milliseconds: a restart, a busy database.
const UNSEEN_MAX_MS: u64 = 900_000;
/// Maximum gap that counts as a downtime, in milliseconds. Only the longest of these counts; longer gaps add up,
/// because each may be a wrong clock.
const DOWN_MAX_MS: u64 = 43_200_000;

/// State of the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The database's time.
    pub database: Timestamp,
    /// Last check, by the database's clock; none for a new database.
    pub seen: Option<Timestamp>,
    /// Delay of retention, in milliseconds.
    pub gap_ms: u64,
    /// Local time minus database time, in milliseconds.
    pub apart_ms: i64,
}

impl Clocks {
    /// True when the clocks agree.
    #[must_use]
    pub const fn agree(&self) -> bool {
        self.apart_ms.unsigned_abs() <= APART_MAX_MS
    }

    /// Reference time of retention; none when the clocks are not trusted.
    pub(super) fn of_retention(&self) -> Option<Timestamp> {
        let is_seen =
            self.seen.is_some_and(|seen| self.database.as_millis().abs_diff(seen.as_millis()) <= UNSEEN_MAX_MS);
        (self.agree() && is_seen).then(|| Timestamp::from_millis(self.database.as_millis() - big(self.gap_ms)))
    }

    /// The state after this check: a clock that was set back reduces the gap.
    fn looked_at(self) -> Self {
        let passed_ms = self.database.as_millis() - self.seen.unwrap_or(self.database).as_millis();
        let unseen_ms = passed_ms.unsigned_abs();
        let gap_ms = match passed_ms {
            _ if unseen_ms <= UNSEEN_MAX_MS => self.gap_ms,
            ..0 => self.gap_ms.saturating_sub(unseen_ms),
            _ if unseen_ms <= DOWN_MAX_MS => self.gap_ms.max(unseen_ms),
            _ => self.gap_ms.saturating_add(unseen_ms),
        };
        Self { seen: Some(self.database), gap_ms, ..self }
    }
}

impl Store {
    /// Checks the clocks and records the result. `database` is its time, `server` the local time.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: a late next check records a gap.
    pub async fn look_at_clocks(&self, database: Timestamp, server: Timestamp) -> Result<Clocks, StoreError> {
        check_clocks(&mut self.slow.separate().await?, database, server).await
    }
}

/// Checks and records.
pub(super) async fn check_clocks(conn: &mut PgConnection, database: Timestamp, server: Timestamp) -> LoadedRow<Clocks> {
    let mut tx = conn.begin().await?;
    // Serialized, or the later check would take the earlier one for a gap.
    let clocks = read(&mut tx, database, server, "for update").await?;
    // A machine with a wrong clock cannot judge the database's.
    let clocks = if clocks.agree() { clocks.looked_at() } else { clocks };
    write(&mut tx, &clocks).await?;
    tx.commit().await?;
    Ok(clocks)
}

/// Reference time of retention; none when the clocks are not trusted.
pub(super) async fn of_retention(
    conn: &mut PgConnection,
    database: Timestamp,
    server: Timestamp,
) -> LoadedRow<Option<Timestamp>> {
    Ok(read(conn, database, server, "").await?.of_retention())
}

/// The state of the clocks for a person on this machine, whose time is `server`. With `confirms`, the database's clock
/// is accepted and the delay ends.
///
/// # Errors
/// [`OpenError`] when the database cannot be used.
pub async fn clocks(
    options: sqlx::postgres::PgConnectOptions,
    server: Timestamp,
    confirms: bool,
) -> Result<Clocks, OpenError> {
    let (mut conn, _) = connect::first(options.options([("search_path", super::SCHEMA)])).await?;
    let database = super::maintain::now(&mut conn).await?;
    let clocks = read(&mut conn, database, server, "").await?;
    if confirms {
        write(&mut conn, &Clocks { seen: Some(database), gap_ms: 0, ..clocks }).await?;
    }
    Ok(clocks)
}

async fn read(conn: &mut PgConnection, database: Timestamp, server: Timestamp, how: &str) -> LoadedRow<Clocks> {
    // Earlier builds recorded the time of their retention runs.
    let sql = format!(
        "select (extract(epoch from coalesce(clock_seen_at, retained_at)) * 1000)::bigint as seen_ms, clock_gap_ms
         from tenant where tenant_id = $1 {how}"
    );
    let row = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(DEFAULT_TENANT.0).fetch_one(conn).await?;
    Ok(Clocks {
        database,
        seen: decode(&row, "seen_ms")?,
        gap_ms: row.try_get::<Option<i64>, _>("clock_gap_ms")?.map_or(0, i64::unsigned_abs),
        apart_ms: server.as_millis() - database.as_millis(),
    })
}

async fn write(conn: &mut PgConnection, clocks: &Clocks) -> LoadedRow<()> {
    let sql = "update tenant set clock_seen_at = to_timestamp($2 / 1000.0), clock_gap_ms = $3 where tenant_id = $1";
    let seen = clocks.seen.map(Timestamp::as_millis);
    sqlx::query(sql).bind(DEFAULT_TENANT.0).bind(seen).bind(big(clocks.gap_ms)).execute(conn).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const START: i64 = 1_800_000_000_000;

    /// Checks after steps of these milliseconds; returns the delay of retention after each, in minutes.
    fn held_back(steps: &[i64]) -> Vec<u64> {
        let (mut now, mut seen, mut gap_ms) = (START, Some(Timestamp::from_millis(START)), 0);
        let mut look = |step: &i64| {
            now += step;
            let clocks = Clocks { database: Timestamp::from_millis(now), seen, gap_ms, apart_ms: 0 }.looked_at();
            (seen, gap_ms) = (clocks.seen, clocks.gap_ms);
            gap_ms / MINUTE as u64
        };
        steps.iter().map(&mut look).collect()
    }

    #[test]
    fn looks_each_minute_and_restarts_each_ten_minutes_hold_nothing_back() {
        assert_eq!(held_back(&[MINUTE; 9]), [0; 9]);
        assert_eq!(held_back(&[11 * MINUTE; 9]), [0; 9]);
    }

    #[test]
    fn a_jump_is_held_back_and_undone_by_the_way_back() {
        let days = 40 * 1_440;
        assert_eq!(held_back(&[MINUTE, 40 * DAY, MINUTE, 40 * DAY]), [0, days, days, 2 * days]);
        assert_eq!(held_back(&[40 * DAY, MINUTE, -40 * DAY, MINUTE]), [days, days, 0, 0]);
        assert_eq!(held_back(&[-40 * DAY, 40 * DAY]), [0, days], "rows of that time have early stamps");
    }

    #[test]
    fn longest_time_without_a_server_counts() {
        assert_eq!(held_back(&[10 * HOUR, 8 * HOUR, 9 * HOUR]), [600, 600, 600]);
        assert_eq!(held_back(&[60 * HOUR, 10 * HOUR]), [3_600, 3_600]);
    }

    #[test]
    fn retention_needs_clocks_that_agree_and_a_look_of_late() {
        let at = |ms: i64| Timestamp::from_millis(START + ms);
        let clocks = Clocks { database: at(0), seen: Some(at(-MINUTE)), gap_ms: 5, apart_ms: 5 * MINUTE };
        assert_eq!(clocks.of_retention(), Some(at(-5)));
        for wrong in [
            Clocks { apart_ms: 5 * MINUTE + 1, ..clocks },
            Clocks { apart_ms: -6 * MINUTE, ..clocks },
            Clocks { seen: None, ..clocks },
            Clocks { seen: Some(at(-40 * DAY)), ..clocks },
            Clocks { seen: Some(at(40 * DAY)), ..clocks },
        ] {
            assert_eq!(wrong.of_retention(), None, "{wrong:?}");
        }
    }
}
