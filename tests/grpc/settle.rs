//! Unknown outcomes, settled by an operator.

use callgate_core::policy;
use callgate_proto::v1::{
    self, Decision, gate_service_client::GateServiceClient, session_service_client::SessionServiceClient,
};
use tonic::Code;

use crate::common::wire::{Plane, call, evaluate, from, outcome, pair, question, record, success};

/// An operator settles an unknown outcome; actor and evidence are recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_what_nobody_knows() {
    let orders = "policy_engine: {tool_schemas: {move_order: {effect: write, side_effect_resource: 'order/{id}'}}}";
    let policy = policy::compile(orders).expect("a good policy");
    let plane = Plane::start(&policy).await;
    let mut client = plane.client().await;
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let ask = |id: &str, n: u32| question("s", call(id, "move_order", &format!(r#"{{"id":{n}}}"#)));
    let settle = |id: &str, status: v1::OutcomeStatus, result: Option<&str>| v1::SettleOutcomeRequest {
        session_id: "s".to_owned(),
        call_id: id.to_owned(),
        status: status.into(),
        result: result.map(str::to_owned),
        reason: "seen in the warehouse".to_owned(),
        ..Default::default()
    };
    for (n, id) in [(1, "moved"), (2, "lost")] {
        assert_eq!(evaluate(&mut client, ask(id, n)).await.decision(), Decision::Allow);
        let mut timeout = outcome("s", id, v1::OutcomeStatus::Error);
        timeout.error = Some(v1::ToolError { message: "timed out".to_owned(), ..Default::default() });
        record(&mut client, timeout).await;
        assert_eq!(evaluate(&mut client, ask(&format!("{id}-again"), n)).await.reason, "outcome_unknown");
    }
    let happened = settle("moved", v1::OutcomeStatus::Success, Some(r#"{"moved":true}"#));
    for _ in 0..2 {
        let told = sessions.settle_outcome(from("eve", happened.clone())).await.expect("settled").into_inner();
        assert_eq!(told.status(), v1::OutcomeStatus::Success);
    }
    let again = evaluate(&mut client, ask("moved-third", 1)).await;
    assert_eq!(again.decision(), Decision::Reuse);
    assert!(again.tool_result_json.contains(r#""previous_result":{"moved":true}"#), "{}", again.tool_result_json);
    let never = settle("lost", v1::OutcomeStatus::Cancelled, None);
    sessions.settle_outcome(from("eve", never)).await.expect("settled");
    assert_eq!(evaluate(&mut client, ask("lost-third", 2)).await.decision(), Decision::Allow);
    let other = settle("moved", v1::OutcomeStatus::Cancelled, None);
    let refused = sessions.settle_outcome(from("eve", other)).await.expect_err("it happened");
    assert_eq!(pair(&refused), (Code::FailedPrecondition, "CALL_ALREADY_SETTLED".to_owned()));
    let unknown = settle("never", v1::OutcomeStatus::Success, None);
    let refused = sessions.settle_outcome(from("eve", unknown)).await.expect_err("nobody heard of it");
    assert_eq!(refused.code(), Code::NotFound);
    // The execution's own report overrides the operator's, on any server.
    let mut other = GateServiceClient::new(plane.postgres_gate(&policy).await);
    record(&mut other, success("s", "lost", "{}")).await;
    record(&mut other, success("s", "lost-third", "{}")).await;
    assert_eq!(plane.postgres.number("select count(*) from outcome where double_effect").await, 1);
    let on_record = "select count(*) from session_event where kind = 'outcome_settled' and actor = 'eve' \
                     and reason = 'seen in the warehouse'";
    assert_eq!(plane.postgres.number(on_record).await, 2);
}
