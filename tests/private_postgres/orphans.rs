//! Orphans of a killed callgate.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use callgate_postgres::{PostgresSettings, PrivatePostgres};

use crate::{Helper, Home, is_alive, log_of, notes, signal, until, write_note};

/// Set for the process that plays a callgate to be killed; names its data directory.
const VICTIM_DIR: &str = "CALLGATE_TEST_VICTIM_DIR";

/// Not a test of its own: the process that the next tests kill.
#[tokio::test]
#[ignore = "started by other tests, with a data directory in its environment"]
async fn victim() {
    let Some(data_dir) = std::env::var_os(VICTIM_DIR).map(PathBuf::from) else {
        return;
    };
    let private = PrivatePostgres::start(&PostgresSettings { data_dir: data_dir.clone(), pg_bin: None }).await.unwrap();
    write_note(&private, "committed").await;
    fs::write(data_dir.join("victim.ready"), "").unwrap();
    std::future::pending::<()>().await;
}

/// Starts another callgate on the directory and waits until it has written its note.
async fn start_victim(home: &Home) -> Helper {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "orphans::victim", "--ignored"]).env(VICTIM_DIR, home.data_dir());
    let victim = Helper(command.stdout(Stdio::null()).spawn().unwrap());
    let ready = home.data_dir().join("victim.ready");
    until("the victim", || ready.exists()).await;
    victim
}

#[tokio::test]
async fn a_killed_callgate_leaves_a_directory_that_starts_again() {
    let home = Home::new();
    let victim = start_victim(&home).await;
    let orphan = home.postmaster().unwrap();
    drop(victim);
    let private = home.start().await;
    assert!(!is_alive(orphan), "two servers on one cluster");
    assert_ne!(home.postmaster(), Some(orphan));
    assert_eq!(notes(&private).await, ["committed"]);
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_dies_with_its_callgate_where_setpriv_exists() {
    let setpriv = Command::new("setpriv").args(["--pdeathsig", "INT", "--", "true"]).stderr(Stdio::null()).status();
    let home = Home::new();
    let victim = start_victim(&home).await;
    let orphan = home.postmaster().unwrap();
    assert!(is_alive(orphan));
    drop(victim);
    if setpriv.is_ok_and(|status| status.success()) {
        until("the server to shut down", || !is_alive(orphan)).await;
        assert_eq!(home.postmaster(), None, "it shut down in order");
    }
}

#[tokio::test]
async fn callgate_and_server_killed_together_lose_nothing_committed() {
    let home = Home::new();
    let victim = start_victim(&home).await;
    let postmaster = home.postmaster().unwrap();
    assert!(signal(victim.0.id(), "STOP"), "so that it cannot restart its server");
    assert!(signal(postmaster, "KILL"));
    drop(victim);
    assert_eq!(home.postmaster(), Some(postmaster), "the stale pid file is there");
    let private = home.start().await;
    assert_eq!(notes(&private).await, ["committed"]);
    assert!(log_of(&private).contains("not properly shut down"));
    private.stop().await.unwrap();
}

#[tokio::test]
async fn an_orphaned_server_is_stopped_and_replaced() {
    let home = Home::new();
    let first = home.start().await;
    write_note(&first, "kept").await;
    let bin_dir = first.bin_dir().to_owned();
    first.stop().await.unwrap();

    // In its own directory, so that its socket is not where ours will be.
    let options = format!("-c listen_addresses= -c unix_socket_directories={}", home.pgdata().display());
    let mut pg_ctl = Command::new(bin_dir.join("pg_ctl"));
    pg_ctl.arg("start").arg("-w").arg("-D").arg(home.pgdata()).args(["-o", &options]).current_dir("/");
    pg_ctl.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    home.as_owner(&mut pg_ctl);
    assert!(pg_ctl.status().unwrap().success());
    let orphan = home.postmaster().unwrap();
    assert!(is_alive(orphan));

    let private = home.start().await;
    assert!(!is_alive(orphan));
    assert_ne!(home.postmaster(), Some(orphan));
    assert_eq!(notes(&private).await, ["kept"]);
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_stale_pid_file_does_not_matter_whoever_has_the_pid_now() {
    let home = Home::new();
    let first = home.start().await;
    write_note(&first, "kept").await;
    let pid_file = home.pgdata().join("postmaster.pid");
    let text = fs::read_to_string(&pid_file).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    first.stop().await.unwrap();

    // A stranger of the same account: PostgreSQL itself would take it for a server.
    let mut sleep = Command::new("sleep");
    home.as_owner(&mut sleep);
    let stranger = Helper(sleep.arg("600").spawn().unwrap());
    for stale in [format!("{}\n{}\n", stranger.0.id(), lines.join("\n")), String::new()] {
        fs::write(&pid_file, stale).unwrap();
        let private = home.start().await;
        assert_eq!(notes(&private).await, ["kept"]);
        private.stop().await.unwrap();
        assert!(is_alive(stranger.0.id()), "a stranger was signalled");
    }
}
