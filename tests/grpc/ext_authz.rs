//! Envoy's external authorization: calls in a body are judged, and refusals are results that a model reads. The
//! requests are made as Envoy makes them; `deploy/mcp/envoy` asks with the real one.

use std::collections::HashMap;

use callgate_core::{domain::identity::Role, policy};
use callgate_proto::{
    envoy::{
        AttributeContext, CheckRequest, DeniedHttpResponse,
        attribute_context::{self, HttpRequest},
        authorization_client::AuthorizationClient,
        check_response::HttpResponse,
    },
    v1::{self, CallState, GetSessionStateRequest},
};
use serde_json::{Value, json};
use tonic::{Code, Status, transport::Channel};

use crate::{
    common::{
        in_time,
        wire::{Plane, pair, with_token},
    },
    credentials::{token, who},
};

const POLICY: &str = "policy_engine:
  unknown_tools: allow
  authorization:
    tiers:
      - {name: never, pattern: '*drop*', action: deny}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas:
    get_order: {effect: read}
    mcp__shop__pay: {once: true}
    typed: {coercion: repair, schema: {type: object, properties: {n: {type: integer}}}}
";

struct Envoy {
    plane: Plane,
    channel: Channel,
}

impl Envoy {
    async fn start() -> Self {
        let plane = Plane::start(&policy::compile(POLICY).expect("a good policy")).await;
        let channel = plane.channel().await;
        Self { plane, channel }
    }

    async fn check(
        &self,
        token: Option<&str>,
        attributes: AttributeContext,
    ) -> Result<Option<DeniedHttpResponse>, Status> {
        let request = with_token(token, CheckRequest { attributes: Some(attributes) });
        let mut client = AuthorizationClient::new(self.channel.clone());
        let answer = in_time("an answer", client.check(request)).await?.into_inner();
        let is_ok = answer.status.expect("a status").code == 0;
        let denied = answer.http_response.map(|HttpResponse::DeniedResponse(denied)| denied);
        assert_eq!(is_ok, denied.is_none(), "{denied:?}");
        Ok(denied)
    }

    /// The JSON that a client gets; none for a forwarded request.
    async fn post(&self, session: &str, body: &Value) -> Option<Value> {
        let denied = self.check(None, attributes(session, body.to_string().as_bytes())).await.expect("an answer")?;
        assert_eq!(denied.status.expect("a status").code, 200, "{}", denied.body);
        Some(serde_json::from_str(&denied.body).expect("JSON"))
    }

    /// States of a session's calls, newest first.
    async fn states(&self, session: &str) -> Vec<CallState> {
        let request = GetSessionStateRequest { session_id: format!("mcp-{session}"), ..Default::default() };
        let answer = in_time("the state", self.plane.client().await.get_session_state(request)).await.expect("a state");
        answer.into_inner().state.expect("a state").calls.iter().map(v1::CallSummary::state).collect()
    }
}

