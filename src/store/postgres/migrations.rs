//! Schema migrations: applied at start, and checked for compatibility with this build.
//!
//! A build may be older than the schema: during a fleet's upgrade, and after a rollback. It works as long as it has the
//! migration that `schema_floor` names; a migration that removes something from older builds raises that
//! (`migrations/README.md`).

use std::sync::LazyLock;

use sqlx::{
    Executor as _, PgConnection, SqlStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::{SCHEMA, distribute};
use crate::error::{OpenError, StoreError};

/// The text of each migration, by its file's stem in `migrations/`.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Advisory lock of migrations: `callgate` and a number, as a key.
const LOCK: i64 = 0x6361_6c6c_0001;
/// Timeout of that lock, and of any lock of a migration, in milliseconds.
const LOCK_WAIT_MS: u64 = 15_000;
/// Idle timeout of its holder, in milliseconds, after which the server ends its session.
const SILENCE_MS: u64 = 5_000;

pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let migration = |(stem, text): &(&'static str, &'static str)| {
        let (version, title) = stem.split_once('_')?;
        let (version, title) = (version.parse().ok()?, title.replace('_', " ").into());
        Some(Migration::new(version, title, MigrationType::Simple, SqlStr::from_static(text), false))
    };
    let mut migrator = Migrator::with_migrations(FILES.iter().filter_map(migration).collect());
    migrator.set_locking(false);
    // Migrations of a newer build are checked by `schema_floor`.
    migrator.set_ignore_missing(true);
    migrator
});

/// State of a database's schema relative to this build's migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaState {
    /// Number of applied migrations.
    pub applied: usize,
    /// Migrations of this build that are not applied.
    pub pending: Vec<i64>,
    /// Applied migrations that this build lacks.
    pub newer: Vec<i64>,
    /// The migration that a build must have, if known.
    pub floor: Option<i64>,
    /// True when an applied migration has the number of a different one of this build.
    pub is_foreign: bool,
}

impl SchemaState {
    /// The reason why this build cannot use the schema, with advice.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if self.is_foreign {
            return Some(format!(
                "the schema `{SCHEMA}` of this database was made by a build of callgate from before its first release, \
                 and its tables cannot be brought up to date. Give callgate an empty database (createdb callgate, and \
                 name it in the database URL), or, if nothing in this one is needed any more: drop schema {SCHEMA} \
                 cascade"
            ));
        }
        let first = self.newer.first()?;
        let newest = Self::newest();
        match self.floor {
            Some(floor) if Self::has(floor) => None,
            Some(floor) => Some(format!(
                "a newer build of callgate has taken away from this database what this build needs: only builds that \
                 have migration {floor} can serve on it, and this one ends at {newest}. Start the newer build; to go \
                 back behind it, restore a backup that was made before"
            )),
            None => Some(format!(
                "migration {first} was applied to this database, which this build of callgate, ending at {newest}, \
                 does not have, and nothing there says whether this build can serve on it (the table \
                 {SCHEMA}.schema_floor is missing or empty). Start the build that was here last, or a newer one"
            )),
        }
    }

    /// True when this build has that migration.
    #[must_use]
    pub fn has(version: i64) -> bool {
        MIGRATIONS.version_exists(version)
    }

    /// The last migration of this build.
    #[must_use]
    pub fn newest() -> i64 {
        MIGRATIONS.iter().last().map_or(0, |migration| migration.version)
    }
}

/// Reads the state without changes.
///
/// # Errors
/// Errors of the database.
pub(super) async fn state(conn: &mut PgConnection) -> Result<SchemaState, sqlx::Error> {
    let all = || MIGRATIONS.iter().map(|migration| migration.version);
    if !is_there(conn, "_sqlx_migrations").await? {
        return Ok(SchemaState { applied: 0, pending: all().collect(), newer: vec![], floor: None, is_foreign: false });
    }
    let applied = format!("select version, checksum, success from {SCHEMA}._sqlx_migrations order by version");
    let applied: Vec<(i64, Vec<u8>, bool)> = sqlx::query_as(sqlx::AssertSqlSafe(applied)).fetch_all(&mut *conn).await?;
    let floor = match is_there(conn, "schema_floor").await? {
        true => {
            let floor = format!("select migration from {SCHEMA}.schema_floor");
            sqlx::query_scalar(sqlx::AssertSqlSafe(floor)).fetch_optional(&mut *conn).await?
        }
        false => None,
    };
    let known = |version: i64| MIGRATIONS.iter().find(|migration| migration.version == version);
    let has = |version: i64| applied.iter().any(|(applied, _, success)| *applied == version && *success);
    Ok(SchemaState {
        applied: applied.len(),
        pending: all().filter(|version| !has(*version)).collect(),
        newer: applied.iter().map(|(version, ..)| *version).filter(|version| known(*version).is_none()).collect(),
        floor,
        is_foreign: applied.iter().any(|(version, sum, _)| known(*version).is_some_and(|own| *own.checksum != **sum)),
    })
}

async fn is_there(conn: &mut PgConnection, table: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select to_regclass($1) is not null").bind(format!("{SCHEMA}.{table}")).fetch_one(conn).await
}

