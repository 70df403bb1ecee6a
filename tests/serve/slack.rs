//! Notifications to Slack: messages by Block Kit's reference, and buttons whose requests are signed.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use callgate_proto::v1::{
    self, ApprovalState, Decision, approval_service_client::ApprovalServiceClient,
    audit_service_client::AuditServiceClient,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    common::{
        in_time,
        wire::{call, evaluate, from, question},
    },
    receiver::Receiver,
    server::{Home, Server, path},
};

const SIGNING_SECRET: &str = "8f742231b10e8888abcd99";
const POLICY: &str = "policy_engine:
  authorization: {tiers: [{name: all, pattern: '*', action: hitl}]}
  approvals: {routes: [{tools: 'refund_*', group: finance}, {tools: 'wire_*', required_approvals: 2}]}
";

/// A message that Slack's reference permits.
fn valid(message: &Value) {
    let schema: Value = serde_json::from_str(include_str!("block_kit.schema.json")).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let problems: Vec<String> = validator.iter_errors(message).map(|error| error.to_string()).collect();
    assert!(problems.is_empty(), "{problems:?}\n{message:#}");
}

/// A server that notifies a channel, in which `U1` is the approver eve of finance, and `U2` is bob.
async fn serve(home: &Home, url: &str) -> Server {
    let (policy, secret) = (home.file("policy.yaml", POLICY), home.file("signing", SIGNING_SECRET));
    let file = home.file(
        "notifications.yaml",
        &format!(
            "console_url: https://plane.example
destinations:
- name: chat
  events: [requested, decided]
  arguments: true
  slack:
    url: '{url}'
    signing_secret_file: {}
    approvers: {{U1: {{name: eve, groups: [finance]}}, U2: {{name: bob}}}}
",
            path(&secret)
        ),
    );
    Server::start(home, &["--policy", path(&policy), "--notifications", path(&file)])
}

/// The buttons of a message, by their ids, with their values.
fn buttons(message: &Value) -> Vec<(String, String)> {
    let blocks = message["blocks"].as_array().expect("blocks");
    let all = blocks.iter().filter(|block| block["type"] == "actions").flat_map(|block| block["elements"].as_array());
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    all.flatten().map(|button| (text(&button["action_id"]), text(&button["value"]))).collect()
}

#[expect(clippy::disallowed_methods, reason = "a signature has the time of day")]
fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
    i64::try_from(now.as_secs()).expect("a time")
}

/// A press of a button, as Slack sends it.
struct Press<'a> {
    user: &'a str,
    action: &'a str,
    value: &'a str,
    respond_to: &'a str,
}

impl Press<'_> {
    fn body(&self) -> String {
        let payload = json!({
            "type": "block_actions",
            "user": {"id": self.user, "username": "somebody"},
            "response_url": self.respond_to,
            "actions": [{"type": "button", "action_id": self.action, "value": self.value}],
        });
        url::form_urlencoded::Serializer::new(String::new()).append_pair("payload", &payload.to_string()).finish()
    }

    /// Sends it, signed with `secret` at `at`; returns the status.
    async fn send(&self, address: SocketAddr, secret: &str, at: i64) -> u16 {
        let body = self.body();
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key");
        mac.update(format!("v0:{at}:{body}").as_bytes());
        let signature = hex::encode(mac.finalize().into_bytes());
        let request = format!(
            "POST /notifications/slack HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nx-slack-signature: \
             v0={signature}\r\nx-slack-request-timestamp: {at}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = async {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(request.as_bytes()).await.expect("writable");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            answer
        };
        let answer = in_time("an answer", answer).await;
        answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }
}

