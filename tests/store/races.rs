//! Races of two replicas on one call tree: the loser judges again, and nothing is lost or done twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use callgate_core::{
    domain::{call::Request, ids::DEFAULT_TENANT, session_state::Extent},
    policy::Policy,
};
use callgate_server::gate::{EvaluateAnswer, Gate};
use callgate_store::DecisionStore as _;

use tokio::time::sleep;

use crate::common::{
    all,
    gates::{
        ask, count_permits, describe_answer, evaluate, gate, gate_on, insist, insist_on, open, policy, record,
        run_call, session, store, success, try_evaluate, two_gates,
    },
    in_time,
    invariants::{fold, gapless, good, one_open_permit, one_permit, sums},
    postgres::{Postgres, writers_waiting},
    until,
};

/// Asks everything at once, in turn of one gate and the other.
async fn ask_all(gates: &[Arc<Gate>; 2], requests: Vec<Request>) -> Vec<EvaluateAnswer> {
    let asked = requests.into_iter().enumerate().map(|(i, request)| {
        let gate = Arc::clone(&gates[i % 2]);
        async move { insist(&gate, &request).await }
    });
    all(asked).await
}

/// Forty different calls of one session at once, then a report on each by the gate that did not permit it.
async fn lose_no_event(postgres: &Postgres, gates: &[Arc<Gate>; 2]) {
    const N: usize = 40;
    let requests = (0..N).map(|n| ask("s", &format!("c{n}"), "work", &format!(r#"{{"n":{n}}}"#)));
    let answers = ask_all(gates, requests.collect()).await;
    assert_eq!(count_permits(&answers), N);
    assert_eq!(postgres.number("select count(*) from call").await, N as i64);
    let store = store(postgres).await;
    good([gapless(postgres, "s").await, sums(postgres, "s").await, fold(postgres, &store, "s").await]);

    let reported = (0..N).map(|n| {
        let gate = Arc::clone(&gates[(n + 1) % 2]);
        async move { insist_on(&gate, &success("s", &format!("c{n}"), &format!("result {n}"))).await }
    });
    assert!(all(reported).await.iter().all(|answer| !answer.replayed));
    assert_eq!(postgres.number("select count(*) from outcome").await, N as i64);
    assert_eq!(postgres.number("select version from call_tree").await, 2 * N as i64);
    good([gapless(postgres, "s").await, sums(postgres, "s").await, fold(postgres, &store, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_on_one_session_lose_no_event() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    lose_no_event(&postgres, &gates).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_lose_no_event_where_transactions_are_serializable() {
    let postgres = Postgres::start().await;
    let policy = policy(&["same_call"]);
    let strict = || postgres.options.clone().options([("default_transaction_isolation", "serializable")]);
    let [one, other] = [open(strict()).await, open(strict()).await];
    let gates = [gate_on(one.expect("a store"), &policy), gate_on(other.expect("a store"), &policy)];
    lose_no_event(&postgres, &gates).await;
    let payments = (0..40).map(|n| ask(&format!("s{}", n % 5), &format!("p{n}"), "pay", "{}"));
    let answers = ask_all(&gates, payments.collect()).await;
    good([one_permit(&answers), one_open_permit(&postgres).await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agents_that_speak_first_on_two_gates_join_one_tree() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    let requests = (0..24).map(|n| {
        let child = format!("child-{}", n % 4);
        let request = ask(&child, &format!("c{n}"), "work", &format!(r#"{{"n":{n}}}"#));
        Request { parent: Some(session("root")), ..request }
    });
    let answers = ask_all(&gates, requests.collect()).await;
    assert_eq!(count_permits(&answers), 24);
    let trees = postgres.rows("select root_id, version, calls from call_tree").await;
    assert_eq!(trees, ["(root,24,24)"]);
    let sessions = postgres.rows("select distinct session_id, parent_id, root_id, depth from session order by 1").await;
    let expected = (0..4).map(|n| format!("(child-{n},root,root,1)")).chain(["(root,,root,0)".to_owned()]);
    assert_eq!(sessions, expected.collect::<Vec<_>>());
    let store = store(&postgres).await;
    good([gapless(&postgres, "root").await, sums(&postgres, "root").await, fold(&postgres, &store, "root").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_speaks_after_its_sub_agents_has_all_its_time() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &Policy::default()).await;
    let child = Request { parent: Some(session("root")), ..ask("child", "c1", "work", r#"{"n":1}"#) };
    assert_eq!(describe_answer(&evaluate(&gate, child).await), "ALLOW");
    let state = gate
        .decisions
        .session_state(DEFAULT_TENANT, &session("root"), Extent { last_calls: 1, ..Extent::default() })
        .await
        .expect("known by its child");
    assert!(!state.is_stopped, "{:?}", state.left);
    assert_eq!(describe_answer(&evaluate(&gate, ask("root", "c2", "work", r#"{"n":2}"#)).await), "ALLOW");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stampede_of_one_payment_gets_one_permit() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    for round in 0..5 {
        let arguments = format!(r#"{{"invoice":{round}}}"#);
        let call = |n: usize| ask(&format!("s{}", n % 5), &format!("c{round}-{n}"), "pay", &arguments);
        let answers = ask_all(&gates, (0..100).map(call).collect()).await;
        good([one_permit(&answers), one_open_permit(&postgres).await]);
        for answer in answers.iter().filter(|answer| answer.verdict.permit.is_none()) {
            assert_eq!(describe_answer(answer), "WAIT call_in_flight");
        }
        let winner = answers.iter().position(|answer| answer.verdict.permit.is_some()).expect("one");
        record(&gates[0], success(&format!("s{}", winner % 5), &format!("c{round}-{winner}"), "paid")).await;
        let again = ask_all(&gates, (100..120).map(call).collect()).await;
        for answer in &again {
            assert_eq!(describe_answer(answer), "REUSE duplicate_call_blocked");
        }
    }
    assert_eq!(postgres.number("select count(*) from ledger where state = 2 and revision = 2").await, 5);
    for root in ["s0", "s1", "s2", "s3", "s4"] {
        good([gapless(&postgres, root).await, sums(&postgres, root).await]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_asked_a_hundred_times_has_one_permit() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    for tool in ["pay", "save", "work"] {
        let requests = (0..100).map(|_| ask("s", &format!("c-{tool}"), tool, r#"{"order":1}"#));
        let answers = ask_all(&gates, requests.collect()).await;
        assert_eq!(count_permits(&answers), 100, "the others are replays");
        good([one_permit(&answers), one_open_permit(&postgres).await]);
    }
    assert_eq!(postgres.number("select count(*) from call").await, 3);
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decision_on_a_rejected_change_is_rejected() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&["same_call"])).await;
    run_call(&one, ask("s", "before", "look", "{}"), "row").await;
    let state = other
        .decisions
        .session_state(DEFAULT_TENANT, &session("s"), Extent { last_calls: 1, ..Extent::default() })
        .await;
    assert_eq!(state.expect("known").calls.len(), 1, "both gates have the tree in memory now");
    let mut locked = postgres.connect().await;
    sqlx::raw_sql("begin; update call_tree set version = version").execute(&mut locked).await.expect("a lock");
    let asked = |gate: &Arc<Gate>, call: &'static str, tool: &'static str| {
        let gate = Arc::clone(gate);
        tokio::spawn(async move { evaluate(&gate, ask("s", call, tool, "{}")).await })
    };
    let first = asked(&other, "c1", "work");
    writers_waiting(&postgres, 1).await;
    let loser = asked(&one, "c2", "unrelated");
    writers_waiting(&postgres, 2).await;
    // Decided on the losing state, whose `seq` the other gate's permit is about to take.
    let next = asked(&one, "c3", "work");
    until("the next call to be decided", async || {
        describe_answer(&Box::pin(one.decisions.dry_run(ask("s", "probe", "work", "{}"))).await.expect("a verdict"))
            == "WAIT call_in_flight"
    })
    .await;
    sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    let answers = [first.await.expect("no panic"), next.await.expect("no panic")];
    assert_eq!(describe_answer(&loser.await.expect("no panic")), "ALLOW");
    let store = store(&postgres).await;
    good([one_permit(&answers), gapless(&postgres, "s").await, sums(&postgres, "s").await]);
    good([fold(&postgres, &store, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_of_one_cold_tree_leave_the_readers_to_others() {
    let postgres = Postgres::start().await;
    let policy = policy(&["same_call"]);
    let warm = gate(&postgres, &policy).await;
    run_call(&warm, ask("s", "before", "look", "{}"), "row").await;
    let cold = gate(&postgres, &policy).await;
    let mut locked = postgres.connect().await;
    let lock = "begin; lock table call in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut locked).await.expect("a lock");
    let asked = (0..50).map(|n| {
        let cold = Arc::clone(&cold);
        let request = ask("s", &format!("c{n}"), "work", &format!(r#"{{"n":{n}}}"#));
        tokio::spawn(async move { insist(&cold, &request).await })
    });
    let asked: Vec<_> = asked.collect();
    let loading = "select count(*) from pg_stat_activity
        where application_name = 'callgate gatherer' and wait_event_type = 'Lock'";
    until("the tree to be loaded", async || postgres.number(loading).await > 0).await;
    for _ in 0..5 {
        cold.server.ping().await.expect("a reader is left");
    }
    assert_eq!(postgres.number(loading).await, 1);
    sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    for answer in asked {
        assert_eq!(describe_answer(&answer.await.expect("no panic")), "ALLOW");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_loses_again_reads_only_what_the_other_has_changed() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    let call = |n: usize| ask("s", &format!("c{n}"), "work", &format!(r#"{{"n":{n}}}"#));
    // Each has lost once, and knows that the tree is not its own.
    for n in 0..4 {
        evaluate(&gates[n % 2], call(n)).await;
    }
    let store = store(&postgres).await;
    postgres.tamper("update call set effect = 99 where call_id = 'c0'").await;
    store.tree(DEFAULT_TENANT, &session("s"), None).await.expect_err("the tree as a whole cannot be read now");
    for n in 4..10 {
        let answer = try_evaluate(&gates[n % 2], call(n)).await.expect("an answer");
        assert_eq!(describe_answer(&answer), "ALLOW");
        let (before, other) = (n - 2, &gates[(n + 1) % 2]);
        insist_on(other, &success("s", &format!("c{before}"), "done")).await;
    }
    postgres.tamper("update call set effect = 0 where call_id = 'c0'").await;
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await, fold(&postgres, &store, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_was_read_while_others_wrote_catches_up_too() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    evaluate(&gates[0], ask("s", "first", "look", "{}")).await;
    let store = store(&postgres).await;
    let tree = async || store.tree(DEFAULT_TENANT, &session("s"), None).await.expect("readable").expect("a tree");
    let writing = (0..6).map(move |n| {
        let gate = Arc::clone(&gates[n % 2]);
        async move {
            for k in 0..8 {
                let call = format!("c{n}-{k}");
                let request = ask("s", &call, "work", &format!(r#"{{"n":{n},"k":{k}}}"#));
                insist(&gate, &request).await;
                insist_on(&gate, &success("s", &call, "done")).await;
            }
        }
    });
    let writing = tokio::spawn(all(writing));
    let mut read = Vec::new();
    while !writing.is_finished() {
        read.push(tree().await);
    }
    writing.await.expect("no panic");
    let now = tree().await;
    for known in read {
        let version = known.version;
        let caught_up = store.catch_up(known).await.expect("readable").expect("few events");
        assert_eq!(caught_up, now, "from version {version} on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_gets_through_hundreds_who_want_the_same() {
    const TWINS: usize = 256;
    const CALLS: usize = 4;
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    let arguments = |n: usize| format!(r#"{{"n":{}}}"#, n % CALLS);
    for n in 0..CALLS {
        evaluate(&gate, ask("s", &format!("first-{n}"), "pay", &arguments(n))).await;
    }
    let is_over = Arc::new(AtomicBool::default());
    let twins = (0..TWINS).map(|n| {
        let (gate, is_over, request) =
            (Arc::clone(&gate), Arc::clone(&is_over), ask("s", &format!("twin-{n}"), "pay", &arguments(n)));
        tokio::spawn(async move {
            // Each is polled repeatedly, as by a waiter: most of them are evicted from their tree.
            while !is_over.load(Ordering::Relaxed) {
                let _ = try_evaluate(&gate, request.clone()).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
    });
    let twins: Vec<_> = twins.collect();
    until("them to have asked", async || postgres.number("select count(*) from call").await > TWINS as i64).await;
    for n in 0..CALLS {
        let report = success("s", &format!("first-{n}"), "paid");
        let answer = Box::pin(in_time("an answer", gate.decisions.record(DEFAULT_TENANT, report, None))).await;
        assert!(!answer.expect("it is stored, however many others want something").replayed);
    }
    is_over.store(true, Ordering::Relaxed);
    for twin in twins {
        in_time("the end", twin).await.expect("no panic");
    }
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_gets_through_a_stream_of_calls_that_lose() {
    const CALLS: usize = 200;
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    evaluate(&gate, ask("s", "running", "pay", "{}")).await;
    let call = |n: usize| ask("s", &format!("c{n}"), "look", &format!(r#"{{"n":{n}}}"#));
    let first = (0..CALLS).map(|n| {
        let gate = Arc::clone(&gate);
        async move { run_call(&gate, call(n), "row").await }
    });
    all(first).await;
    // Nearly all are evicted: each repeated one conflicts once, and takes the changes decided after it along.
    let again = (0..CALLS).map(|n| {
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(n as u64)).await;
            insist(&gate, &call(n)).await
        })
    });
    let again: Vec<_> = again.collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let report = success("s", "running", "paid");
    let answer = Box::pin(in_time("an answer", gate.decisions.record(DEFAULT_TENANT, report, None))).await;
    assert!(!answer.expect("it is stored, however many others lose").replayed);
    for again in again {
        // The few that the tree still remembers are answered from memory until the report has changed the world.
        let answer = describe_answer(&in_time("an answer", again).await.expect("no panic"));
        assert!(["ALLOW", "REUSE duplicate_call_blocked"].contains(&answer.as_str()), "{answer}");
    }
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trees_that_two_replicas_claim_at_once_are_each_of_one_of_them() {
    const TREES: usize = 600;
    let postgres = Postgres::start().await;
    let stores = [Arc::new(store(&postgres).await), Arc::new(store(&postgres).await)];
    let mut told: Vec<(usize, String)> = Vec::new();
    for round in 0..10 {
        // Each in the other's order, many in a statement since all had to wait: they would wait for each other if the
        // database took them as they come.
        let claims =
            (0..TREES / 10).flat_map(|n| [(0, n), (1, TREES / 10 - 1 - n)]).map(|(who, n)| {
                let (store, name, n) = (Arc::clone(&stores[who]), format!("agent-{who}"), round * TREES / 10 + n);
                async move {
                    (n, store.claim_owner(DEFAULT_TENANT, &session(&format!("s{n}")), &name).await.expect("an owner"))
                }
            });
        let mut locked = postgres.connect().await;
        sqlx::raw_sql("begin; lock table session_owner in share mode").execute(&mut locked).await.expect("a lock");
        let claimed = tokio::spawn(all(claims.collect::<Vec<_>>()));
        sleep(Duration::from_millis(100)).await;
        sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
        told.extend(claimed.await.expect("no panic"));
    }
    told.sort();
    assert_eq!(told.len(), 2 * TREES);
    for both in told.chunks(2) {
        assert_eq!(both[0], both[1], "both are told the same owner");
        let kept = stores[0].owner(DEFAULT_TENANT, &session(&format!("s{}", both[0].0))).await.expect("read");
        assert_eq!(kept.as_ref(), Some(&both[0].1));
    }
    assert_eq!(postgres.number("select count(*) from session_owner").await, TREES as i64);
    let nobodys = stores[1].owner(DEFAULT_TENANT, &session("other")).await.expect("read");
    assert_eq!(nobodys, None, "who only looks claims nothing");
}
