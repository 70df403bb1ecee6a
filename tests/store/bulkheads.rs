//! Limits of calls in flight, over two replicas.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use callgate_core::{
    domain::{finding::Decision, outcome::OutcomeStatus},
    policy::{self, Policy},
};
use tokio::{task::JoinSet, time::sleep};

use crate::common::{
    gates::{ask, describe_answer, evaluate, record, report, success, two_gates},
    postgres::Postgres,
};

fn limited(max: u32) -> Policy {
    let text = format!(
        "policy_engine:
  bulkhead: {{limits: [{{name: renderers, tools: 'render*', max_in_flight: {max}, per: tenant}}]}}
  tool_schemas:
    render:
      effect: read
      lease_ms: 60s
      schema: {{type: object, properties: {{page: {{type: integer}}}}}}
"
    );
    policy::compile(&text).expect("a good policy")
}

async fn leases(postgres: &Postgres) -> i64 {
    postgres.number("select count(*) from bulkhead_lease where in_flight").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulkhead_holds_over_replicas_and_lets_every_call_through() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &limited(3)).await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut calls = JoinSet::new();
    for n in 0..12 {
        let (gate, running, most) = (Arc::clone(&gates[n % 2]), Arc::clone(&running), Arc::clone(&most));
        calls.spawn(async move {
            let session = format!("s{n}");
            let request = ask(&session, "c", "render", &format!(r#"{{"page":{n}}}"#));
            while evaluate(&gate, request.clone()).await.verdict.decision != Decision::Allow {
                sleep(Duration::from_millis(20)).await;
            }
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(30)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            record(&gate, success(&session, "c", "png")).await;
        });
    }
    calls.join_all().await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert_eq!(leases(&postgres).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulkhead_lease_is_held_by_permitted_calls_only() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &limited(1)).await;
    let denied = evaluate(&one, ask("a", "c1", "render", r#"{"page":"first"}"#)).await;
    assert_eq!((denied.verdict.decision, leases(&postgres).await), (Decision::Deny, 0));
    let first = ask("a", "c2", "render", r#"{"page":1}"#);
    for _ in 0..2 {
        assert_eq!(evaluate(&one, first.clone()).await.verdict.decision, Decision::Allow);
        assert_eq!(leases(&postgres).await, 1, "the same permit is counted once");
    }
    let second = ask("b", "c", "render", r#"{"page":2}"#);
    assert_eq!(describe_answer(&evaluate(&other, second.clone()).await), "WAIT bulkhead_full");
    record(&one, success("a", "c2", "png")).await;
    assert_eq!(evaluate(&other, second).await.verdict.decision, Decision::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulkhead_lease_of_a_silent_call_ends_and_a_heartbeat_extends_it() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &limited(1)).await;
    let [one, other] = &gates;
    let (first, second) = (ask("a", "c", "render", r#"{"page":1}"#), ask("b", "c", "render", r#"{"page":2}"#));
    let skip = |ms| gates.iter().for_each(|gate| gate.store.skip(ms));
    assert_eq!(evaluate(one, first).await.verdict.decision, Decision::Allow);
    skip(50_000);
    record(one, report("a", "c", OutcomeStatus::Running)).await;
    skip(50_000);
    assert_eq!(evaluate(other, second.clone()).await.verdict.decision, Decision::Wait);
    skip(30_000);
    assert_eq!(evaluate(other, second).await.verdict.decision, Decision::Allow);
}
