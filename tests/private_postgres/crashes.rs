//! Server crashes, and bounded restarts.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use callgate_postgres::{DatabasePhase, PostgresSettings, PrivatePostgres, PrivatePostgresError};
use sqlx::PgPool;

use crate::{Home, in_time, is_alive, log_of, notes, options, signal, until, write_note};

#[tokio::test]
async fn a_crashed_server_is_restarted_and_recovers_what_was_committed() {
    let home = Home::new();
    let private = home.start().await;
    write_note(&private, "committed").await;
    let pool = PgPool::connect_with(options(&private)).await.unwrap();
    let mut phase = private.phase();
    let killed = home.postmaster().unwrap();
    assert_eq!(*phase.borrow(), DatabasePhase::Running { pid: killed });

    assert!(signal(killed, "KILL"));
    let runs_anew = |phase: &DatabasePhase| matches!(phase, DatabasePhase::Running { pid } if *pid != killed);
    in_time("the restart", phase.wait_for(runs_anew)).await.unwrap();
    let counted: i64 = sqlx::query_scalar("select count(*) from notes").fetch_one(&pool).await.unwrap();
    assert_eq!(counted, 1, "the pool reconnects by itself");
    assert!(log_of(&private).contains("not properly shut down"));
    pool.close().await;
    private.stop().await.unwrap();

    let again = home.start().await;
    assert_eq!(notes(&again).await, ["committed"]);
    again.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_run_any_more_is_given_up() {
    let home = Home::new();
    let mut private = home.start().await;
    let control = home.pgdata().join("global/pg_control");
    fs::rename(&control, home.dir.path().join("pg_control")).unwrap();
    assert!(signal(home.postmaster().unwrap(), "KILL"));
    let error = in_time("giving up", private.wait_for_exit()).await;
    let text = error.to_string();
    assert!(matches!(error, PrivatePostgresError::GaveUp { .. }), "{text}");
    assert!(text.contains("pg_control"), "the server's own words are missing: {text}");
    assert!(matches!(*private.phase().borrow(), DatabasePhase::GaveUp { .. }));
    private.stop().await.unwrap();

    let text = PrivatePostgres::start(&home.settings()).await.unwrap_err().to_string();
    assert!(text.contains("did not start") && text.contains("pg_control"), "{text}");
    fs::rename(home.dir.path().join("pg_control"), control).unwrap();
    home.start().await.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_killed_while_it_starts_is_started_again() {
    let home = Home::new();
    home.start().await.stop().await.unwrap();
    let settings = home.settings();
    let start = PrivatePostgres::start(&settings);
    let kill = until("a server to kill", || home.postmaster().is_some_and(|pid| signal(pid, "KILL")));
    let (started, ()) = in_time("the start", async { tokio::join!(start, kill) }).await;
    let private = started.unwrap();
    write_note(&private, "it runs").await;
    private.stop().await.unwrap();
}

/// Programs like the installed ones, whose server finds the disk full while `is_full` exists.
fn programs(home: &Home, real: &Path, is_full: &Path) -> PathBuf {
    let folder = home.dir.path().join("bin");
    fs::create_dir(&folder).unwrap();
    for program in ["initdb", "pg_ctl"] {
        std::os::unix::fs::symlink(real.join(program), folder.join(program)).unwrap();
    }
    let postgres = folder.join("postgres");
    let full = "PANIC:  could not write to file \"pg_wal/xlogtemp.1\": No space left on device";
    let script = format!(
        "#!/bin/sh\nif [ -e {} ] && [ \"$1\" = -D ]; then echo '{full}' >&2; exit 1; fi\nexec {}/postgres \"$@\"\n",
        is_full.display(),
        real.display()
    );
    fs::write(&postgres, script).unwrap();
    fs::set_permissions(&postgres, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[tokio::test]
async fn a_server_that_finds_the_disk_full_waits_for_space() {
    let home = Home::new();
    let first = home.start().await;
    let real = first.bin_dir().to_owned();
    first.stop().await.unwrap();
    let is_full = home.dir.path().join("full");
    let settings = PostgresSettings { pg_bin: Some(programs(&home, &real, &is_full)), ..home.settings() };
    let private = PrivatePostgres::start(&settings).await.unwrap();
    let mut phase = private.phase();

    fs::write(&is_full, "").unwrap();
    assert!(signal(home.postmaster().unwrap(), "KILL"));
    in_time("the full disk to be seen", phase.wait_for(|phase| *phase == DatabasePhase::DiskFull)).await.unwrap();
    // More attempts than the maximum without a full disk: one every five seconds, without giving up.
    let given_up = phase.wait_for(|phase| !matches!(phase, DatabasePhase::DiskFull));
    assert!(tokio::time::timeout(Duration::from_secs(12), given_up).await.is_err());
    fs::remove_file(&is_full).unwrap();
    in_time("the restart", phase.wait_for(|phase| matches!(phase, DatabasePhase::Running { .. }))).await.unwrap();
    write_note(&private, "there is space").await;
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_amid_restarts_is_obeyed() {
    let home = Home::new();
    let private = home.start().await;
    let mut phase = private.phase();
    for _ in 0..2 {
        let running =
            in_time("the server", phase.wait_for(|phase| matches!(phase, DatabasePhase::Running { .. }))).await;
        drop(running.unwrap());
        assert!(signal(home.postmaster().unwrap(), "KILL"));
        let down =
            in_time("the crash", phase.wait_for(|phase| matches!(phase, DatabasePhase::Restarting { .. }))).await;
        drop(down.unwrap());
    }
    private.stop().await.unwrap();
    assert_eq!(*phase.borrow(), DatabasePhase::Stopped);
    assert!(!home.postmaster().is_some_and(is_alive));
    home.start().await.stop().await.unwrap();
}
