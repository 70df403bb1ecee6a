//! Citus coordinator with two workers in place of one server, where `CALLGATE_TEST_CITUS` is set (`make test-citus`).
//! Nodes connect by their sockets, and all have the template's password.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use callgate_postgres::{PostgresSettings, PrivatePostgres};
use futures_util::future::join_all;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};
use tempfile::TempDir;

use super::postgres::{PARTS, folder, options, seed};

/// Configuration of every node.
pub(crate) const SETTINGS: &str = "
shared_preload_libraries = 'citus'
wal_level = logical
max_prepared_transactions = 100
max_connections = 200
shared_buffers = 32MB
citus.shard_count = 4
citus.enable_unsafe_triggers = on
citus.recover_2pc_interval = '2s'
";

const WORKERS: usize = 2;

/// The folder of the programs of a PostgreSQL that has Citus; none where one server is tested.
pub(crate) fn bin() -> Option<PathBuf> {
    std::env::var_os("CALLGATE_TEST_CITUS").map(PathBuf::from)
}

pub(crate) fn is_wanted() -> bool {
    bin().is_some()
}

/// True on a cluster, where the test cannot apply for this reason: `make test-citus` lists it.
pub(crate) fn lacks(why: &str) -> bool {
    if is_wanted() {
        let line = format!("{}: {why}\n", std::thread::current().name().unwrap_or_default());
        if let Some(list) = std::env::var_os("CALLGATE_TEST_CITUS_SKIPPED") {
            let mut list = File::options().append(true).open(list).expect("the list of what was skipped");
            list.write_all(line.as_bytes()).expect("writable");
        }
    }
    is_wanted()
}

/// The workers of a coordinator, stopped after it.
pub(crate) struct Workers(Vec<Node>);

struct Node {
    server: PrivatePostgres,
    _dir: TempDir,
}

impl Node {
    /// Starts a node on a copy of a data directory.
    async fn start(seeded: &Path) -> Self {
        let dir = folder();
        let data_dir = dir.path().join("data");
        seed(seeded, &data_dir);
        let server =
            PrivatePostgres::start(&PostgresSettings { data_dir, pg_bin: bin() }).await.expect("a node starts");
        Self { server, _dir: dir }
    }
}

/// Where the data directory of a worker lies beside its coordinator's.
fn beside(template: &Path, worker: usize) -> PathBuf {
    template.join(format!("worker-{worker}"))
}

impl Workers {
    /// Starts the workers of `coordinator`, all with data directories from `template`, and tells all nodes the current
    /// addresses.
    pub(crate) async fn of(coordinator: &PrivatePostgres, template: &Path) -> Self {
        let seeds: Vec<PathBuf> = (1..=WORKERS).map(|worker| beside(template, worker)).collect();
        let workers = join_all(seeds.iter().map(|seeded| Node::start(seeded))).await;
        let nodes: Vec<&PrivatePostgres> =
            std::iter::once(coordinator).chain(workers.iter().map(|node| &node.server)).collect();
        let moved = nodes.iter().enumerate().map(|(group, node)| {
            let (host, port) = (host(node), port(node));
            format!("update pg_dist_node set nodename = '{host}', nodeport = {port} where groupid = {group};")
        });
        let moved = moved.collect::<String>();
        for node in nodes {
            run(&mut options(node).connect().await.expect("a connection"), &moved).await;
        }
        Self(workers)
    }

    pub(crate) async fn stop(self) {
        join_all(self.0.into_iter().map(async |node| node.server.stop().await.expect("a worker stops"))).await;
    }
}

/// Makes the data directory `template` that of a coordinator over which the schema is distributed, with those of its
/// workers beside it.
pub(crate) async fn distribute(template: &Path) {
    let mut settings = File::options().append(true).open(template.join("pg/postgresql.conf")).expect("a configuration");
    settings.write_all(SETTINGS.as_bytes()).expect("writable");
    let nodes = join_all((0..=WORKERS).map(|_| Node::start(template))).await;
    let mut owners = Vec::new();
    for node in &nodes {
        owners.push(prepare(&node.server).await);
    }
    let (coordinator, workers) = nodes.split_first().expect("a coordinator");
    let at = |node: &Node| format!("'{}', {}", host(&node.server), port(&node.server));
    run(&mut owners[0], &format!("select citus_set_coordinator_host({})", at(coordinator))).await;
    for worker in workers {
        run(&mut owners[0], &format!("select citus_add_node({})", at(worker))).await;
    }
    callgate_store::distribute(options(&coordinator.server)).await.expect("the schema is distributed");
    for (n, node) in nodes.into_iter().enumerate() {
        let data_dir = node.server.data_dir().to_owned();
        node.server.stop().await.expect("a node stops");
        if n == 0 {
            PARTS.iter().for_each(|part| remove(&template.join(part)));
            seed(&data_dir, template);
        } else {
            seed(&data_dir, &beside(template, n));
        }
    }
}

/// Creates copies of the distributed tables that `sql` names on this connection, because a query without a shard may
/// not be plannable on a cluster.
pub(crate) async fn gather(conn: &mut PgConnection, sql: &str) {
    let words: BTreeSet<&str> = sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let cut = "select relname::text from pg_dist_partition p join pg_class c on c.oid = p.logicalrelid
        where p.partmethod = 'h' and not c.relispartition";
    let tables: Vec<String> = sqlx::query_scalar(cut).fetch_all(&mut *conn).await.expect("the distributed tables");
    for table in tables.iter().filter(|table| words.contains(table.as_str())) {
        run(conn, &format!("create temp table {table} as select * from callgate.{table}")).await;
    }
}

/// Makes a node that others may connect to.
async fn prepare(node: &PrivatePostgres) -> PgConnection {
    let mut owner = options(node).connect().await.expect("a connection");
    run(&mut owner, "create extension citus").await;
    let password = std::fs::read_to_string(node.data_dir().join("password")).expect("a password");
    let known = format!("insert into pg_dist_authinfo values (0, 'callgate', 'password={}')", password.trim_end());
    run(&mut owner, &known).await;
    owner
}

fn remove(part: &Path) {
    let removed = if part.is_dir() { fs::remove_dir_all(part) } else { fs::remove_file(part) };
    removed.expect("it is ours");
}

async fn run(node: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(node).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn host(node: &PrivatePostgres) -> String {
    let dir: PathBuf = node.connection().socket_dir.clone();
    dir.display().to_string()
}

fn port(node: &PrivatePostgres) -> u16 {
    node.connection().port
}
