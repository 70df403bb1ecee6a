//! Repeated database crashes while many spend from one budget.

use std::sync::Arc;

use callgate_core::{
    domain::{
        budget::{BudgetLimits, Budgets, Dimension},
        call::Request,
    },
    policy::Policy,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _};

use super::{Replicas, check, client};
use crate::common::{
    all,
    gates::{agent, ask, describe_answer, policy},
    postgres::Postgres,
    process::signal,
    until,
};

const CRASHES: usize = 5;
const CALLS: usize = 24;
/// Less than is asked for.
const LIMIT: usize = CRASHES * CALLS - 20;

/// Kills a writer's session without a word, upon which the server throws out all sessions and recovers from its log;
/// returns once it serves again.
async fn crash_session(postgres: &Postgres) {
    let writers = "select min(pid) from pg_stat_activity where application_name like 'callgate writer%'";
    let killed = postgres.number(writers).await;
    assert!(signal(killed.try_into().expect("a process"), "KILL"));
    let sql = format!("select count(*) from pg_stat_activity where pid = {killed}");
    until("the recovery", async || {
        let Ok(mut conn) = postgres.options.connect().await else { return false };
        matches!(sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql.as_str())).fetch_one(&mut conn).await, Ok(0))
    })
    .await;
}

const RULES: [&str; 2] = ["same_call", "budget"];

fn limited_policy() -> Policy {
    let mut policy = policy(&RULES);
    policy.rules.get_mut::<Budgets>().agent = BudgetLimits::new([(Dimension::ToolCalls, LIMIT as u64)]);
    policy
}

/// Each tenant's agent of one name asks for more than it may.
async fn spent_to_the_last(replicas: Replicas) {
    let history = replicas.history();
    let calls = "select count(*) from call";
    let most = "select max(permits) from (select count(attempt) as permits from call group by tenant_id) t";
    let mut answers = Vec::new();
    for round in 0..CRASHES {
        let requests = (0..CALLS).flat_map(|n| {
            let (session, call) = (format!("s{}", n % 12), format!("c{round}-{n}"));
            let arguments = format!(r#"{{"round":{round},"n":{n}}}"#);
            let request = ask(&session, &call, ["pay", "work"][n % 2], &arguments);
            replicas.of_each(&Request { agent: agent("robot"), ..request })
        });
        let clients =
            requests.enumerate().map(|(n, request)| client(replicas.gates.clone(), n, request, Arc::clone(&history)));
        let before = replicas.postgres.number(calls).await;
        let crash = async {
            until("the first rows", async || replicas.postgres.number(calls).await > before).await;
            crash_session(&replicas.postgres).await;
        };
        let (told, ()) = tokio::join!(Box::pin(all(clients.collect::<Vec<_>>())), Box::pin(crash));
        answers.extend(told);
        let permits = replicas.postgres.number(most).await;
        assert!(permits <= LIMIT as i64, "{permits} permits");
    }
    let tenants = replicas.tenants.len();
    let refused: Vec<_> =
        answers.iter().filter(|answer| answer.verdict.permit.is_none()).map(describe_answer).collect();
    assert_eq!(refused, vec!["STOP budget_exceeded"; tenants * (CRASHES * CALLS - LIMIT)]);
    assert_eq!(history.observe().permits.len(), tenants * LIMIT);
    let used = "select tenant_id, agent_id, used from counter order by 1";
    let spent: Vec<String> = replicas.tenants.iter().map(|tenant| format!("({},robot,{LIMIT})", tenant.0)).collect();
    assert_eq!(replicas.postgres.rows(used).await, spent);
    let permits = "select tenant_id, 'robot', count(attempt) from call group by 1 order by 1";
    assert_eq!(replicas.postgres.rows(permits).await, spent);
    check(&replicas.postgres, &history).await;
    replicas.batches_were_shared().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_spent_to_the_last_and_no_further_while_the_database_crashes() {
    spent_to_the_last(Replicas::start(&limited_policy()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tenants_spend_each_its_own_budget_to_the_last_while_the_database_crashes() {
    let budgets = format!("agent: {{max_tool_calls: {LIMIT}, max_total_cost_usd: 0}}");
    spent_to_the_last(Replicas::start_for_tenants(&limited_policy(), &RULES, &budgets).await).await;
}
