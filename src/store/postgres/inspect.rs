//! Read-only inspection of a database, for diagnosis.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::{
    SCHEMA, SchemaState, connect, maintain, migrations,
    open::IDLE_MS,
    tables::{self, RetentionRule},
    usual,
};
use crate::error::{OpenError, StoreError};
use callgate_core::domain::{ids::DEFAULT_TENANT, time::Timestamp};

/// Timeout of the inspection.
const LIMIT: Duration = Duration::from_secs(15);

/// Inspected settings, as effective for callgate's user in its database.
const SETTINGS: [&str; 22] = [
    "archive_mode",
    "data_checksums",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "fsync",
    "full_page_writes",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "max_connections",
    "recovery_min_apply_delay",
    "reserved_connections",
    "search_path",
    "server_encoding",
    "server_version",
    "server_version_num",
    "session_replication_role",
    "statement_timeout",
    "superuser_reserved_connections",
    "synchronous_commit",
    "synchronous_standby_names",
    "transaction_timeout",
    "wal_level",
];

/// Rights and objects.
const RIGHTS: &str = "select
    current_user::text as own,
    (select rolsuper from pg_roles where rolname = current_user) as is_superuser,
    has_database_privilege(current_database(), 'create') as may_make_schema,
    exists (select from pg_namespace where nspname = 'callgate') as has_schema,
    coalesce((select pg_has_role(nspowner, 'usage') from pg_namespace where nspname = 'callgate'), true) as owns_schema,
    array(select relname::text from pg_class where relnamespace = to_regnamespace('callgate')
      and relkind in ('r', 'p') and not pg_has_role(relowner, 'usage') order by 1) as not_owned,
    array(select relname::text from pg_class where relnamespace = to_regnamespace('callgate')
      and relkind in ('r', 'p') and relname <> '_sqlx_migrations' and not (
        has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
        and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete')) order by 1) as not_usable,
    exists (select from pg_roles where rolname = 'callgate_reader') as has_reader,
    exists (select from pg_roles r where r.rolname = 'callgate_reader' and pg_has_role(r.oid, 'member'))
      as acts_as_reader,
    exists (select from pg_roles where rolname = 'callgate_analyst') as has_analyst,
    exists (select from pg_extension where extname = 'pg_trgm') as has_trigrams";

/// State, without parts that only the owner may read.
const STATE: &str = "select
    pg_is_in_recovery() as is_standby,
    (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms,
    pg_database_size(current_database()) as bytes,
    (select age(datfrozenxid)::bigint from pg_database where datname = current_database()) as xid_age,
    (select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()
      and application_name not like 'callgate%') as others,
    (select count(*) from pg_stat_activity where datname = current_database()
      and application_name like 'callgate writer%') as writers,
    (select failed_count > 0 and coalesce(last_failed_time > last_archived_time, true) from pg_stat_archiver)
      as archive_fails,
    array(select slot_name::text from pg_replication_slots where not active) as idle_slots,
    coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false) as is_encrypted";

/// Result of an inspection.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// Settings by name; without those that this version lacks.
    pub settings: BTreeMap<String, String>,
    /// The idle-in-transaction timeout that callgate requests, in milliseconds.
    pub idle_ms_wanted: &'static str,
    /// The schema that callgate requests.
    pub schema_wanted: &'static str,
    /// Schema state relative to this build.
    pub schema: SchemaState,
    /// True if this month's partitions exist.
    pub has_partitions: bool,
    /// Rights.
    pub rights: Rights,
    /// State.
    pub state: DatabaseStatus,
    /// The deployment's active policy: its hash and text.
    pub policy: Option<(String, String)>,
    /// Round-trip time, in milliseconds: the precision of the clock comparison.
    pub round_trip_ms: i64,
    /// Local time at the response.
    pub asked_at: Timestamp,
}

/// Rights of callgate's user.
#[derive(Debug, Clone)]
pub struct Rights {
    /// Its name.
    pub user: String,
    /// True for a superuser, who bypasses row-level security.
    pub is_superuser: bool,
    /// True if it may create the schema.
    pub may_make_schema: bool,
    /// True if the schema exists.
    pub has_schema: bool,
    /// True if it, or a role that it is a member of, owns the schema.
    pub owns_schema: bool,
    /// Tables that its migrations cannot change.
    pub not_owned: Vec<String>,
    /// Tables that it cannot read and write.
    pub not_usable: Vec<String>,
    /// True if the role of reads exists.
    pub has_reader: bool,
    /// True if it may switch to that role.
    pub acts_as_reader: bool,
    /// True if the role of analysts exists.
    pub has_analyst: bool,
    /// True if the extension pg_trgm is there, which finds texts within names.
    pub has_trigrams: bool,
}

/// State of a database.
#[derive(Debug, Clone)]
pub struct DatabaseStatus {
    /// True for a read-only standby.
    pub is_standby: bool,
    /// Its clock.
    pub now: Timestamp,
    /// Its size.
    pub bytes: i64,
    /// Transactions since the oldest unfrozen one.
    pub xid_age: i64,
    /// Connections of other programs, over all databases, as far as visible.
    pub others: i64,
    /// Connected callgate servers.
    pub writers: i64,
    /// True if the last archiving of the WAL failed.
    pub archive_fails: bool,
    /// Inactive replication slots, which retain the WAL.
    pub idle_slots: Vec<String>,
    /// True if this connection is encrypted.
    pub is_encrypted: bool,
}

/// Inspects a database as a server would use it. `now` is the local clock.
///
/// # Errors
/// [`OpenError`] when it is unavailable, or cannot be inspected.
pub async fn inspect(options: PgConnectOptions, now: impl Fn() -> Timestamp) -> Result<Inspection, OpenError> {
    let looked = timeout(LIMIT, inspect_database(options, now)).await;
    looked.unwrap_or_else(|_| Err(StoreError::timeout(LIMIT).into()))
}

async fn inspect_database(options: PgConnectOptions, now: impl Fn() -> Timestamp) -> Result<Inspection, OpenError> {
    let (mut conn, _) = connect::first(usual(options).application_name("callgate doctor")).await?;
    conn.execute("set default_transaction_read_only = on").await?;
    let query = sqlx::query_as("select name, coalesce(setting, '') from pg_settings where name = any($1)");
    let rows: Vec<(String, String)> = query.bind(&SETTINGS[..]).fetch_all(&mut conn).await?;
    let mut settings: BTreeMap<String, String> = rows.into_iter().collect();
    // This session's own word would hide it.
    let read_only = "select reset_val from pg_settings where name = 'default_transaction_read_only'";
    let read_only: String = sqlx::query_scalar(read_only).fetch_one(&mut conn).await?;
    settings.insert("default_transaction_read_only".to_owned(), read_only);
    let before = now();
    let state = sqlx::query(STATE).fetch_one(&mut conn).await?;
    let asked_at = now();
    let rights = sqlx::query(RIGHTS).fetch_one(&mut conn).await?;
    let is_readable = rights.try_get::<Vec<String>, _>("not_usable")?.is_empty();
    let schema = migrations::state(&mut conn).await?;
    let is_made = schema.applied > 0;
    Ok(Inspection {
        settings,
        idle_ms_wanted: IDLE_MS,
        schema_wanted: SCHEMA,
        has_partitions: has_partitions(&mut conn).await?,
        policy: if is_made && is_readable { policy(&mut conn).await? } else { None },
        schema,
        rights: Rights {
            user: rights.try_get("own")?,
            is_superuser: rights.try_get("is_superuser")?,
            may_make_schema: rights.try_get("may_make_schema")?,
            has_schema: rights.try_get("has_schema")?,
            owns_schema: rights.try_get("owns_schema")?,
            not_owned: rights.try_get("not_owned")?,
            not_usable: rights.try_get("not_usable")?,
            has_reader: rights.try_get("has_reader")?,
            acts_as_reader: rights.try_get("acts_as_reader")?,
            has_analyst: rights.try_get("has_analyst")?,
            has_trigrams: rights.try_get("has_trigrams")?,
        },
        state: DatabaseStatus {
            is_standby: state.try_get("is_standby")?,
            now: Timestamp::from_millis(state.try_get("now_ms")?),
            bytes: state.try_get("bytes")?,
            xid_age: state.try_get("xid_age")?,
            others: state.try_get("others")?,
            writers: state.try_get("writers")?,
            archive_fails: state.try_get::<Option<bool>, _>("archive_fails")?.unwrap_or_default(),
            idle_slots: state.try_get("idle_slots")?,
            is_encrypted: state.try_get("is_encrypted")?,
        },
        round_trip_ms: asked_at.as_millis() - before.as_millis(),
        asked_at,
    })
}

async fn has_partitions(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let today = "select (now() at time zone 'utc')::date - date '1970-01-01'";
    let today: i32 = sqlx::query_scalar(today).fetch_one(&mut *conn).await?;
    let name = |table| format!("{SCHEMA}.{}", maintain::partition(table, maintain::month(today, 0)));
    let names: Vec<String> = tables::ending(RetentionRule::WithMonth).map(name).collect();
    let there = "select bool_and(to_regclass(name) is not null) from unnest($1) name";
    sqlx::query_scalar(there).bind(names).fetch_one(conn).await
}

async fn policy(conn: &mut PgConnection) -> Result<Option<(String, String)>, sqlx::Error> {
    let active = format!(
        "select p.hash, p.text from {SCHEMA}.policy_activation v
         join {SCHEMA}.policy p using (tenant_id, hash)
         where v.tenant_id = $1 order by v.revision desc limit 1"
    );
    sqlx::query_as(AssertSqlSafe(active)).bind(DEFAULT_TENANT.0).fetch_optional(conn).await
}
