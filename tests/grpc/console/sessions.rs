//! Session pages: search, escaping of models' texts, and operations.

use callgate_core::{
    domain::{audit::Actor, identity::Role, tenant::Quotas},
    policy,
    rules::RULES,
};
use callgate_proto::v1::{self, Decision, OutcomeStatus};
use callgate_server::gate::TenantChange;
use http::StatusCode;

use super::{Browser, serve_console};
use crate::{
    common::wire::{Client, Plane, call, evaluate_as, outcome, question, record_as},
    credentials::{token, who},
    people::POLICY,
};

/// Malicious text for all fields of a model.
const EVIL: &str = "<script>alert(1)</script>\"'&/\u{202e}";
/// The same as a page shows it.
const SHOWN: &str = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;/<mark class=\"unseen\">U+202E</mark>";
/// As an address has it.
const IN_PATH: &str = "%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%27%26%2F%E2%80%AE";

async fn plane() -> Plane {
    serve_console(&policy::compile(POLICY).expect("a good policy")).await
}

fn evaluate_request(session: &str, call_id: &str, tool: &str, arguments: &str) -> v1::EvaluateRequest {
    let call = v1::ToolCall { justification: "because".into(), ..call(call_id, tool, arguments) };
    let mut asked = question(session, call);
    asked.caller.as_mut().expect("a caller").agent_id = "robot".into();
    asked
}

