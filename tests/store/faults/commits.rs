//! Lost commit responses: the commit happened unnoticed, or the request never arrived. A retry with the same call_id
//! gets the true result.

use std::{sync::Arc, time::Duration};

use callgate_core::domain::ids::DEFAULT_TENANT;
use callgate_server::gate::{GateError, NoAnswer};

use super::{
    History, Replicas, check, client,
    proxy::{At, FaultAction, Proxy},
};
use crate::common::{
    all,
    gates::{ask, describe_answer, evaluate, insist, insist_on, key, policy, record, run_call, success, try_evaluate},
    within,
};

/// Forms of the append: a new or a known tree, with or without a row of the ledger.
const FORMS: [(&str, &str, &str); 4] =
    [("new", "c0", "work"), ("new", "c1", "pay"), ("known", "c2", "work"), ("known", "c3", "save")];

/// Number of commits under load whose connection is cut, for each replica.
const CUTS: usize = 6;
/// Calls under load.
const CALLS: usize = 120;

async fn start_replicas() -> Replicas {
    let replicas = Replicas::start(&policy(&["same_call"])).await;
    run_call(&replicas.gates[0], ask("known", "before", "look", "{}"), "row").await;
    replicas
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_is_cut_off_stands_and_is_told_when_asked_again() {
    let replicas = start_replicas().await;
    let [one, other, _] = &replicas.gates;
    let proxy = &replicas.proxies[0];
    for (n, (session, call, tool)) in FORMS.into_iter().enumerate() {
        let request = || ask(session, call, tool, "{}");
        proxy.trap(At::Reply, FaultAction::Cut);
        let first = evaluate(one, request()).await;
        proxy.sprung(2 * n + 1).await;
        assert_eq!((describe_answer(&first).as_str(), first.verdict.replayed), ("ALLOW", true), "it finds its own row");
        for gate in [one, other] {
            let again = evaluate(gate, request()).await;
            assert!(again.verdict.replayed && key(&again).is_some());
            assert_eq!(key(&again), key(&first));
        }
        proxy.trap(At::Reply, FaultAction::Cut);
        assert!(record(one, success(session, call, "done")).await.replayed, "it finds its own row");
        proxy.sprung(2 * n + 2).await;
        assert!(record(other, success(session, call, "done")).await.replayed);
    }
    assert_eq!(replicas.postgres.rows("select count(*), count(attempt) from call").await, ["(5,5)"]);
    assert_eq!(replicas.postgres.number("select count(*) from outcome").await, 5);
    check(&replicas.postgres, &History::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrives_is_sent_again_before_it_is_acknowledged() {
    let replicas = start_replicas().await;
    let [one, other, _] = &replicas.gates;
    let proxy = &replicas.proxies[0];
    for (n, (session, call, tool)) in [("new", "c1", "pay"), ("known", "c2", "save")].into_iter().enumerate() {
        let request = || ask(session, call, tool, "{}");
        proxy.trap(At::Request, FaultAction::Cut);
        let first = evaluate(one, request()).await;
        proxy.sprung(2 * n + 1).await;
        assert_eq!((describe_answer(&first).as_str(), first.verdict.replayed), ("ALLOW", false));
        // It is a promise by now: the other replica knows nothing but the database.
        let again = evaluate(other, request()).await;
        assert!(again.verdict.replayed);
        assert_eq!(key(&again), key(&first));
        proxy.trap(At::Request, FaultAction::Cut);
        assert!(!record(one, success(session, call, "done")).await.replayed);
        proxy.sprung(2 * n + 2).await;
        assert!(record(other, success(session, call, "done")).await.replayed);
    }
    check(&replicas.postgres, &History::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_never_learns_of_a_commit_is_told_by_another_replica() {
    let replicas = start_replicas().await;
    let [asks, reports, knows] = &replicas.gates;
    let permit = evaluate(reports, ask("known", "reported", "pay", r#"{"n":1}"#)).await;
    assert_eq!(describe_answer(&permit), "ALLOW");
    for proxy in &replicas.proxies[..2] {
        proxy.trap(At::Reply, FaultAction::Hole);
    }
    let request = ask("new", "asked", "pay", r#"{"n":2}"#);
    let report = success("known", "reported", "paid");
    let (asked, reported) = tokio::join!(
        try_evaluate(asks, request.clone()),
        Box::pin(reports.decisions.record(DEFAULT_TENANT, report.clone(), None))
    );
    for proxy in &replicas.proxies[..2] {
        proxy.sprung(1).await;
    }
    assert!(matches!(asked, Err(GateError::NoAnswer(NoAnswer::OutOfReach(_)))), "{asked:?}");
    assert!(matches!(reported, Err(GateError::NoAnswer(NoAnswer::OutOfReach(_)))), "{reported:?}");
    let told = evaluate(knows, request.clone()).await;
    assert_eq!((describe_answer(&told).as_str(), told.verdict.replayed), ("ALLOW", true), "it was committed");
    assert!(record(knows, report.clone()).await.replayed, "it was committed");
    assert_eq!(
        describe_answer(&evaluate(knows, ask("s", "c", "pay", r#"{"n":1}"#)).await),
        "REUSE duplicate_call_blocked"
    );
    assert_eq!(describe_answer(&evaluate(knows, ask("s", "d", "pay", r#"{"n":2}"#)).await), "WAIT call_in_flight");

    for proxy in &replicas.proxies[..2] {
        proxy.heal_for_new_lines();
    }
    let again = within(Duration::from_secs(15), "the replica that was away", insist(asks, &request)).await;
    assert_eq!(key(&again), key(&told));
    let again = within(Duration::from_secs(15), "the replica that was away", insist_on(reports, &report)).await;
    assert!(again.replayed);
    check(&replicas.postgres, &History::default()).await;
}

/// Cuts off commits, and replies to them, one after the other.
async fn cut_again_and_again(proxy: &Proxy) {
    for n in 0..CUTS {
        proxy.trap([At::Reply, At::Request][n % 2], FaultAction::Cut);
        proxy.sprung(n + 1).await;
    }
}

/// Calls under load, cut off again and again.
async fn parted_under_load(replicas: Replicas) {
    let history = replicas.history();
    let requests = (0..CALLS / replicas.tenants.len()).flat_map(|n| {
        // Trees that all replicas work on, and some that are new.
        let session = if n % 6 == 0 { format!("new{n}") } else { format!("shared{}", n % 5) };
        let tool = ["pay", "work", "save", "look"][n % 4];
        replicas.of_each(&ask(&session, &format!("c{n}"), tool, &format!(r#"{{"n":{n}}}"#)))
    });
    let clients =
        requests.enumerate().map(|(n, request)| client(replicas.gates.clone(), n, request, Arc::clone(&history)));
    let load = all(clients.collect::<Vec<_>>());
    let [one, other, third] = &replicas.proxies;
    let (answers, ..) =
        tokio::join!(Box::pin(load), cut_again_and_again(one), cut_again_and_again(other), cut_again_and_again(third));
    assert!(answers.iter().all(|answer| describe_answer(answer) == "ALLOW"));
    let told = history.observe();
    assert_eq!((told.permits.len(), told.results.len(), told.executed.len()), (CALLS, CALLS, CALLS));
    check(&replicas.postgres, &history).await;
    replicas.batches_were_shared().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_parted_from_their_callers_under_load_lose_and_double_nothing() {
    parted_under_load(start_replicas().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_two_tenants_without_their_callers_are_neither_lost_doubled_nor_mixed() {
    let rules = ["same_call"];
    parted_under_load(Replicas::start_for_tenants(&policy(&rules), &rules, "").await).await;
}
