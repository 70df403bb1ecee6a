//! Texts of refusals, as a model behind the proxy and its user read them.

use serde_json::json;

use super::{Scene, read_text};

const POLICY: &str = "policy_engine:
  unknown_tools: allow
  authorization:
    tiers:
      - {name: drops, pattern: 'mcp__t__drop', action: hitl}
      - {name: slow, pattern: 'mcp__t__look', action: allowlist, rate_limit: 1/min}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_is_left_to_the_model_and_an_approval_to_the_user() {
    let scene = Scene::with(POLICY).await;
    let mut client = scene.client(&["--max-wait-s", "1"], &[]);
    client.calls(1, "look", json!({"n": 1})).await;
    let wait = read_text(&client.calls(2, "look", json!({"n": 2})).await);
    assert_eq!(wait["status"], "rate_limited_by_policy", "{wait}");
    // No program asks again: the proxy has answered.
    assert_eq!(wait["next_action_hint"], "Call it again then.");

    let asked = read_text(&client.calls(3, "drop", json!({})).await);
    let id = asked["approval_id"].as_str().expect("an id");
    let text = asked["for_the_user"].as_str().expect("a text");
    assert!(text.contains(&format!("`callgate approvals approve {id}`")), "{text}");
}