/// Applies missing migrations. One process at a time, by a lock with timeouts: sqlx's own lock has none, and a server
/// detects a lost client only after hours.
///
/// # Errors
/// [`OpenError::Migrate`] when this build does not support the schema, or a migration fails.
pub(super) async fn apply(conn: &mut PgConnection) -> Result<(), OpenError> {
    let is_locked = !state(conn).await?.pending.is_empty();
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
    let state = state(conn).await?;
    if let Some(refusal) = state.refusal() {
        return Err(OpenError::Migrate(refusal));
    }
    if let (Some(first), Some(last)) = (state.newer.first(), state.newer.last()) {
        tracing::warn!(
            first,
            last,
            own = SchemaState::newest(),
            "a newer build of callgate has migrated this database. This build is compatible with it, and serves"
        );
    }
    // `run` would do the same, but its future cannot be sent to another thread.
    MIGRATIONS.run_direct(None, conn, false).await?;
    if is_locked {
        if distribute::is_distributed(conn).await? {
            distribute::distribute_tables(conn).await?;
        }
        sqlx::query("select pg_advisory_unlock($1)").bind(LOCK).execute(&mut *conn).await?;
        conn.execute("set idle_session_timeout = 0").await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Last migration before the first release: the baseline.
    const BASELINE: i64 = 110;

    /// True for a change of a known table that may break servers of the previous release.
    fn takes_away(statement: &str) -> bool {
        let words: Vec<&str> = statement.split_whitespace().collect();
        let said = format!(" {} ", words.join(" ").to_lowercase());
        let has = |part: &str| said.contains(part);
        let must_be_given = has(" add column ") && has(" not null ") && !has(" default ") && !has(" generated ");
        let on_known = has(" alter table ");
        [" drop table ", " drop view ", " drop column ", " drop function ", " drop type ", " rename ", " truncate "]
            .into_iter()
            .any(has)
            || on_known
                && [" set not null ", " type ", " drop default ", " add constraint ", " add check "]
                    .into_iter()
                    .any(has)
            || must_be_given
    }

    fn wrong(version: i64, text: &str) -> bool {
        let code: String =
            text.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join(" ");
        version > BASELINE && code.split(';').any(takes_away) && !code.contains("update schema_floor set migration = ")
    }

    #[test]
    fn a_migration_that_takes_something_away_raises_the_floor() {
        for Migration { version, description, sql, .. } in MIGRATIONS.iter() {
            assert!(
                !wrong(*version, sql.as_str()),
                "{version} {description}: it has to `update schema_floor set migration = …`"
            );
        }
        for takes in [
            "alter table call drop column tool;",
            "alter table call rename column tool to tool_name;",
            "drop table halt;",
            "alter table call alter column tool set not null;",
            "alter table call add column trace text not null;",
            "alter table call add constraint c check (tool <> '');",
            "-- why\nalter table call\n  alter column round type bigint;",
        ] {
            assert!(wrong(999, takes), "{takes}");
            assert!(!wrong(999, &format!("{takes}\nupdate schema_floor set migration = 130;")), "{takes}");
        }
        for adds in ["alter table call add column trace text;", "alter table call add column n int not null default 0;"]
        {
            assert!(!wrong(999, adds), "{adds}");
        }
    }

    #[test]
    fn a_floor_names_a_migration() {
        for Migration { version, description, sql, .. } in MIGRATIONS.iter() {
            for (_, rest) in sql
                .as_str()
                .match_indices("update schema_floor set migration = ")
                .map(|(at, found)| sql.as_str().split_at(at + found.len()))
            {
                let named: String = rest.chars().take_while(char::is_ascii_digit).collect();
                let is_known =
                    MIGRATIONS.iter().any(|known| known.version.to_string() == named && known.version <= *version);
                assert!(is_known, "{version} {description}: {named} is no migration up to this one");
            }
        }
    }

    #[test]
    fn every_file_is_read() {
        let stems: Vec<&str> = FILES.iter().map(|(stem, _)| *stem).collect();
        let read: Vec<String> =
            MIGRATIONS.iter().map(|one| format!("{:04}_{}", one.version, one.description.replace(' ', "_"))).collect();
        assert_eq!(read, stems, "a migration is NNNN_what.sql");
    }

    #[test]
    fn a_build_serves_where_it_has_what_the_floor_names() {
        let state = |newer: &[i64], floor| SchemaState {
            applied: FILES.len() + newer.len(),
            pending: vec![],
            newer: newer.to_vec(),
            floor,
            is_foreign: false,
        };
        assert_eq!(state(&[], Some(130)).refusal(), None);
        assert_eq!(state(&[9_998, 9_999], Some(130)).refusal(), None);
        let refusal = state(&[9_998, 9_999], Some(9_998)).refusal().expect("refused");
        assert!(refusal.contains("have migration 9998") && refusal.contains("restore a backup"), "{refusal}");
        let refusal = state(&[9_998], None).refusal().expect("refused");
        assert!(refusal.contains("migration 9998 was applied") && refusal.contains("schema_floor"), "{refusal}");
    }
}
