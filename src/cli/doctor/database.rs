//! Checks of the database settings behind callgate's guarantees (docs/durability.md#guarantees).

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::check::{Area, DoctorCheck};
use callgate_store::{CONNECTIONS_MAX, Inspection};

const AREA: Area = Area::Database;
const VERSION_MIN: i64 = 140_000;
/// Accepted values of `synchronous_commit`.
const DURABLE: [&str; 3] = ["on", "remote_apply", "remote_write"];
/// Callgate's longest statement, in milliseconds: an export.
const STATEMENT_MS: i64 = 30_000;
/// Warning threshold of the transaction age: PostgreSQL rejects transactions at 2,147 million less three.
const XID_AGE_WARNED: i64 = 1_000_000_000;
const XID_AGE_WRONG: i64 = 1_800_000_000;

/// All checks.
pub(super) fn check_database(found: &Inspection, options: &PgConnectOptions, is_private: bool) -> Vec<DoctorCheck> {
    let all = [
        version(found),
        role(found),
        on(found, "fsync", true),
        on(found, "full_page_writes", false),
        synchronous_commit(found),
        checksums(found),
        encoding(found),
        connections(found),
        idle(found),
        isolation(found),
        statements(found),
        freezing(found),
        names(found),
    ];
    let of_others = [archive(found), slots(found), check_encryption(found, options)];
    all.into_iter().chain(of_others.into_iter().filter(|_| !is_private)).collect()
}

fn find_setting<'a>(found: &'a Inspection, name: &str) -> &'a str {
    found.settings.get(name).map_or("", String::as_str)
}

fn number(found: &Inspection, name: &str) -> i64 {
    find_setting(found, name).parse().unwrap_or_default()
}

fn version(found: &Inspection) -> DoctorCheck {
    let said = format!("PostgreSQL {}", find_setting(found, "server_version"));
    match number(found, "server_version_num") {
        old if old < VERSION_MIN => {
            DoctorCheck::wrong(AREA, "version", format!("{said} is too old"), "use a server of version 14 or newer")
        }
        _ => DoctorCheck::ok(AREA, "version", said),
    }
}

fn role(found: &Inspection) -> DoctorCheck {
    if found.state.is_standby {
        let cure = "set --database-url to the primary, or promote this server: select pg_promote()";
        return DoctorCheck::wrong(AREA, "writable", "it is a read-only standby", cure);
    }
    if find_setting(found, "default_transaction_read_only") == "on" {
        let cure = "alter database … reset default_transaction_read_only (or the role, or the server: wherever it is \
                    set)";
        return DoctorCheck::wrong(AREA, "writable", "default_transaction_read_only = on: nothing can be stored", cure);
    }
    DoctorCheck::ok(AREA, "writable", "it is a primary")
}

fn on(found: &Inspection, name: &'static str, is_needed: bool) -> DoctorCheck {
    let cure = format!("alter system set {name} = on; select pg_reload_conf()");
    match (find_setting(found, name), is_needed) {
        ("on", _) => DoctorCheck::ok(AREA, name, "on"),
        (value, true) => {
            let text = format!("{value}: a crash of the machine loses acknowledged rows; no server starts on it");
            DoctorCheck::wrong(AREA, name, text, cure)
        }
        (value, false) => {
            let text =
                format!("{value}: a crash of the machine may destroy pages, unless its file system writes whole pages");
            DoctorCheck::warning(AREA, name, text, cure)
        }
    }
}

fn synchronous_commit(found: &Inspection) -> DoctorCheck {
    let (name, value) = ("synchronous_commit", find_setting(found, "synchronous_commit"));
    if !DURABLE.contains(&value) {
        let text = format!("{value}: a crash loses acknowledged rows; no server starts on it");
        let cure = "alter database … reset synchronous_commit; alter role … reset synchronous_commit; alter system \
                    set synchronous_commit = on; select pg_reload_conf()";
        return DoctorCheck::wrong(AREA, name, text, cure);
    }
    let standbys = match find_setting(found, "synchronous_standby_names") {
        "" => "no standby has a row when it is acknowledged".to_owned(),
        names => format!("a row is acknowledged once {names} has it"),
    };
    DoctorCheck::ok(AREA, name, format!("{value}; {standbys}"))
}

