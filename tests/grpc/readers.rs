//! Isolation of people's reads from agents, and single-flight for concurrent watchers.

use std::time::Duration;

use callgate_proto::v1::{self, Decision, session_service_client::SessionServiceClient};
use sqlx::PgConnection;
use tonic::Code;

use crate::common::{
    all,
    gates::policy,
    in_time, until,
    wire::{Plane, call, evaluate, pair, question, record, success},
};

async fn lock_table(plane: &Plane, table: &str) -> PgConnection {
    let mut locked = plane.postgres.connect().await;
    let lock = format!("begin; lock table {table} in access exclusive mode");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut locked).await.expect("a lock");
    locked
}

/// Number of connections of that name that wait for a lock.
async fn stuck(plane: &Plane, name: &str) -> i64 {
    let sql = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name";
    plane.postgres.number(&format!("{sql} = '{name}'")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_served_while_everything_that_people_have_is_in_use() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
    // Only lists of activations read this table.
    let _locked = lock_table(&plane, "policy_activation").await;
    let policies = v1::policy_service_client::PolicyServiceClient::new(plane.channel().await);
    let lists: Vec<_> = (0..20)
        .map(|_| {
            let mut policies = policies.clone();
            tokio::spawn(async move { policies.list_policies(v1::ListPoliciesRequest::default()).await })
        })
        .collect();
    until("people's connections to be in use", async || stuck(&plane, "callgate people").await == 2).await;
    assert_eq!(stuck(&plane, "callgate reader").await, 0, "and nobody else's");
    for n in 0..20 {
        let asked = question(&format!("new-{n}"), call("c1", "pay", &format!(r#"{{"n":{n}}}"#)));
        assert_eq!(evaluate(&mut client, asked).await.decision(), Decision::Allow);
        record(&mut client, success(&format!("new-{n}"), "c1", "paid")).await;
    }
    let mut told = Vec::new();
    for list in lists {
        let status = in_time("an answer", list).await.expect("no panic").expect_err("they cannot be read");
        assert_eq!(pair(&status), (Code::ResourceExhausted, "OVERLOADED".into()), "{status:?}");
        told.push(status.message().to_owned());
    }
    assert!(
        told.iter().any(|told| told.contains("reads of operators")),
        "who waits in vain is told for what: {told:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_are_served_while_everything_that_agents_read_by_is_in_use() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
    let _locked = lock_table(&plane, "halt").await;
    let stores: Vec<_> = (0..8)
        .map(|_| {
            let gate = std::sync::Arc::clone(&plane.gate);
            tokio::spawn(async move { gate.server.read_halts().await.is_ok() })
        })
        .collect();
    until("all readers to wait", async || stuck(&plane, "callgate reader").await == 8).await;
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let listed = in_time("a list", sessions.list_sessions(v1::ListSessionsRequest::default())).await.expect("a list");
    assert_eq!(listed.into_inner().sessions.len(), 1);
    for store in stores {
        let _ = in_time("an end", store).await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_who_watch_a_session_cost_one_look() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
    let channels = [plane.channel().await, plane.channel().await];
    let watch = || v1::WatchSessionRequest { session_id: "s".into() };
    let watches = all((0..300).map(|n| {
        let mut sessions = SessionServiceClient::new(channels[n % 2].clone());
        async move {
            let mut states = sessions.watch_session(watch()).await.expect("a watch").into_inner();
            in_time("a state", states.message()).await.expect("a message").expect("a state");
            states
        }
    }));
    let mut watches = watches.await;
    let scans = "select coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0) from pg_stat_user_tables
        where relname like 'session%' or relname like 'call_tree%'";
    let before = plane.postgres.number(scans).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let cost = plane.postgres.number(scans).await - before;
    assert!(cost < 300, "{cost} look-ups in three seconds: one a watcher and look would be 1,800");
    record(&mut client, success("s", "c1", "row")).await;
    for states in &mut watches {
        let state = in_time("the news", states.message()).await.expect("a message").expect("a state");
        assert_eq!(state.state.expect("a state").calls[0].state(), v1::CallState::Succeeded);
    }
}
