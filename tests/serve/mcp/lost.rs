//! Lost answers to the proxy, and killed proxies: no permit stays open, and executed calls are never cancelled.

use callgate_proto::v1::{CallState, ResolveApprovalRequest, approval_service_client::ApprovalServiceClient};
use serde_json::json;

use super::{Client, Scene, open_ones, read_text};
use crate::{
    common::{process::signal, until, wire::from},
    relay::{LostHalf, Relay},
};

impl Scene {
    async fn behind_relay() -> (Self, Relay) {
        let mut scene = Self::open().await;
        let relay = Relay::to(&scene.url).await;
        scene.url = relay.url.clone();
        (scene, relay)
    }

    async fn approves(&self) {
        let mut people = ApprovalServiceClient::new(self.server.as_ref().expect("it runs").channel().await);
        let mut asked = Vec::new();
        until("the question", async || {
            asked = people.list_approvals(open_ones()).await.expect("a list").into_inner().approvals;
            !asked.is_empty()
        })
        .await;
        let approval_id = asked[0].approval_id.clone();
        let approve = ResolveApprovalRequest { approval_id, approve: true, ..Default::default() };
        people.resolve_approval(from("eve", approve)).await.expect("approved");
    }
}

impl Client {
    async fn is_refused_as_away(&mut self, id: u64, tool: &str) {
        let refused = self.calls(id, tool, json!({})).await;
        assert_eq!(read_text(&refused)["status"], "callgate_unavailable", "{refused}");
    }

    async fn ends_without_a_word(mut self) {
        self.child.kill().await.expect("it runs");
    }

    fn has_sent(&self, tool: &str) -> bool {
        String::from_utf8(self.read_inventory()).expect("UTF-8").contains(tool)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_answer_was_lost_is_called_off_by_its_proxy() {
    let (scene, relay) = Scene::behind_relay().await;
    let mut client = scene.client(&["--max-wait-s", "3"], &[]);
    // The request is lost.
    relay.loses(LostHalf::Questions);
    client.is_refused_as_away(1, "send").await;
    assert_eq!(scene.calls().await, []);
    relay.loses(LostHalf::Nothing);
    assert_eq!(client.calls(2, "look", json!({})).await["isError"], serde_json::Value::Null);
    // The answer is lost.
    relay.loses(LostHalf::Answers);
    client.asks(3, "send", json!({})).await;
    scene.newest("mcp__t__send", CallState::InFlight).await;
    assert!(client.reads().await.contains("callgate_unavailable"));
    relay.loses(LostHalf::Nothing);
    scene.newest("mcp__t__send", CallState::Cancelled).await;
    // The answer is lost while a person is waited for.
    client.asks(4, "drop", json!({})).await;
    scene.newest("mcp__t__drop", CallState::Held).await;
    relay.loses(LostHalf::Answers);
    scene.approves().await;
    scene.newest("mcp__t__drop", CallState::InFlight).await;
    assert!(client.reads().await.contains("callgate_unavailable"));
    relay.loses(LostHalf::Nothing);
    scene.newest("mcp__t__drop", CallState::Cancelled).await;
    assert!(!client.has_sent("send") && !client.has_sent("drop"));
    client.leaves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_killed_proxy_are_cancelled_by_the_next_unless_they_ran() {
    let (scene, relay) = Scene::behind_relay().await;
    // Killed while its server works on the call.
    let mut client = scene.client(&[], &[]);
    client.asks(1, "never", json!({})).await;
    until("the call", async || client.has_sent("never")).await;
    client.ends_without_a_word().await;
    // Killed before its request arrived, and while it waited for the answer.
    for loses in [LostHalf::Questions, LostHalf::Answers] {
        let mut client = scene.client(&[], &[]);
        relay.loses(loses);
        client.asks(1, "send", json!({})).await;
        let folder = client.kept.with_file_name("state").join("callgate/mcp/asked");
        let is_noted = || {
            let folders = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.filter_map(|entry| std::fs::read_dir(entry.path()).ok()).flatten().count() > 0
        };
        until("the note", async || is_noted()).await;
        if loses == LostHalf::Answers {
            scene.newest("mcp__t__send", CallState::InFlight).await;
        }
        client.ends_without_a_word().await;
        relay.loses(LostHalf::Nothing);
    }
    let mut next = scene.client(&[], &[]);
    assert_eq!(next.calls(1, "look", json!({})).await["isError"], serde_json::Value::Null);
    let expected = [
        ("mcp__t__look", CallState::Succeeded),
        ("mcp__t__send", CallState::Cancelled),
        ("mcp__t__never", CallState::InFlight),
    ];
    until("the outcome", async || scene.calls().await.iter().map(|(tool, state)| (&**tool, *state)).eq(expected)).await;
    next.leaves().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_costs_a_client_seconds() {
    let scene = Scene::open().await;
    let mut client = scene.client(&[], &[]);
    assert_eq!(client.calls(1, "look", json!({})).await["isError"], serde_json::Value::Null);
    let pid = scene.server.as_ref().expect("it runs").pid();
    assert!(signal(pid, "STOP"));
    // Within the tests' patience.
    client.is_refused_as_away(2, "send").await;
    assert!(signal(pid, "CONT"));
    until("no open call", async || scene.calls().await.iter().all(|(_, state)| *state != CallState::InFlight)).await;
    assert!(!client.has_sent("send"));
    client.leaves().await;
}
