//! `POST /hooks/claude-code`: in case of any error, a refused tool is denied by JSON, because the host runs it after
//! any other response.

use callgate_core::{
    domain::identity::{MappedIdentity, Role},
    policy::{self, Policy},
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    common::wire::Plane,
    credentials::{token, who},
    dialects::post,
};

const PATH: &str = "/hooks/claude-code";
const JSON: (&str, &str) = ("content-type", "application/json");
const MAIL: &str = "mcp__mail__send";
const POLICY: &str = "policy_engine: {presets: [coding_agents], unknown_tools: allow,
  tool_schemas: {mcp__mail__send: {effect: write}}}";

async fn plane() -> Plane {
    Plane::start(&policy::compile(POLICY).expect("a policy")).await
}

async fn post_event(plane: &Plane, query: &str, headers: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> Value {
    let (code, head, body) = post(plane.address, &format!("{PATH}{query}"), headers, body).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(head["content-type"], "application/json");
    serde_json::from_slice(&body).expect("JSON")
}

fn event(name: &str, more: Value) -> String {
    let mut event = json!({"hook_event_name": name, "session_id": "s", "cwd": "/w", "prompt_id": "p"});
    event.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
    event.to_string()
}

fn mail(event_name: &str, id: &str, more: Value) -> String {
    let mut call = json!({"tool_name": MAIL, "tool_use_id": id, "tool_input": {"to": "a@b.c"}});
    call.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
    event(event_name, call)
}

/// Why the tool must not run, if it must not.
fn denial_reason(heard: &Value) -> Option<&str> {
    let heard = &heard["hookSpecificOutput"];
    (heard["permissionDecision"] == "deny").then(|| heard["permissionDecisionReason"].as_str().expect("a reason"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_is_sent_once_and_the_summary_comes_with_the_next_call() {
    let plane = plane().await;
    let tell = async |body: String| post_event(&plane, "", &[JSON], body).await;
    assert_eq!(tell(mail("PreToolUse", "t1", json!({}))).await, json!({}));
    assert_eq!(tell(mail("PostToolUse", "t1", json!({"tool_response": "sent as 7"}))).await, json!({}));
    let heard = tell(mail("PreToolUse", "t2", json!({}))).await;
    let why = denial_reason(&heard).expect("refused");
    assert!(why.contains("previous_result:\nsent as 7"), "{why}");

    // There is no SessionStart, so the next call carries the summary.
    assert_eq!(tell(event("PreCompact", json!({"trigger": "auto"}))).await, json!({}));
    let read = json!({"tool_name": "Read", "tool_use_id": "t3", "tool_input": {"file_path": "/w/a"}});
    let heard = tell(event("PreToolUse", read.clone())).await;
    let context = heard["hookSpecificOutput"]["additionalContext"].as_str().expect("a summary");
    assert!(context.contains(MAIL) && context.contains("sent as 7"), "{context}");
    assert_eq!(heard["hookSpecificOutput"]["permissionDecision"], Value::Null);
    let mut response = read;
    response["tool_response"] = json!({"type": "text", "file": {"content": "text"}});
    assert_eq!(tell(event("PostToolUse", response)).await, json!({}), "told once");

    assert_eq!(tell(event("Stop", json!({}))).await, json!({}));
    let granted = post_event(
        &plane,
        "?grant&agent=desk",
        &[JSON],
        event(
            "PreToolUse",
            json!({
                "tool_name": "Read", "tool_use_id": "t4", "tool_input": {"file_path": "/w/b"}
            }),
        ),
    )
    .await;
    assert_eq!(granted["hookSpecificOutput"]["permissionDecision"], "allow");
    let of_others = "select count(*) from callgate.tool_call where host is distinct from 'claude-code'";
    assert_eq!(plane.postgres.number(of_others).await, 0, "people are told where the agent runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswerable_event_is_denied_by_json() {
    let plane = plane().await;
    let call = || mail("PreToolUse", "t1", json!({}));
    for (headers, body) in [
        (&[JSON][..], "no JSON".to_owned()),
        (&[JSON], String::new()),
        (&[JSON], event("PreToolUse", json!({}))),
        (&[JSON], mail("PreToolUse", "", json!({"tool_name": "x".repeat(300), "tool_use_id": "t"}))),
        (&[JSON], "x".repeat((4 << 20) + 1)),
        (&[("content-type", "text/plain")], call()),
    ] {
        let heard = post_event(&plane, "", headers, body).await;
        assert!(denial_reason(&heard).is_some_and(|why| why.contains("must not run")), "{heard}");
    }
    assert_eq!(post_event(&plane, "", &[JSON], event("TeammateIdle", json!({}))).await, json!({}));
    // A finished call is not delayed; the user is informed.
    let after = mail("PostToolUse", "t1", json!({"tool_response": "sent", "tool_name": "x".repeat(300)}));
    let heard = post_event(&plane, "", &[JSON], after).await;
    assert!(heard["systemMessage"].as_str().is_some_and(|text| text.contains("was not recorded")), "{heard}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthorized_hook_is_denied_by_json_and_the_credential_names_the_agent() {
    let plane = Plane::start(&Policy::default()).await;
    let (agent, _) = token(&plane.gate, who("desk", &[Role::Agent])).await;
    let (reader, _) = token(&plane.gate, who("eve", &[Role::Analyst])).await;
    let pattern = callgate_core::domain::pattern::Pattern::parse("agents", "desk-*").expect("a pattern");
    let bound = MappedIdentity { agents: Some(pattern), ..who("bound", &[Role::Agent]) };
    let (bound, _) = token(&plane.gate, bound).await;
    let tell = async |query: &str, token: Option<&str>, session: &str| {
        let bearer = format!("Bearer {}", token.unwrap_or_default());
        let mut headers = vec![JSON];
        headers.extend(token.map(|_| ("authorization", bearer.as_str())));
        // The agent named in the hook is ignored.
        let call = json!({"tool_name": "look", "tool_use_id": "t", "tool_input": {}, "session_id": session,
                          "agent_name": "desk-1"});
        let heard = post_event(&plane, query, &headers, event("PreToolUse", call)).await;
        denial_reason(&heard).map(str::to_owned)
    };
    assert_eq!(tell("", Some(&agent), "s1").await, None);
    for (query, token) in [("", None), ("", Some("cg_agent_wrong")), ("", Some(reader.as_str()))] {
        let why = tell(query, token, "s2").await.expect("denied");
        assert!(!why.contains("cg_"), "{why}");
    }
    assert!(tell("", Some(&bound), "s3").await.is_some(), "it has to say which agent");
    assert!(tell("?agent=other", Some(&bound), "s3").await.is_some());
    assert_eq!(tell("?agent=desk-1", Some(&bound), "s3").await, None);
    assert!(tell("", Some(&bound), "s1").await.is_some(), "the session of another");
}
