//! Witnesses on the wire, over two replicas: reused and executed calls.

use callgate_core::policy::compile;
use callgate_proto::v1::{
    self, Decision, gate_service_client::GateServiceClient, session_service_client::SessionServiceClient,
};

use crate::common::wire::{Client, Plane, call, caller, evaluate, question, record, success};

const POLICY: &str = "policy_engine: {tool_schemas: {page: {effect: read, fresh_ms: 0}}, presets: [coding_agents]}";

fn evaluate_request(id: &str, tool: &str, arguments: &str, witness: &str) -> v1::EvaluateRequest {
    question("s", v1::ToolCall { witness: witness.to_owned(), ..call(id, tool, arguments) })
}

fn gave(id: &str, result: &str, witness: &str) -> v1::RecordRequest {
    v1::RecordRequest { witness_after: witness.to_owned(), ..success("s", id, result) }
}

async fn decision(client: &mut Client, request: v1::EvaluateRequest) -> Decision {
    evaluate(client, request).await.decision()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_witness_holds_on_every_replica() {
    let policy = compile(POLICY).expect("a good policy");
    let plane = Plane::start(&policy).await;
    let mut one = plane.client().await;
    assert_eq!(decision(&mut one, evaluate_request("c1", "page", "{}", "v1")).await, Decision::Allow);
    record(&mut one, gave("c1", r#"{"rows":[1]}"#, "v1")).await;
    let mut other = GateServiceClient::new(plane.postgres_gate(&policy).await);
    assert_eq!(decision(&mut other, evaluate_request("c2", "page", "{}", "v1")).await, Decision::Reuse);
    assert_eq!(decision(&mut other, evaluate_request("c3", "page", "{}", "v2")).await, Decision::Allow);
    record(&mut other, gave("c3", r#"{"rows":[2]}"#, "v3")).await;
    assert_eq!(
        decision(&mut one, evaluate_request("c4", "page", "{}", "v3")).await,
        Decision::Allow,
        "it changed meanwhile"
    );
    assert_eq!(
        plane.postgres.number("select count(*) from call where octet_length(witness) = 16").await,
        4,
        "as digests"
    );
    assert_eq!(plane.postgres.number("select count(*) from outcome where witness is not null").await, 1);
    let exported = exported_witnesses(&plane).await;
    let [(before, after), (second, _), (third, none), (fourth, _)] = &exported[..] else { panic!("{exported:?}") };
    assert_eq!((before.len(), before, before), (32, after, second), "the same state has the same digest");
    assert!(none.is_empty() && third != before && fourth != third, "{exported:?}");
}

/// Of each call of the session, what an export holds of its witnesses.
async fn exported_witnesses(plane: &Plane) -> Vec<(String, String)> {
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let wanted = v1::ExportCallsRequest { session_id: "s".to_owned(), ..Default::default() };
    let mut calls = sessions.export_calls(wanted).await.expect("calls").into_inner();
    let mut exported = Vec::new();
    while let Some(call) = calls.message().await.expect("a call") {
        exported.push((call.witness, call.witness_after));
    }
    exported
}

/// A hook of an earlier release, with the state of the file among the arguments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_a_file_among_the_arguments_is_a_witness() {
    let plane = Plane::start(&compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    let from_hook = v1::Caller { host: "claude-code".to_owned(), ..caller("s") };
    let read = |id: &str, state: &str| {
        let state = format!("{state} bytes, changed at 1700000000.000000001");
        call(id, "Read", &serde_json::json!({"file_path": "/w/a", "file_state": state}).to_string())
    };
    let asked = |id: &str, state: &str| v1::EvaluateRequest {
        caller: Some(from_hook.clone()),
        ..question("s", read(id, state))
    };
    let gave = |id: &str, state: &str| v1::RecordRequest {
        caller: Some(from_hook.clone()),
        observed_call: Some(read(id, state)),
        ..success("s", id, "one")
    };
    assert_eq!(decision(&mut client, asked("c1", "7")).await, Decision::Allow);
    record(&mut client, gave("c1", "7")).await;
    assert_eq!(decision(&mut client, asked("c2", "7")).await, Decision::Reuse);
    assert_eq!(decision(&mut client, asked("c3", "8")).await, Decision::Allow, "somebody wrote");
    record(&mut client, gave("c3", "8")).await;
    let arguments = plane.postgres.rows("select distinct arguments from call").await;
    assert_eq!(arguments, [r#"("{""file_path"":""/w/a""}")"#]);
    // Only hooks set that field.
    let own = question("s", read("c4", "8"));
    evaluate(&mut client, own).await;
    let kept = "select count(*) from call where arguments like '%file_state%'";
    assert_eq!(plane.postgres.number(kept).await, 1);
}
