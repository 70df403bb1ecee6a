//! First start, graceful shutdown, and restart.

use std::time::Duration;

use callgate_proto::{
    time::duration,
    v1::{
        self, CallState, Decision, GetSessionStateRequest, approval_service_client::ApprovalServiceClient,
        session_service_client::SessionServiceClient,
    },
};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{
    common::{
        in_time,
        process::{is_alive, signal},
        wire::{call, channel, evaluate, pair, question, record, success},
    },
    server::{Home, Server, path},
};

/// An idle server ends at once; this is the timeout of a busy one.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Calls in progress may take ten seconds; with none there is nothing to wait for.
const UNASKED_MAX: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_from_nothing_and_stops_at_a_signal() {
    let home = Home::empty();
    for (signalled, found) in [("TERM", false), ("INT", true)] {
        let server = Server::start(&home, &[]);
        assert!(server.address.ip().is_loopback() && server.address.port() > 0);
        for part in ["serves gRPC on 127.0.0.1:", "database  PostgreSQL ", "policy    default", "budget    run: "] {
            assert!(server.greeting.contains(part), "{part} is missing in {}", server.greeting);
        }
        let mut client = server.client().await;
        let verdict = evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
        assert_eq!((verdict.decision(), verdict.replayed), (Decision::Allow, found));
        if found {
            record(&mut client, success("s", "c1", "row")).await;
        }
        let database = home.postmaster().expect("it runs");
        assert!(is_alive(database));

        assert!(signal(server.pid(), signalled));
        let (status, rest) = server.wait_for_end(STOP_MAX).await;
        assert_eq!(status.code(), Some(0));
        assert_eq!(rest, "", "nothing more is said on standard output");
        assert!(!is_alive(database), "the database is stopped with it");
        assert_eq!(home.postmaster(), None, "and in order");
    }
    let server = Server::start(&home, &[]);
    let request = GetSessionStateRequest { session_id: "s".into(), last_calls: 0, summary_tokens: 0 };
    let state = in_time("a state", server.client().await.get_session_state(request)).await.expect("a state");
    let state = state.into_inner().state.expect("a state");
    let [call] = &state.calls[..] else { panic!("{state:?}") };
    assert_eq!((call.call_id.as_str(), call.state()), ("c1", CallState::Succeeded));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_file_is_obeyed() {
    let home = Home::with_cluster().await;
    let text = "policy_engine:\n  tool_schemas:\n    pay: {once: true, cost_usd: 0.25}\n";
    let file = home.file("policy.yaml", text);
    let server = Server::start(&home, &["--policy", path(&file)]);
    assert!(
        server.greeting.contains("1 tools declared") && server.greeting.contains(path(&file)),
        "{}",
        server.greeting
    );
    let mut client = server.client().await;
    let first = evaluate(&mut client, question("s", call("c1", "pay", "{}"))).await;
    assert_eq!((first.decision(), first.policy_version.len()), (Decision::Allow, 16));
    let other = evaluate(&mut client, question("another", call("c2", "pay", "{}"))).await;
    assert_eq!((other.decision(), other.reason.as_str()), (Decision::Wait, "call_in_flight"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_call_is_answered_and_does_not_delay_the_shutdown() {
    let home = Home::with_cluster().await;
    let tiers = "[{name: drops, pattern: 'drop_*', action: hitl}, {name: rest, pattern: '*', action: allowlist}]";
    let text = format!("policy_engine: {{authorization: {{tiers: {tiers}}}}}\n");
    let file = home.file("policy.yaml", &text);
    let server = Server::start(&home, &["--policy", path(&file)]);
    let mut client = server.client().await;
    let channel = channel(server.address).await;
    let _silent = TcpStream::connect(server.address).await.expect("a connection");
    let mut health = HealthClient::new(channel.clone()).watch(HealthCheckRequest::default()).await.expect("a watch");
    let health = health.get_mut();
    let told = in_time("health", health.message()).await.expect("a message").expect("a status");
    assert_eq!(told.status(), ServingStatus::Serving);

    evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
    let all = v1::WatchApprovalsRequest::default();
    let mut questions = ApprovalServiceClient::new(channel.clone()).watch_approvals(all).await.expect("a watch");
    let session = v1::WatchSessionRequest { session_id: "s".into() };
    let mut states = SessionServiceClient::new(channel).watch_session(session).await.expect("a watch");
    in_time("a state", states.get_mut().message()).await.expect("a message").expect("a state");
    let request =
        v1::EvaluateRequest { max_wait: Some(duration(60_000)), ..question("s2", call("c2", "drop_table", "{}")) };
    let waiting = tokio::spawn(async move { client.evaluate(request).await });
    in_time("a question", questions.get_mut().message()).await.expect("a message").expect("a question");

    assert!(signal(server.pid(), "TERM"));
    let ended = server.wait_for_end(UNASKED_MAX);
    in_time("health", async {
        while health.message().await.expect("a message").expect("a status").status() != ServingStatus::NotServing {}
    })
    .await;
    let waited = in_time("the end", waiting).await.expect("no panic").expect_err("nobody answered");
    let question = in_time("the end", questions.get_mut().message()).await.expect_err("the end");
    let state = in_time("the end", states.get_mut().message()).await.expect_err("the end");
    for status in [waited, question, state] {
        assert_eq!(pair(&status), (Code::Unavailable, "SHUTTING_DOWN".to_owned()), "{status:?}");
        assert!(status.message().starts_with("the server is shutting down"), "{status:?}");
    }
    assert_eq!(ended.await.0.code(), Some(0));
}
