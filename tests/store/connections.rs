//! Connections: choice of the server, detection of unavailability, and retries.

use std::{sync::Arc, time::Duration};

use callgate_store::{OpenError, StoreError, parse_url, reached_at};
use sqlx::postgres::PgSslMode;
use tokio::time::{Instant, sleep};

use crate::{
    common::{
        all,
        gates::{ask, evaluate, gate_on, open, policy, store, try_evaluate},
        postgres::Postgres,
        until,
    },
    connection_proxy::Door,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_readers_are_busy_is_overloaded_and_its_database_is_not_away() {
    let postgres = Postgres::start().await;
    let store = Arc::new(store(&postgres).await);
    let mut locked = postgres.connect().await;
    sqlx::raw_sql("begin; lock table halt in access exclusive mode").execute(&mut locked).await.expect("a lock");
    let stuck: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn({
                let store = Arc::clone(&store);
                async move { store.halts().await.map(drop) }
            })
        })
        .collect();
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("all readers to wait", async || postgres.number(waiting).await == 8).await;
    let asked = (0..100).map(|_| {
        let store = Arc::clone(&store);
        async move { store.halts().await.map(drop) }
    });
    let (answers, health) = tokio::join!(all(asked), store.ping());
    health.expect("the database is well");
    let errors: Vec<StoreError> = answers.into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 100);
    assert!(errors.iter().all(|error| matches!(error, StoreError::Overloaded(_))), "{:?}", errors.first());
    sqlx::raw_sql("rollback").execute(&mut locked).await.expect("unlocked");
    for stuck in stuck {
        let _ = stuck.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_takes_long_to_make_is_waited_for_while_the_database_answers() {
    let postgres = Postgres::start().await;
    let door = Door::to(&postgres).await;
    let store = open(door.options.clone()).await.expect("a store");
    store.ping().await.expect("a connection for that");
    store.halts().await.expect("a connection for reading");
    door.delay_ms(800);
    let readers = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'callgate reader'";
    postgres.tamper(readers).await;
    // After that one is tried before it is trusted.
    sleep(Duration::from_millis(150)).await;
    let since = Instant::now();
    store.halts().await.expect("a new connection");
    assert!(since.elapsed() >= Duration::from_millis(800), "nobody had to wait: the test is none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_turns_everybody_away_is_asked_now_and_then() {
    let postgres = Postgres::start().await;
    let door = Door::to(&postgres).await;
    let gate = gate_on(open(door.options.clone()).await.expect("a store"), &policy(&[]));
    evaluate(&gate, ask("s", "before", "look", "{}")).await;
    door.shut();
    postgres
        .tamper(
            "select pg_terminate_backend(pid) from pg_stat_activity \
             where application_name like 'callgate %' and pid <> pg_backend_pid()",
        )
        .await;
    let (before, since) = (door.knocks(), Instant::now());
    let callers = (0..50).map(|n| {
        let gate = Arc::clone(&gate);
        async move {
            for round in 0..10 {
                let _ = try_evaluate(&gate, ask(&format!("s{n}"), &format!("c{round}"), "look", "{}")).await;
                sleep(Duration::from_millis(50)).await;
            }
        }
    });
    all(callers).await;
    let (knocks, took) = (door.knocks() - before, since.elapsed());
    // A fifth of a second between two, or at least half of that, but for the first ones.
    let allowed = 40 + took.as_millis() / 100;
    assert!((2..allowed).contains(&(knocks as u128)), "asked {knocks} times in {took:?}");
    door.open();
    evaluate(&gate, ask("s", "after", "look", "{}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption_that_fails_is_done_without_where_it_is_only_preferred() {
    let postgres = Postgres::start().await;
    let door = Door::to(&postgres).await;
    let store = open(door.with_tls(PgSslMode::Prefer)).await.expect("in the clear");
    store.ping().await.expect("for reading too");
    store.close().await;
    let stranger = door.with_tls(PgSslMode::Prefer).username("nobody");
    let text = open(stranger).await.expect_err("refused").to_string();
    assert!(text.contains("nobody") && text.contains("HandshakeFailure"), "{text}");
    let error = open(door.with_tls(PgSslMode::Require)).await.expect_err("refused");
    assert!(matches!(error, OpenError::Tls(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("sslmode=prefer") && text.contains("version 3"), "{text}");
}

#[test]
fn only_urls_of_postgresql_are_taken() {
    for url in ["postgres://me@there/callgate", "postgresql:///callgate?host=/run"] {
        parse_url(url).expect(url);
    }
    let error = parse_url("mysql://root:secret@there/callgate").expect_err("refused").to_string();
    assert!(error.contains("`mysql://`") && !error.contains("secret"), "{error}");
    let error = parse_url("postgres://me:secret@there:port/callgate").expect_err("refused").to_string();
    assert_eq!(error.matches("port").count() + error.matches("secret").count(), 1, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cause_is_told_once() {
    let postgres = Postgres::start().await;
    let error = open(postgres.options.clone().username("nobody")).await.expect_err("refused");
    let chain = format!("{:#}", anyhow::Error::from(error).context("cannot use the database"));
    assert_eq!(chain.matches("nobody").count(), 1, "{chain}");
    assert!(!chain.contains("at line"), "{chain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_is_named_by_host_and_port() {
    let postgres = Postgres::start().await;
    let door = Door::to(&postgres).await;
    let place = reached_at(&door.options);
    assert!(place.ends_with(&format!(" (port {})", door.options.get_port())), "{place}");
    let store = open(door.options.clone()).await.expect("a store");
    door.shut();
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where application_name like 'callgate %' and pid <> pg_backend_pid()";
    postgres.tamper(end).await;
    sleep(Duration::from_millis(600)).await;
    let error = store.ping().await.expect_err("it is away").to_string();
    assert_eq!(error.matches(&place).count(), 1, "{error}");
    let error = open(door.options.clone()).await.expect_err("it is away").to_string();
    assert_eq!(error.matches(&place).count(), 1, "{error}");
    door.open();
}
