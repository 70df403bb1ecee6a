//! Shared health of tools: one replica's observations reach the others within two seconds, one to publish and one to
//! read.

use std::sync::Arc;

use callgate_core::domain::{failure::ErrorReport, report::OutcomeReport};
use callgate_server::gate::Gate;

use super::fails;
use crate::common::{
    all,
    gates::{ask, describe_answer, evaluate, failure, gate, policy, record, run_call, success, two_gates},
    postgres::Postgres,
    until,
};

/// One exchange as in a server, in the worst order: reads before writes.
async fn two_seconds(seen_by: &Gate, others: &[&Gate]) {
    for _ in 0..2 {
        for gate in others.iter().chain([&seen_by]) {
            gate.decisions.share_health().await.expect("shared");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_that_one_replica_meets_is_known_to_the_other() {
    let postgres = Postgres::start().await;
    let policy = policy(&[]);
    let [one, other] = two_gates(&postgres, &policy).await;
    let silent = gate(&postgres, &policy).await;
    for n in 0..3 {
        fails(&one, &format!("met {n}"), "c", "search", "{}").await;
    }
    two_seconds(&one, &[&other]).await;
    for (session, gate) in [("told", &other), ("untold", &silent)] {
        fails(gate, session, "first", "search", "{}").await;
        evaluate(gate, ask(session, "second", "search", "{}")).await;
    }
    let states = "select session_id, tool_state from call where retry_of is not null order by 1";
    assert_eq!(postgres.rows(states).await, ["(told,1)", "(untold,0)"], "one failure alone is bad luck");
}

/// A rate limit with this wait.
fn rate_limit_report(session: &str, call: &str, retry_after_ms: u64) -> OutcomeReport {
    let error = ErrorReport {
        error_type: Some("rate_limited".to_owned()),
        message: "slow down".to_owned(),
        retry_after_ms: Some(retry_after_ms),
        ..ErrorReport::default()
    };
    OutcomeReport { error: Some(error), ..failure(session, call, "rate_limited") }
}

/// Twenty sessions call at once, half on each gate; returns their verdicts and the permitted session.
async fn rush(gates: &[Arc<Gate>; 2], name: &'static str) -> (Vec<String>, Vec<String>) {
    let asked = (0..20).map(|n| {
        let gate = Arc::clone(&gates[n % 2]);
        async move {
            let session = format!("{name} {n}");
            let said = describe_answer(&evaluate(&gate, ask(&session, "c", "search", "{}")).await);
            (said, session)
        }
    });
    let mut said = Vec::new();
    let mut through = Vec::new();
    for (answer, session) in all(asked).await {
        if answer == "ALLOW" {
            through.push(session);
        }
        said.push(answer);
    }
    said.sort();
    said.dedup();
    (said, through)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cooldown_holds_for_both_replicas_and_one_call_over_both_ends_it() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["tool_circuit_breaker"])).await;
    let [one, other] = &gates;
    evaluate(one, ask("limited", "c", "search", "{}")).await;
    record(one, rate_limit_report("limited", "c", 60_000)).await;
    two_seconds(one, &[other]).await;
    assert_eq!(rush(&gates, "meanwhile").await, (vec!["WAIT cooldown".to_owned()], vec![]));
    assert_eq!(describe_answer(&evaluate(other, ask("meanwhile", "c", "look", "{}")).await), "ALLOW", "another tool");

    // As if the time were over.
    let over = "update tool_health set cooldown_until = now() - interval '1 second', changed_at = now()";
    assert_eq!(postgres.tamper(over).await, 1);
    two_seconds(one, &[other]).await;
    let (said_after, through) = rush(&gates, "after").await;
    assert_eq!(said_after, ["ALLOW", "WAIT cooldown"]);
    assert_eq!(through.len(), 1, "{through:?}");
    // The claim stays, also for later callers and after further exchanges.
    two_seconds(one, &[other]).await;
    assert_eq!(rush(&gates, "later").await.1, [""; 0]);

    let finder =
        if through[0].trim_start_matches("after ").parse::<usize>().expect("a number") % 2 == 0 { one } else { other };
    record(finder, success(&through[0], "c", "ok")).await;
    two_seconds(finder, &[one, other]).await;
    let (said_at_last, through) = rush(&gates, "at last").await;
    assert_eq!((said_at_last, through.len()), (vec!["ALLOW".to_owned()], 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_finds_the_tool_still_limited_begins_the_cooldown_anew() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["tool_circuit_breaker"])).await;
    let [one, other] = &gates;
    evaluate(one, ask("limited", "c", "search", "{}")).await;
    record(one, rate_limit_report("limited", "c", 1_000)).await;
    two_seconds(one, &[other]).await;
    until("one to be let through", async || {
        describe_answer(&evaluate(other, ask("finds out", "c", "search", "{}")).await) == "ALLOW"
    })
    .await;
    record(other, rate_limit_report("finds out", "c", 60_000)).await;
    two_seconds(other, &[one]).await;
    assert_eq!(rush(&gates, "again").await, (vec!["WAIT cooldown".to_owned()], vec![]));
    run_call(one, ask("else", "c", "look", "{}"), "row").await;
    let until = "select extract(epoch from cooldown_until - now()) from tool_health where tool = 'search'";
    assert!((50..75).contains(&postgres.number(until).await));
}
