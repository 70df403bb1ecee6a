//! Access to the database: the password is required, and as root no shared account has access.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::Command,
};

use callgate_postgres::find_running;
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};

use crate::{Home, notes, options, write_note};

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[tokio::test]
async fn the_account_itself_needs_the_password_which_only_callgate_can_read() {
    let home = Home::new();
    let private = home.start().await;
    let password = home.data_dir().join("password");
    let meta = fs::metadata(&password).unwrap();
    assert_eq!((meta.mode() & 0o777, meta.uid()), (0o600, fs::metadata(home.dir.path()).unwrap().uid()));
    let lock = fs::metadata(home.data_dir().join("callgate.lock")).unwrap();
    assert_eq!(lock.mode() & 0o777, 0o600);

    let socket = private.connection().socket_dir.clone();
    let stranger = PgConnectOptions::new_without_pgpass().socket(socket).username("callgate").database("callgate");
    let error = stranger.clone().password("guessed").connect().await.unwrap_err().to_string();
    assert!(error.contains("password authentication failed"), "{error}");
    assert!(stranger.connect().await.is_err(), "without a password");
    let mut connection = options(&private).connect().await.unwrap();
    let stored: String = sqlx::query_scalar("select rolpassword from pg_authid where rolname = 'callgate'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(stored.starts_with("SCRAM-SHA-256$1:"), "{stored}");
    drop(connection);

    let found = find_running(&home.data_dir()).await.unwrap();
    assert_eq!(found.connection.url(), private.connection().url());
    assert_eq!(found.bin_dir, private.bin_dir());
    let log = fs::read_to_string(home.data_dir().join("log/postgres.log")).unwrap();
    assert!(!log.contains(fs::read_to_string(password).unwrap().trim()));
    private.stop().await.unwrap();
    let error = find_running(&home.data_dir()).await.unwrap_err().to_string();
    assert!(error.contains("no private PostgreSQL runs in") && error.contains("callgate serve"), "{error}");
}

#[tokio::test]
async fn a_cluster_of_a_shared_account_without_a_password_is_taken_over() {
    let home = Home::new();
    let first = home.start().await;
    write_note(&first, "kept").await;
    first.stop().await.unwrap();
    // As an earlier callgate left it.
    fs::remove_file(home.data_dir().join("password")).unwrap();
    let own = fs::metadata(home.pgdata()).unwrap().uid();
    if is_root() {
        let given = Command::new("chown").args(["-R", "nobody"]).arg(home.pgdata()).status().unwrap();
        assert!(given.success());
        fs::set_permissions(home.data_dir().join("callgate.lock"), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let again = home.start().await;
    assert_eq!(notes(&again).await, ["kept"]);
    again.stop().await.unwrap();
    let mut paths = vec![home.pgdata()];
    while let Some(path) = paths.pop() {
        assert_eq!(fs::symlink_metadata(&path).unwrap().uid(), own, "{}", path.display());
        if path.is_dir() && !path.is_symlink() {
            paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}

#[tokio::test]
async fn as_root_it_runs_as_an_account_of_its_own() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let private = home.start().await;
    let output = Command::new("ps").args(["-o", "user=", "-p", &home.postmaster().unwrap().to_string()]).output();
    assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout).trim(), "callgate");
    private.stop().await.unwrap();
}
