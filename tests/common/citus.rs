//! A coordinator with two workers in the place of one server, where `CALLGATE_TEST_CITUS` asks for it
//! (`make test-citus`). Nodes reach each other by their sockets, and all have the template's password.

use std::path::{Path, PathBuf};

use callgate::{
    private_postgres::{PrivatePostgres, Settings},
    store,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};

use super::postgres::{folder, options, seed};

/// What every node needs in its configuration file.
pub(crate) const SETTINGS: &str = "
shared_preload_libraries = 'citus'
wal_level = logical
max_prepared_transactions = 100
max_connections = 200
shared_buffers = 32MB
citus.shard_count = 4
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

/// The workers of a coordinator, stopped after it.
pub(crate) struct Workers(Vec<(PrivatePostgres, tempfile::TempDir)>);

impl Workers {
    /// Starts the workers of `coordinator`, and distributes the schema over them.
    pub(crate) async fn of(coordinator: &PrivatePostgres, template: &Path) -> Self {
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let dir = folder();
            let data_dir = dir.path().join("data");
            seed(template, &data_dir);
            let worker = PrivatePostgres::start(&Settings { data_dir, pg_bin: bin() }).await.expect("a worker starts");
            prepare(&worker).await;
            workers.push((worker, dir));
        }
        let mut owner = prepare(coordinator).await;
        run(&mut owner, &format!("select citus_set_coordinator_host('{}', {})", host(coordinator), port(coordinator)))
            .await;
        for (worker, _) in &workers {
            run(&mut owner, &format!("select citus_add_node('{}', {})", host(worker), port(worker))).await;
        }
        store::distribute(options(coordinator)).await.expect("the schema is distributed");
        Self(workers)
    }

    pub(crate) async fn stop(self) {
        for (worker, _dir) in self.0 {
            worker.stop().await.expect("a worker stops");
        }
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
