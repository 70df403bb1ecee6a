//! What is acknowledged is there after a crash, and whole; what cannot be stored is told in time.

use std::{sync::Arc, time::Duration};

use callgate_core::domain::{ids::DEFAULT_TENANT, shard::Shard};
use callgate_server::gate::{GateError, NoAnswer};
use tokio::time::Instant;

use crate::common::{
    all,
    gates::{ask, evaluate, gate, policy, session, try_evaluate},
    postgres::{Postgres, writers_waiting},
};

/// Two tries of the writer, one after the other, and a read.
const ERROR_MAX: Duration = Duration::from_millis(8_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_rows_survive_a_crash_whatever_becomes_the_configuration() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    evaluate(&gate, ask("s", "before", "look", "{}")).await;
    let database = postgres.options.get_database().expect("a database").to_owned();
    let role = postgres.options.get_username().to_owned();
    // What nobody waits for is written every ten seconds.
    for sql in [
        "alter system set wal_writer_delay = '10s'".to_owned(),
        "alter system set wal_writer_flush_after = '1GB'".to_owned(),
        "alter system set synchronous_commit = off".to_owned(),
        format!("alter database {database} set synchronous_commit = off"),
        format!("alter role {role} set synchronous_commit = off"),
        "select pg_reload_conf()".to_owned(),
    ] {
        postgres.tamper(&sql).await;
    }
    // Half of them on the connections that there were, half on new ones.
    let mut acknowledged = 1;
    for half in 0..2 {
        for n in 0..5 {
            let answer =
                evaluate(&gate, ask("s", &format!("c{half}-{n}"), "pay", &format!(r#"{{"n":{n},"of":{half}}}"#)));
            assert!(answer.await.verdict.permit.is_some());
            acknowledged += 1;
        }
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where application_name like 'callgate %' and pid <> pg_backend_pid()";
        if half == 0 {
            postgres.tamper(end).await;
        }
    }
    postgres.crash().await;
    assert_eq!(postgres.number("select count(*) from call").await, acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_changes_fewer_rows_than_decided_is_undone() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    evaluate(&gate, ask("s", "before", "look", "{}")).await;
    for (table, in_session, tool) in [
        ("ledger", "s", "pay"),
        ("call_tree", "s", "look"),
        ("call_tree", "new", "look"),
        ("session", "new", "look"),
        ("call", "s", "look"),
    ] {
        let lose = format!("function lose_{table}() returns trigger language plpgsql as 'begin return null; end'");
        postgres.tamper(&format!("create or replace {lose}")).await;
        let lose = format!("trigger lose before insert or update on {table} for each row execute function");
        postgres.tamper(&format!("create {lose} lose_{table}()")).await;
        let answer = try_evaluate(&gate, ask(in_session, &format!("lost {tool}"), tool, "{}")).await;
        assert!(answer.is_err(), "{table}: {answer:?}");
        assert_eq!(postgres.number("select count(*) from call").await, 1, "{table}");
        postgres.tamper(&format!("drop trigger lose on {table}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_no_row_can_hold_says_nothing_of_the_database() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&[])).await;
    let mut bad = ask("s", "bad", "look", "{}");
    bad.justification = Some("a\0b".to_owned());
    let answer = try_evaluate(&gate, bad).await;
    assert!(answer.is_err(), "{answer:?}");
    gate.server.ping().await.expect("the database is well");
    evaluate(&gate, ask("s", "good", "look", "{}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_one_bad_change_has_one_deadline_for_all() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&[])).await;
    let mut names = ["a", "b", "c", "d", "e"];
    names.sort_by_key(|name| Shard::of(DEFAULT_TENANT, &session(name)));
    for name in ["z"].into_iter().chain(names) {
        evaluate(&gate, ask(name, "before", "look", "{}")).await;
    }
    // The first change of the batch can never be stored; the others, each on its own then, meet a server that hangs.
    let trouble = "create function trouble() returns trigger language plpgsql as
        'begin if new.call_id = ''bad'' then raise sqlstate ''22000''; end if;
           if new.call_id = ''slow'' then perform pg_sleep(30); end if; return new; end'";
    postgres.tamper(trouble).await;
    postgres.tamper("create trigger trouble before insert on call for each row execute function trouble()").await;
    let mut locked = postgres.connect().await;
    sqlx::raw_sql("begin; update call_tree set version = version where root_id = 'z'")
        .execute(&mut locked)
        .await
        .expect("a lock");
    let first = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { try_evaluate(&gate, ask("z", "first", "look", "{}")).await }
    });
    writers_waiting(&postgres, 1).await;
    let asked = names.map(|name| {
        let gate = Arc::clone(&gate);
        async move {
            let since = Instant::now();
            let call = if name == names[0] { "bad" } else { "slow" };
            (try_evaluate(&gate, ask(name, call, "look", "{}")).await, since.elapsed())
        }
    });
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    };
    let (answers, ()) = tokio::join!(all(asked), unlock);
    first.await.expect("no panic").expect("an answer");
    for (n, (answer, took)) in answers.into_iter().enumerate() {
        match answer {
            Err(GateError::NoAnswer(NoAnswer::Fault(_))) if n == 0 => {}
            Err(GateError::NoAnswer(NoAnswer::OutOfReach(_))) if n > 0 => {}
            answer => panic!("{n}: {answer:?}"),
        }
        assert!(took < ERROR_MAX, "told after {took:?}");
    }
}
