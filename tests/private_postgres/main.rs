//! The private PostgreSQL, with real programs: first start, crashes, orphans, refusals, accounts.
//!
//! Needs PostgreSQL's programs on the machine. As root, the directory for temporary files must be open to the account
//! that the database runs as.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as the tests do")]

mod access;
mod crashes;
mod orphans;
mod starts;

use std::fs;
use std::future::Future;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use callgate_postgres::{PostgresSettings, PrivatePostgres};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);

/// A data directory of one test. Dropped, it ends any server that still runs on it.
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

    fn settings(&self) -> PostgresSettings {
        PostgresSettings { data_dir: self.data_dir(), pg_bin: None }
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

/// Connection options of the database.
fn options(private: &PrivatePostgres) -> PgConnectOptions {
    private.connection().url().parse().unwrap()
}

async fn write_note(private: &PrivatePostgres, note: &str) {
    let mut connection = PgConnection::connect_with(&options(private)).await.unwrap();
    sqlx::query("create table if not exists notes (note text not null)").execute(&mut connection).await.unwrap();
    sqlx::query("insert into notes (note) values ($1)").bind(note).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn notes(private: &PrivatePostgres) -> Vec<String> {
    let mut connection = PgConnection::connect_with(&options(private)).await.unwrap();
    sqlx::query_scalar("select note from notes order by note").fetch_all(&mut connection).await.unwrap()
}

fn log_of(private: &PrivatePostgres) -> String {
    fs::read_to_string(private.data_dir().join("log/postgres.log")).unwrap()
}
