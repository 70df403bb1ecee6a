//! Log lines of operations: one each, with actor, operation and reason.

use serde_json::Value;

use super::{Desk, POLICY, path};
use crate::{
    common::until,
    server::{Home, Server},
};

/// Commands with their log line: kind, operation, reason.
const TYPED: [(&str, &str, &str, Option<&str>); 15] = [
    ("sessions halt session s1 --by eve --reason drill", "halted", "session s1", Some("drill")),
    ("sessions resume session s1 --by eve --reason over", "resumed", "session s1", Some("over")),
    ("sessions halt tool get_order --by eve", "halted", "tool get_order", None),
    ("sessions halt all --by eve --reason fire", "halted", "everything", Some("fire")),
    ("sessions resume all --by eve", "resumed", "everything", None),
    ("grants create s1 create_order 3 --by eve --reason plan", "granted", " 3 calls of create_order", Some("plan")),
    ("approvals deny {question} --by eve --reason shipped", "answered", "denied ", Some("shipped")),
    ("policy apply {policy} --store-only --by eve --note kept", "policy_stored", "", Some("kept")),
    ("policy apply {policy} --by eve --note tried", "policy_activated", "", Some("tried")),
    ("policy rollback --by eve --note back", "policy_activated", "", Some("back")),
    ("tenants create acme --by eve", "tenant_created", "acme", None),
    ("tenants retention acme --texts-days 30 --by eve", "retention_changed", "acme: texts 30 days", None),
    ("tenants suspend acme --by eve", "tenant_suspended", "acme", None),
    ("tenants resume acme --by eve", "tenant_resumed", "acme", None),
    ("forget session s1 --yes --by eve --reason asked", "forgotten", "", Some("asked")),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_action_is_one_log_line() {
    let home = Home::with_cluster().await;
    let (file, new) = (home.file("policy.yaml", POLICY), home.file("new.yaml", &POLICY.replace("shadow", "'off'")));
    let log = home.file("log.json", "");
    let data_dir = home.data_dir();
    let server = Server::logging_json(&["--data-dir", path(&data_dir), "--policy", path(&file)], &log);
    let (agent, url) = (server.client().await, format!("http://{}", server.address));
    let mut desk = Desk { agent, url, server, home };
    let question = desk.asks("s1", "c1", "delete_order", r#"{"id":4}"#).await.approval_id;

    for (typed, kind, what, why) in TYPED {
        let before = lines(&log).len();
        desk.does(&typed.replace("{question}", &question).replace("{policy}", path(&new))).await;
        // A thread of its own writes them.
        until("a line", async || lines(&log).len() > before).await;
        let said: Vec<Value> = lines(&log).split_off(before);
        let [line] = &said[..] else { panic!("{typed}: {said:#?}") };
        assert_eq!(
            (line["level"].as_str(), line["callgate.audit.kind"].as_str()),
            (Some("INFO"), Some(kind)),
            "{typed}"
        );
        let told = |field: &str| line[field].as_str().map(str::to_owned);
        assert!(told("callgate.audit.action").is_some_and(|said| said.contains(what)), "{typed}: {line}");
        assert_eq!(told("callgate.audit.reason").as_deref(), why, "{typed}: {line}");
        assert_eq!(told("callgate.audit.by").as_deref(), Some("eve"), "{typed}: {line}");
        let message = told("message").expect("a message");
        assert!(message.starts_with(&format!("{kind}: ")) && message.ends_with(", by eve"), "{message}");
    }
}

/// The lines of the audit.
fn lines(log: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).expect("a log");
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")));
    lines.filter(|line: &Value| line["target"] == "callgate::audit").collect()
}
