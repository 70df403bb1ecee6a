//! Reports: each is stored once, however often it is sent, and returned unchanged.

use std::sync::Arc;

use callgate_core::domain::{
    call::Request,
    finding::Decision,
    ids::DEFAULT_TENANT,
    outcome::OutcomeStatus,
    rejection::{EvaluateRejection, RecordRejection},
    report::OutcomeReport,
};
use callgate_server::gate::{EvaluateAnswer, Gate, GateError};

use crate::common::{
    all,
    gates::{
        ask, count_permits, describe_answer, evaluate, failure, gate, insist, insist_on, key, policy, record, report,
        run_call, store, success, try_evaluate, two_gates,
    },
    invariants::{fold, gapless, good, sums},
    postgres::Postgres,
};

async fn reject_report(gate: &Gate, report: OutcomeReport) -> RecordRejection {
    match gate.decisions.record(DEFAULT_TENANT, report, None).await {
        Err(GateError::Rejected(rejection)) => rejection,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_stored_once_and_the_first_holds() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&["same_call"])).await;
    evaluate(&one, ask("s", "c1", "pay", "{}")).await;
    let first = record(&one, success("s", "c1", r#"{"id":1}"#)).await;
    for gate in [&one, &other] {
        let again = record(gate, success("s", "c1", r#"{"id":1}"#)).await;
        assert!(again.replayed && !first.replayed);
        assert_eq!(again.text, first.text);
        assert_eq!(again.recorded.settled.seq, first.recorded.settled.seq);
        assert_eq!(reject_report(gate, failure("s", "c1", "timeout")).await, RecordRejection::AlreadySettled);
        assert_eq!(reject_report(gate, success("s", "c1", r#"{"id":2}"#)).await, RecordRejection::AlreadySettled);
        assert_eq!(
            reject_report(gate, report("s", "nobody", OutcomeStatus::Success)).await,
            RecordRejection::UnknownCall
        );
        assert_eq!(
            reject_report(gate, report("nowhere", "c1", OutcomeStatus::Success)).await,
            RecordRejection::UnknownCall
        );
    }
    evaluate(&one, ask("s", "c2", "pay", "{}")).await;
    assert_eq!(reject_report(&other, success("s", "c2", "x")).await, RecordRejection::NotPermitted);
    assert_eq!(postgres.number("select count(*) from outcome").await, 1);
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_report_sent_twenty_times_at_once_is_one_row() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    evaluate(&gates[0], ask("s", "c1", "pay", "{}")).await;
    let sent = (0..20).map(|n| {
        let gate = Arc::clone(&gates[n % 2]);
        async move { insist_on(&gate, &success("s", "c1", "paid")).await }
    });
    let answers = all(sent).await;
    assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1);
    assert_eq!(postgres.number("select count(*) from outcome").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_safe_to_repeat_after_the_call_was_asked_for_again() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&["same_call"])).await;
    run_call(&one, ask("s", "c1", "pay", "{}"), "paid").await;
    assert_eq!(describe_answer(&evaluate(&one, ask("s", "c1", "pay", "{}")).await), "REUSE duplicate_call_blocked");
    for gate in [&one, &other] {
        assert!(record(gate, success("s", "c1", "paid")).await.replayed);
        assert_eq!(reject_report(gate, failure("s", "c1", "timeout")).await, RecordRejection::AlreadySettled);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_nobody_asked_about_is_stored_and_known_again() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&["same_call"])).await;
    let observed = || Some(ask("s", "c1", "look", r#"{"order":1}"#));
    let seen = one.decisions.record(DEFAULT_TENANT, success("s", "c1", "open"), observed()).await.expect("stored");
    assert!(!seen.replayed);
    let again = other.decisions.record(DEFAULT_TENANT, success("s", "c1", "open"), observed()).await.expect("stored");
    assert!(again.replayed);
    let rows = postgres.rows("select call_id, decision, outcome, observed, result from tool_call").await;
    assert_eq!(rows, ["(c1,ALLOW,success,t,open)"]);
    for (call, gate) in [("c2", &one), ("c3", &other)] {
        let answer = evaluate(gate, ask("s", call, "look", r#"{"order":1}"#)).await;
        assert_eq!(describe_answer(&answer), "REUSE duplicate_call_blocked");
        assert!(answer.text.expect("a text").json.contains(r#""previous_result":"open""#));
    }
    let store = store(&postgres).await;
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await, fold(&postgres, &store, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_that_nobody_asked_about_is_not_made_again() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&["same_call"])).await;
    let observed = ask("s", "c1", "pay", r#"{"invoice":1}"#);
    one.decisions.record(DEFAULT_TENANT, success("s", "c1", "paid"), Some(observed)).await.expect("stored");
    for (session, gate) in [("s", &one), ("s", &other), ("t", &one), ("u", &other)] {
        let answer = evaluate(gate, ask(session, &format!("again in {session}"), "pay", r#"{"invoice":1}"#)).await;
        assert_eq!(describe_answer(&answer), "REUSE duplicate_call_blocked");
        assert!(answer.text.expect("a text").json.contains(r#""previous_result":"paid""#));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_previous_result_comes_back_byte_for_byte() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&["same_call"])).await;
    let large = format!(r#"{{"rows":["{}"]}}"#, "x".repeat(16_000));
    let results = [
        r#"{"id":9007199254740993,"sum":1.10,"e":1E400,"z":-0.0,"b":{"y":1,"a":[]},"u":"\u00e9 é"}"#,
        r#"[ 123456789012345678901234567890 , true ]"#,
        &large,
    ];
    for (n, result) in results.into_iter().enumerate() {
        let arguments = format!(r#"{{"n":{n}}}"#);
        run_call(&one, ask("s", &format!("c{n}"), "pay", &arguments), result).await;
        for gate in [&one, &other] {
            let answer = evaluate(gate, ask("s", &format!("again{n}"), "pay", &arguments)).await;
            assert_eq!(answer.verdict.decision, Decision::Reuse);
            let json = answer.text.expect("a text").json;
            assert!(json.ends_with(&format!(r#","previous_result":{result}}}"#)), "{:.300}", json);
        }
    }
    let endless = format!(r#"{{"rows":["{}"]}}"#, "x".repeat(900_000));
    run_call(&one, ask("s", "endless", "pay", r#"{"n":"endless"}"#), &endless).await;
    let answer = evaluate(&other, ask("s", "again endless", "pay", r#"{"n":"endless"}"#)).await;
    let json: serde_json::Value = serde_json::from_str(&answer.text.expect("a text").json).expect("JSON");
    assert_eq!(json["previous_result_bytes"], endless.len());
    assert_eq!(json["previous_result"], endless[..16_384]);
    for (n, text) in ["plain \"text\"\nof two lines", "", r#"{"twice":1,"twice":2}"#].into_iter().enumerate() {
        let arguments = format!(r#"{{"text":{n}}}"#);
        run_call(&one, ask("s", &format!("t{n}"), "pay", &arguments), text).await;
        let answer = evaluate(&other, ask("s", &format!("t-again{n}"), "pay", &arguments)).await;
        let json: serde_json::Value = serde_json::from_str(&answer.text.expect("a text").json).expect("JSON");
        assert_eq!(json["previous_result"], text);
    }
}

/// A session whose first calls are evicted on every gate.
async fn long_history(gate: &Gate) {
    run_call(gate, ask("s", "first", "pay", r#"{"order":1}"#), r#"{"receipt":9007199254740993}"#).await;
    evaluate(gate, ask("s", "second", "work", r#"{"order":1}"#)).await;
    record(gate, failure("s", "second", "permission")).await;
    for n in 0..110 {
        run_call(gate, ask("s", &format!("c{n}"), "look", &format!(r#"{{"n":{n}}}"#)), &format!("row {n}")).await;
    }
}

fn is_the_receipt(answer: &EvaluateAnswer) {
    assert_eq!(describe_answer(answer), "REUSE duplicate_call_blocked");
    let json = &answer.text.as_ref().expect("a text").json;
    assert!(json.contains(r#""previous_result":{"receipt":9007199254740993}"#), "{json}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_forgotten_call_is_answered_from_the_store() {
    let postgres = Postgres::start().await;
    let policy = policy(&["same_call"]);
    let warm = gate(&postgres, &policy).await;
    long_history(&warm).await;
    let cold = gate(&postgres, &policy).await;
    for gate in [&warm, &cold] {
        let replayed = record(gate, success("s", "first", r#"{"receipt":9007199254740993}"#)).await;
        assert!(replayed.replayed);
        assert_eq!(reject_report(gate, failure("s", "first", "timeout")).await, RecordRejection::AlreadySettled);
        assert!(record(gate, failure("s", "second", "permission")).await.replayed);
        assert_eq!(reject_report(gate, success("s", "second", "x")).await, RecordRejection::AlreadySettled);
    }
    for gate in [&gate(&postgres, &policy).await, &warm, &cold] {
        is_the_receipt(&evaluate(gate, ask("s", "first", "pay", r#"{"order":1}"#)).await);
        let reused = try_evaluate(gate, ask("s", "first", "pay", r#"{"order":2}"#)).await;
        assert!(matches!(reused, Err(GateError::Rejected(EvaluateRejection::CallIdReused))), "{reused:?}");
        assert!(record(gate, success("s", "first", r#"{"receipt":9007199254740993}"#)).await.replayed);
    }
    assert_eq!(postgres.number("select count(*) from outcome where call_id in ('first', 'second')").await, 2);
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_forgotten_call_does_not_harm_the_others_of_its_batch() {
    let postgres = Postgres::start().await;
    let policy = policy(&["same_call"]);
    let gate = gate(&postgres, &policy).await;
    long_history(&gate).await;
    // Known trees, so that their batch takes the statement without a search for known call_ids.
    for n in 0..30 {
        run_call(&gate, ask(&format!("o{n}"), "before", "look", "{}"), "row").await;
    }
    let asked = (0..60).map(|n| {
        let gate = Arc::clone(&gate);
        let request = if n % 6 == 0 {
            ask("s", "first", "pay", r#"{"order":1}"#)
        } else {
            ask(&format!("o{}", n % 30), &format!("c{n}"), "work", &format!(r#"{{"n":{n}}}"#))
        };
        async move { (n, insist(&gate, &request).await) }
    });
    for (n, answer) in all(asked).await {
        if n % 6 == 0 {
            is_the_receipt(&answer);
        } else {
            assert_eq!(describe_answer(&answer), "ALLOW", "call {n}");
        }
    }
    assert_eq!(postgres.number("select count(*) from call where tool = 'work' and session_id like 'o%'").await, 50);
    // Many at once in one request: two old ones, one new.
    let batch = vec![
        ask("s", "first", "pay", r#"{"order":1}"#),
        ask("s", "c3", "look", r#"{"n":3}"#),
        ask("s", "brand new", "work", "{}"),
    ];
    let answers = gate.decisions.evaluate(batch).await.expect("answers");
    is_the_receipt(&answers[0]);
    assert_eq!((count_permits(&answers[2..]), key(&answers[2]).is_some()), (1, true));
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_a_misused_call_changes_nothing() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    run_call(&gate, ask("s", "c1", "look", r#"{"n":1}"#), "row").await;
    let batch: Vec<Request> = vec![ask("s", "c2", "pay", "{}"), ask("s", "c1", "look", r#"{"n":2}"#)];
    let answers = gate.decisions.evaluate(batch).await;
    assert!(matches!(answers, Err(GateError::Rejected(EvaluateRejection::CallIdReused))), "{answers:?}");
    assert_eq!(postgres.number("select count(*) from call").await, 1);
    assert_eq!(describe_answer(&evaluate(&gate, ask("s", "c2", "pay", "{}")).await), "ALLOW");
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_forgotten_call_that_many_ask_for_at_once_is_answered_to_each() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy(&["same_call"])).await;
    long_history(&gate).await;
    let asked = (0..24).map(|_| {
        let gate = Arc::clone(&gate);
        async move { evaluate(&gate, ask("s", "first", "pay", r#"{"order":1}"#)).await }
    });
    all(asked).await.iter().for_each(is_the_receipt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attempts_that_a_write_has_had_in_one_tree_do_not_bind_another() {
    let postgres = Postgres::start().await;
    let mut policy = policy(&["same_call"]);
    policy.retry.attempts = 1;
    let gate = gate(&postgres, &policy).await;
    evaluate(&gate, ask("s", "c1", "pay", "{}")).await;
    record(&gate, failure("s", "c1", "conflict")).await;
    assert_eq!(describe_answer(&evaluate(&gate, ask("s", "c2", "pay", "{}")).await), "DENY retries_exhausted");
    let answer = evaluate(&gate, ask("t", "c3", "pay", "{}")).await;
    assert_eq!(describe_answer(&answer), "ALLOW");
    assert_eq!(answer.verdict.permit.map(|permit| permit.attempt), Some(1));
}
