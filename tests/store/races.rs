//! Two replicas, one call tree: whoever loses judges again, and nothing is lost or done twice.

use std::sync::Arc;

use callgate::{
    domain::call::Request,
    gate::{Answer, Gate},
};

use crate::common::{
    all,
    books::{fold, gapless, good, one_open_permit, one_permit, sums},
    gates::{allowed, ask, evaluate, policy, record, said, session, store, success, two_gates},
    postgres::Postgres,
};

/// Asks everything at once, in turn of one gate and the other.
async fn ask_all(gates: &[Arc<Gate>; 2], requests: Vec<Request>) -> Vec<Answer> {
    let asked = requests.into_iter().enumerate().map(|(i, request)| {
        let gate = Arc::clone(&gates[i % 2]);
        async move { evaluate(&gate, request).await }
    });
    all(asked).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_on_one_session_lose_no_event() {
    const N: usize = 40;
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    let requests = (0..N).map(|n| ask("s", &format!("c{n}"), "work", &format!(r#"{{"n":{n}}}"#)));
    let answers = ask_all(&gates, requests.collect()).await;
    assert_eq!(allowed(&answers), N);
    assert_eq!(postgres.number("select count(*) from call").await, N as i64);
    let store = store(&postgres).await;
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await, fold(&postgres, &store, "s").await]);

    let reported = (0..N).map(|n| {
        // By the gate that did not permit it.
        let gate = Arc::clone(&gates[(n + 1) % 2]);
        async move { record(&gate, success("s", &format!("c{n}"), &format!("result {n}"))).await }
    });
    assert!(all(reported).await.iter().all(|answer| !answer.replayed));
    assert_eq!(postgres.number("select count(*) from outcome").await, N as i64);
    assert_eq!(postgres.number("select version from call_tree").await, 2 * N as i64);
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await, fold(&postgres, &store, "s").await]);
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
    assert_eq!(allowed(&answers), 24);
    let trees = postgres.rows("select root_id, version, calls from call_tree").await;
    assert_eq!(trees, ["(root,24,24)"]);
    let sessions = postgres.rows("select session_id, parent_id, root_id, depth from session order by 1").await;
    let expected = (0..4).map(|n| format!("(child-{n},root,root,1)")).chain(["(root,,root,0)".to_owned()]);
    assert_eq!(sessions, expected.collect::<Vec<_>>());
    let store = store(&postgres).await;
    good([gapless(&postgres, "root").await, sums(&postgres, "root").await, fold(&postgres, &store, "root").await]);
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
            assert_eq!(said(answer), "WAIT call_in_flight");
        }
        let winner = answers.iter().position(|answer| answer.verdict.permit.is_some()).expect("one");
        record(&gates[0], success(&format!("s{}", winner % 5), &format!("c{round}-{winner}"), "paid")).await;
        let again = ask_all(&gates, (100..120).map(call).collect()).await;
        for answer in &again {
            assert_eq!(said(answer), "REUSE duplicate_call_blocked");
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
        assert_eq!(allowed(&answers), 100, "the others are replays");
        good([one_permit(&answers), one_open_permit(&postgres).await]);
    }
    assert_eq!(postgres.number("select count(*) from call").await, 3);
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}
