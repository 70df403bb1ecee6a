//! Private PostgreSQL for one test, on a thread and a runtime of its own: stopped when dropped, also after a failure,
//! and independent of the test's runtime.

use std::{
    fs::{self, File, Permissions},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread::JoinHandle,
};

use callgate_postgres::{DatabasePhase, PostgresSettings, PrivatePostgres, PrivatePostgresError};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};

use super::{
    citus::{self, Workers},
    gates::open,
    in_time,
    process::{children, signal},
    until,
};

/// Parts of a data directory.
pub(crate) const PARTS: [&str; 2] = ["pg", "password"];

/// A folder that the database's account may pass through when the tests run as root.
pub(crate) fn folder() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("its owner may");
    dir
}

/// Connection options of a private server.
pub(crate) fn options(private: &PrivatePostgres) -> PgConnectOptions {
    private.connection().url().parse().expect("a URL")
}

/// A running server with a database whose schema is migrated and whose tables are empty.
pub(crate) struct Postgres {
    pub(crate) options: PgConnectOptions,
    url: String,
    phase: watch::Receiver<DatabasePhase>,
    stop: Option<oneshot::Sender<()>>,
    keeper: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Postgres {
    pub(crate) async fn start() -> Self {
        let dir = folder();
        let data_dir = dir.path().join("data");
        let (started, running) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let keep = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let private = start(&data_dir).await;
                let workers = match citus::is_wanted() {
                    true => Some(Workers::of(&private, &template().await).await),
                    false => None,
                };
                let _ = started.send((private.connection().url(), private.phase()));
                let _ = stopped.await;
                private.stop().await.expect("PostgreSQL stops");
                if let Some(workers) = workers {
                    workers.stop().await;
                }
            });
        };
        let keeper = std::thread::spawn(keep);
        let (url, phase) = in_time("PostgreSQL", running).await.expect("PostgreSQL starts");
        Self { options: url.parse().expect("a URL"), url, phase, stop: Some(stop), keeper: Some(keeper), _dir: dir }
    }

    /// A running server with an empty database, and without roles of a migration.
    pub(crate) async fn start_empty() -> Self {
        let postgres = Self::start().await;
        postgres.tamper("drop schema callgate cascade").await;
        for role in postgres.rows(r"select rolname from pg_roles where rolname like 'callgate\_%'").await {
            let role = role.trim_matches(['(', ')']);
            postgres.tamper(&format!("drop owned by {role}")).await;
            postgres.tamper(&format!("drop role {role}")).await;
        }
        postgres
    }

    /// URL for other processes.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The server's process, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        match *self.phase.borrow() {
            DatabasePhase::Running { pid } => Some(pid),
            _ => None,
        }
    }

    /// Kills the server without a word, and returns once it has been started again.
    pub(crate) async fn crash(&self) {
        let killed = self.pid().expect("it runs");
        assert!(signal(killed, "KILL"));
        let runs_anew = |phase: &DatabasePhase| matches!(phase, DatabasePhase::Running { pid } if *pid != killed);
        let mut phase = self.phase.clone();
        in_time("the restart", phase.wait_for(runs_anew)).await.expect("a supervisor");
    }

    /// Stops the server and all its sessions in their tracks: connections stay open, and nothing answers.
    pub(crate) fn freeze(&self) -> FrozenProcess {
        let postmaster = self.pid().expect("it runs");
        assert!(signal(postmaster, "STOP"));
        // It starts no more sessions now, so these are all.
        let sessions = children(postmaster);
        for pid in &sessions {
            signal(*pid, "STOP");
        }
        FrozenProcess { postmaster, sessions }
    }

    /// A connection that sees the tables by their bare names.
    pub(crate) async fn connect(&self) -> PgConnection {
        let options = self.options.clone().options([("search_path", "callgate")]);
        options.connect().await.expect("a connection")
    }

    /// A connection for a query with arbitrary joins.
    pub(crate) async fn looking(&self, sql: &str) -> PgConnection {
        let mut conn = self.connect().await;
        if citus::is_wanted() {
            citus::gather(&mut conn, sql).await;
        }
        conn
    }

    /// The rows of a query, one per line, in PostgreSQL's row format: `(a,1,,t)`.
    pub(crate) async fn rows(&self, sql: &str) -> Vec<String> {
        let sql = format!("select q::text from ({sql}) q");
        let rows = sqlx::query_scalar(AssertSqlSafe(sql.as_str())).fetch_all(&mut self.looking(&sql).await).await;
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Every row of every table, as text.
    pub(crate) async fn dump(&self) -> String {
        let tables = self
            .rows(
                "select format('%I.%I', n.nspname, c.relname)
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace
                 where n.nspname = 'callgate' and c.relkind in ('r', 'p', 'm') and not c.relispartition order by 1",
            )
            .await;
        let mut dump = String::new();
        for table in tables {
            let table = table.trim_matches(['(', ')', '"']);
            for row in self.rows(&format!("select t::text from {table} t")).await {
                dump.push_str(&row);
                dump.push('\n');
            }
        }
        dump
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = format!("select ({sql})::bigint");
        let number = sqlx::query_scalar(AssertSqlSafe(sql.as_str())).fetch_one(&mut self.looking(&sql).await).await;
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Changes rows directly; returns their number.
    pub(crate) async fn tamper(&self, sql: &str) -> u64 {
        let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut self.connect().await).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}")).rows_affected()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.keeper.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "PostgreSQL did not stop");
    }
}

