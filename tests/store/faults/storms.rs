//! Many callers at once: some go away before they are answered, all want the same, and the lines are cut meanwhile.

use std::{sync::Arc, time::Duration};

use callgate::{
    domain::{
        budget::{Budgets, Dimension, Limits, Usage},
        call::Request,
        ids::DEFAULT_TENANT,
        report::Report,
        tool::ToolSpec,
    },
    gate::Gate,
    policy::Policy,
};
use tokio::time::{sleep, timeout};

use super::{
    History, Replicas, ask_until_told, check, client,
    proxy::{At, Then},
    report_until_heard,
};
use crate::common::{
    STEP, all,
    gates::{agent, ask, done, policy, said, success, try_evaluate},
    postgres::Postgres,
};

const CALLS: usize = 160;

/// Costs, with limits that are counted and not reached.
fn costly() -> Policy {
    let mut policy = policy(&["same_call", "budget"]);
    policy.rules.get_mut::<Budgets>().agent =
        Limits::new([(Dimension::ToolCalls, 10_000), (Dimension::Cost, 1_000_000_000)]);
    policy.declare("pay", ToolSpec { once: true, cost_micros: 300, ..ToolSpec::default() });
    policy
}

fn request(n: usize) -> Request {
    let session = if n.is_multiple_of(8) { format!("new{n}") } else { format!("shared{}", n % 5) };
    let tool = ["pay", "work", "save"][n % 3];
    Request { agent: agent("robot"), ..ask(&session, &format!("c{n}"), tool, &format!(r#"{{"n":{n}}}"#)) }
}

fn outcome(n: usize) -> Report {
    let asked = request(n);
    let told = success(asked.session.as_str(), asked.call_id.as_str(), &format!("result {n}"));
    Report { usage: Usage { cost_micros: 100 + n as u64, ..Usage::default() }, ..told }
}

/// 1 to 5 ms, as if at random.
fn deadline(n: usize) -> Duration {
    Duration::from_micros(1_000 + (n as u64 * 2_654_435_761) % 4_000)
}

/// What the shared counters say is what the rows add up to.
async fn counters_are_sums(replicas: &Replicas) {
    let counters =
        replicas.postgres.rows("select dimension, used from counter where agent_id = 'robot' order by 1").await;
    let sums = "select 1, (select sum(calls) from call_tree) union all
        select 2, (select sum(cost_micros + reserved_micros) from call_tree) order by 1";
    assert_eq!(counters, replicas.postgres.rows(sums).await);
}

/// Some callers stay until they are answered, the others go away before long.
fn is_served(n: usize) -> bool {
    n % 4 == 3
}

/// Runs callers who go away, at a time when nobody's change to a known tree can be committed.
async fn gone(postgres: &Postgres, callers: impl Iterator<Item = impl Future<Output = bool> + Send + 'static>) {
    let mut locked = postgres.connect().await;
    sqlx::raw_sql("begin; update call_tree set version = version").execute(&mut locked).await.expect("a lock");
    let went = all(callers).await.into_iter().filter(|went| *went).count();
    sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    assert!(went > CALLS / 4, "only {went} went away");
}

/// One more call through each gate: whatever was sent before it is stored, or refused, by now.
async fn drained(replicas: &Replicas, after: &str) {
    for (n, gate) in replicas.gates.iter().enumerate() {
        let look = ask(&format!("shared{n}"), after, "look", &format!(r#"{{"after":"{after}"}}"#));
        done(gate, Request { agent: agent("robot"), ..look }, "row").await;
    }
}

/// All questions at once. Gives the rows that there are then.
async fn storm(replicas: &Replicas, history: &Arc<History>) -> Vec<String> {
    for n in 0..15 {
        let warm = ask(&format!("shared{}", n % 5), &format!("warm{n}"), "look", &format!(r#"{{"n":{n}}}"#));
        done(&replicas.gates[n % 3], Request { agent: agent("robot"), ..warm }, "row").await;
    }
    let served = (0..CALLS).filter(|n| is_served(*n));
    let served = served.map(|n| client(replicas.gates.clone(), n, request(n), Arc::clone(history)));
    let served = tokio::spawn(all(served.collect::<Vec<_>>()));
    let asked = (0..CALLS).filter(|n| !is_served(*n)).map(|n| {
        let gate = Arc::clone(&replicas.gates[n % 3]);
        async move { timeout(deadline(n), try_evaluate(&gate, request(n))).await.is_err() }
    });
    gone(&replicas.postgres, asked).await;
    served.await.expect("no panic");
    drained(replicas, "questions").await;
    replicas.postgres.rows("select session_id, call_id, idempotency_key from call").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_go_away_leave_whole_calls_or_none() {
    let replicas = Replicas::start(&costly()).await;
    let history = Arc::new(History::default());
    let stored = storm(&replicas, &history).await;
    counters_are_sums(&replicas).await;
    check(&replicas.postgres, &history).await;

    let asked = (0..CALLS).filter(|n| !is_served(*n)).map(|n| {
        let (gates, history) = (replicas.gates.clone(), Arc::clone(&history));
        async move { (n, ask_until_told(&gates, n + 1, &request(n), &history).await) }
    });
    let mut stood = 0;
    for (n, answer) in all(asked.collect::<Vec<_>>()).await {
        let (asked, permit) = (request(n), answer.verdict.permit.as_ref().expect("a permit"));
        let name = format!("({},{},", asked.session, asked.call_id);
        if let Some(before) = stored.iter().find(|row| row.starts_with(&name)) {
            assert!(answer.verdict.replayed);
            assert_eq!(*before, format!("{name}{})", permit.idempotency_key));
            stood += 1;
        }
    }
    assert!(stood > 0, "nobody went away between a change and its commit");

    // Reports are given up as well, and heard in the end.
    let given_up = (0..CALLS).filter(|n| !is_served(*n)).map(|n| {
        let gate = Arc::clone(&replicas.gates[n % 3]);
        async move { timeout(deadline(n), Box::pin(gate.record(DEFAULT_TENANT, outcome(n), None))).await.is_err() }
    });
    gone(&replicas.postgres, given_up).await;
    drained(&replicas, "reports").await;
    counters_are_sums(&replicas).await;
    check(&replicas.postgres, &history).await;
    let stored = replicas.postgres.rows("select call_id from outcome").await;
    let reported = (0..CALLS).filter(|n| !is_served(*n)).map(|n| {
        let (gates, history) = (replicas.gates.clone(), Arc::clone(&history));
        async move { (n, report_until_heard(&gates, n + 1, &outcome(n), &history).await) }
    });
    for (n, answer) in all(reported.collect::<Vec<_>>()).await {
        assert_eq!(answer.replayed, stored.contains(&format!("(c{n})")), "c{n}");
    }
    counters_are_sums(&replicas).await;
    check(&replicas.postgres, &history).await;
    assert_eq!(replicas.postgres.number("select sum(open_calls) from call_tree").await, 0);
}

/// One of many who want the same paid: asks until it is. Who has to wait asks anew; who is not told asks the same
/// again, at another gate.
async fn buy(gates: [Arc<Gate>; 3], n: usize, history: Arc<History>) {
    for tries in 0.. {
        let request = ask(&format!("s{}", n % 20), &format!("c{n}-{tries}"), "pay", r#"{"invoice":7}"#);
        let answer = client(gates.clone(), n, request, Arc::clone(&history)).await;
        match said(&answer).as_str() {
            "ALLOW" | "REUSE duplicate_call_blocked" => return,
            "WAIT call_in_flight" => sleep(STEP * 25).await,
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stampede_through_three_gates_with_cut_lines_executes_once() {
    let replicas = Replicas::start(&policy(&["same_call"])).await;
    for proxy in &replicas.proxies {
        proxy.trap(At::Reply, Then::Cut);
    }
    let history = Arc::new(History::default());
    let clients = (0..100).map(|n| buy(replicas.gates.clone(), n, Arc::clone(&history)));
    all(clients.collect::<Vec<_>>()).await;
    let told = history.told();
    assert_eq!((told.permits.len(), told.executed.len(), told.results.len()), (1, 1, 1));
    assert_eq!(replicas.postgres.number("select count(attempt) from call").await, 1);
    assert_eq!(replicas.postgres.number("select count(*) from outcome").await, 1);
    check(&replicas.postgres, &history).await;
}
