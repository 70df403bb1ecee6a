//! Explanation of a call, rule by rule, and its limits.

use callgate_core::{policy, rules::RULES};
use callgate_proto::v1::{self, session_service_client::SessionServiceClient};
use tonic::Code;

use crate::common::wire::{Plane, call, evaluate, question, record, success};

const POLICY: &str = "policy_engine:
  tool_schemas: {look: {effect: read}}
";

async fn explain_call(plane: &Plane, call_id: &str) -> v1::ExplainCallResponse {
    let asked = v1::ExplainCallRequest { session_id: "s".into(), call_id: call_id.into() };
    SessionServiceClient::new(plane.channel().await).explain_call(asked).await.expect("an explanation").into_inner()
}

fn silence<'a>(told: &'a v1::ExplainCallResponse, rule: &str) -> &'a str {
    &told.rules.iter().find(|one| one.rule == rule).expect("a rule").no_finding_reason
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_rule_says_what_it_found_or_why_it_found_nothing() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    for id in ["c1", "c2"] {
        evaluate(&mut client, question("s", call(id, "look", r#"{"at":1}"#))).await;
        if id == "c1" {
            record(&mut client, success("s", id, "nothing")).await;
        }
    }
    let told = explain_call(&plane, "c2").await;
    assert_eq!((told.inputs_missing.as_str(), told.rules.len()), ("", RULES.len()));
    for (one, rule) in told.rules.iter().zip(RULES) {
        assert_eq!(one.rule, rule.id);
        assert_eq!(one.finding.is_some(), one.no_finding_reason.is_empty(), "{one:?}");
        assert_eq!(one.finding.is_some(), rule.id == "same_call", "{one:?}");
    }
    let before = told.inputs.iter().find(|fact| fact.name == "before").expect("what was before");
    assert!(before.text.starts_with("c1, asked for "), "{before:?}");
    assert!(silence(&told, "budget").starts_with("nearest before it: 1 of "), "{told:?}");
    let first = explain_call(&plane, "c1").await;
    assert_eq!(silence(&first, "same_call"), "not made before in this call tree");

    let unknown = v1::ExplainCallRequest { session_id: "s".into(), call_id: "c3".into() };
    let refused =
        SessionServiceClient::new(plane.channel().await).explain_call(unknown).await.expect_err("no such call");
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_replay_is_reported() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "look", r#"{"at":1}"#))).await;
    record(&mut client, success("s", "c1", "nothing")).await;
    evaluate(&mut client, question("s", call("c2", "look", r#"{"at":1}"#))).await;
    plane.postgres.tamper("update callgate.call set arguments = null where call_id = 'c2'").await;
    let told = explain_call(&plane, "c2").await;
    assert!(told.inputs_missing.contains("arguments are not stored") && told.inputs.is_empty(), "{told:?}");
    assert_eq!(told.rules.len(), RULES.len(), "what the policy says of the tool is known all the same");
    assert_eq!(silence(&told, "unknown_tool"), "look is declared");
    plane.postgres.tamper("update callgate.call set policy_version = 'ffffffffffffffff' where call_id = 'c2'").await;
    let told = explain_call(&plane, "c2").await;
    assert!(told.inputs_missing.contains("policy ffffffffffffffff is not stored any more"), "{told:?}");
    let [only] = &told.rules[..] else { panic!("{told:?}") };
    assert!(only.rule == "same_call" && only.finding.is_some() && only.mode.is_empty(), "{told:?}");
}
