//! Lost conflicts and dry runs leave no trace in shared data about tools.

use std::sync::Arc;

use callgate_core::{
    domain::{halt::HaltTarget, ids::DEFAULT_TENANT, session_state::Extent},
    policy::Policy,
};
use callgate_server::gate::Gate;

use crate::common::{
    gates::{ask, describe_answer, evaluate, policy, run_call, session, two_gates},
    postgres::{Postgres, writers_waiting},
};

/// As if `search` had been rate limited and the cooldown were over; ten retries of it are used up.
async fn cooled_down(postgres: &Postgres, gates: &[Arc<Gate>; 2]) {
    let limited =
        "insert into tool_health (tenant_id, tool, failures, cooldown_failure, cooldown_since, cooldown_until,
        retries_used, used_at, changed_at) values (1, 'search', 1, 1, now() - interval '9 seconds',
        now() - interval '1 second', 10, clock_timestamp(), clock_timestamp())";
    assert_eq!(postgres.tamper(limited).await, 1);
    for gate in gates {
        gate.decisions.share_health().await.expect("shared");
    }
}

/// Asks for `search` at the first gate, on a call tree that the other gate moves just then: the first decision is lost.
async fn search_and_lose_once(postgres: &Postgres, [one, other]: &[Arc<Gate>; 2]) -> String {
    run_call(one, ask("s", "before", "look", "{}"), "row").await;
    other
        .decisions
        .session_state(DEFAULT_TENANT, &session("s"), Extent { last_calls: 1, ..Extent::default() })
        .await
        .expect("both gates have the tree in memory now");
    let mut locked = postgres.connect().await;
    sqlx::raw_sql("begin; update call_tree set version = version").execute(&mut locked).await.expect("a lock");
    let asked = |gate: &Arc<Gate>, call: &'static str, tool: &'static str| {
        let gate = Arc::clone(gate);
        tokio::spawn(async move { evaluate(&gate, ask("s", call, tool, "{}")).await })
    };
    let first = asked(other, "winner", "unrelated");
    writers_waiting(postgres, 1).await;
    let loser = asked(one, "loser", "search");
    writers_waiting(postgres, 2).await;
    sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    first.await.expect("no panic");
    describe_answer(&loser.await.expect("no panic"))
}

/// Each permitted call earns one retry, and time none.
fn earning(rules: &[&str]) -> Policy {
    let mut policy = policy(rules);
    (policy.retry.allowance.share, policy.retry.allowance.per_minute) = (1.0, 0.0);
    policy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_lost_a_race_earns_one_retry_and_not_two() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &earning(&[])).await;
    cooled_down(&postgres, &gates).await;
    assert_eq!(search_and_lose_once(&postgres, &gates).await, "ALLOW");
    gates[0].decisions.share_health().await.expect("shared");
    let used = "select retries_used::int8 from tool_health where tool = 'search'";
    assert_eq!(postgres.number(used).await, 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_finds_out_how_a_tool_fares_still_does_after_a_lost_race() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["tool_circuit_breaker"])).await;
    cooled_down(&postgres, &gates).await;
    assert_eq!(search_and_lose_once(&postgres, &gates).await, "ALLOW");
    assert_eq!(
        describe_answer(&evaluate(&gates[1], ask("t", "c", "search", "{}")).await),
        "WAIT cooldown",
        "one at a time"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_a_call_that_is_refused_is_anothers_at_once() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["tool_circuit_breaker", "halted"])).await;
    cooled_down(&postgres, &gates).await;
    gates[0].decisions.halt(DEFAULT_TENANT, &HaltTarget::Tenant, "eve", "a drill").await.expect("a halt");
    assert_ne!(describe_answer(&evaluate(&gates[0], ask("s", "c", "search", "{}")).await), "ALLOW");
    let claims = "select count(*) from tool_health where probe_until is not null";
    assert_eq!(postgres.number(claims).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_writes_nothing() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["tool_circuit_breaker"])).await;
    cooled_down(&postgres, &gates).await;
    let row = "select xmin, t.* from tool_health t";
    let before = postgres.rows(row).await;
    let tried = Box::pin(gates[0].decisions.dry_run(ask("s", "c", "search", "{}"))).await.expect("a verdict");
    assert_eq!(describe_answer(&tried), "ALLOW");
    assert_eq!(postgres.rows(row).await, before);
    assert_eq!(postgres.number("select count(*) from call_tree").await, 0);
    assert_eq!(
        describe_answer(&evaluate(&gates[1], ask("t", "c", "search", "{}")).await),
        "ALLOW",
        "nobody finds out yet"
    );
}
