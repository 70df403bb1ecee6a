//! Notifications of `callgate serve --notifications`: sent by one replica, retried until accepted, filtered by tenant,
//! group and event, and never blocking a call.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use callgate_proto::v1::{
    self, Decision, approval_service_client::ApprovalServiceClient, session_service_client::SessionServiceClient,
};

use crate::{
    common::{
        postgres::Postgres,
        until,
        wire::{call, evaluate, from, outcome, question, record},
    },
    receiver::{Receiver, secret_text},
    server::{Home, Server, fail_to_start, path, ran},
};

const POLICY: &str = "policy_engine:
  authorization:
    tiers: [{name: money, pattern: 'refund_*', action: hitl}, {name: rest, pattern: '*', action: allowlist}]
  tool_schemas: {refund_order: {effect: write, once: true}, get_order: {effect: read}}
";

fn refund(session: &str) -> v1::EvaluateRequest {
    question(session, call("c1", "refund_order", r#"{"card":"4111-hush"}"#))
}

/// A file with one destination of approval requests.
fn webhook(home: &Home, url: &str) -> PathBuf {
    let secret = home.file("secret", &secret_text());
    home.file(
        "notifications.yaml",
        &format!(
            "console_url: https://plane.example/\ndestinations:\n- name: hook\n  events: [requested]\n  \
             webhook: {{url: '{url}', secret_file: {}}}\n",
            path(&secret)
        ),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_is_sent_by_one_of_two_replicas_until_it_is_accepted() {
    let (postgres, home, receiver) = (Postgres::start().await, Home::empty(), Receiver::start().await);
    let policy = home.file("policy.yaml", POLICY);
    let (file, url) = (webhook(&home, &receiver.url), postgres.url());
    let args = ["--database-url", url.as_str(), "--policy", path(&policy), "--notifications", path(&file)];
    let (first, second) = (Server::with(&args), Server::with(&args));
    let mut client = first.client().await;
    receiver.statuses.lock().await.extend([503, 500]);
    let asked = evaluate(&mut client, refund("s1")).await;
    assert_eq!(asked.decision(), Decision::Ask);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let request = receiver.next().await;
        assert!(request.is_signed(), "{request:?}");
        ids.push(request.headers["webhook-id"].clone());
        assert!(!request.body.contains("hush"), "no arguments unless the destination gets them: {}", request.body);
        let (body, link) = (request.json(), format!("https://plane.example/approvals/{}", asked.approval_id));
        assert_eq!((&body["type"], &body["data"]["url"]), (&"approval.requested".into(), &link.into()));
        assert_eq!((&body["data"]["tool"], &body["data"]["risk"]), (&"refund_order".into(), &"HIGH".into()));
        assert_eq!(body["data"]["approval_id"], asked.approval_id.as_str());
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "retries have one id: {ids:?}");
    let settled = "select count(*) from approval_notice where delivered_at is not null and attempts = 3
        and subject is null";
    until("it is settled", async || postgres.number(settled).await == 1).await;

    // A receiver that does not answer: calls go on.
    receiver.answers.forget_permits(100);
    evaluate(&mut client, refund("s2")).await;
    let stuck = receiver.next().await.headers["webhook-id"].clone();
    let look = question("s3", call("c1", "get_order", r#"{"id":1}"#));
    assert_eq!(evaluate(&mut client, look).await.decision(), Decision::Allow);
    assert!(receiver.is_quiet().await, "one of them sends it");

    // The claiming replica dies. After a minute, the claim's expiry, another one sends it with the same id.
    first.kill();
    second.kill();
    receiver.answers.add_permits(100);
    let _third = Server::with(&args);
    postgres
        .tamper("update callgate.approval_notice set claimed_until = now(), next_at = now() where delivered_at is null")
        .await;
    let again = receiver.next().await;
    assert_eq!(again.headers["webhook-id"], stuck);
    assert!(again.is_signed(), "{again:?}");
    until("it is settled", async || {
        postgres.number("select count(*) from approval_notice where delivered_at is not null").await == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_file_with_a_fault_and_the_former_flag_are_rejected_at_start() {
    let home = Home::empty();
    let wrong = home.file("wrong.yaml", "console_url: https://plane.example\ndestinations: []\n");
    let data = home.data_dir();
    let (code, error) = fail_to_start(&["--data-dir", path(&data), "--notifications", path(&wrong)]).await;
    assert!(code == Some(1) && error.contains("destinations: has to have 1 to 100 entries"), "{code:?}: {error}");
    let (code, error) = fail_to_start(&["--data-dir", path(&data), "--approvals-webhook", path(&wrong)]).await;
    assert!(code == Some(1) && error.contains("was replaced by --notifications FILE"), "{code:?}: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_attempts_are_signed_at_their_own_time_and_follow_no_redirect() {
    let (home, receiver, elsewhere) = (Home::with_cluster().await, Receiver::start().await, Receiver::start().await);
    let policy = home.file("policy.yaml", POLICY);
    let file = webhook(&home, &receiver.url);
    *receiver.leads_to.lock().await = elsewhere.url.clone();
    receiver.statuses.lock().await.extend([503, 308, 307, 302]);
    let server = Server::start(&home, &["--policy", path(&policy), "--notifications", path(&file)]);
    evaluate(&mut server.client().await, refund("s1")).await;
    let (mut times, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let request = receiver.next().await;
        let at: i64 = request.headers["webhook-timestamp"].parse().expect("seconds");
        assert!(request.is_signed(), "{request:?}");
        assert!(!request.is_signed_at(&(at + 300).to_string()), "its time is part of what is signed");
        times.push(at);
        ids.push(request.headers["webhook-id"].clone());
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "waits of a second and more: {times:?}");
    assert!(elsewhere.is_quiet().await, "a redirect is not followed");
}

const EVENTS: &str = "policy_engine:
  authorization:
    tiers: [{name: money, pattern: 'refund_*|pay_*', action: hitl}, {name: rest, pattern: '*', action: allowlist}]
  approvals:
    ttl_ms: 10s
    routes:
      - {tools: 'refund_*', group: finance, escalate_after_ms: 1ms, escalate_to: heads}
  tool_schemas: {get_order: {effect: read}, ship: {effect: read}}
  budgets: {tenant: {max_tool_calls: 4}}
";

/// Keys of `data` that the page of notifications lists for a type.
fn documented_keys(kind: &str) -> BTreeSet<String> {
    let kind = if kind.starts_with("approval.") { "approval.requested" } else { kind };
    let page = include_str!("../../docs/notifications.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| `{kind}`"))).expect("a row");
    let keys = row.split('|').nth(2).expect("a cell").split('`').skip(1).step_by(2);
    let keys = keys.filter(|key| !key.contains(':')).chain(["tenant", "url"]);
    keys.map(str::to_owned).collect()
}

fn has_documented_keys(body: &serde_json::Value) {
    let kind = body["type"].as_str().expect("a type");
    let keys: BTreeSet<String> = body["data"].as_object().expect("data").keys().cloned().collect();
    assert_eq!(keys, documented_keys(kind), "{body}");
    let outer: Vec<&String> = body.as_object().expect("an object").keys().collect();
    assert_eq!(outer, ["data", "text", "timestamp", "type"], "{body}");
    let empty = ["resolved_by", "justification", "agent_id", "group", "escalate_group", "reason"];
    let data = body["data"].as_object().expect("data");
    let missing = data.iter().find(|(key, value)| value.is_null() && !empty.contains(&key.as_str()));
    assert_eq!(missing, None, "{body}");
}

/// The types of the next messages, with a count of each; and the bodies.
async fn kinds(receiver: &Receiver, count: usize) -> (BTreeMap<String, usize>, Vec<serde_json::Value>) {
    let (mut counts, mut bodies) = (BTreeMap::new(), Vec::new());
    for _ in 0..count {
        let body = receiver.next().await.json();
        has_documented_keys(&body);
        *counts.entry(body["type"].as_str().expect("a type").to_owned()).or_default() += 1;
        bodies.push(body);
    }
    (counts, bodies)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_of_each_event_reaches_the_destinations_of_its_group() {
    let (home, all, heads) = (Home::with_cluster().await, Receiver::start().await, Receiver::start().await);
    let (policy, secret) = (home.file("policy.yaml", EVENTS), home.file("secret", &secret_text()));
    let secret = path(&secret);
    let file = home.file(
        "notifications.yaml",
        &format!(
            "console_url: https://plane.example
destinations:
- name: all
  events: [requested, escalated, decided, expired, halted, budget, circuit_open]
  arguments: true
  webhook: {{url: '{}', secret_file: {secret}}}
- {{name: heads, groups: [heads], events: [requested, escalated], webhook: {{url: '{}', secret_file: {secret}}}}}
- {{name: other, tenants: [acme], events: [requested, halted], webhook: {{url: '{}', secret_file: {secret}}}}}
",
            all.url, heads.url, heads.url
        ),
    );
    let server = Server::start(&home, &["--policy", path(&policy), "--notifications", path(&file)]);
    let mut client = server.client().await;

    // Requested, escalated to the second group, and denied before it expires.
    let asked = evaluate(&mut client, refund("s1")).await;
    let (counts, bodies) = kinds(&all, 2).await;
    assert_eq!(counts, [("approval.escalated".into(), 1), ("approval.requested".into(), 1)].into());
    assert!(
        bodies.iter().all(|body| body["data"]["arguments_json"].as_str().is_some_and(|text| text.contains("card")))
    );
    let escalated = heads.next().await.json();
    assert_eq!(escalated["type"], "approval.escalated", "the request itself is for another group");
    let no = v1::ResolveApprovalRequest { approval_id: asked.approval_id, ..Default::default() };
    let mut approvals = ApprovalServiceClient::new(server.channel().await);
    approvals.resolve_approval(from("eve", no)).await.expect("an answer");
    let decided = all.next().await.json();
    has_documented_keys(&decided);
    assert_eq!((&decided["type"], &decided["data"]["state"]), (&"approval.decided".into(), &"denied".into()));
    assert_eq!(decided["data"]["resolved_by"], "eve");

    // Requested, and expired.
    evaluate(&mut client, question("s2", call("c1", "pay_bill", "{}"))).await;
    let (counts, _) = kinds(&all, 2).await;
    assert_eq!(counts, [("approval.expired".into(), 1), ("approval.requested".into(), 1)].into());

    // A tool that is rate limited opens its circuit breaker.
    evaluate(&mut client, question("s3", call("c1", "ship", "{}"))).await;
    let retry_after = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let limited = v1::ToolError { message: "429".into(), http_status: Some(429), retry_after, ..Default::default() };
    let limited = v1::RecordRequest { error: Some(limited), ..outcome("s3", "c1", v1::OutcomeStatus::Error) };
    record(&mut client, limited).await;
    let open = all.next().await.json();
    has_documented_keys(&open);
    assert_eq!((&open["type"], &open["data"]["tool"]), (&"circuit_breaker.opened".into(), &"ship".into()));

    let halt =
        v1::HaltRequest { scope: v1::HaltScope::Tool.into(), name: "drop_table".into(), reason: "incident".into() };
    SessionServiceClient::new(server.channel().await).halt(from("ann", halt)).await.expect("halted");
    let halted = all.next().await.json();
    has_documented_keys(&halted);
    assert_eq!((&halted["type"], &halted["data"]["target"]), (&"halt.started".into(), &"tool drop_table".into()));
    assert_eq!((&halted["data"]["by"], &halted["data"]["reason"]), (&"ann".into(), &"incident".into()));
    assert!(heads.is_quiet().await, "other tenants, groups and events are filtered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_of_a_budget_is_sent_when_the_day_reaches_its_threshold() {
    let (home, receiver) = (Home::with_cluster().await, Receiver::start().await);
    let (policy, file) = (home.file("policy.yaml", EVENTS), webhook(&home, &receiver.url));
    let text = std::fs::read_to_string(&file).expect("the file").replace("[requested]", "[budget]");
    let file = home.file("budget.yaml", &text);
    let first = Server::start(&home, &["--policy", path(&policy)]);
    let mut client = first.client().await;
    for n in 0..4 {
        let look = question("s1", call(&format!("c{n}"), "get_order", &format!(r#"{{"id":{n}}}"#)));
        assert_eq!(evaluate(&mut client, look).await.decision(), Decision::Allow);
    }
    drop(client);
    drop(first);
    let _server = Server::start(&home, &["--policy", path(&policy), "--notifications", path(&file)]);
    let body = receiver.next().await.json();
    has_documented_keys(&body);
    assert_eq!((&body["type"], &body["data"]["percent"]), (&"budget.threshold".into(), &100.into()), "{body}");
    assert_eq!((&body["data"]["scope"], &body["data"]["limit"]), (&"tenant".into(), &"4 tool calls".into()), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_test_reports_each_destination() {
    let (home, receiver) = (Home::empty(), Receiver::start().await);
    let file = webhook(&home, &receiver.url);
    receiver.statuses.lock().await.push(410);
    let args = ["notifications", "test", "--notifications", path(&file)];
    let (code, out, _) = ran(&args).await;
    assert!(code == Some(1) && out.contains("hook (webhook): not accepted: it answers 410"), "{code:?}: {out}");
    let (code, out, _) = ran(&args).await;
    assert_eq!((code, out.trim()), (Some(0), "hook (webhook): accepted"));
    for _ in 0..2 {
        let request = receiver.next().await;
        assert!(request.is_signed() && request.json()["type"] == "notification.test", "{request:?}");
    }
    let (code, _, error) = ran(&[args.as_slice(), &["chat"]].concat()).await;
    assert!(code == Some(1) && error.contains("has no destination \"chat\""), "{code:?}: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_destinations_are_listed_with_their_last_error_and_tested() {
    let (home, receiver) = (Home::with_cluster().await, Receiver::start().await);
    let (policy, file) = (home.file("policy.yaml", POLICY), webhook(&home, &receiver.url));
    let other = "- name: other\n  tenants: [acme]\n  events: [requested]\n  webhook: {url: 'https://acme.example', \
                 secret_file: SECRET}\n";
    let text = std::fs::read_to_string(&file).expect("the file");
    let secret = text.split("secret_file: ").nth(1).and_then(|rest| rest.split('}').next()).expect("a path").to_owned();
    let file = home.file("both.yaml", &format!("{text}{}", other.replace("SECRET", &secret)));
    let server = Server::start(&home, &["--policy", path(&policy), "--notifications", path(&file)]);
    let mut fleets = v1::fleet_service_client::FleetServiceClient::new(server.channel().await);
    let mut list = async || {
        let asked = v1::ListNotificationDestinationsRequest {};
        let listed = fleets.list_notification_destinations(asked).await.expect("an answer").into_inner().destinations;
        assert_eq!(listed.len(), 1, "the other one is of another tenant: {listed:?}");
        listed.into_iter().next().expect("one")
    };
    let first = list().await;
    assert_eq!(
        (first.name.as_str(), first.channel.as_str(), first.events),
        ("hook", "webhook", vec!["requested".into()])
    );
    assert_eq!((first.waiting, first.delivered, first.last_error.as_str()), (0, 0, ""));
    receiver.statuses.lock().await.push(503);
    evaluate(&mut server.client().await, refund("s1")).await;
    until("the failure to be listed", async || list().await.last_error.contains("503")).await;
    let failed_at = list().await.last_error_time;
    assert!(failed_at.is_some());
    until("it to be delivered", async || list().await.delivered == 1).await;
    let delivered = list().await;
    assert_eq!((delivered.waiting, delivered.last_error_time), (0, failed_at), "of the failure, not of the delivery");
    let test = async |name: &str| {
        let asked = v1::TestNotificationDestinationRequest { name: name.into() };
        let mut fleets = v1::fleet_service_client::FleetServiceClient::new(server.channel().await);
        fleets.test_notification_destination(from("eve", asked)).await.map(|answer| answer.into_inner().problem)
    };
    receiver.statuses.lock().await.push(410);
    assert!(test("hook").await.expect("an answer").contains("410"));
    assert_eq!(test("hook").await.expect("an answer"), "");
    for unknown in ["other", "none", ""] {
        assert_eq!(test(unknown).await.expect_err(unknown).code(), tonic::Code::InvalidArgument, "{unknown}");
    }
}