/// A suspended server, resumed when dropped.
pub(crate) struct FrozenProcess {
    postmaster: u32,
    sessions: Vec<u32>,
}

impl Drop for FrozenProcess {
    fn drop(&mut self) {
        for pid in self.sessions.iter().chain([&self.postmaster]) {
            signal(*pid, "CONT");
        }
    }
}

/// Query for the number of writers that wait for a locked row or table.
pub(crate) const fn waiting_writers(is_on_citus: bool) -> &'static str {
    match is_on_citus {
        // There they wait on the nodes of their shards.
        true => "select count(*) from citus_stat_activity where is_worker_query and wait_event_type = 'Lock'",
        false => {
            "select count(*) from pg_stat_activity
               where application_name like 'callgate writer%' and wait_event_type = 'Lock'"
        }
    }
}

/// Waits until that many do.
pub(crate) async fn writers_waiting(postgres: &Postgres, writers: i64) {
    let waiting = waiting_writers(citus::is_wanted());
    until("the writers to wait", async || postgres.number(waiting).await == writers).await;
}

/// Starts a server on a copy of the template cluster; creating one takes seconds.
async fn start(data_dir: &Path) -> PrivatePostgres {
    let template = template().await;
    seed(&template, data_dir);
    let settings = PostgresSettings { data_dir: data_dir.to_owned(), pg_bin: citus::bin() };
    match PrivatePostgres::start(&settings).await {
        // Another version is installed than the one that made the template.
        Err(PrivatePostgresError::MajorMismatch { .. }) => {
            fs::remove_dir_all(&template).expect("the template is ours");
            fs::remove_dir_all(data_dir.join("pg")).expect("the copy is ours");
            fs::remove_file(data_dir.join("password")).expect("the copy is ours");
            PrivatePostgres::start(&settings).await
        }
        started => started,
    }
    .expect("PostgreSQL starts")
}

/// Puts a cluster that was never started into a data directory.
pub(crate) fn seed(template: &Path, data_dir: &Path) {
    fs::create_dir_all(data_dir).expect("a folder");
    for part in PARTS {
        copy(&template.join(part), &data_dir.join(part));
    }
}

/// Template cluster of all tests in this build. The first caller creates it; the others wait.
pub(crate) async fn template() -> PathBuf {
    let mut key = DefaultHasher::new();
    (
        include_str!("../../src/postgres/cluster.rs"),
        include_str!("../../src/postgres/access.rs"),
        include_str!("postgres.rs"),
        include_str!("citus.rs"),
        citus::bin(),
        migrations(),
    )
        .hash(&mut key);
    let shelf = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let template = shelf.join(format!("cluster-{:016x}", key.finish()));
    let lock = File::create(shelf.join("cluster.lock")).expect("a file");
    lock.lock().expect("a lock");
    if !template.is_dir() {
        let unfinished = shelf.join("cluster.unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir(&unfinished).expect("a folder");
        let dir = folder();
        let settings = PostgresSettings { data_dir: dir.path().join("data"), pg_bin: citus::bin() };
        let private = PrivatePostgres::start(&settings).await.expect("PostgreSQL starts");
        // Unused databases are half of the data to copy.
        let mut owner = options(&private).connect().await.expect("a connection");
        for sql in ["alter database template0 is_template false", "drop database template0", "drop database postgres"] {
            sqlx::raw_sql(sql).execute(&mut owner).await.expect(sql);
        }
        owner.close().await.expect("closed");
        // Each test would take most of its time to migrate.
        open(options(&private)).await.expect("a store").close().await;
        private.stop().await.expect("PostgreSQL stops");
        seed(&settings.data_dir, &unfinished);
        if citus::is_wanted() {
            citus::distribute(&unfinished).await;
        }
        fs::rename(&unfinished, &template).expect("the same file system");
    }
    template
}

/// The text of every migration.
fn migrations() -> Vec<(PathBuf, Vec<u8>)> {
    // Tests of other packages of the workspace use this module, too.
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|above| above.join("migrations"));
    let files = fs::read_dir(folders.find(|folder| folder.is_dir()).expect("a folder")).expect("readable");
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read(file).expect("readable"))).collect()
}

/// Copies a folder with its owners and modes, which PostgreSQL insists on.
pub(crate) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.expect("cp").success(), "{} could not be copied", from.display());
}