fn checksums(found: &Inspection) -> DoctorCheck {
    match find_setting(found, "data_checksums") {
        "on" => DoctorCheck::ok(AREA, "data_checksums", "on"),
        _ => DoctorCheck::warning(
            AREA,
            "data_checksums",
            "off: pages corrupted by the disk go undetected",
            "stop the server, pg_checksums --enable -D DATA, start it (initdb --data-checksums for a new one)",
        ),
    }
}

fn encoding(found: &Inspection) -> DoctorCheck {
    match find_setting(found, "server_encoding") {
        "UTF8" => DoctorCheck::ok(AREA, "encoding", "UTF8"),
        other => DoctorCheck::wrong(
            AREA,
            "encoding",
            format!("{other}: some texts of agents cannot be stored"),
            "recreate the database: createdb --encoding UTF8 --template template0",
        ),
    }
}

/// Connections needed by this server and a second one, as in a rolling restart.
fn connections(found: &Inspection) -> DoctorCheck {
    let max = number(found, "max_connections");
    let reserved = number(found, "superuser_reserved_connections") + number(found, "reserved_connections");
    let own = i64::try_from(CONNECTIONS_MAX).unwrap_or(i64::MAX);
    let (others, writers) = (found.state.others, found.state.writers);
    let room = max - reserved - others;
    let text = format!(
        "max_connections = {max}; {reserved} are reserved for administrators, and other programs use {others}. A \
         server uses up to {own}, and {writers} are connected"
    );
    let cure = |servers: i64| {
        format!(
            "alter system set max_connections = {} and restart PostgreSQL, or put a pooler in front",
            reserved + others + own * servers
        )
    };
    match room / own {
        0 => DoctorCheck::wrong(AREA, "connections", text, cure(2)),
        servers if servers < writers + 1 => {
            let text = format!("{text}: too few for one more, as in a rolling restart");
            DoctorCheck::warning(AREA, "connections", text, cure(writers + 1))
        }
        servers => DoctorCheck::ok(AREA, "connections", format!("{text}: enough for {servers} servers")),
    }
}

/// Set by callgate on each connection, but a pooler may drop it.
fn idle(found: &Inspection) -> DoctorCheck {
    let name = "idle_in_transaction_session_timeout";
    let (value, wanted) = (find_setting(found, name), found.idle_ms_wanted);
    if value != wanted {
        let user = &found.rights.user;
        let text = format!(
            "{value} ms, though callgate sets {wanted} on each connection: a pooler in between drops the \
             setting, and a crashed server keeps its locks"
        );
        return DoctorCheck::warning(AREA, name, text, format!("alter role {user} set {name} = {wanted}"));
    }
    if find_setting(found, "search_path") != found.schema_wanted {
        let (user, schema) = (&found.rights.user, found.schema_wanted);
        let text = "a pooler in between drops the schema that callgate sets on each connection";
        return DoctorCheck::wrong(AREA, "search_path", text, format!("alter role {user} set search_path = {schema}"));
    }
    DoctorCheck::ok(AREA, name, format!("{value} ms, set on each connection"))
}

fn isolation(found: &Inspection) -> DoctorCheck {
    let (name, value) = ("default_transaction_isolation", find_setting(found, "default_transaction_isolation"));
    match value {
        "read committed" => DoctorCheck::ok(AREA, name, value),
        _ => DoctorCheck::warning(
            AREA,
            name,
            format!("{value}: it is safe, but causes conflicts that are retried"),
            format!("alter role {} set {name} = 'read committed'", found.rights.user),
        ),
    }
}

