//! Raised budgets.

use callgate_core::policy;
use callgate_proto::v1::{
    self, BudgetDimension, BudgetScope, Decision, fleet_service_client::FleetServiceClient,
    session_service_client::SessionServiceClient,
};
use tonic::{Code, Request};

use crate::common::{
    until,
    wire::{Client, Plane, call, evaluate, from, pair, question},
};

const LIMITS: &str = "policy_engine: {budgets: {run: {max_tool_calls: 4}, call_tree: {max_steps: 2}}}";

async fn plane() -> Plane {
    Plane::start(&policy::compile(LIMITS).expect("a good policy")).await
}

fn raise(scope: BudgetScope, dimension: BudgetDimension, extra: u64) -> v1::RaiseBudgetRequest {
    v1::RaiseBudgetRequest {
        session_id: "s".to_owned(),
        scope: scope.into(),
        dimension: dimension.into(),
        extra,
        reason: "nearly done".to_owned(),
    }
}

fn steps(extra: u64) -> v1::RaiseBudgetRequest {
    raise(BudgetScope::CallTree, BudgetDimension::Steps, extra)
}

async fn evaluate_call(client: &mut Client, id: u32) -> Decision {
    let asked = call(&format!("c{id}"), "look", &format!(r#"{{"n":{id}}}"#));
    evaluate(client, question("s", asked)).await.decision()
}

fn limit(budgets: &[v1::BudgetUsage], scope: BudgetScope, dimension: BudgetDimension) -> Option<(u64, u64)> {
    let is_it = |left: &&v1::BudgetUsage| left.scope() == scope && left.dimension() == dimension;
    budgets.iter().find(is_it).map(|left| (left.limit, left.extra))
}

/// A stopped session continues within the raise, here and on a replica that loads it; not beyond, and not after the
/// withdrawal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_goes_on_as_far_as_its_budget_is_raised() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let mut operators = SessionServiceClient::new(plane.channel().await);
    for (id, decision) in [(1, Decision::Allow), (2, Decision::Allow), (3, Decision::Stop)] {
        assert_eq!(evaluate_call(&mut client, id).await, decision, "call {id}");
    }
    // Refused calls are steps, too.
    for _ in 0..2 {
        let raised = operators.raise_budget(from("eve", steps(2))).await.expect("raised").into_inner();
        assert_eq!(limit(&raised.budgets, BudgetScope::CallTree, BudgetDimension::Steps), Some((4, 2)), "{raised:#?}");
    }
    assert_eq!(evaluate_call(&mut client, 4).await, Decision::Allow);
    assert_eq!(evaluate_call(&mut client, 5).await, Decision::Stop);

    operators.raise_budget(from("eve", steps(10))).await.expect("raised");
    let replica = plane.postgres_gate(&policy::compile(LIMITS).expect("a good policy")).await;
    let mut elsewhere = Client::new(replica);
    assert_eq!(evaluate_call(&mut elsewhere, 6).await, Decision::Allow);
    operators.raise_budget(from("eve", steps(0))).await.expect("taken back");
    assert_eq!(evaluate_call(&mut client, 7).await, Decision::Stop);
    assert_eq!(evaluate_call(&mut elsewhere, 8).await, Decision::Stop);

    let on_record = "select count(*) from operator_events where kind = 'budget_raised' and actor = 'eve' \
                     and reason = 'nearly done'";
    assert_eq!(plane.postgres.number(on_record).await, 4);
    let audited =
        "select count(*) from audit_log where kind = 'budget_raised' and what like 'max_steps of the call tree%'";
    assert_eq!(plane.postgres.number(audited).await, 4);
}

/// A run's raise ends with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raised_budget_of_a_run_ends_with_the_run() {
    let plane =
        Plane::start(&policy::compile("policy_engine: {budgets: {run: {max_tool_calls: 1}}}").expect("a good policy"))
            .await;
    let mut client = plane.client().await;
    let mut operators = SessionServiceClient::new(plane.channel().await);
    let ask = async |client: &mut Client, run: &str, id: u32| {
        let mut asked = question("s", call(&format!("c{id}"), "look", &format!(r#"{{"n":{id}}}"#)));
        asked.caller.as_mut().expect("a caller").run_id = run.to_owned();
        evaluate(client, asked).await.decision()
    };
    assert_eq!(ask(&mut client, "one", 1).await, Decision::Allow);
    assert_eq!(ask(&mut client, "one", 2).await, Decision::Stop);
    let more = raise(BudgetScope::Run, BudgetDimension::ToolCalls, 1);
    operators.raise_budget(from("eve", more)).await.expect("raised");
    assert_eq!(ask(&mut client, "one", 3).await, Decision::Allow);
    assert_eq!(ask(&mut client, "one", 4).await, Decision::Stop);
    assert_eq!(ask(&mut client, "two", 5).await, Decision::Allow);
    assert_eq!(ask(&mut client, "two", 6).await, Decision::Stop);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_raise_is_rejected_and_stores_nothing() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let mut operators = SessionServiceClient::new(plane.channel().await);
    let mut refused = async |request| pair(&operators.raise_budget(from("eve", request)).await.expect_err("refused"));
    let told = |code, reason: &str| (code, reason.to_owned());
    assert_eq!(refused(steps(1)).await, told(Code::NotFound, "SESSION_UNKNOWN"));
    assert_eq!(evaluate_call(&mut client, 1).await, Decision::Allow);
    let invalid = told(Code::InvalidArgument, "INVALID_FIELD");
    for request in [
        raise(BudgetScope::Unspecified, BudgetDimension::Steps, 1),
        raise(BudgetScope::Agent, BudgetDimension::Steps, 1),
        raise(BudgetScope::CallTree, BudgetDimension::Unspecified, 1),
        steps(u64::MAX),
    ] {
        assert_eq!(refused(request).await, invalid);
    }
    let unlimited = raise(BudgetScope::Run, BudgetDimension::ConsecutiveSameTool, 1);
    assert_eq!(refused(unlimited).await, told(Code::FailedPrecondition, "NO_SUCH_LIMIT"));
    assert_eq!(plane.postgres.number("select count(*) from session_event").await, 0);
}

/// A tree with a raised budget is not near its limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fleets_figures_know_what_was_given() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let mut fleet = FleetServiceClient::new(plane.channel().await);
    let mut near = async || {
        let answer = fleet.get_fleet(Request::new(v1::GetFleetRequest::default())).await.expect("told").into_inner();
        answer.fleet.unwrap_or_default().budgets.into_iter().map(|left| left.limit).collect::<Vec<_>>()
    };
    evaluate_call(&mut client, 1).await;
    evaluate_call(&mut client, 2).await;
    assert_eq!(near().await, [2]);
    let mut operators = SessionServiceClient::new(plane.channel().await);
    operators.raise_budget(from("eve", steps(20))).await.expect("raised");
    until("no budget to be near its end", async || near().await.is_empty()).await;
}
