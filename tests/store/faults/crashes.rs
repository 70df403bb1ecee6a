//! The database crashes again and again while many spend from one budget.

use std::sync::Arc;

use callgate::domain::{
    budget::{Budgets, Dimension, Limits},
    call::Request,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _};

use super::{History, Replicas, check, client};
use crate::common::{
    all,
    gates::{agent, ask, policy, said},
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_spent_to_the_last_and_no_further_while_the_database_crashes() {
    let mut policy = policy(&["same_call", "budget"]);
    policy.rules.get_mut::<Budgets>().agent = Limits::new([(Dimension::ToolCalls, LIMIT as u64)]);
    let replicas = Replicas::start(&policy).await;
    let history = Arc::new(History::default());
    let calls = "select count(*) from call";
    let mut answers = Vec::new();
    for round in 0..CRASHES {
        let clients = (0..CALLS).map(|n| {
            let (session, call) = (format!("s{}", n % 12), format!("c{round}-{n}"));
            let arguments = format!(r#"{{"round":{round},"n":{n}}}"#);
            let request = Request { agent: agent("robot"), ..ask(&session, &call, ["pay", "work"][n % 2], &arguments) };
            client(replicas.gates.clone(), n, request, Arc::clone(&history))
        });
        let before = replicas.postgres.number(calls).await;
        let crash = async {
            until("the first rows", async || replicas.postgres.number(calls).await > before).await;
            crash_session(&replicas.postgres).await;
        };
        let (told, ()) = tokio::join!(Box::pin(all(clients.collect::<Vec<_>>())), Box::pin(crash));
        answers.extend(told);
        let permits = replicas.postgres.number("select count(attempt) from call").await;
        assert!(permits <= LIMIT as i64, "{permits} permits");
    }
    let refused: Vec<_> = answers.iter().filter(|answer| answer.verdict.permit.is_none()).map(said).collect();
    assert_eq!(refused, vec!["STOP budget_exceeded"; CRASHES * CALLS - LIMIT]);
    assert_eq!(history.told().permits.len(), LIMIT);
    assert_eq!(replicas.postgres.number("select count(attempt) from call").await, LIMIT as i64);
    assert_eq!(replicas.postgres.rows("select agent_id, used from counter").await, [format!("(robot,{LIMIT})")]);
    check(&replicas.postgres, &history).await;
}
