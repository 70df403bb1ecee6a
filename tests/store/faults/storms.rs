//! Request storms: concurrent identical requests with cancellations and connection failures.

use std::{sync::Arc, time::Duration};

use callgate_core::{
    domain::{
        budget::{BudgetLimits, Budgets, Dimension, Usage},
        call::Request,
        ids::{DEFAULT_TENANT, TenantId},
        report::OutcomeReport,
        tool::ToolSpec,
    },
    policy::Policy,
};
use callgate_server::gate::Gate;
use tokio::time::{sleep, timeout};

use super::{
    History, Replicas, ask_until_told, check, client,
    proxy::{At, FaultAction},
    report_until_heard,
};
use crate::common::{
    STEP, all,
    gates::{agent, ask, describe_answer, policy, run_call, success, try_evaluate},
    postgres::Postgres,
};

const CALLS: usize = 160;

const RULES: [&str; 2] = ["same_call", "budget"];

/// Costs, with limits that are counted and not reached.
fn costly() -> Policy {
    let mut policy = policy(&RULES);
    policy.rules.get_mut::<Budgets>().agent =
        BudgetLimits::new([(Dimension::ToolCalls, 10_000), (Dimension::Cost, 1_000_000_000)]);
    policy.declare("pay", ToolSpec { once: true, cost_micros: 300, ..ToolSpec::default() });
    policy
}

/// As many as there are, of each tenant alike.
fn calls(replicas: &Replicas, is_wanted: fn(usize) -> bool) -> Vec<(TenantId, usize)> {
    let numbers = (0..CALLS / replicas.tenants.len()).filter(|n| is_wanted(*n));
    numbers.flat_map(|n| replicas.tenants.iter().map(move |tenant| (*tenant, n))).collect()
}

