//! Cold replicas: number of database reads, and responses to a thundering herd.

use std::{sync::Arc, time::Duration};

use callgate_core::domain::{call::Request, ids::DEFAULT_TENANT};
use callgate_server::gate::{Gate, GateError, NoAnswer};
use callgate_store::DecisionStore as _;

use tokio::time::sleep;

use super::proxy::Proxy;
use crate::common::{
    all, citus,
    gates::{
        agent, ask, describe_answer, evaluate, gate, gate_on, open, policy, run_call, session, store, try_evaluate,
        two_gates,
    },
    invariants::{fold, gapless, good, sums},
    postgres::Postgres,
    until,
};

/// A replica with counted statements, and open connections.
async fn counted_replica(postgres: &Postgres) -> (Arc<Gate>, Proxy) {
    let proxy = Proxy::to(postgres);
    let gate = gate_on(open(proxy.options.clone()).await.expect("a store"), &policy(&["same_call"]));
    run_call(&gate, ask("warm", "c", "save", "{}"), "row").await;
    (gate, proxy)
}

fn session_name(n: usize) -> String {
    format!(r#"{{"n":{n}}}"#)
}

/// The minimum over several runs, because counters are refreshed occasionally.
async fn least(proxy: &Proxy, times: usize, mut work: impl AsyncFnMut(usize)) -> usize {
    let mut least = usize::MAX;
    for n in 0..times {
        let before = proxy.reads();
        work(n).await;
        least = least.min(proxy.reads() - before);
    }
    least
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_session_costs_one_read_and_a_cold_one_two() {
    let postgres = Postgres::start().await;
    let other = gate(&postgres, &policy(&["same_call"])).await;
    for n in 0..5 {
        run_call(&other, ask(&format!("cold-{n}"), "c", "look", "{}"), "row").await;
    }
    let (gate, proxy) = counted_replica(&postgres).await;
    let new = least(&proxy, 5, async |n| drop(evaluate(&gate, ask(&format!("new-{n}"), "c", "look", "{}")).await));
    assert_eq!(new.await, 1);
    let again = least(&proxy, 5, async |n| {
        drop(evaluate(&gate, ask(&format!("new-{n}"), "d", "look", &session_name(0))).await)
    });
    assert_eq!(again.await, 0);
    let cold = least(&proxy, 5, async |n| {
        drop(evaluate(&gate, ask(&format!("cold-{n}"), "d", "look", &session_name(1))).await);
    });
    assert_eq!(cold.await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_comes_back_after_a_while_waits_for_no_counter() {
    let postgres = Postgres::start().await;
    let proxy = Proxy::to(&postgres);
    let gate = gate_on(open(proxy.options.clone()).await.expect("a store"), &policy(&["budget"]));
    let call = |n: usize| Request { agent: agent("robot"), ..ask("s", &format!("c{n}"), "look", &session_name(n)) };
    run_call(&gate, call(9), "row").await;
    let mut waited_for = usize::MAX;
    for n in 0..5 {
        sleep(Duration::from_millis(600)).await;
        let before = proxy.reads();
        drop(evaluate(&gate, call(n)).await);
        waited_for = waited_for.min(proxy.reads() - before);
    }
    assert_eq!(waited_for, 0, "the counters are old, and read again beside");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_is_written_in_one_round_trip() {
    let postgres = Postgres::start().await;
    let (gate, proxy) = counted_replica(&postgres).await;
    for (in_session, tool) in [("warm", "look"), ("warm", "pay"), ("new", "look"), ("another", "pay")] {
        let before = proxy.writes();
        let request = ask(in_session, &format!("{tool}-1"), tool, &format!(r#"{{"of":"{in_session}"}}"#));
        run_call(&gate, request, "row").await;
        assert_eq!(proxy.writes() - before, 2, "a permit and a report: {tool} of {in_session}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_reads_its_ledger_rows_at_once() {
    let postgres = Postgres::start().await;
    let (gate, proxy) = counted_replica(&postgres).await;
    let batch = |turn: usize| -> Vec<Request> {
        (0..64).map(|n| ask("s", &format!("c{turn}-{n}"), "save", &session_name(64 * turn + n))).collect()
    };
    drop(Box::pin(gate.decisions.evaluate(batch(0))).await.expect("judged"));
    let reads =
        least(&proxy, 3, async |turn| drop(Box::pin(gate.decisions.evaluate(batch(turn + 1))).await.expect("judged")));
    assert_eq!(reads.await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_others_move_is_brought_up_to_date_by_one_read() {
    let postgres = Postgres::start().await;
    let other = gate(&postgres, &policy(&["same_call"])).await;
    let (gate, proxy) = counted_replica(&postgres).await;
    let mut n = 0;
    let mut turn = async |gate: &Gate| {
        n += 1;
        drop(evaluate(gate, ask("s", &format!("c{n}"), "look", &session_name(n))).await);
    };
    for _ in 0..2 {
        turn(&other).await;
        turn(&gate).await;
    }
    let reads = least(&proxy, 4, async |_| {
        turn(&other).await;
        turn(&gate).await;
    });
    assert_eq!(reads.await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_that_two_replicas_share_are_not_read_anew_however_many_they_are() {
    const SESSIONS: usize = 300;
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    let turn = async |gate: &Arc<Gate>, turn: usize| {
        let asked = (0..SESSIONS).map(|n| {
            let gate = Arc::clone(gate);
            async move {
                describe_answer(
                    &evaluate(&gate, ask(&format!("s{n}"), &format!("c{turn}"), "look", &session_name(turn))).await,
                )
            }
        });
        assert!(all(asked).await.iter().all(|answer| answer == "ALLOW"));
    };
    // Each has lost in each tree once, and knows that it is not its own.
    for n in 0..4 {
        turn(&gates[n % 2], n).await;
    }
    postgres.tamper("update call set effect = 99 where call_id = 'c0'").await;
    let store = store(&postgres).await;
    store.tree(DEFAULT_TENANT, &session("s7"), None).await.expect_err("a tree as a whole cannot be read now");
    for n in 4..8 {
        turn(&gates[n % 2], n).await;
    }
    postgres.tamper("update call set effect = 1 where call_id = 'c0'").await;
    for root in ["s0", "s299"] {
        good([gapless(&postgres, root).await, sums(&postgres, root).await, fold(&postgres, &store, root).await]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_that_are_wanted_at_once_are_loaded_together() {
    const SESSIONS: usize = 512;
    if citus::lacks("trees of several shards are not one statement there") {
        return;
    }
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    let first = (0..SESSIONS).map(|n| {
        let gate = Arc::clone(&gate);
        async move { drop(evaluate(&gate, ask(&format!("s{n}"), "c", "look", "{}")).await) }
    });
    all(first).await;
    let proxy = Proxy::to(&postgres);
    let store = Arc::new(open(proxy.options.clone()).await.expect("a store"));
    let before = proxy.reads();
    let mut locked = postgres.connect().await;
    let lock = "begin; lock table session, call_tree in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut locked).await.expect("a lock");
    let wanted = (0..SESSIONS).map(|n| {
        let store = Arc::clone(&store);
        async move {
            let name = session(&format!("s{n}"));
            let found = store.find(DEFAULT_TENANT, &name, None).await.expect("readable").expect("known");
            let tree = store.tree(DEFAULT_TENANT, &found.root, found.epoch).await.expect("readable").expect("a tree");
            assert_eq!((tree.root, tree.version), (name, 1));
        }
    });
    let unlocked = async {
        let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        until("those who look for sessions", async || postgres.number(waiting).await == 2).await;
        sleep(Duration::from_millis(500)).await;
        sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    };
    tokio::join!(all(wanted), unlocked);
    let reads = proxy.reads() - before;
    assert!(reads <= SESSIONS / 8, "{reads} statements");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_all_come_at_once_are_never_told_an_outage() {
    const SESSIONS: usize = 512;
    let postgres = Postgres::start().await;
    let other = gate(&postgres, &policy(&["same_call"])).await;
    let name = |n: usize| format!("s{n}");
    let first = (0..SESSIONS).map(|n| {
        let other = Arc::clone(&other);
        async move { drop(evaluate(&other, ask(&name(n), "c", "look", "{}")).await) }
    });
    all(first).await;
    let cold = self::gate(&postgres, &policy(&["same_call"])).await;
    let asked = (0..SESSIONS).map(|n| {
        let cold = Arc::clone(&cold);
        async move { try_evaluate(&cold, ask(&name(n), "d", "look", &session_name(n))).await }
    });
    let answers = all(asked).await;
    let is_told =
        |error: &GateError<_>| matches!(error, GateError::NoAnswer(NoAnswer::Overloaded(_) | NoAnswer::Crowded(_)));
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert!(is_told(error), "{error:?}");
    }
    assert!(answers.iter().any(Result::is_ok));
    for n in 0..SESSIONS {
        drop(evaluate(&cold, ask(&name(n), "d", "look", &session_name(n))).await);
    }
    assert_eq!(postgres.number("select count(*) from call where call_id = 'd'").await, SESSIONS as i64);
}

/// `cargo test --test store -- --ignored --nocapture a_cold_tree`: load time of trees by number of calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
#[allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a figure")]
async fn a_cold_tree_takes_as_long_as_it_has_calls() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    for calls in [10, 1_000, 10_000] {
        let root = format!("s{calls}");
        for n in 0..10 {
            run_call(&gate, ask(&root, &format!("c{n}"), "look", &session_name(n)), "row").await;
        }
        let copies = calls / 10 - 1;
        for (table, changed) in [
            ("call", "'seq', r.seq + 20 * g, 'run_from', 1, 'call_id', r.call_id || '-' || g"),
            ("outcome", "'seq', r.seq + 20 * g, 'permit_seq', r.permit_seq + 20 * g, 'call_id', r.call_id || '-' || g"),
        ] {
            let copy = format!(
                "insert into {table} select (jsonb_populate_record(r, jsonb_build_object({changed}))).*
                 from {table} r, generate_series(1, {copies}) g where root_id = '{root}'"
            );
            postgres.tamper(&copy).await;
        }
        let moved = format!("steps = {calls}, calls = {calls}, version = {}", 2 * calls);
        postgres.tamper(&format!("update call_tree set {moved} where root_id = '{root}'")).await;
        postgres.tamper("vacuum analyze").await;
        let store = open(postgres.options.clone()).await.expect("a store");
        for _ in 0..5 {
            let started = std::time::Instant::now();
            let tree = store.tree(DEFAULT_TENANT, &session(&root), None).await.expect("readable").expect("a tree");
            println!("{calls} calls: {:?} ({} remembered)", started.elapsed(), tree.calls().count());
        }
    }
}
