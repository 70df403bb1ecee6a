//! Two server processes on one database.

use callgate_proto::v1::{
    self, Decision, HaltScope, OutcomeStatus, approval_service_client::ApprovalServiceClient,
    session_service_client::SessionServiceClient,
};

use crate::{
    common::{
        all,
        postgres::Postgres,
        until,
        wire::{Client, call, evaluate, from, outcome, question, record, success},
    },
    server::{Home, Server, path},
};

const POLICY: &str = "policy_engine:
  tool_schemas: {pay: {once: true}}
";

async fn pay(mut client: Client, session: String) -> Decision {
    evaluate(&mut client, question(&session, call("c1", "pay", r#"{"invoice":1}"#))).await.decision()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_permitted_by_a_replica_that_dies_is_known_to_the_other() {
    let (postgres, home) = (Postgres::start().await, Home::empty());
    let policy = home.file("policy.yaml", POLICY);
    let url = postgres.url();
    let args = ["--database-url", url.as_str(), "--policy", path(&policy)];
    let (first, second) = (Server::with(&args), Server::with(&args));
    let clients = [first.client().await, second.client().await];
    let asked = (0..20).map(|n| pay(clients[n % 2].clone(), format!("s{n}")));
    let decisions = all(asked).await;
    let permitted: Vec<usize> = (0..20).filter(|n| decisions[*n] == Decision::Allow).collect();
    let [winner] = permitted[..] else { panic!("{decisions:?}") };
    assert!(decisions.iter().all(|decision| matches!(decision, Decision::Allow | Decision::Wait)), "{decisions:?}");

    let (dies, mut client) = match winner % 2 {
        0 => (first, second.client().await),
        _ => (second, first.client().await),
    };
    dies.kill();
    assert_eq!(pay(client.clone(), "late".into()).await, Decision::Wait);
    let session = format!("s{winner}");
    let running = record(&mut client, outcome(&session, "c1", OutcomeStatus::Running)).await;
    assert_eq!(running.status(), OutcomeStatus::Running);
    assert!(!record(&mut client, success(&session, "c1", "paid")).await.replayed);
    assert_eq!(pay(client, "later".into()).await, Decision::Reuse);
    assert_eq!(postgres.rows("select count(*), count(attempt) from call").await, ["(22,1)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn action_at_one_replica_holds_at_the_other() {
    let (postgres, home) = (Postgres::start().await, Home::empty());
    let policy = home.file(
        "policy.yaml",
        "policy_engine:\n  authorization: {tiers: [{name: all, pattern: 'drop', action: hitl}, \
         {name: rest, pattern: '*', action: allowlist}]}\n",
    );
    let url = postgres.url();
    let args = ["--database-url", url.as_str(), "--policy", path(&policy)];
    let (first, second) = (Server::with(&args), Server::with(&args));
    let (mut here, mut there) = (first.client().await, second.client().await);
    let drop = |n: usize| question("s", call(&format!("c{n}"), "drop", r#"{"table":"t"}"#));
    let asked = evaluate(&mut here, drop(1)).await;
    assert_eq!(asked.decision(), Decision::Ask);
    // The request is answered at the other replica, and known at once, because the tree has moved.
    let mut approvals = ApprovalServiceClient::new(second.channel().await);
    let yes = v1::ResolveApprovalRequest { approval_id: asked.approval_id, approve: true, ..Default::default() };
    approvals.resolve_approval(from("eve", yes)).await.expect("an answer");
    assert_eq!(evaluate(&mut here, drop(1)).await.decision(), Decision::Allow);

    let mut sessions = SessionServiceClient::new(first.channel().await);
    let halt = v1::HaltRequest { scope: HaltScope::Tenant.into(), ..v1::HaltRequest::default() };
    sessions.halt(from("eve", halt)).await.expect("a halt");
    let mut n = 0;
    until("the halt at the other replica", async || {
        n += 1;
        let verdict = evaluate(&mut there, question("other", call(&format!("l{n}"), "look", "{}"))).await;
        verdict.decision() == Decision::Stop
    })
    .await;
}