fn request(tenant: TenantId, n: usize) -> Request {
    let session = if n.is_multiple_of(8) { format!("new{n}") } else { format!("shared{}", n % 5) };
    let tool = ["pay", "work", "save"][n % 3];
    let asked = ask(&session, &format!("c{n}"), tool, &format!(r#"{{"n":{n}}}"#));
    Request { tenant, agent: agent("robot"), ..asked }
}

fn outcome(n: usize) -> OutcomeReport {
    let asked = request(DEFAULT_TENANT, n);
    let told = success(asked.session.as_str(), asked.call_id.as_str(), &format!("result {n}"));
    OutcomeReport { usage: Usage { cost_micros: 100 + n as u64, ..Usage::default() }, ..told }
}

/// 1 to 5 ms, as if at random.
fn deadline(n: usize) -> Duration {
    Duration::from_micros(1_000 + (n as u64 * 2_654_435_761) % 4_000)
}

/// Shared counters equal the sums of the rows.
async fn counters_are_sums(replicas: &Replicas) {
    let counters = "select tenant_id, dimension, used from counter where agent_id = 'robot' order by 1, 2";
    let sums = "select tenant_id, 1, sum(calls) from call_tree group by 1 union all
        select tenant_id, 2, sum(cost_micros + reserved_micros) from call_tree group by 1 order by 1, 2";
    // A counter of 0 may have no row.
    let mut counted = [replicas.postgres.rows(counters).await, replicas.postgres.rows(sums).await];
    counted.iter_mut().for_each(|rows| rows.retain(|row| !row.ends_with(",2,0)")));
    assert_eq!(counted[0], counted[1]);
}

/// Some callers stay until they are answered, the others go away before long.
fn is_served(n: usize) -> bool {
    n % 4 == 3
}

fn is_hasty(n: usize) -> bool {
    !is_served(n)
}

/// Runs cancelled callers while no change of a known tree can be committed.
async fn run_cancelled_callers(
    postgres: &Postgres,
    callers: impl Iterator<Item = impl Future<Output = bool> + Send + 'static>,
) {
    let mut locked = postgres.connect().await;
    sqlx::raw_sql("begin; update call_tree set version = version").execute(&mut locked).await.expect("a lock");
    let went = all(callers).await.into_iter().filter(|went| *went).count();
    sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    assert!(went > CALLS / 4, "only {went} went away");
}

/// One more call through each gate: earlier changes are then stored or rejected.
async fn drain_replicas(replicas: &Replicas, after: &str) {
    for (n, gate) in replicas.gates.iter().enumerate() {
        let look = ask(&format!("shared{n}"), after, "look", &format!(r#"{{"after":"{after}"}}"#));
        for look in replicas.of_each(&Request { agent: agent("robot"), ..look }) {
            run_call(gate, look, "row").await;
        }
    }
}

/// All requests at once. Returns the resulting rows.
async fn storm(replicas: &Replicas, history: &Arc<History>) -> Vec<String> {
    for n in 0..15 {
        let warm = ask(&format!("shared{}", n % 5), &format!("warm{n}"), "look", &format!(r#"{{"n":{n}}}"#));
        for warm in replicas.of_each(&Request { agent: agent("robot"), ..warm }) {
            let gate = &replicas.gates[n % 3];
            assert!(history.is_let_in(gate, warm.tenant, Some(&warm)).await);
            run_call(gate, warm, "row").await;
        }
    }
    let served = calls(replicas, is_served)
        .into_iter()
        .map(|(tenant, n)| client(replicas.gates.clone(), n, request(tenant, n), Arc::clone(history)));
    let served = tokio::spawn(all(served.collect::<Vec<_>>()));
    let asked = calls(replicas, is_hasty).into_iter().map(|(tenant, n)| {
        let (gate, history) = (Arc::clone(&replicas.gates[n % 3]), Arc::clone(history));
        async move {
            let asked = async {
                let request = request(tenant, n);
                if history.is_let_in(&gate, tenant, Some(&request)).await {
                    let _ = try_evaluate(&gate, request).await;
                }
            };
            timeout(deadline(n), asked).await.is_err()
        }
    });
    run_cancelled_callers(&replicas.postgres, asked).await;
    served.await.expect("no panic");
    drain_replicas(replicas, "questions").await;
    replicas.postgres.rows("select tenant_id, session_id, call_id, idempotency_key from call").await
}

/// Cancelled callers, first during requests, then during reports.
async fn gone_away(replicas: Replicas) {
    let history = replicas.history();
    let stored = storm(&replicas, &history).await;
    counters_are_sums(&replicas).await;
    check(&replicas.postgres, &history).await;

    let asked = calls(&replicas, is_hasty).into_iter().map(|(tenant, n)| {
        let (gates, history) = (replicas.gates.clone(), Arc::clone(&history));
        async move { (tenant, n, ask_until_told(&gates, n + 1, &request(tenant, n), &history).await) }
    });
    let mut stood = 0;
    for (tenant, n, answer) in all(asked.collect::<Vec<_>>()).await {
        let (asked, permit) = (request(tenant, n), answer.verdict.permit.as_ref().expect("a permit"));
        let name = format!("({},{},{},", tenant.0, asked.session, asked.call_id);
        if let Some(before) = stored.iter().find(|row| row.starts_with(&name)) {
            assert!(answer.verdict.replayed);
            assert_eq!(*before, format!("{name}{})", permit.idempotency_key));
            stood += 1;
        }
    }
    assert!(stood > 0, "nobody went away between a change and its commit");

    // Reports are given up as well, and heard in the end.
    let given_up = calls(&replicas, is_hasty).into_iter().map(|(tenant, n)| {
        let gate = Arc::clone(&replicas.gates[n % 3]);
        async move { timeout(deadline(n), Box::pin(gate.decisions.record(tenant, outcome(n), None))).await.is_err() }
    });
    run_cancelled_callers(&replicas.postgres, given_up).await;
    drain_replicas(&replicas, "reports").await;
    counters_are_sums(&replicas).await;
    check(&replicas.postgres, &history).await;
    let stored = replicas.postgres.rows("select tenant_id, call_id from outcome").await;
    let reported = calls(&replicas, is_hasty).into_iter().map(|(tenant, n)| {
        let (gates, history) = (replicas.gates.clone(), Arc::clone(&history));
        async move { (tenant, n, report_until_heard(&gates, n + 1, (tenant, &outcome(n)), &history).await) }
    });
    for (tenant, n, answer) in all(reported.collect::<Vec<_>>()).await {
        assert_eq!(answer.replayed, stored.contains(&format!("({},c{n})", tenant.0)), "c{n} of {tenant:?}");
    }
    counters_are_sums(&replicas).await;
    check(&replicas.postgres, &history).await;
    assert_eq!(replicas.postgres.number("select sum(open_calls) from call_tree").await, 0);
    replicas.batches_were_shared().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_go_away_leave_whole_calls_or_none() {
    gone_away(Replicas::start(&costly()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_two_tenants_who_go_away_leave_whole_calls_or_none_each_its_own() {
    let budgets = "agent: {max_tool_calls: 10000, max_total_cost_usd: 1000}";
    gone_away(Replicas::start_for_tenants(&costly(), &RULES, budgets).await).await;
}

/// One of many buyers of the same thing in a tenant, who retries until it is paid. After WAIT with a new call_id;
/// without an answer with the same one, at another gate.
async fn buy(gates: [Arc<Gate>; 3], tenant: TenantId, n: usize, history: Arc<History>) {
    for tries in 0.. {
        let request = ask(&format!("s{}", n % 20), &format!("c{n}-{tries}"), "pay", r#"{"invoice":7}"#);
        let answer = client(gates.clone(), n, Request { tenant, ..request }, Arc::clone(&history)).await;
        match describe_answer(&answer).as_str() {
            "ALLOW" | "REUSE duplicate_call_blocked" => return,
            "WAIT call_in_flight" => sleep(STEP * 25).await,
            other => panic!("{other}"),
        }
    }
}

/// A hundred callers want one thing of their tenant.
async fn stampede(replicas: Replicas) {
    for proxy in &replicas.proxies {
        proxy.trap(At::Reply, FaultAction::Cut);
    }
    let (history, each) = (replicas.history(), 100 / replicas.tenants.len());
    let clients = (0..each).flat_map(|n| replicas.tenants.iter().map(move |tenant| (*tenant, n)));
    let clients = clients.map(|(tenant, n)| buy(replicas.gates.clone(), tenant, n, Arc::clone(&history)));
    all(clients.collect::<Vec<_>>()).await;
    let (told, once) = (history.observe(), replicas.tenants.len());
    assert_eq!((told.permits.len(), told.executed.len(), told.results.len()), (once, once, once));
    let each = |count: usize| replicas.tenants.iter().map(move |tenant| format!("({},{count})", tenant.0));
    let permits = "select tenant_id, count(attempt) from call group by 1 order by 1";
    assert_eq!(replicas.postgres.rows(permits).await, each(1).collect::<Vec<_>>());
    let outcomes = "select tenant_id, count(*) from outcome group by 1 order by 1";
    assert_eq!(replicas.postgres.rows(outcomes).await, each(1).collect::<Vec<_>>());
    check(&replicas.postgres, &history).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stampede_through_three_gates_with_cut_lines_executes_once() {
    stampede(Replicas::start(&policy(&["same_call"])).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stampede_of_two_tenants_with_cut_lines_executes_once_for_each() {
    let rules = ["same_call"];
    stampede(Replicas::start_for_tenants(&policy(&rules), &rules, "").await).await;
}
