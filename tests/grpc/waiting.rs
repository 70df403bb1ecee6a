//! Server-side waits in place of the caller's.

use std::time::Duration;

use callgate_core::{
    domain::{
        audit::Actor,
        identity::Role,
        ids::DEFAULT_TENANT,
        tenant::{Quotas, TenantState},
    },
    policy::{self, Policy},
};
use callgate_proto::{
    time::duration,
    v1::{self, Decision, approval_service_client::ApprovalServiceClient},
};
use callgate_server::gate::TenantChange;
use tonic::{Code, Status};

use crate::{
    common::{
        in_time, until,
        wire::{Plane, call, caller, evaluate, pair, question, record, success},
        within,
    },
    credentials::{bearer, token, who},
    people,
};

/// Long before the wait itself ends.
const SOON: Duration = Duration::from_secs(10);

const POLICY: &str = "policy_engine:
  authorization:
    tiers:
      - {name: slow, pattern: 'ping', action: allowlist, rate_limit: 1/s}
      - {name: rare, pattern: 'purge', action: allowlist, rate_limit: 1/hour}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas: {get_order: {effect: read}}
";

async fn plane() -> Plane {
    Plane::start(&policy::compile(POLICY).expect("a good policy")).await
}

fn waiting(call_id: &str, tool: &str, arguments: &str) -> v1::EvaluateRequest {
    v1::EvaluateRequest { max_wait: Some(duration(60_000)), ..question("s", call(call_id, tool, arguments)) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_is_answered_once_the_call_that_it_repeats_is_recorded() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let first = evaluate(&mut client, question("s", call("c1", "get_order", "{}"))).await;
    assert_eq!(first.decision(), Decision::Allow);
    let mut other = client.clone();
    let twin = tokio::spawn(async move { evaluate(&mut other, waiting("c2", "get_order", "{}")).await });
    let judged = "select count(*) from call where call_id = 'c2'";
    until("the twin to wait", async || plane.postgres.number(judged).await > 0).await;
    record(&mut client, success("s", "c1", "7")).await;
    let twin = in_time("the twin", twin).await.expect("no panic");
    assert_eq!((twin.decision(), twin.reason.as_str()), (Decision::Reuse, "duplicate_call_blocked"), "{twin:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_is_waited_out_if_it_ends_in_time() {
    let plane = plane().await;
    let mut client = plane.client().await;
    for (n, tool, second) in [(1, "ping", Decision::Allow), (2, "purge", Decision::Wait)] {
        let first = evaluate(&mut client, waiting(&format!("a{n}"), tool, r#"{"n":1}"#)).await;
        assert_eq!(first.decision(), Decision::Allow, "{first:?}");
        let next = evaluate(&mut client, waiting(&format!("b{n}"), tool, r#"{"n":2}"#)).await;
        assert_eq!(next.decision(), second, "{tool}: {next:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_until_one_of_its_calls_may_run() {
    let plane = people::plane().await;
    let mut client = plane.client().await;
    let approvals = ApprovalServiceClient::new(plane.channel().await);
    let delete = |n: usize| v1::ToolCall {
        justification: "the user said so".into(),
        ..call(&format!("c{n}"), "delete_order", &format!(r#"{{"id":{n}}}"#))
    };
    let batch = v1::BatchEvaluateRequest {
        caller: Some(v1::Caller { agent_id: "robot".into(), ..caller("s") }),
        calls: vec![delete(1), delete(2)],
        max_wait: Some(duration(60_000)),
        ..Default::default()
    };
    let asked = {
        let (mut client, batch) = (client.clone(), batch.clone());
        tokio::spawn(async move { client.batch_evaluate(batch).await.expect("answers").into_inner().verdicts })
    };
    let mut questions = approvals.clone();
    let mut open = Vec::new();
    until("both questions", async || {
        let listed = questions.list_approvals(v1::ListApprovalsRequest::default()).await.expect("a list").into_inner();
        open = listed.approvals;
        open.len() == 2
    })
    .await;
    let second = open.iter().find(|question| question.call_id == "c2").expect("asked");
    people::resolve(approvals, people::answer(&second.approval_id, "eve", true, "")).await.expect("an answer");
    let verdicts = in_time("the answers", asked).await.expect("no panic");
    assert_eq!(verdicts.iter().map(v1::Verdict::decision).collect::<Vec<_>>(), [Decision::Ask, Decision::Allow]);
    // A permitted call is answered at once, regardless of others.
    let look = call("c3", "get_order", "{}");
    let mixed = v1::BatchEvaluateRequest { calls: vec![delete(1), look], ..batch };
    let verdicts = in_time("answers", client.batch_evaluate(mixed)).await.expect("answers").into_inner().verdicts;
    assert_eq!(verdicts.iter().map(v1::Verdict::decision).collect::<Vec<_>>(), [Decision::Ask, Decision::Allow]);
}

/// A call that waits for another one of the same session, asked with this token.
async fn waits(
    plane: &Plane,
    token: &str,
) -> tokio::task::JoinHandle<Result<tonic::Response<v1::EvaluateResponse>, Status>> {
    let mut client = plane.client().await;
    let first = client.evaluate(bearer(token, question("s", call("c1", "work", "{}")))).await.expect("an answer");
    assert_eq!(first.into_inner().verdict.expect("a verdict").decision(), Decision::Allow);
    let twin = bearer(token, waiting("c2", "work", "{}"));
    let twin = tokio::spawn(async move { client.evaluate(twin).await });
    let judged = "select count(*) from call where call_id = 'c2'";
    until("the twin to wait", async || plane.postgres.number(judged).await > 0).await;
    twin
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_call_ends_with_its_credential() {
    let plane = Plane::start(&Policy::default()).await;
    let (text, known) = token(&plane.gate, who("desk", &[Role::Agent])).await;
    let twin = waits(&plane, &text).await;
    plane.gate.identities.revoke_token(DEFAULT_TENANT, &known.id, &Actor::from("root")).await.expect("revoked");
    let told = within(SOON, "the end of the wait", twin).await.expect("no panic").expect_err("revoked");
    assert_eq!(pair(&told), (Code::Unauthenticated, "UNAUTHENTICATED".into()), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_call_ends_with_the_suspension_of_its_tenant() {
    let plane = Plane::start(&Policy::default()).await;
    let root = Actor::from("root");
    let TenantChange::Done(acme) =
        plane.gate.identities.create_tenant("acme", &Quotas::default(), &root).await.expect("an answer")
    else {
        panic!("it is new")
    };
    let desk = who("desk", &[Role::Agent]);
    let (text, _) = plane.gate.identities.create_token(acme.id, desk, None, &root).await.expect("a token");
    let twin = waits(&plane, &text).await;
    plane.gate.identities.set_tenant_state("acme", TenantState::Suspended, &root, "a drill").await.expect("suspended");
    let told = within(SOON, "the end of the wait", twin).await.expect("no panic").expect_err("suspended");
    assert_eq!(pair(&told), (Code::PermissionDenied, "TENANT_SUSPENDED".into()), "{told:?}");
    let tools = bearer(&text, v1::DescribeToolsRequest::default());
    let told = plane.client().await.describe_tools(tools).await.expect_err("suspended");
    assert_eq!(pair(&told), (Code::PermissionDenied, "TENANT_SUSPENDED".into()), "{told:?}");
}