/// An agent's work: a read, a refused write, and a write with an unknown outcome.
async fn work(plane: &Plane) -> (Client, String) {
    let (agent, _) = token(&plane.gate, who("bot", &[Role::Agent])).await;
    let mut client = plane.client().await;
    evaluate_as(Some(&agent), &mut client, evaluate_request("desk", "c1", "get_order", r#"{"id":"Zürich"}"#)).await;
    let report = v1::RecordRequest { result: Some("fine".into()), ..outcome("desk", "c1", OutcomeStatus::Success) };
    record_as(Some(&agent), &mut client, report).await;
    let wrote =
        evaluate_as(Some(&agent), &mut client, evaluate_request("desk", "c2", "create_order", r#"{"n":1}"#)).await;
    assert_eq!(wrote.decision(), Decision::Allow);
    record_as(Some(&agent), &mut client, outcome("desk", "c2", OutcomeStatus::Unknown)).await;
    let refused =
        evaluate_as(Some(&agent), &mut client, evaluate_request("desk", "c3", "create_order", r#"{"n":2}"#)).await;
    assert_eq!(refused.reason, "grant_exceeded");
    (client, agent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_found_by_its_id_its_names_and_its_calls() {
    let plane = plane().await;
    let _ = work(&plane).await;
    let mut ada = Browser::of(&plane, "ada", &[Role::Analyst]).await;
    let found = |page: &str| page.contains("href=\"/sessions/desk\"");
    for (search, is_found) in [
        ("", true),
        ("q=z%C3%BCrich", true),
        ("q=nothing", false),
        ("q=desk", true),
        ("q=desk&by=text", true),
        ("name=ROBO", true),
        ("name=obo", false),
        ("user=nobody", false),
        ("from=2020-01-01T00:00&to=2020-01-02T00:00", false),
        ("from=2020-01-01T00:00&sort=cost", true),
        ("agent=robot&tool=get_order", true),
        ("agent=other", false),
        ("decision=DENY", true),
        ("decision=STOP", false),
        ("reason=grant_exceeded", true),
        ("rule=tier&hours=1", true),
        ("outcome=unknown", true),
        ("state=idle", true),
        ("state=halted", false),
    ] {
        let page = ada.get(&format!("/sessions?{search}")).await.ok();
        assert_eq!(found(&page), is_found, "{search}");
    }
    for (search, why) in [("sort=name", "sort: name is none"), ("from=now", "from: now is no time")] {
        let wrong = ada.get(&format!("/sessions?{search}")).await;
        assert!(wrong.status == StatusCode::BAD_REQUEST && wrong.html.contains(why), "{search}: {}", wrong.html);
    }
    let exact = ada.get("/sessions?q=desk").await.ok();
    assert!(exact.contains("A session has this id.") && exact.contains("q=desk&#38;by=text"), "{exact}");
    let wrong = ada.get("/sessions?decision=MAYBE").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert!(wrong.html.contains("decision: MAYBE is none of the choices"), "{}", wrong.html);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_followed_and_its_call_explained() {
    let plane = plane().await;
    let _ = work(&plane).await;
    let mut ada = Browser::of(&plane, "ada", &[Role::Analyst]).await;
    let page = ada.get("/sessions/desk").await.ok();
    let place =
        |call: &str| page.find(&format!("href=\"/calls/desk/{call}\"")).unwrap_or_else(|| panic!("{call}: {page}"));
    assert!(place("c1") < place("c2") && place("c2") < place("c3"), "in their order");
    assert!(page.contains("<dt>Refused calls</dt><dd><a href=\"/sessions/desk?only=refused\""), "{page}");
    let refused = ada.get("/sessions/desk?only=refused").await.ok();
    assert!(refused.contains("/calls/desk/c3\"") && !refused.contains("/calls/desk/c1\""), "{refused}");
    assert!(page.contains("steps of the session with its sub-agents"), "{page}");
    assert!(!page.contains("Halt this session"), "an analyst halts nothing");
    let oldest = ada.get("/sessions/desk?order=oldest").await.ok();
    assert!(oldest.find("/calls/desk/c1\"") < oldest.find("/calls/desk/c3\""));

    let refused = ada.get("/calls/desk/c3").await.ok();
    for part in ["Decides: </strong><code>tier</code>", "grant_exceeded", "Text for the model", "Stored rows"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert!(refused.contains("href=\"/calls/desk/c3?explain=1#rules\""), "{refused}");
    for path in ["/calls/desk/c3?explain=1", "/calls/desk/c3?explain=1&part=rules"] {
        let page = ada.get(path).await.ok();
        for part in ["Rule by rule", "<dd>declared, write on ", "nothing that it belongs to was halted"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches("<tr><td><code>").count(), RULES.len(), "{page}");
        assert_eq!(page.contains("<html"), !path.contains("part"), "{path}");
    }
    let unknown = ada.get("/calls/desk/c2").await.ok();
    assert!(unknown.contains("outcome unknown") && !unknown.contains("Settle"), "an analyst settles nothing");

    for (path, code) in [("/sessions/nobody", StatusCode::NOT_FOUND), ("/calls/desk/nothing", StatusCode::NOT_FOUND)] {
        assert_eq!(ada.get(path).await.status, code, "{path}");
    }
    // The forms are for operators, and so is what they send.
    for (path, form) in [
        ("/sessions", vec![("what", "halt"), ("scope", "1"), ("name", "desk"), ("reason", "x")]),
        ("/sessions/desk", vec![("what", "grant"), ("tools", "*"), ("calls", "1"), ("minutes", "1")]),
        ("/calls/desk/c2", vec![("came", "happened"), ("reason", "x")]),
    ] {
        let refused = ada.post(path, &form).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {}", refused.html);
        assert!(refused.html.contains("role=\"alert\""), "{path}: {}", refused.html);
    }
    assert_eq!(plane.postgres.number("select count(*) from halt").await, 0);
    // Approvers see stored data, but no raw rows; an agent's credential sees nothing.
    let mut ann = Browser::of(&plane, "ann", &[Role::Approver]).await;
    let page = ann.get("/calls/desk/c3").await.ok();
    assert!(page.contains("grant_exceeded") && !page.contains("Stored rows"));
    let mut bot = Browser::of(&plane, "bot2", &[Role::Agent]).await;
    for path in ["/sessions", "/sessions/desk", "/calls/desk/c1", "/calls/desk/c1?explain=1&part=rules"] {
        let page = bot.get(path).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN, "{path}");
        assert!(!page.html.contains("robot"), "{path}: {}", page.html);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_actions_take_a_reason_and_are_shown() {
    let plane = plane().await;
    let (mut client, agent) = work(&plane).await;
    let mut olga = Browser::of(&plane, "olga", &[Role::Operator]).await;
    olga.get("/sessions/desk").await.ok();
    let halt = [("what", "halt"), ("scope", "1"), ("name", "desk"), ("back", "/sessions/desk")];
    let refused = olga.post("/sessions", &halt).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "without a reason: {}", refused.html);
    let done = olga.post("/sessions", &[&halt[..], &[("reason", "a drill")]].concat()).await;
    assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, "/sessions/desk?done=halted"));
    let page = olga.get("/sessions/desk?done=halted").await.ok();
    for part in ["Halted: session desk", "by olga", "a drill", ">Resume</button>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let stopped =
        evaluate_as(Some(&agent), &mut client, evaluate_request("desk", "c4", "get_order", r#"{"id":4}"#)).await;
    assert_eq!(stopped.reason, "session_halted");
    let list = olga.get("/sessions?state=halted").await.ok();
    assert!(list.contains("Active halts") && list.contains("href=\"/sessions/desk\""), "{list}");
    let resume = [("what", "resume"), ("scope", "1"), ("name", "desk"), ("reason", "over"), ("back", "//evil.example")];
    let done = olga.post("/sessions", &resume).await;
    assert_eq!(done.location(), "/sessions?done=resumed", "nobody is led elsewhere");
    assert!(!olga.get("/sessions/desk").await.ok().contains("Halted:"));

    let grant = [("what", "grant"), ("tools", "create_*"), ("calls", "2"), ("minutes", "5"), ("reason", "asked for")];
    assert_eq!(olga.post("/sessions/desk", &grant).await.location(), "/sessions/desk?done=granted");
    let page = olga.get("/sessions/desk").await.ok();
    let (_, id) = page.split_once("name=\"grant\" value=\"").expect("a grant to take back");
    let id = id.split('"').next().unwrap_or_default().to_owned();
    let granted =
        evaluate_as(Some(&agent), &mut client, evaluate_request("desk", "c5", "create_order", r#"{"n":5}"#)).await;
    assert_eq!(granted.decision(), Decision::Allow, "{granted:?}");
    let revoke = [("what", "revoke"), ("grant", id.as_str()), ("reason", "enough")];
    assert_eq!(olga.post("/sessions/desk", &revoke).await.location(), "/sessions/desk?done=revoked");
    let bad =
        olga.post("/sessions/desk", &[("what", "grant"), ("tools", "x"), ("calls", "many"), ("minutes", "5")]).await;
    assert!(
        bad.status == StatusCode::BAD_REQUEST && bad.html.contains("calls: must be a whole number"),
        "{}",
        bad.html
    );
    let phase = olga.post("/sessions/desk", &[("what", "phase"), ("phase", "NEVER"), ("reason", "x")]).await;
    assert_eq!(phase.status, StatusCode::CONFLICT, "{}", phase.html);

    let steps = "2.1";
    let raise = [("what", "raise"), ("budget", steps), ("more", "5"), ("reason", "nearly done")];
    assert_eq!(olga.post("/sessions/desk", &raise).await.location(), "/sessions/desk?done=raised");
    assert!(olga.get("/sessions/desk").await.ok().contains("added)"));
    let bad = olga.post("/sessions/desk", &[("what", "raise"), ("budget", steps), ("more", "lots")]).await;
    assert!(bad.status == StatusCode::BAD_REQUEST && bad.html.contains("value=\"lots\""), "{}", bad.html);

    assert!(olga.get("/calls/desk/c2").await.ok().contains("Settle the unknown outcome"));
    let settled = olga.post("/calls/desk/c2", &[("came", "happened"), ("with", "order 7"), ("reason", "seen")]).await;
    assert_eq!(settled.location(), "/calls/desk/c2?done=settled", "{}", settled.html);
    let page = olga.get("/calls/desk/c2?done=settled").await.ok();
    assert!(page.contains("settled the outcome") && page.contains("olga") && page.contains("order 7"), "{page}");
    let kinds = "select count(distinct kind) from audit where words[1] = 'olga'";
    assert!(plane.postgres.number(kinds).await >= 6, "each is in the audit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_of_a_model_is_shown_and_never_run() {
    let plane = plane().await;
    let (agent, _) = token(&plane.gate, who("bot", &[Role::Agent])).await;
    let mut client = plane.client().await;
    let arguments = serde_json::json!({ EVIL: EVIL }).to_string();
    let caller = v1::Caller {
        session_id: EVIL.into(),
        agent_id: EVIL.into(),
        run_id: EVIL.into(),
        parent_session_id: format!("{EVIL}0"),
        ..v1::Caller::default()
    };
    // If names reject direction marks, the server reports that, and the rest applies.
    let call = v1::ToolCall { justification: EVIL.into(), ..call(EVIL, "get_order", &arguments) };
    let asked = v1::EvaluateRequest { caller: Some(caller.clone()), ..question(EVIL, call) };
    let verdict = evaluate_as(Some(&agent), &mut client, asked).await;
    assert_eq!(verdict.decision(), Decision::Allow, "{verdict:?}");
    let error = v1::ToolError { message: EVIL.into(), ..v1::ToolError::default() };
    let failed = v1::RecordRequest {
        caller: Some(caller.clone()),
        error: Some(error),
        ..outcome(EVIL, EVIL, OutcomeStatus::Error)
    };
    record_as(Some(&agent), &mut client, failed).await;
    let call = v1::ToolCall { call_id: "t".into(), tool: EVIL.into(), ..call_of_nothing() };
    let asked = v1::EvaluateRequest { caller: Some(caller.clone()), ..question(EVIL, call) };
    evaluate_as(Some(&agent), &mut client, asked).await;

    let mut olga = Browser::of(&plane, "olga", &[Role::Operator]).await;
    let halt = [("what", "halt"), ("scope", "2"), ("name", EVIL), ("reason", EVIL)];
    olga.get("/sessions").await.ok();
    assert_eq!(olga.post("/sessions", &halt).await.status, StatusCode::SEE_OTHER);
    let grant = [("what", "grant"), ("tools", EVIL), ("calls", "2"), ("minutes", "5"), ("reason", EVIL)];
    let session = format!("/sessions/{IN_PATH}");
    let _ = olga.post(&session, &grant).await;
    let fields = regex::Regex::new(r#"(value|data-live-session)="[^"]*""#).expect("a pattern");
    let search = format!("/sessions?q={IN_PATH}&agent={IN_PATH}&tool={IN_PATH}&rule={IN_PATH}&reason={IN_PATH}");
    let call = format!("/calls/{IN_PATH}/{IN_PATH}");
    for path in ["/sessions", search.as_str(), session.as_str(), call.as_str(), &format!("/calls/{IN_PATH}/t")] {
        let page = olga.get(path).await.ok();
        assert!(!page.contains("<script>alert"), "{path} runs it: {page}");
        // Form fields contain the exact values.
        let seen = fields.replace_all(&page, "");
        assert!(!seen.contains('\u{202e}'), "{path} hides it: {seen}");
        assert!(path.contains("q=") || page.contains(SHOWN), "{path} does not show it: {page}");
    }
    let page = olga.get(&call).await.ok();
    // Arguments (name and value), justification, raw error and its line, the agent, the run, and the title.
    assert!(page.matches(SHOWN).count() >= 8, "{}: {page}", page.matches(SHOWN).count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_do_not_find_each_others_sessions() {
    let plane = plane().await;
    let _ = work(&plane).await;
    let root = Actor::from("root");
    let TenantChange::Done(acme) =
        plane.gate.identities.create_tenant("acme", &Quotas::default(), &root).await.expect("an answer")
    else {
        panic!("there was no such tenant")
    };
    let (stranger, _) =
        plane.gate.identities.create_token(acme.id, who("hank", &[Role::Admin]), None, &root).await.expect("a token");
    let mut stranger = Browser::with_token(&plane, &stranger).await;
    for search in ["", "?q=desk", "?state=idle", "?agent=robot"] {
        let list = stranger.get(&format!("/sessions{search}")).await.ok();
        assert!(!list.contains("href=\"/sessions/desk\"") && list.contains("No session"), "{search}: {list}");
    }
    for path in ["/sessions/desk", "/calls/desk/c1", "/calls/desk/c2"] {
        assert_eq!(stranger.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let events = stranger.get("/events?session=desk").await.ok();
    assert!(!events.contains("event: session"), "nor follow them: {events}");
    // A halt of that name affects the own tenant's session only.
    let halt = [("what", "halt"), ("scope", "1"), ("name", "desk"), ("reason", "x")];
    assert_eq!(stranger.post("/sessions", &halt).await.status, StatusCode::SEE_OTHER);
    let mut ada = Browser::of(&plane, "ada", &[Role::Analyst]).await;
    assert!(!ada.get("/sessions/desk").await.ok().contains("Halted:"));
}

fn call_of_nothing() -> v1::ToolCall {
    call("", "", "{}")
}
