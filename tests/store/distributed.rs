//! Distributed schema. `make test-citus` runs all of these tests on a Citus cluster.

use callgate_store::{OpenError, distribute};

use crate::common::{citus, postgres::Postgres};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_alone_is_told_what_it_lacks() {
    if citus::is_wanted() {
        return;
    }
    let postgres = Postgres::start_empty().await;
    let error = distribute(postgres.options.clone()).await.expect_err("no Citus");
    assert!(matches!(error, OpenError::Citus(_)));
    assert_eq!(
        error.to_string(),
        "the database cannot be distributed: it has no extension `citus`; create it there and on every worker"
    );
    let made = "select count(*) from pg_namespace where nspname = 'callgate'";
    assert_eq!(postgres.number(made).await, 0, "what is refused changes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distributing_again_does_nothing() {
    if !citus::is_wanted() {
        return;
    }
    let postgres = Postgres::start().await;
    let again = distribute(postgres.options.clone()).await.expect("distributed");
    assert_eq!((again.workers, again.tables.len()), (2, 0));
    let alone = "select count(*) from pg_tables where schemaname = 'callgate' and tablename <> '_sqlx_migrations'
        and not exists (select from pg_dist_partition where logicalrelid = ('callgate.' || tablename)::regclass)";
    assert_eq!(postgres.number(alone).await, 0, "a table that only the coordinator has");
}