fn attributes(session: &str, body: &[u8]) -> AttributeContext {
    let headers = [
        (":method", "POST"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", session),
        ("x-envoy-auth-partial-body", "false"),
    ];
    let http = HttpRequest {
        method: "POST".into(),
        headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
        size: i64::try_from(body.len()).expect("few"),
        raw_body: body.to_vec(),
        ..HttpRequest::default()
    };
    let request = Some(attribute_context::Request { http: Some(http) });
    AttributeContext { request, context_extensions: HashMap::new() }
}

/// The same with other parts of the request.
fn with(change: impl FnOnce(&mut HttpRequest, &mut HashMap<String, String>)) -> AttributeContext {
    let mut changed = attributes("s", call(1, "get_order", json!({})).to_string().as_bytes());
    change(changed.request.as_mut().expect("one").http.as_mut().expect("one"), &mut changed.context_extensions);
    changed
}

fn call(id: u32, tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

fn text(answer: &Value) -> &str {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    answer["result"]["content"][0]["text"].as_str().expect("a text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permitted_call_is_forwarded_and_unknown_so_that_a_read_may_be_repeated() {
    let envoy = Envoy::start().await;
    for id in 1..=3 {
        assert_eq!(envoy.post("s", &call(id, "get_order", json!({"id": 42}))).await, None, "{id}");
    }
    assert_eq!(envoy.states("s").await, [CallState::Unknown; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_a_result_that_the_model_reads() {
    let envoy = Envoy::start().await;
    let denied = envoy.post("s", &call(7, "drop_table", json!({}))).await.expect("a refusal");
    assert_eq!((&denied["jsonrpc"], &denied["id"]), (&json!("2.0"), &json!(7)));
    assert!(text(&denied).contains("tool_denied"), "{denied}");
    // A payment of the server `shop` is once in all sessions, whatever its client says of itself.
    let pay = |session: &str| {
        let mut attributes = attributes(session, call(1, "pay", json!({"order": 42})).to_string().as_bytes());
        attributes.context_extensions.insert("server_name".into(), "shop".into());
        attributes
    };
    assert_eq!(envoy.check(None, pay("a")).await.expect("an answer"), None);
    for session in ["a", "b"] {
        let denied = envoy.check(None, pay(session)).await.expect("an answer").expect("a refusal");
        assert!(denied.body.contains("outcome_unknown"), "{}", denied.body);
    }
    // A client that takes events alone gets one.
    let events = |http: &mut HttpRequest, _: &mut HashMap<String, String>| {
        http.headers.insert("accept".into(), "text/event-stream".into());
        http.raw_body = call(8, "drop_table", json!({})).to_string().into_bytes();
        http.size = -1;
    };
    let denied = envoy.check(None, with(events)).await.expect("an answer").expect("a refusal");
    assert!(denied.body.starts_with("event: message\ndata: {"), "{}", denied.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_messages_pass_and_a_body_that_may_hide_a_call_does_not() {
    let envoy = Envoy::start().await;
    for body in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}]),
    ] {
        assert_eq!(envoy.post("", &body).await, None, "{body}");
    }
    for method in ["GET", "DELETE"] {
        let bodiless = |http: &mut HttpRequest, _: &mut HashMap<String, String>| {
            (http.method, http.raw_body, http.size) = (method.into(), Vec::new(), -1);
        };
        assert_eq!(envoy.check(None, with(bodiless)).await.expect("an answer"), None);
    }
    type Change = fn(&mut HttpRequest);
    let changes: [(&str, i32, Change); 11] = [
        ("max_request_bytes", 413, |http| drop(http.headers.insert("x-envoy-auth-partial-body".into(), "true".into()))),
        ("max_request_bytes", 413, |http| http.size += 1),
        ("pack_as_bytes", 403, |http| http.body = String::from_utf8(std::mem::take(&mut http.raw_body)).expect("text")),
        ("with_request_body", 403, |http| http.raw_body.clear()),
        ("UTF-8", 415, |http| drop(http.headers.insert("content-encoding".into(), "gzip".into()))),
        ("UTF-8", 400, |http| http.raw_body.extend(b"\xff")),
        ("UTF-8", 400, |http| http.raw_body.extend(b"{}")),
        ("duplicate", 400, |http| http.raw_body = br#"{"id":1,"method":"ping","method":"tools/call"}"#.to_vec()),
        ("POST", 400, |http| http.method = "GET".into()),
        ("method", 405, |http| http.method = "PUT".into()),
        ("id", 200, |http| http.raw_body = br#"{"method":"tools/call","params":{"name":"get_order"}}"#.to_vec()),
    ];
    for (at, (why, code, change)) in changes.into_iter().enumerate() {
        let changed = with(|http, _| {
            change(http);
            // But for the cut-off bodies, as long as it says.
            if at != 1 {
                http.size = -1;
            }
        });
        let denied =
            envoy.check(None, changed).await.expect("an answer").unwrap_or_else(|| panic!("{at} was forwarded"));
        assert_eq!(
            (denied.status.map(|status| status.code), denied.body.contains(why)),
            (Some(code), true),
            "{at}: {}",
            denied.body
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_runs_whole_or_not_at_all() {
    let envoy = Envoy::start().await;
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    let good = json!([call(1, "get_order", json!({"id": 1})), call(2, "get_order", json!({"id": 2})), ping]);
    assert_eq!(envoy.post("good", &good).await, None);
    assert_eq!(envoy.states("good").await, [CallState::Unknown; 2]);
    let bad = json!([call(1, "get_order", json!({"id": 1})), call(2, "drop_table", json!({})), ping]);
    let answers = envoy.post("bad", &bad).await.expect("a refusal");
    assert!(text(&answers[0]).contains("another call in the same batch"), "{answers}");
    assert!(text(&answers[1]).contains("tool_denied"), "{answers}");
    assert_eq!((&answers[2]["id"], answers[2]["error"].is_object()), (&json!(3), true), "{answers}");
    assert_eq!(envoy.states("bad").await, [CallState::Refused, CallState::Cancelled]);
    let many: Vec<Value> = (0..65).map(|id| call(id, "look", json!({"id": id}))).collect();
    assert!(envoy.post("many", &json!(many)).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repaired_arguments_are_left_to_the_model() {
    let envoy = Envoy::start().await;
    let denied = envoy.post("s", &call(1, "typed", json!({"n": "3"}))).await.expect("a refusal");
    assert!(text(&denied).contains(r#"{\"n\":3}"#), "{denied}");
    assert_eq!(envoy.states("s").await, [CallState::Cancelled]);
    assert_eq!(envoy.post("s", &call(2, "typed", json!({"n": 3}))).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_named_by_a_header() {
    let envoy = Envoy::start().await;
    let nameless =
        |http: &mut HttpRequest, _: &mut HashMap<String, String>| drop(http.headers.remove("mcp-session-id"));
    let denied = envoy.check(None, with(nameless)).await.expect("an answer").expect("a refusal");
    assert!(denied.body.contains("no header mcp-session-id"), "{}", denied.body);
    let other = |http: &mut HttpRequest, extensions: &mut HashMap<String, String>| {
        http.headers.insert("x-user".into(), "u1".into());
        extensions.extend([("session_header".into(), "X-User".into()), ("agent_id".into(), "desk".into())]);
    };
    assert_eq!(envoy.check(None, with(other)).await.expect("an answer"), None);
    assert_eq!(envoy.states("u1").await, [CallState::Unknown]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_needs_the_credential_of_an_agent() {
    let envoy = Envoy::start().await;
    let (agent, _) = token(&envoy.plane.gate, who("envoy", &[Role::Agent])).await;
    let (analyst, _) = token(&envoy.plane.gate, who("ann", &[Role::Analyst])).await;
    assert_eq!(envoy.check(Some(&agent), with(|_, _| ())).await.expect("an answer"), None);
    let refused = envoy.check(None, with(|_, _| ())).await.expect_err("no credential");
    assert_eq!(pair(&refused), (Code::Unauthenticated, "UNAUTHENTICATED".into()));
    let refused = envoy.check(Some(&analyst), with(|_, _| ())).await.expect_err("no agent");
    assert_eq!(pair(&refused), (Code::PermissionDenied, "ROLE_MISSING".into()));
}
