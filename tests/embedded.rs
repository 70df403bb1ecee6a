//! The embedded database against a real PostgreSQL: first start, crashes, orphans, refusals.
//!
//! Needs PostgreSQL's programs on the machine. As root, the directory for temporary files must be open to the account
//! that the database runs as.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as the tests do")]

use std::fs;
use std::future::Future;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use callgate::private_postgres::{Phase, PrivatePostgres, PrivatePostgresError, Settings};
use sqlx::{Connection, PgConnection, PgPool};
use tempfile::TempDir;

/// Set for the process that plays a callgate to be killed; names its data directory.
const VICTIM_DIR: &str = "CALLGATE_TEST_VICTIM_DIR";

const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);

/// A data directory of one test. Dropped, it ends whatever server still runs on it.
struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn pgdata(&self) -> PathBuf {
        self.data_dir().join("pg")
    }

    fn settings(&self) -> Settings {
        Settings { data_dir: self.data_dir(), pg_bin: None }
    }

    async fn start(&self) -> PrivatePostgres {
        PrivatePostgres::start(&self.settings()).await.unwrap()
    }

    /// Lets a command run as the account that the database runs as.
    fn as_owner(&self, command: &mut Command) {
        let (own, database) = (fs::metadata(self.dir.path()).unwrap(), fs::metadata(self.pgdata()).unwrap());
        if own.uid() != database.uid() {
            command.gid(database.gid()).uid(database.uid());
        }
    }

    fn postmaster(&self) -> Option<u32> {
        let text = fs::read_to_string(self.pgdata().join("postmaster.pid")).ok()?;
        text.lines().next()?.parse().ok()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for _ in 0..1000 {
            let Some(pid) = self.postmaster().filter(|pid| is_postgres(*pid)) else {
                return;
            };
            signal(pid, "QUIT");
            std::thread::sleep(STEP);
        }
    }
}

/// Ends the process with the test, also when that fails.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(pid: u32, name: &str) -> bool {
    let command = format!("kill -{name} {pid}");
    Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status().unwrap().success()
}

fn is_alive(pid: u32) -> bool {
    let output = Command::new("ps").args(["-p", &pid.to_string(), "-o", "stat="]).output().unwrap();
    let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

fn is_postgres(pid: u32) -> bool {
    let output = Command::new("ps").args(["-p", &pid.to_string(), "-o", "comm="]).output().unwrap();
    is_alive(pid) && String::from_utf8_lossy(&output.stdout).contains("postgres")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(STEP).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited in vain for {what}"));
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

async fn write_note(embedded: &PrivatePostgres, note: &str) {
    let mut connection = PgConnection::connect_with(&embedded.connect_options()).await.unwrap();
    sqlx::query("create table if not exists notes (note text not null)").execute(&mut connection).await.unwrap();
    sqlx::query("insert into notes (note) values ($1)").bind(note).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn notes(embedded: &PrivatePostgres) -> Vec<String> {
    let mut connection = PgConnection::connect_with(&embedded.connect_options()).await.unwrap();
    sqlx::query_scalar("select note from notes order by note").fetch_all(&mut connection).await.unwrap()
}

fn log_of(embedded: &PrivatePostgres) -> String {
    fs::read_to_string(embedded.data_dir().join("log/postgres.log")).unwrap()
}

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
    let embedded = home.start().await;
    let mut connection = PgConnection::connect_with(&embedded.connect_options()).await.unwrap();
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
    for part in ["pg", "run", "log"] {
        let mode = fs::metadata(embedded.data_dir().join(part)).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700, "{part}");
    }
    assert_ne!(fs::metadata(home.pgdata()).unwrap().uid(), 0, "PostgreSQL never runs as root");
    let pid = home.postmaster().unwrap().to_string();
    let group = Command::new("ps").args(["-p", &pid, "-o", "pgid="]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&group.stdout).trim(), pid, "Ctrl-C must not reach the server");
    connection.close().await.unwrap();
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_crashed_server_is_restarted_and_recovers_what_was_committed() {
    let home = Home::new();
    let embedded = home.start().await;
    write_note(&embedded, "committed").await;
    let pool = PgPool::connect_with(embedded.connect_options()).await.unwrap();
    let mut phase = embedded.phase();
    let killed = home.postmaster().unwrap();
    assert_eq!(*phase.borrow(), Phase::Running { pid: killed });

    assert!(signal(killed, "KILL"));
    let runs_anew = |phase: &Phase| matches!(phase, Phase::Running { pid } if *pid != killed);
    in_time("the restart", phase.wait_for(runs_anew)).await.unwrap();
    let counted: i64 = sqlx::query_scalar("select count(*) from notes").fetch_one(&pool).await.unwrap();
    assert_eq!(counted, 1, "the pool reconnects by itself");
    assert!(log_of(&embedded).contains("not properly shut down"));
    pool.close().await;
    embedded.stop().await.unwrap();

    let again = home.start().await;
    assert_eq!(notes(&again).await, ["committed"]);
    again.stop().await.unwrap();
}

/// Not a test of its own: the process that the next tests kill.
#[tokio::test]
#[ignore = "started by other tests, with a data directory in its environment"]
async fn victim() {
    let Some(data_dir) = std::env::var_os(VICTIM_DIR).map(PathBuf::from) else {
        return;
    };
    let embedded = PrivatePostgres::start(&Settings { data_dir: data_dir.clone(), pg_bin: None }).await.unwrap();
    write_note(&embedded, "committed").await;
    fs::write(data_dir.join("victim.ready"), "").unwrap();
    std::future::pending::<()>().await;
}

/// Starts another callgate on the directory and waits until it has written its note.
async fn start_victim(home: &Home) -> Helper {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "victim", "--ignored"]).env(VICTIM_DIR, home.data_dir());
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
    let embedded = home.start().await;
    assert!(!is_alive(orphan), "two servers on one cluster");
    assert_ne!(home.postmaster(), Some(orphan));
    assert_eq!(notes(&embedded).await, ["committed"]);
    embedded.stop().await.unwrap();
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
    let embedded = home.start().await;
    assert_eq!(notes(&embedded).await, ["committed"]);
    assert!(log_of(&embedded).contains("not properly shut down"));
    embedded.stop().await.unwrap();
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

    let embedded = home.start().await;
    assert!(!is_alive(orphan));
    assert_ne!(home.postmaster(), Some(orphan));
    assert_eq!(notes(&embedded).await, ["kept"]);
    embedded.stop().await.unwrap();
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
        let embedded = home.start().await;
        assert_eq!(notes(&embedded).await, ["kept"]);
        embedded.stop().await.unwrap();
        assert!(is_alive(stranger.0.id()), "a stranger was signalled");
    }
}