async fn state(server: &Server, approval_id: &str) -> v1::Approval {
    let wanted = v1::GetApprovalRequest { approval_id: approval_id.to_owned() };
    let mut approvals = ApprovalServiceClient::new(server.channel().await);
    approvals.get_approval(wanted).await.expect("a request").into_inner().approval.expect("a request")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slack_button_answers_for_the_mapped_approver_alone() {
    let (home, chat, replies) = (Home::with_cluster().await, Receiver::start().await, Receiver::start().await);
    let server = serve(&home, &chat.url).await;
    let refund = question("s1", call("c1", "refund_order", r#"{"order":7,"note":"<!channel>"}"#));
    let asked = evaluate(&mut server.client().await, refund).await;
    assert_eq!(asked.decision(), Decision::Ask);
    let message = chat.next().await.json();
    valid(&message);
    let shown = message.to_string();
    for part in ["Approval requested: refund_order", "Session: s1", "Time left: ", "\\\"order\\\":7", "/approvals/"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found = buttons(&message);
    assert_eq!(found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["approve", "deny"]);
    let press = |user, action| Press { user, action, value: &found[0].1, respond_to: &replies.url };

    // Not Slack's, too old, and from the future.
    let (address, now) = (server.address, now_s());
    for (secret, at) in [("another", now), (SIGNING_SECRET, now - 400), (SIGNING_SECRET, now + 400)] {
        assert_eq!(press("U1", "approve").send(address, secret, at).await, 401, "{secret} at {at}");
    }
    // Signed, and by users who may not answer.
    for (user, told) in [("U9", "U9 is not among the approvers of chat"), ("U2", "approvers of the group finance")] {
        assert_eq!(press(user, "approve").send(address, SIGNING_SECRET, now_s()).await, 200);
        let reply = replies.next().await.json();
        assert_eq!((&reply["response_type"], &reply["replace_original"]), (&"ephemeral".into(), &false.into()));
        assert!(reply["text"].as_str().is_some_and(|text| text.contains(told)), "{reply}");
        assert_eq!(state(&server, &asked.approval_id).await.state(), ApprovalState::Pending);
    }
    // A button that callgate does not have, such as a link.
    assert_eq!(press("U1", "open").send(address, SIGNING_SECRET, now_s()).await, 200);

    assert_eq!(press("U1", "approve").send(address, SIGNING_SECRET, now_s()).await, 200);
    let reply = replies.next().await.json();
    valid(&reply);
    assert!(reply["replace_original"] == true && buttons(&reply).is_empty(), "{reply}");
    assert!(reply.to_string().contains("Call approved: refund_order"), "{reply}");
    let approved = state(&server, &asked.approval_id).await;
    assert_eq!((approved.state(), approved.resolved_by.as_str()), (ApprovalState::Approved, "eve"));
    let entries = v1::ListAuditEntriesRequest { page_size: 10, ..Default::default() };
    let entries = AuditServiceClient::new(server.channel().await).list_audit_entries(from("ann", entries)).await;
    let entries = entries.expect("entries").into_inner().entries;
    assert!(entries.iter().any(|entry| format!("{entry:?}").contains("slack U1")), "{entries:?}");
    let decided = chat.next().await.json();
    valid(&decided);
    assert!(decided.to_string().contains("Answered by: eve"), "{decided}");

    assert_eq!(press("U1", "deny").send(address, SIGNING_SECRET, now_s()).await, 200);
    let reply = replies.next().await.json();
    assert!(reply["text"].as_str().is_some_and(|text| text.contains("approved already by eve")), "{reply}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slack_approval_by_two_people_keeps_its_buttons_after_the_first() {
    let (home, chat, replies) = (Home::with_cluster().await, Receiver::start().await, Receiver::start().await);
    let server = serve(&home, &chat.url).await;
    let asked = evaluate(&mut server.client().await, question("s1", call("c1", "wire_money", "{}"))).await;
    let message = chat.next().await.json();
    valid(&message);
    let found = buttons(&message);
    let press = |user| Press { user, action: "approve", value: &found[0].1, respond_to: &replies.url };
    for _ in 0..2 {
        assert_eq!(press("U1").send(server.address, SIGNING_SECRET, now_s()).await, 200);
        let reply = replies.next().await.json();
        valid(&reply);
        assert_eq!(buttons(&reply), found, "one approval is not enough: {reply}");
        assert!(reply.to_string().contains("Approved so far by: eve"), "{reply}");
        assert_eq!(state(&server, &asked.approval_id).await.state(), ApprovalState::Pending);
    }
    assert_eq!(press("U2").send(server.address, SIGNING_SECRET, now_s()).await, 200);
    assert!(buttons(&replies.next().await.json()).is_empty());
    assert_eq!(state(&server, &asked.approval_id).await.state(), ApprovalState::Approved);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slack_message_of_long_texts_keeps_to_the_limits_and_cannot_approve() {
    let (home, chat) = (Home::with_cluster().await, Receiver::start().await);
    let server = serve(&home, &chat.url).await;
    let long = json!({ "text": "<!here> \u{202e}".repeat(2_000) }).to_string();
    let mut refund = question(&"s".repeat(200), call("c1", &format!("refund_{}", "x".repeat(100)), &long));
    refund.call.as_mut().expect("a call").justification = "because & ".repeat(90);
    evaluate(&mut server.client().await, refund).await;
    let message = chat.next().await.json();
    valid(&message);
    assert_eq!(buttons(&message).iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["deny"], "{message}");
    let text = message["text"].as_str().expect("a text");
    assert!(!text.contains("<!here>") && !message.to_string().contains('\u{202e}'), "{text}");
}

#[test]
fn schema_of_block_kit_rejects_a_message_that_slack_would() {
    let schema: Value = serde_json::from_str(include_str!("block_kit.schema.json")).expect("a schema");
    let validator = Arc::new(jsonschema::validator_for(&schema).expect("a schema"));
    let header = |text: &str| json!({"type": "header", "text": {"type": "plain_text", "text": text}});
    let good = json!({"text": "x", "blocks": [header("x")]});
    assert!(validator.is_valid(&good));
    for wrong in [
        json!({"text": "x", "blocks": []}),
        json!({"text": "x", "blocks": [header(&"x".repeat(151))]}),
        json!({"text": "x", "blocks": [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}]}),
        json!({"text": "x", "blocks": [{"type": "section"}]}),
        json!({"text": "x", "blocks": [{"type": "actions", "elements": [{"type": "button", "action_id": "a"}]}]}),
    ] {
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
}
