//! Budgets shared by many call trees, over two replicas: no reservation exceeds one, to the last call.

use std::{sync::Arc, time::Duration};

use callgate_core::{
    domain::{
        budget::{BudgetLimits, Budgets, Dimension, Usage},
        call::Request,
        outcome::OutcomeStatus,
        report::OutcomeReport,
        tool::ToolSpec,
    },
    policy::Policy,
};
use callgate_server::gate::{EvaluateAnswer, Gate};

use crate::common::{
    all,
    gates::{agent, ask, count_permits, describe_answer, evaluate, gate, policy, record, report, success, two_gates},
    postgres::Postgres,
    until, within,
};

/// A policy with these daily limits and no other rule.
fn limited_policy(per_agent: &[(Dimension, u64)], per_tenant: &[(Dimension, u64)]) -> Policy {
    let mut policy = policy(&["budget"]);
    policy.rules.get_mut::<Budgets>().agent = BudgetLimits::new(per_agent.iter().copied());
    policy.rules.get_mut::<Budgets>().tenant = BudgetLimits::new(per_tenant.iter().copied());
    policy.declare("costly", ToolSpec { cost_micros: 30_000, ..ToolSpec::default() });
    policy
}

/// One call each of many sessions, all at once, in turn of one gate and the other.
async fn one_call_each(
    gates: &[Arc<Gate>; 2],
    sessions: std::ops::Range<usize>,
    tool: &'static str,
) -> Vec<EvaluateAnswer> {
    let asked = sessions.map(|n| {
        let gate = Arc::clone(&gates[n % 2]);
        let request = ask(&format!("s{n}"), "c", tool, &format!(r#"{{"n":{n}}}"#));
        async move { evaluate(&gate, Request { agent: agent("robot"), ..request }).await }
    });
    all(asked).await
}

async fn counters(postgres: &Postgres) -> Vec<String> {
    postgres.rows("select agent_id, dimension, used from counter order by 1, 2").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_daily_calls_are_given_out_to_the_last_and_no_further() {
    let postgres = Postgres::start().await;
    let gates =
        two_gates(&postgres, &limited_policy(&[(Dimension::ToolCalls, 10)], &[(Dimension::ToolCalls, 1_000)])).await;
    let answers = one_call_each(&gates, 0..40, "work").await;
    assert_eq!(count_permits(&answers), 10);
    for answer in answers.iter().filter(|answer| answer.verdict.permit.is_none()) {
        assert_eq!(describe_answer(answer), "STOP budget_exceeded");
        assert!(answer.verdict.tools_disabled);
    }
    assert_eq!(counters(&postgres).await, [r#"("",1,10)"#, "(robot,1,10)"]);
    // Another agent has a budget of its own.
    assert_eq!(
        describe_answer(&evaluate(&gates[0], Request { agent: agent("other"), ..ask("t", "c", "work", "{}") }).await),
        "ALLOW"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_daily_calls_are_given_out_to_the_last_and_no_further() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &limited_policy(&[], &[(Dimension::ToolCalls, 25)])).await;
    let mut answers = one_call_each(&gates, 0..20, "work").await;
    assert_eq!(count_permits(&answers), 20);
    answers.extend(one_call_each(&gates, 20..60, "work").await);
    assert_eq!(count_permits(&answers), 25);
    assert_eq!(counters(&postgres).await, [r#"("",1,25)"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_steps_are_given_out_to_the_last_and_no_further() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &limited_policy(&[(Dimension::Steps, 10)], &[])).await;
    let answers = one_call_each(&gates, 0..40, "work").await;
    assert_eq!(count_permits(&answers), 10);
    assert_eq!(counters(&postgres).await, ["(robot,0,40)"], "refused calls are steps too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reservations_never_pass_a_cost_budget_and_actual_costs_are_booked_in_full() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &limited_policy(&[(Dimension::Cost, 100_000)], &[])).await;
    let answers = one_call_each(&gates, 0..20, "costly").await;
    assert_eq!(count_permits(&answers), 3);
    assert_eq!(postgres.number("select sum(reserved_micros) from call_tree").await, 90_000);
    assert_eq!(counters(&postgres).await, ["(robot,2,90000)"]);
    let refused = answers.iter().find(|answer| answer.verdict.permit.is_none()).expect("most are");
    assert_eq!(describe_answer(refused), "DENY budget_exceeded");

    // One costs more than was reserved, one less, and one is called off.
    let permitted: Vec<usize> = (0..20).filter(|n| answers[*n].verdict.permit.is_some()).collect();
    for (n, cost) in permitted.iter().zip([Some(45_000), Some(5_000), None]) {
        let session = format!("s{n}");
        let told = match cost {
            Some(cost_micros) => {
                let usage = Usage { cost_micros, ..Usage::default() };
                OutcomeReport { usage, ..success(&session, "c", "ok") }
            }
            None => report(&session, "c", OutcomeStatus::Cancelled),
        };
        record(&gates[1 - n % 2], told).await;
    }
    assert_eq!(counters(&postgres).await, ["(robot,2,50000)"]);
    let sums = postgres.rows("select sum(cost_micros), sum(reserved_micros) from call_tree").await;
    assert_eq!(sums, ["(50000,0)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_budget_is_spendable_at_the_other_gate() {
    let postgres = Postgres::start().await;
    let policy = limited_policy(&[(Dimension::Cost, 40_000)], &[]);
    let (one, other) = (gate(&postgres, &policy).await, gate(&postgres, &policy).await);
    let call = |n: usize| Request {
        agent: agent("robot"),
        ..ask(&format!("s{n}"), "c", "costly", &format!(r#"{{"n":{n}}}"#))
    };
    assert_eq!(describe_answer(&evaluate(&one, call(0)).await), "ALLOW");
    assert_eq!(describe_answer(&evaluate(&one, call(1)).await), "DENY budget_exceeded");
    record(&other, report("s0", "c", OutcomeStatus::Cancelled)).await;
    assert_eq!(counters(&postgres).await, ["(robot,2,0)"]);
    let mut tried = 1;
    let allowed = async || {
        tried += 1;
        describe_answer(&evaluate(&one, call(tried)).await) == "ALLOW"
    };
    let seen = until("the first gate to see what the second gave back", allowed);
    within(Duration::from_secs(10), "the same counter on both gates", seen).await;
}

/// Evaluates an agent's call in a new session on `gate`, and reports its cost if permitted.
async fn spends(gate: &Arc<Gate>, session: &str, cost_micros: u64) -> String {
    let answer = evaluate(gate, Request { agent: agent("robot"), ..ask(session, "c", "work", "{}") }).await;
    if answer.verdict.permit.is_some() {
        let usage = Usage { cost_micros, ..Usage::default() };
        record(gate, OutcomeReport { usage, ..success(session, "c", "ok") }).await;
    }
    describe_answer(&answer)
}

/// Two gates on a budget of a dollar: the next verdict of the first after it spent this much, and the other then spent
/// the rest.
async fn after_another_spent_the_rest(postgres: &Postgres, own_micros: u64) -> (Arc<Gate>, String) {
    let policy = limited_policy(&[(Dimension::Cost, 1_000_000)], &[]);
    let (one, other) = (gate(postgres, &policy).await, gate(postgres, &policy).await);
    spends(&one, "before", own_micros).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(spends(&other, "elsewhere", 1_000_000).await, "ALLOW");
    let next = spends(&one, "next", 0).await;
    (one, next)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_counter_near_its_limit_is_read_before_anybody_is_judged_by_it() {
    let postgres = Postgres::start().await;
    let (_, next) = after_another_spent_the_rest(&postgres, 600_000).await;
    assert_eq!(next, "STOP budget_exceeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_counter_far_from_its_limit_does_until_a_newer_one_is_there() {
    let postgres = Postgres::start().await;
    let (one, next) = after_another_spent_the_rest(&postgres, 100_000).await;
    assert_eq!(next, "ALLOW", "nobody waits for what is far from its limit");
    let mut asked = 0;
    let refused = async || {
        asked += 1;
        spends(&one, &format!("later-{asked}"), 0).await == "STOP budget_exceeded"
    };
    let seen = until("the first gate to see what the other has spent", refused);
    Box::pin(within(Duration::from_secs(10), "the same counter on both gates", seen)).await;
}