#[tokio::test]
async fn a_second_callgate_on_the_same_directory_is_refused() {
    let home = Home::new();
    let embedded = home.start().await;
    let error = PrivatePostgres::start(&home.settings()).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, PrivatePostgresError::Locked { .. }), "{text}");
    assert!(text.contains(embedded.data_dir().to_str().unwrap()), "{text}");
    assert!(text.contains(&format!("pid {}", std::process::id())), "{text}");
    write_note(&embedded, "the first is unharmed").await;
    embedded.stop().await.unwrap();
    home.start().await.stop().await.unwrap();
}

#[tokio::test]
async fn missing_programs_are_named() {
    let home = Home::new();
    let empty = home.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let settings = Settings { pg_bin: Some(empty.clone()), ..home.settings() };
    let text = PrivatePostgres::start(&settings).await.unwrap_err().to_string();
    for part in ["--pg-bin", empty.to_str().unwrap(), "postgres", "initdb", "pg_ctl"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    let nowhere = Settings { pg_bin: Some(home.dir.path().join("nowhere")), ..home.settings() };
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

    // What a callgate killed in the middle leaves.
    let leftover = home.data_dir().join("pg.init-abc123");
    fs::create_dir_all(leftover.join("base/1")).unwrap();
    fs::write(leftover.join("PG_VERSION"), "15\n").unwrap();
    let embedded = home.start().await;
    assert!(!leftover.exists());
    write_note(&embedded, "whole").await;
    assert_eq!(notes(&embedded).await, ["whole"]);
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_and_odd_path_works() {
    let home = Home::new();
    for name in ["with space, comma".to_owned(), "d".repeat(100)] {
        let settings = Settings { data_dir: home.data_dir().join(&name), pg_bin: None };
        let embedded = PrivatePostgres::start(&settings).await.unwrap();
        write_note(&embedded, &name).await;
        assert_eq!(notes(&embedded).await, [name]);
        let socket = embedded.connect_options().get_socket().unwrap().clone();
        assert!(socket.join(".s.PGSQL.5432").exists());
        embedded.stop().await.unwrap();
        assert!(socket.starts_with(home.dir.path()) || !socket.exists(), "a directory of its own is removed");
    }
}

#[tokio::test]
async fn a_server_that_cannot_run_any_more_is_given_up() {
    let home = Home::new();
    let mut embedded = home.start().await;
    let control = home.pgdata().join("global/pg_control");
    fs::rename(&control, home.dir.path().join("pg_control")).unwrap();
    assert!(signal(home.postmaster().unwrap(), "KILL"));
    let error = in_time("giving up", embedded.exited()).await;
    let text = error.to_string();
    assert!(matches!(error, PrivatePostgresError::GaveUp { .. }), "{text}");
    assert!(text.contains("pg_control"), "the server's own words are missing: {text}");
    assert!(matches!(*embedded.phase().borrow(), Phase::GaveUp { .. }));
    embedded.stop().await.unwrap();

    let text = PrivatePostgres::start(&home.settings()).await.unwrap_err().to_string();
    assert!(text.contains("did not start") && text.contains("pg_control"), "{text}");
    fs::rename(home.dir.path().join("pg_control"), control).unwrap();
    home.start().await.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_amid_restarts_is_obeyed() {
    let home = Home::new();
    let embedded = home.start().await;
    let mut phase = embedded.phase();
    for _ in 0..2 {
        let running = in_time("the server", phase.wait_for(|phase| matches!(phase, Phase::Running { .. }))).await;
        drop(running.unwrap());
        assert!(signal(home.postmaster().unwrap(), "KILL"));
        let down = in_time("the crash", phase.wait_for(|phase| matches!(phase, Phase::Restarting { .. }))).await;
        drop(down.unwrap());
    }
    embedded.stop().await.unwrap();
    assert_eq!(*phase.borrow(), Phase::Stopped);
    assert!(!home.postmaster().is_some_and(is_alive));
    home.start().await.stop().await.unwrap();
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
    let outcome = PrivatePostgres::start(&Settings { data_dir: closed.join("data"), pg_bin: None }).await;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    let error = outcome.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(closed.to_str().unwrap()), "{text}");
    assert_eq!(matches!(error, PrivatePostgresError::Blocked { .. }), as_root, "{text}");
    assert!(!Path::new(&closed.join("data/pg")).exists());
}
