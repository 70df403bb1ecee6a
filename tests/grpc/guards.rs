//! Duplicate guards on the wire: batches, call ids, runs, sub-agents over two replicas, shadowed rules, dry runs, and a
//! restarted agent.

use callgate_core::policy::compile;
use callgate_proto::v1::{
    self, Decision, gate_service_client::GateServiceClient, session_service_client::SessionServiceClient,
};

use crate::common::wire::{Client, Plane, call, caller, evaluate, question, record, success};

const POLICY: &str = "policy_engine: {unknown_tools: allow, tool_schemas: {look: {effect: read}}}";
const REPORT: &str = r#"{"title":"Q3 report"}"#;

/// A first server, and a second one that knows nothing but the rows.
async fn two(policy: &str) -> (Plane, Client, Client) {
    let policy = compile(policy).expect("a good policy");
    let plane = Plane::start(&policy).await;
    let (one, other) = (plane.client().await, GateServiceClient::new(plane.postgres_gate(&policy).await));
    (plane, one, other)
}

async fn evaluate_call(client: &mut Client, session: &str, id: &str, arguments: &str) -> v1::Verdict {
    evaluate(client, question(session, call(id, "create_document", arguments))).await
}

/// Asks, and reports a document of that number.
async fn create_document(client: &mut Client, session: &str, id: &str, number: u32) -> v1::Verdict {
    let verdict = evaluate_call(client, session, id, REPORT).await;
    record(client, success(session, id, &format!(r#"{{"id":"doc_{number}"}}"#))).await;
    verdict
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_creates_of_one_batch_wait_for_the_first() {
    let (_plane, mut one, _) = two(POLICY).await;
    let calls = ["c1", "c2", "c3"].map(|id| call(id, "create_document", REPORT)).to_vec();
    let batch = v1::BatchEvaluateRequest { caller: Some(caller("s")), calls, ..Default::default() };
    let verdicts = one.batch_evaluate(batch).await.expect("judged").into_inner().verdicts;
    let decisions: Vec<Decision> = verdicts.iter().map(v1::Verdict::decision).collect();
    assert_eq!(decisions, [Decision::Allow, Decision::Wait, Decision::Wait]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_id_is_one_call_however_often_it_is_asked_for() {
    let (plane, mut one, mut other) = two(POLICY).await;
    for at_the_first in [true, false, true, true] {
        let client = if at_the_first { &mut one } else { &mut other };
        let verdict = evaluate_call(client, "s", "c1", REPORT).await;
        let attempt = verdict.permit.as_ref().map(|permit| permit.attempt);
        assert_eq!((verdict.decision(), attempt), (Decision::Allow, Some(1)));
    }
    assert_eq!(plane.postgres.number("select count(*) from call").await, 1);
    record(&mut one, success("s", "c1", r#"{"id":"doc_1"}"#)).await;
    let next = evaluate_call(&mut other, "s", "c2", REPORT).await;
    assert_eq!((next.decision(), next.findings.len()), (Decision::Allow, 0), "the second of its kind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creates_count_over_the_call_tree_and_reads_are_reused_in_one_context() {
    let (_plane, mut one, mut other) = two(POLICY).await;
    create_document(&mut one, "s", "c1", 1).await;
    let below = |id: &str, tool: &str, arguments: &str| {
        let caller = v1::Caller { parent_session_id: "s".to_owned(), ..caller("below") };
        v1::EvaluateRequest { caller: Some(caller), ..question("below", call(id, tool, arguments)) }
    };
    for (number, id) in [(2, "b1"), (3, "b2")] {
        assert_eq!(evaluate(&mut other, below(id, "create_document", REPORT)).await.decision(), Decision::Allow);
        record(&mut other, success("below", id, &format!(r#"{{"id":"doc_{number}"}}"#))).await;
    }
    create_document(&mut one, "s", "c2", 4).await;
    let fifth = evaluate(&mut other, below("b3", "create_document", REPORT)).await;
    assert_eq!((fifth.decision(), fifth.reason.as_str()), (Decision::Deny, "repeated_success"));
    assert!(fifth.tool_result_json.contains("doc_1, doc_2, doc_3 and doc_4"), "{}", fifth.tool_result_json);
    // The parent's reads are in its own context only.
    evaluate(&mut one, question("s", call("r1", "look", "{}"))).await;
    record(&mut one, success("s", "r1", r#"{"rows":[1]}"#)).await;
    assert_eq!(evaluate(&mut other, question("s", call("r2", "look", "{}"))).await.decision(), Decision::Reuse);
    assert_eq!(evaluate(&mut other, below("r1", "look", "{}")).await.decision(), Decision::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_run_ends_reuse_and_rows_and_a_compaction_ends_reuse() {
    let (plane, mut one, mut other) = two(POLICY).await;
    for number in 1..5 {
        create_document(&mut one, "s", &format!("c{number}"), number).await;
    }
    let look = |id: &str, run: &str| {
        let caller = v1::Caller { run_id: run.to_owned(), ..caller("s") };
        v1::EvaluateRequest { caller: Some(caller), ..question("s", call(id, "look", "{}")) }
    };
    evaluate(&mut one, look("r1", "")).await;
    record(&mut one, success("s", "r1", r#"{"rows":[1]}"#)).await;
    assert_eq!(evaluate(&mut other, look("r2", "")).await.decision(), Decision::Reuse);
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let compacted = v1::MarkCompactedRequest { session_id: "s".to_owned(), summary_tokens: 0 };
    sessions.mark_compacted(compacted).await.expect("known");
    assert_eq!(evaluate(&mut other, look("r3", "")).await.decision(), Decision::Allow, "it is out of the context");
    record(&mut other, success("s", "r3", r#"{"rows":[1]}"#)).await;
    assert_eq!(evaluate(&mut one, look("r4", "next")).await.decision(), Decision::Allow);
    let caller = v1::Caller { run_id: "next".to_owned(), ..caller("s") };
    let again = v1::EvaluateRequest { caller: Some(caller), ..question("s", call("c5", "create_document", REPORT)) };
    assert_eq!(evaluate(&mut one, again).await.decision(), Decision::Allow, "the row of four ended with its run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadow_call_or_dry_run_consumes_nothing() {
    let shadow = "policy_engine: {unknown_tools: allow, rules: {same_success: {mode: shadow}}}";
    let (plane, mut one, mut other) = two(shadow).await;
    for number in 1..7 {
        let dry = v1::EvaluateRequest {
            dry_run: true,
            ..question("s", call(&format!("d{number}"), "create_document", REPORT))
        };
        evaluate(&mut other, dry).await;
        assert_eq!(create_document(&mut one, "s", &format!("c{number}"), number).await.decision(), Decision::Allow);
    }
    assert_eq!(plane.postgres.number("select count(*) from call").await, 6);
    let found = "select count(*) from findings where rule = 'same_success' and decision = 'DENY' and not enforced";
    assert_eq!(plane.postgres.number(found).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_is_told_what_it_made() {
    let (plane, mut one, _) = two(POLICY).await;
    let by = |session: &str, agent: &str| {
        let caller = v1::Caller { agent_id: agent.to_owned(), ..caller(session) };
        v1::EvaluateRequest { caller: Some(caller), ..question(session, call("c1", "create_document", REPORT)) }
    };
    evaluate(&mut one, by("first", "writer")).await;
    record(&mut one, success("first", "c1", r#"{"id":"doc_1"}"#)).await;
    assert_eq!(evaluate(&mut one, by("stranger", "reader")).await.findings, []);
    let told = evaluate(&mut one, by("second", "writer")).await;
    assert_eq!(told.decision(), Decision::Allow);
    let [found] = &told.findings[..] else { panic!("{told:?}") };
    assert!(found.message.contains("for the same agent in session first, and gave doc_1"), "{}", found.message);
    // Erased results are not returned.
    plane.postgres.tamper("update outcome set result = null").await;
    assert_eq!(evaluate(&mut one, by("third", "writer")).await.findings, []);
}
