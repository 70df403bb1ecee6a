//! Errors: each one a documented pair of code and reason.

use callgate_proto::v1::{self, OutcomeStatus};
use tonic::{Code, Status};

use crate::common::{
    gates::policy,
    in_time,
    wire::{Client, Plane, call, caller, evaluate, outcome, pair, question, record, success},
};

async fn evaluate_error(client: &mut Client, request: v1::EvaluateRequest) -> Status {
    in_time("an answer", client.evaluate(request)).await.expect_err("refused")
}

async fn record_error(client: &mut Client, request: v1::RecordRequest) -> Status {
    in_time("an answer", Box::pin(client.record(request))).await.expect_err("refused")
}

fn is(status: &Status, code: Code, reason: &str) {
    assert_eq!(pair(status), (code, reason.to_owned()), "{status:?}");
    assert!(!status.message().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_own_faults_have_documented_pairs_and_store_nothing() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "pay", r#"{"n":1}"#))).await;
    evaluate(&mut client, question("s", call("c2", "pay", r#"{"n":1}"#))).await;
    record(&mut client, success("s", "c1", "paid")).await;
    let rows = plane.row_count().await;

    for reused in [call("c1", "pay", r#"{"n":2}"#), call("c1", "look", r#"{"n":1}"#)] {
        let status = evaluate_error(&mut client, question("s", reused)).await;
        is(&status, Code::FailedPrecondition, "CALL_ID_REUSED");
    }
    let parent = v1::Caller { parent_session_id: "p".into(), ..caller("s") };
    let moved = v1::EvaluateRequest { caller: Some(parent), ..question("s", call("c3", "look", "{}")) };
    is(&evaluate_error(&mut client, moved).await, Code::FailedPrecondition, "PARENT_CHANGED");

    let status = record_error(&mut client, success("s", "c2", "paid")).await;
    is(&status, Code::FailedPrecondition, "CALL_NOT_PERMITTED");
    for other in [success("s", "c1", "paid twice"), outcome("s", "c1", OutcomeStatus::Cancelled)] {
        is(&record_error(&mut client, other).await, Code::FailedPrecondition, "CALL_ALREADY_SETTLED");
    }
    for unknown in [success("s", "nobody", "x"), success("nowhere", "c1", "x")] {
        is(&record_error(&mut client, unknown).await, Code::NotFound, "CALL_UNKNOWN");
    }
    let request = v1::GetSessionStateRequest { session_id: "nowhere".into(), last_calls: 1, summary_tokens: 0 };
    let status = in_time("an answer", client.get_session_state(request)).await.expect_err("refused");
    is(&status, Code::NotFound, "SESSION_UNKNOWN");
    assert_eq!(plane.row_count().await, rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_superseded_attempt_cannot_be_reported_on() {
    let mut policy = policy(&["same_call"]);
    policy.declare("work", callgate_core::domain::tool::ToolSpec { lease_ms: 1, ..Default::default() });
    let plane = Plane::start(&policy).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "work", "{}"))).await;
    let mut tries = 1;
    crate::common::until("the next attempt", async || {
        tries += 1;
        evaluate(&mut client, question("s", call(&format!("c{tries}"), "work", "{}"))).await.permit.is_some()
    })
    .await;
    let cancelled = outcome("s", "c1", OutcomeStatus::Cancelled);
    is(&record_error(&mut client, cancelled).await, Code::FailedPrecondition, "ATTEMPT_SUPERSEDED");
    record(&mut client, success("s", &format!("c{tries}"), "x")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_with_too_many_open_calls_is_told_so() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    for turn in 0..4 {
        let calls = (0..64).map(|n| call(&format!("c{turn}-{n}"), "work", &format!(r#"{{"turn":{turn},"n":{n}}}"#)));
        let request =
            v1::BatchEvaluateRequest { caller: Some(caller("s")), calls: calls.collect(), ..Default::default() };
        in_time("answers", client.batch_evaluate(request)).await.expect("answers");
    }
    let status = evaluate_error(&mut client, question("s", call("one more", "work", "{}"))).await;
    is(&status, Code::ResourceExhausted, "TOO_MANY_OPEN_CALLS");
    record(&mut client, success("s", "c0-0", "done")).await;
    evaluate(&mut client, question("s", call("one more", "work", "{}"))).await;
}
