//! Idempotency key of a call with an open effect: whether its server received it determines the party that may repeat.

use serde_json::json;

use super::{Scene, read_text};

const KEYED: &str = "  tool_schemas: {mcp__t__late: {effect: write, key_honored: true}}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_made_again_only_where_its_server_was_sent_the_key() {
    let argument = "  idempotency: {inject_as: argument, argument: key}";
    for (inject, executions) in [(argument, 2), ("", 1)] {
        let scene = Scene::with(&format!("policy_engine:\n{inject}\n{KEYED}\n")).await;
        let mut client = scene.client(&[], &[]);
        for id in 1..3 {
            let answer = read_text(&client.calls(id, "late", json!({"cents": 5})).await);
            let is_executed = id <= executions;
            assert_eq!(answer == "timed out", is_executed, "{inject}: {answer}");
            assert_eq!(answer["status"] == "outcome_unknown", !is_executed, "{inject}: {answer}");
        }
        let kept = String::from_utf8(client.read_inventory()).expect("UTF-8");
        assert_eq!(kept.matches("tools/call").count() as u64, executions, "{inject}: {kept}");
        assert_eq!(kept.matches(r#""key":"#).count(), if inject.is_empty() { 0 } else { 2 }, "{kept}");
        client.leaves().await;
    }
}
