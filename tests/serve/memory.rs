//! `callgate serve --memory`: a server without a database.

use std::collections::BTreeSet;

use callgate_proto::v1;
use serde_json::{Value, json};

use crate::{
    common::{
        in_time,
        wire::{call, evaluate, question, record, success},
    },
    http::{get, said_at},
    server::{Home, Server, fail_to_start, path, ran},
};

/// The answer to a request in JSON.
async fn post(server: &Server, method: &str, body: &Value) -> Value {
    let body = body.to_string();
    let head = "content-type: application/json\r\nhost: localhost\r\ncallgate-by: ann\r\nconnection: close";
    let path = format!("/callgate.v1.{method}");
    let request = format!("POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let answer = said_at(server.address, &request).await;
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{method}: {error}: {answer}"))
}

fn reason(answer: &Value) -> &str {
    answer["details"][0]["debug"]["reason"].as_str().unwrap_or_default()
}

fn evaluation(session: &str, call_id: &str, tool: &str, arguments: &Value) -> Value {
    let call = json!({"callId": call_id, "tool": tool, "argumentsJson": arguments.to_string()});
    json!({"caller": {"sessionId": session, "agentId": "a"}, "call": call})
}

const POLICY: &str = r#"
policy_engine:
  budgets: {run: {max_steps: 4}}
  tool_schemas:
    get_order: {effect: read}
    charge_card: {once: true, side_effect_resource: "order/{order_id}"}
  authorization:
    tiers:
      - {name: money, pattern: "transfer_*", action: hitl}
      - {name: rest, pattern: "*", action: allowlist}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_in_memory_decides_says_so_and_forgets_at_its_end() {
    let home = Home::empty();
    let policy = home.file("policy.yaml", POLICY);
    let server = Server::with(&["--memory", "--policy", path(&policy)]);
    for part in ["none: everything is in the memory of this process, and is lost when it ends", "2 tools declared"] {
        assert!(server.greeting.contains(part), "{part}: {}", server.greeting);
    }
    assert!(!server.greeting.contains("console   "), "{}", server.greeting);
    let mut client = server.client().await;
    let charge = r#"{"order_id":7}"#;
    let first = evaluate(&mut client, question("s", call("c1", "charge_card", charge))).await;
    assert_eq!(first.decision(), v1::Decision::Allow);
    record(&mut client, success("s", "c1", r#"{"charged":true}"#)).await;
    let other = evaluate(&mut client, question("t", call("c1", "charge_card", charge))).await;
    assert_eq!(other.decision(), v1::Decision::Reuse, "once, in any session: {other:?}");
    for n in 2..=4 {
        evaluate(&mut client, question("s", call(&format!("c{n}"), "get_order", &format!(r#"{{"n":{n}}}"#)))).await;
    }
    let fifth = evaluate(&mut client, question("s", call("c5", "get_order", r#"{"n":5}"#))).await;
    assert_eq!((fifth.decision(), fifth.reason.as_str()), (v1::Decision::Stop, "step_budget_exceeded"));
    let state = post(&server, "GateService/GetSessionState", &json!({"sessionId": "s"})).await;
    assert_eq!(state["state"]["calls"].as_array().map(Vec::len), Some(5), "{state}");
    assert!(!home.data_dir().exists(), "nothing is written");
    drop(server);

    let again = Server::with(&["--memory"]);
    let state = post(&again, "GateService/GetSessionState", &json!({"sessionId": "s"})).await;
    assert_eq!(reason(&state), "SESSION_UNKNOWN", "{state}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approver_answers_a_waiting_call_in_memory() {
    let home = Home::empty();
    let server = Server::with(&["--memory", "--policy", path(&home.file("policy.yaml", POLICY))]);
    let asked = evaluation("s", "c1", "transfer_funds", &json!({"amount": 5}));
    let verdict = post(&server, "GateService/Evaluate", &asked).await;
    assert_eq!(verdict["verdict"]["decision"], "DECISION_ASK", "{verdict}");
    let id = verdict["verdict"]["approvalId"].clone();
    let mut waiting = asked.clone();
    waiting["maxWait"] = json!("20s");
    let (waited, answered) = tokio::join!(post(&server, "GateService/Evaluate", &waiting), async {
        let open = post(&server, "ApprovalService/ListApprovals", &json!({"state": "APPROVAL_STATE_PENDING"})).await;
        assert_eq!(open["approvals"][0]["approvalId"], id, "{open}");
        for (method, more) in [("ClaimApproval", json!({})), ("CommentApproval", json!({"text": "is it due?"}))] {
            let mut noted = more;
            noted["approvalId"] = id.clone();
            let noted = post(&server, &format!("ApprovalService/{method}"), &noted).await;
            assert_eq!(noted["approval"]["approvalId"], id, "{noted}");
        }
        let yes = json!({"approvalId": id, "approve": true, "reason": "it is due"});
        post(&server, "ApprovalService/ResolveApproval", &yes).await
    });
    assert_eq!(answered["approval"]["state"], "APPROVAL_STATE_APPROVED", "{answered}");
    assert_eq!(waited["verdict"]["decision"], "DECISION_ALLOW", "{waited}");
    let whole = post(&server, "ApprovalService/GetApproval", &json!({"approvalId": id})).await["approval"].clone();
    assert_eq!((&whole["resolvedBy"], &whole["comments"][0]["text"]), (&json!("ann"), &json!("is it due?")), "{whole}");

    let edit = evaluation("s", "c2", "transfer_funds", &json!({"amount": 900}));
    let verdict = post(&server, "GateService/Evaluate", &edit).await;
    let (id, less) = (verdict["verdict"]["approvalId"].clone(), json!({"amount": 9}).to_string());
    let yes = json!({"approvalId": id, "approve": true, "editedArgumentsJson": less});
    assert_eq!(
        post(&server, "ApprovalService/ResolveApproval", &yes).await["approval"]["state"],
        "APPROVAL_STATE_EDITED"
    );
    let refused = post(&server, "GateService/Evaluate", &edit).await;
    assert_eq!(refused["verdict"]["reason"], "approval_edited", "{refused}");
    let instead = evaluation("s", "c3", "transfer_funds", &json!({"amount": 9}));
    let verdict = post(&server, "GateService/Evaluate", &instead).await;
    assert_eq!(verdict["verdict"]["decision"], "DECISION_ALLOW", "{verdict}");
    let ran = post(&server, "ApprovalService/GetApproval", &json!({"approvalId": id})).await;
    assert_eq!(ran["approval"]["ranCallId"], "c3", "{ran}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_is_applied_and_rolled_back_in_memory() {
    let server = Server::with(&["--memory"]);
    let applied = post(&server, "PolicyService/ApplyPolicy", &json!({"text": POLICY})).await;
    assert_eq!(applied["revision"]["revision"], "1", "{applied}");
    let info = post(&server, "ServerService/GetServerInfo", &json!({})).await;
    let version = info["server"]["policyVersion"].as_str().expect("a version").to_owned();
    assert!(applied["hash"].as_str().is_some_and(|hash| hash.starts_with(&version)), "{applied} {info}");
    assert!(info["server"]["features"].as_array().is_some_and(|all| all.contains(&json!("in_memory"))), "{info}");
    let other = json!({"text": "policy_engine: {mode: shadow}"});
    post(&server, "PolicyService/ApplyPolicy", &other).await;
    let back = post(&server, "PolicyService/RollbackPolicy", &json!({})).await;
    assert_eq!((&back["revision"]["revision"], &back["revision"]["hash"]), (&json!("3"), &applied["hash"]), "{back}");
    let listed = post(&server, "PolicyService/ListPolicies", &json!({})).await;
    assert_eq!(listed["revisions"].as_array().map(Vec::len), Some(3), "{listed}");
}

/// Unary methods that need a database, as docs/operations.md#in-memory has them, and requests that reach it.
fn methods(policy: &str) -> Vec<(&'static str, Value)> {
    let hour = json!({"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T01:00:00Z"});
    let call = json!({"sessionId": "s", "callId": "c1"});
    let token = json!({"name": "root", "roles": ["ROLE_ADMIN"]});
    let role = json!({"tokenId": "x"});
    vec![
        ("AuditService/ListAuditEntries", json!({})),
        ("AuditService/VerifyAudit", json!({})),
        ("FleetService/GetFleet", json!({})),
        ("FleetService/GetUsage", hour),
        ("PolicyService/StartPolicyRollout", json!({"hash": policy, "shareBasisPoints": 10})),
        ("ProfileService/GetRetryHistory", json!({})),
        ("ProfileService/GetToolQuality", json!({})),
        ("ProfileService/RebuildRetryProfiles", json!({})),
        ("SessionService/ExplainCall", call.clone()),
        ("SessionService/GetCall", call),
        ("SessionService/GetSession", json!({"sessionId": "s"})),
        ("SessionService/ListCalls", json!({})),
        ("SessionService/ListNames", json!({})),
        ("SessionService/ListSessions", json!({})),
        ("TenantService/CreateTenant", json!({"name": "team"})),
        ("TenantService/SetTenantQuotas", json!({"name": "default"})),
        ("TenantService/SetTenantRetention", json!({"name": "default"})),
        ("TokenService/CreateToken", token),
        ("TokenService/ListTokens", json!({})),
        ("TokenService/RevokeToken", role),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn method_that_needs_a_database_says_so_and_what_to_do() {
    let server = Server::with(&["--memory"]);
    post(&server, "GateService/Evaluate", &evaluation("s", "c1", "get_order", &json!({}))).await;
    let applied = post(&server, "PolicyService/ApplyPolicy", &json!({"text": POLICY})).await;
    let policy = applied["hash"].as_str().expect("a hash");
    for (method, body) in methods(policy) {
        let answer = post(&server, method, &body).await;
        assert_eq!(
            (answer["code"].as_str(), reason(&answer)),
            (Some("failed_precondition"), "NEEDS_DATABASE"),
            "{method}: {answer}"
        );
        assert!(answer["message"].as_str().is_some_and(|text| text.ends_with("start it without --memory")), "{answer}");
    }
    // The page lists them, and none of the others.
    let page = include_str!("../../docs/operations.md");
    let section = page.split("\n## In memory\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("a section");
    let listed: BTreeSet<&str> =
        section.split('`').skip(1).step_by(2).filter(|word| word.starts_with(char::is_uppercase)).collect();
    let mut known: BTreeSet<&str> =
        methods(policy).iter().map(|(method, _)| method.split_once('/').expect("a method").1).collect();
    // These stream, or are about one kind of tenant.
    known.extend(["BacktestPolicy", "ExportCalls", "ExportSubject", "Forget", "Reencrypt"]);
    let listed: BTreeSet<&str> = listed.into_iter().filter(|word| !word.contains('_')).collect();
    assert_eq!(listed, known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_and_page_without_a_database_name_the_remedy() {
    let server = Server::with(&["--memory"]);
    let page = get(&server, "/").await;
    assert!(page.starts_with("HTTP/1.1 404") && page.contains("start it without --memory"), "{page}");
    assert!(get(&server, "/readyz").await.starts_with("HTTP/1.1 200"));
    let url = format!("http://{}", server.address);
    let (code, _, error) = ran(&["sessions", "list", "--server", &url]).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("start it without --memory"), "{error}");
    let (code, said, error) = ran(&["approvals", "list", "--server", &url]).await;
    assert_eq!(code, Some(0), "{said}{error}");
    let home = Home::empty();
    for (flag, value) in [
        ("--data-dir", path(&home.data_dir())),
        ("--database-url", "postgres://x@127.0.0.1/x"),
        ("--keys", "keys.yaml"),
        ("--notifications", "n.yaml"),
    ] {
        let (code, error) = fail_to_start(&["--memory", flag, value]).await;
        assert!(code == Some(2) && error.contains("--memory") && error.contains(flag), "{code:?} {error}");
    }
}

/// Its last scenes need profiles that were learned in the first ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demo_runs_on_a_server_in_memory_of_its_own() {
    let (code, said, error) = ran(&["demo", "--pace-ms", "0"]).await;
    assert_eq!(code, Some(0), "{error}");
    for part in ["not_retryable", "retry_too_early", "This server ends now"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_watched_in_memory() {
    let server = Server::with(&["--memory"]);
    let mut sessions = v1::session_service_client::SessionServiceClient::new(server.channel().await);
    let mut client = server.client().await;
    evaluate(&mut client, question("s", call("c1", "get_order", "{}"))).await;
    let session = v1::WatchSessionRequest { session_id: "s".to_owned() };
    let mut watched = in_time("a watch", sessions.watch_session(session)).await.expect("a stream").into_inner();
    let first = in_time("its first state", watched.message()).await.expect("answered").expect("a state");
    assert_eq!(first.state.expect("a state").calls.len(), 1);
}
