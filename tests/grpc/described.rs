//! Tool offers for models, and texts for models with such offers.

use callgate_core::policy;
use callgate_proto::v1::{self, Decision};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::common::{
    in_time,
    wire::{Plane, call, evaluate, question, record, success},
};

const POLICY: &str = "
policy_engine:
  idempotency: {inject_as: argument, argument: request_key}
  rules: {tier: {mode: shadow}}
  authorization:
    tiers:
      - {name: money, pattern: 'transfer_*', action: allowlist, require_reason: true}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas:
    look: {effect: read}
    transfer_money: {once: true}
";

fn describe_request(tools: &[String]) -> v1::DescribeToolsRequest {
    v1::DescribeToolsRequest { tools: tools.to_vec() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_are_described_as_the_policy_wants_them_offered() {
    let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    let names = ["transfer_money", "look", "transfer_else"].map(str::to_owned);
    let told =
        in_time("an answer", client.describe_tools(describe_request(&names))).await.expect("described").into_inner();
    assert_eq!(told.policy_version.len(), 16);
    let described = |tool: &str, is_declared, needs_justification| v1::ToolDescription {
        tool: tool.to_owned(),
        is_declared,
        needs_justification,
        idempotency_argument: "request_key".to_owned(),
    };
    assert_eq!(
        told.tools,
        [
            described("transfer_money", true, true),
            described("look", true, false),
            described("transfer_else", false, true)
        ]
    );

    let none = in_time("an answer", client.describe_tools(describe_request(&[]))).await.expect("none").into_inner();
    assert!(none.tools.is_empty());
    let many: Vec<String> = (0..1_001).map(|n| format!("t{n}")).collect();
    for (field, tools) in [("tools", &many[..]), ("tools[1]", &["a".to_owned(), String::new()])] {
        let refused = in_time("an answer", client.describe_tools(describe_request(tools))).await.expect_err(field);
        assert_eq!(refused.code(), Code::InvalidArgument, "{field}");
        let problem = refused.get_details_bad_request().expect("the field").field_violations.remove(0);
        assert_eq!(problem.field, field);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_is_told_of_the_parameters_that_it_has() {
    let text = POLICY.replace("  rules: {tier: {mode: shadow}}\n", "");
    let plane = Plane::start(&policy::compile(&text).expect("a good policy")).await;
    let mut client = plane.client().await;
    let offered = |id: &str, justification: &str| {
        question(
            "s",
            v1::ToolCall {
                justification: justification.to_owned(),
                justification_parameter: "why".to_owned(),
                repeat_parameter: "again".to_owned(),
                ..call(id, "transfer_money", r#"{"cents":5}"#)
            },
        )
    };
    let verdict = evaluate(&mut client, offered("c1", "")).await;
    assert_eq!((verdict.decision(), verdict.reason.as_str()), (Decision::Deny, "validation_error"));
    assert!(verdict.tool_result_json.contains("say in `why` in one sentence"), "{}", verdict.tool_result_json);
    assert!(!verdict.tool_result_json.contains("cannot"), "{}", verdict.tool_result_json);

    assert_eq!(evaluate(&mut client, offered("c2", "the rent")).await.decision(), Decision::Allow);
    record(&mut client, success("s", "c2", "sent")).await;
    let verdict = evaluate(&mut client, offered("c3", "the rent")).await;
    assert_eq!(verdict.decision(), Decision::Reuse);
    assert!(verdict.tool_result_json.contains("set `again` to true: a person is then asked."), "{verdict:?}");
    let mut meant = offered("c4", "the rent");
    meant.call.iter_mut().for_each(|call| call.repeat_intended = true);
    assert_eq!(evaluate(&mut client, meant).await.decision(), Decision::Ask);
}
