//! Each database check, triggered by a modified inspection.

use super::{
    check::{DoctorCheck, Status},
    database, rights,
};
use callgate_core::domain::time::Timestamp;
use callgate_store::{DatabaseStatus, Inspection, Rights, SchemaState, parse_url};

/// One in which nothing is wrong.
fn good() -> Inspection {
    let settings = [
        ("archive_mode", "on"),
        ("data_checksums", "on"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_read_only", "off"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("idle_in_transaction_session_timeout", "2000"),
        ("idle_session_timeout", "0"),
        ("max_connections", "100"),
        ("search_path", "callgate"),
        ("server_encoding", "UTF8"),
        ("server_version", "15.18"),
        ("server_version_num", "150018"),
        ("statement_timeout", "0"),
        ("superuser_reserved_connections", "3"),
        ("synchronous_commit", "on"),
        ("synchronous_standby_names", ""),
    ];
    Inspection {
        settings: settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        idle_ms_wanted: "2000",
        schema_wanted: "callgate",
        schema: SchemaState { applied: 70, pending: vec![], newer: vec![], floor: Some(130), is_foreign: false },
        has_partitions: true,
        rights: Rights {
            user: "plane".to_owned(),
            is_superuser: false,
            may_make_schema: true,
            has_schema: true,
            owns_schema: true,
            not_owned: vec![],
            not_usable: vec![],
            has_reader: true,
            acts_as_reader: true,
            has_analyst: true,
            has_trigrams: false,
        },
        state: DatabaseStatus {
            is_standby: false,
            now: Timestamp::from_millis(0),
            bytes: 1,
            xid_age: 5,
            others: 2,
            writers: 1,
            archive_fails: false,
            idle_slots: vec![],
            is_encrypted: true,
        },
        policy: None,
        round_trip_ms: 1,
        asked_at: Timestamp::from_millis(0),
    }
}

fn check_all(found: &Inspection) -> Vec<DoctorCheck> {
    let options = parse_url("postgres://plane@db.example/callgate?sslmode=verify-full").expect("a URL");
    [database::check_database(found, &options, false), rights::check_rights(found)].concat()
}

/// Problems after a change, with their advice.
fn after(change: impl FnOnce(&mut Inspection)) -> Vec<(&'static str, Status, String)> {
    let mut found = good();
    change(&mut found);
    let ill = check_all(&found).into_iter().filter(|check| check.status != Status::Ok);
    ill.map(|check| (check.check, check.status, check.cure.expect("a cure"))).collect()
}

#[test]
fn a_good_database_has_no_finding() {
    assert_eq!(after(|_| {}), []);
}

#[test]
fn each_setting_that_a_promise_rests_on_is_told_with_its_cure() {
    for (setting, value, check, status, cure) in [
        ("server_version_num", "130009", "version", Status::Wrong, "version 14 or newer"),
        ("default_transaction_read_only", "on", "writable", Status::Wrong, "reset default_transaction_read_only"),
        ("fsync", "off", "fsync", Status::Wrong, "alter system set fsync = on"),
        ("full_page_writes", "off", "full_page_writes", Status::Warning, "set full_page_writes = on"),
        ("synchronous_commit", "local", "synchronous_commit", Status::Wrong, "reset synchronous_commit"),
        ("data_checksums", "off", "data_checksums", Status::Warning, "pg_checksums --enable"),
        ("server_encoding", "SQL_ASCII", "encoding", Status::Wrong, "createdb --encoding UTF8"),
        ("max_connections", "20", "connections", Status::Wrong, "set max_connections = "),
        ("max_connections", "35", "connections", Status::Warning, "set max_connections = "),
        ("idle_in_transaction_session_timeout", "0", "idle_in_transaction_session_timeout", Status::Warning, "= 2000"),
        ("search_path", "public", "search_path", Status::Wrong, "set search_path = callgate"),
        (
            "default_transaction_isolation",
            "serializable",
            "default_transaction_isolation",
            Status::Warning,
            "committed",
        ),
        ("statement_timeout", "500", "timeouts", Status::Warning, "set statement_timeout = 0"),
        ("transaction_timeout", "500", "timeouts", Status::Warning, "set transaction_timeout = 0"),
        ("idle_session_timeout", "60000", "timeouts", Status::Warning, "set idle_session_timeout = 0"),
    ] {
        let ill = after(|found| drop(found.settings.insert(setting.to_owned(), value.to_owned())));
        assert_eq!(ill.len(), 1, "{setting} = {value}: {ill:?}");
        assert_eq!((ill[0].0, ill[0].1), (check, status), "{setting} = {value}");
        assert!(ill[0].2.contains(cure), "{setting} = {value}: {}", ill[0].2);
    }
}

#[test]
fn each_state_of_a_database_is_told_with_its_cure() {
    type Change = fn(&mut Inspection);
    let cases: [(Change, &str, Status, &str); 14] = [
        (|found| found.state.is_standby = true, "writable", Status::Wrong, "primary"),
        (|found| found.state.xid_age = 1_900_000_000, "freezing", Status::Wrong, "vacuum freeze"),
        (|found| found.state.xid_age = 1_100_000_000, "freezing", Status::Warning, "vacuum freeze"),
        (|found| found.state.archive_fails = true, "archive", Status::Wrong, "archive_command"),
        (|found| found.state.idle_slots = vec!["s".into()], "replication_slots", Status::Warning, "drop_replication"),
        (|found| found.state.is_encrypted = false, "encryption", Status::Warning, "sslmode=verify-full"),
        (|found| found.schema.pending = vec![130], "migrations", Status::Warning, "take a backup"),
        (|found| found.schema.is_foreign = true, "migrations", Status::Wrong, "empty database"),
        (
            |found| (found.schema.newer, found.schema.floor) = (vec![9_999], Some(9_999)),
            "migrations",
            Status::Wrong,
            "newer build",
        ),
        (|found| found.has_partitions = false, "partitions", Status::Warning, "start a server"),
        (|found| found.rights.not_owned = vec!["call".into()], "migrate", Status::Warning, "as that role"),
        (|found| found.rights.not_usable = vec!["call".into()], "tables", Status::Wrong, "grant select"),
        (|found| found.rights.has_reader = false, "row_security", Status::Warning, "create role callgate_reader"),
        (
            |found| found.rights.acts_as_reader = false,
            "row_security",
            Status::Warning,
            "grant callgate_reader to plane",
        ),
    ];
    for (change, check, status, cure) in cases {
        let ill = after(change);
        assert_eq!(ill.len(), 1, "{check}: {ill:?}");
        assert_eq!((ill[0].0, ill[0].1), (check, status));
        assert!(ill[0].2.contains(cure), "{check}: {}", ill[0].2);
    }
    // Missing rights to migrate matter only for pending migrations.
    let ill = after(|found| {
        found.schema.pending = vec![130];
        found.rights.owns_schema = false;
    });
    assert!(ill.iter().any(|(check, status, _)| (*check, *status) == ("migrate", Status::Wrong)), "{ill:?}");
}
