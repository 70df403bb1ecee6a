//! Starts: created files and locations, and refusals.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Command,
};

use callgate_postgres::{PostgresSettings, PrivatePostgres, PrivatePostgresError};
use sqlx::{Connection as _, PgConnection};

use crate::{Home, is_alive, log_of, notes, options, until, write_note};

#[tokio::test]
async fn first_start_creates_and_the_second_finds_what_was_written() {
    let home = Home::new();
    let first = home.start().await;
    assert!(first.server_version().major >= 14, "{}", first.server_version());
    assert_eq!(first.data_dir(), fs::canonicalize(home.data_dir()).unwrap());
    write_note(&first, "kept").await;
    let pid = home.postmaster().unwrap();
    first.stop().await.unwrap();
    assert!(!is_alive(pid));
    assert_eq!(home.postmaster(), None, "a clean stop removes postmaster.pid");

    let second = home.start().await;
    assert_eq!(notes(&second).await, ["kept"]);
    assert!(!log_of(&second).contains("not properly shut down"));
    second.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_is_durable_and_private() {
    let home = Home::new();
    let private = home.start().await;
    let mut connection = PgConnection::connect_with(&options(&private)).await.unwrap();
    let expected = [
        ("fsync", "on"),
        ("data_checksums", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
        ("shared_buffers", "128MB"),
        ("max_connections", "64"),
        ("jit", "off"),
        ("autovacuum", "on"),
        ("TimeZone", "UTC"),
    ];
    for (setting, value) in expected {
        let query = "select current_setting($1)";
        let shown: String = sqlx::query_scalar(query).bind(setting).fetch_one(&mut connection).await.unwrap();
        assert_eq!(shown, value, "{setting}");
    }
    let query = "select current_user::text || ' ' || current_database()::text";
    let who: String = sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap();
    assert_eq!(who, "callgate callgate");
    // A base backup is a connection of its own kind.
    let query = "select string_agg(concat_ws(' ', type, array_to_string(database, ','), auth_method), '; ') \
                 from pg_hba_file_rules";
    let rules: String = sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap();
    assert_eq!(rules, "local all scram-sha-256; local replication scram-sha-256");
    for part in ["pg", "run", "log"] {
        let mode = fs::metadata(private.data_dir().join(part)).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700, "{part}");
    }
    assert_ne!(fs::metadata(home.pgdata()).unwrap().uid(), 0, "PostgreSQL never runs as root");
    let pid = home.postmaster().unwrap().to_string();
    let group = Command::new("ps").args(["-p", &pid, "-o", "pgid="]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&group.stdout).trim(), pid, "Ctrl-C must not reach the server");
    connection.close().await.unwrap();
    private.stop().await.unwrap();
}

#[tokio::test]
async fn missing_programs_are_named() {
    let home = Home::new();
    let empty = home.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let settings = PostgresSettings { pg_bin: Some(empty.clone()), ..home.settings() };
    let text = PrivatePostgres::start(&settings).await.unwrap_err().to_string();
    for part in ["--pg-bin", empty.to_str().unwrap(), "postgres", "initdb", "pg_ctl"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    let nowhere = PostgresSettings { pg_bin: Some(home.dir.path().join("nowhere")), ..home.settings() };
    let text = PrivatePostgres::start(&nowhere).await.unwrap_err().to_string();
    assert!(text.contains("--pg-bin") && text.contains("nowhere"), "{text}");
    assert!(!home.pgdata().exists());
}

#[tokio::test]
async fn an_interrupted_creation_is_done_again() {
    let home = Home::new();
    let under_way = || {
        let entries = fs::read_dir(home.data_dir()).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().join("global").exists())
    };
    let settings = home.settings();
    tokio::select! {
        started = PrivatePostgres::start(&settings) => panic!("it was not interrupted: {started:?}"),
        () = until("initdb to be half done", under_way) => {}
    }
    assert!(!home.pgdata().exists(), "a half-made cluster has its final name");

    // Leftover of a killed initialization.
    let leftover = home.data_dir().join("pg.init-abc123");
    fs::create_dir_all(leftover.join("base/1")).unwrap();
    fs::write(leftover.join("PG_VERSION"), "15\n").unwrap();
    let private = home.start().await;
    assert!(!leftover.exists());
    write_note(&private, "whole").await;
    assert_eq!(notes(&private).await, ["whole"]);
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_and_odd_path_works() {
    let home = Home::new();
    for name in ["with space, comma".to_owned(), "d".repeat(100)] {
        let settings = PostgresSettings { data_dir: home.data_dir().join(&name), pg_bin: None };
        let private = PrivatePostgres::start(&settings).await.unwrap();
        write_note(&private, &name).await;
        assert_eq!(notes(&private).await, [name]);
        let socket = options(&private).get_socket().unwrap().clone();
        assert!(socket.join(".s.PGSQL.5432").exists());
        private.stop().await.unwrap();
        assert!(socket.starts_with(home.dir.path()) || !socket.exists(), "a directory of its own is removed");
    }
}

#[tokio::test]
async fn a_directory_out_of_reach_is_named() {
    let home = Home::new();
    let closed = home.dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let as_root = fs::metadata(&closed).unwrap().uid() == 0;
    // Root's own closed directory keeps the database's account out; an ordinary user is kept out by a missing bit.
    let mode = if as_root { 0o700 } else { 0o600 };
    fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    let outcome = PrivatePostgres::start(&PostgresSettings { data_dir: closed.join("data"), pg_bin: None }).await;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    let error = outcome.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(closed.to_str().unwrap()), "{text}");
    assert_eq!(matches!(error, PrivatePostgresError::Blocked { .. }), as_root, "{text}");
    assert!(!Path::new(&closed.join("data/pg")).exists());
}

#[tokio::test]
async fn a_second_callgate_on_the_same_directory_is_refused() {
    let home = Home::new();
    let private = home.start().await;
    let error = PrivatePostgres::start(&home.settings()).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, PrivatePostgresError::Locked { .. }), "{text}");
    assert!(text.contains(private.data_dir().to_str().unwrap()), "{text}");
    assert!(text.contains(&format!("pid {}", std::process::id())), "{text}");
    write_note(&private, "the first is unharmed").await;
    private.stop().await.unwrap();
    home.start().await.stop().await.unwrap();
}