fn statements(found: &Inspection) -> DoctorCheck {
    let user = &found.rights.user;
    for name in ["statement_timeout", "transaction_timeout"] {
        let value = number(found, name);
        if (1..STATEMENT_MS).contains(&value) {
            let text = format!("{name} = {value} ms aborts statements to which callgate gives up to {STATEMENT_MS} ms");
            return DoctorCheck::warning(AREA, "timeouts", text, format!("alter role {user} set {name} = 0"));
        }
    }
    match number(found, "idle_session_timeout") {
        0 => DoctorCheck::ok(AREA, "timeouts", "callgate's own apply"),
        value => DoctorCheck::warning(
            AREA,
            "timeouts",
            format!(
                "idle_session_timeout = {value} ms closes idle connections; the next caller waits for a new \
                     one"
            ),
            format!("alter role {user} set idle_session_timeout = 0"),
        ),
    }
}

fn freezing(found: &Inspection) -> DoctorCheck {
    let age = found.state.xid_age;
    let text = format!("the oldest unfrozen transaction is {} million transactions old", age / 1_000_000);
    let cure = "unblock autovacuum: end old transactions (pg_stat_activity.xact_start), prepared transactions and \
                replication slots that block it; then vacuum freeze";
    match age {
        XID_AGE_WRONG.. => DoctorCheck::wrong(AREA, "freezing", text, cure),
        XID_AGE_WARNED.. => DoctorCheck::warning(AREA, "freezing", text, cure),
        _ => DoctorCheck::ok(AREA, "freezing", text),
    }
}

/// Search for sessions by names of agents, users and tools.
fn names(found: &Inspection) -> DoctorCheck {
    let text = match found.rights.has_trigrams {
        true => "sessions are found by any part of a name: the extension pg_trgm is installed",
        false => {
            "sessions are found by the beginning of a name; by any part of it after: create extension pg_trgm (a \
             server uses it within an hour)"
        }
    };
    DoctorCheck::ok(AREA, "name search", text)
}

fn archive(found: &Inspection) -> DoctorCheck {
    let mode = find_setting(found, "archive_mode");
    if mode == "off" {
        return DoctorCheck::ok(
            AREA,
            "archive",
            "archive_mode = off: no point-in-time recovery, unless the server has another backup method",
        );
    }
    if found.state.archive_fails {
        let cure = "read last_failed_wal in pg_stat_archiver and the server's log, and fix archive_command or its \
                    target: until then the log fills the disk, and nothing after the last segment can be restored";
        return DoctorCheck::wrong(AREA, "archive", "the last attempt to archive the log failed", cure);
    }
    DoctorCheck::ok(AREA, "archive", format!("archive_mode = {mode}"))
}

fn slots(found: &Inspection) -> DoctorCheck {
    match found.state.idle_slots.as_slice() {
        [] => DoctorCheck::ok(AREA, "replication_slots", "none is inactive"),
        idle => DoctorCheck::warning(
            AREA,
            "replication_slots",
            format!("inactive: {}; the server's log grows until the disk is full", idle.join(", ")),
            "start its consumer, or select pg_drop_replication_slot('NAME')",
        ),
    }
}

fn check_encryption(found: &Inspection, options: &PgConnectOptions) -> DoctorCheck {
    let host = options.get_host();
    let is_here = options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    let is_verified = matches!(options.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    match (is_here, found.state.is_encrypted, is_verified) {
        (true, ..) => DoctorCheck::ok(AREA, "encryption", "it is on this machine"),
        (_, true, true) => DoctorCheck::ok(AREA, "encryption", "TLS with a verified certificate"),
        (_, is_encrypted, _) => {
            let how = if is_encrypted { "TLS without verification of the certificate" } else { "unencrypted" };
            let cure = "set sslmode=verify-full&sslrootcert=FILE in --database-url";
            DoctorCheck::warning(
                AREA,
                "encryption",
                format!("{how}: a third party could impersonate the database"),
                cure,
            )
        }
    }
}
