//! Approval requests in the console: visibility, answers, and rejected answers.

use callgate_core::{
    domain::{
        audit::Actor,
        identity::{MappedIdentity, Role},
        tenant::Quotas,
    },
    policy,
};
use callgate_proto::v1::{self, Decision};
use callgate_server::gate::TenantChange;
use http::{Method, StatusCode};

use super::{Browser, serve_console};
use crate::{
    common::wire::{Plane, call, evaluate, evaluate_as, question},
    credentials::{token, who},
};

const POLICY: &str = "policy_engine:
  approvals:
    routes: [{tools: 'transfer_*', group: finance, required_approvals: 2}]
  authorization:
    tiers: [{name: money, pattern: 'refund_*|transfer_*', action: hitl}]
  tool_schemas:
    refund_order: {effect: write, once: true, side_effect_resource: 'order/{id}'}
    transfer_money: {effect: write, risk_level: HIGH}
    get_order: {effect: read}
";

async fn plane() -> Plane {
    serve_console(&policy::compile(POLICY).expect("a good policy")).await
}

fn refund(call_id: &str, tool: &str, arguments: &str) -> v1::EvaluateRequest {
    let call = v1::ToolCall { justification: "<b>the user</b> said so".into(), ..call(call_id, tool, arguments) };
    let mut asked = question("s", call);
    asked.caller.get_or_insert_default().host = "codex<i>".into();
    asked
}

/// An agent's approval request, made before authentication is on.
async fn open_request(plane: &Plane, call_id: &str, tool: &str, arguments: &str) -> String {
    let verdict = evaluate(&mut plane.client().await, refund(call_id, tool, arguments)).await;
    assert_eq!(verdict.decision(), Decision::Ask, "{verdict:?}");
    format!("/approvals/{}", verdict.approval_id)
}

const ARGUMENTS: &str = r#"{"id":"7","note":"</script><script>alert(1)</script>\u202e"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_look_sees_the_call_as_it_would_run_and_only_approvers_answer() {
    let plane = plane().await;
    let path = open_request(&plane, "c1", "refund_order", ARGUMENTS).await;
    let mut analyst = Browser::of(&plane, "root", &[Role::Admin]).await;
    analyst.get("/approvals").await.ok();
    let mut analyst = Browser::of(&plane, "ann", &[Role::Analyst]).await;
    let list = analyst.get("/approvals").await.ok();
    assert!(list.contains("refund_order") && list.contains("high risk") && list.contains(&path), "{list}");
    let page = analyst.get(&path).await.ok();
    for shown in [
        "&lt;/script&gt;&lt;script&gt;alert(1)",
        "<mark class=\"unseen\">U+202E</mark>",
        "&lt;b&gt;the user&lt;/b&gt; said so",
        "order/7",
        "<dt>Host</dt><dd>codex&lt;i&gt;, as reported by the client</dd>",
        "money",
        "data-until=\"2",
        "the role approver",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains("<script>alert") && !page.contains("value=\"deny\""), "{page}");
    assert!(page.contains("needs a person") && !page.contains("go on with other work"), "as people read it: {page}");
    let refused = analyst.post(&path, &[("what", "approve")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.html);
    assert!(refused.html.contains("Your answer was not accepted"), "{}", refused.html);
    assert_eq!(analyst.get("/approvals?part=count").await.ok(), "1<span class=\"hidden\"> open</span>");
    assert_eq!(analyst.get(&format!("{path}?part=json")).await.ok(), ARGUMENTS.replace("\\u202e", "\u{202e}"));
    let mut agent = Browser::of(&plane, "desk", &[Role::Agent]).await;
    assert_eq!(agent.get("/approvals").await.status, StatusCode::FORBIDDEN);
    assert_eq!(agent.get(&path).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_requires_a_form_of_the_console() {
    let plane = plane().await;
    let path = open_request(&plane, "c1", "refund_order", ARGUMENTS).await;
    let mut eve = Browser::of(&plane, "eve", &[Role::Admin]).await;
    eve.get(&format!("{path}?what=approve")).await.ok();
    eve.get(&format!("{path}?what=deny&reason=no&part=standing&seen=open")).await.ok();
    let forged = eve.send(Method::POST, &path, "what=approve&csrf=forged".into()).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN, "{}", forged.html);
    for wrong in [vec![], vec![("what", "deny"), ("reason", " ")], vec![("what", "approve"), ("scope", "tool")]] {
        eve.get(&path).await.ok();
        assert_eq!(eve.post(&path, &wrong).await.status, StatusCode::BAD_REQUEST, "{wrong:?}");
    }
    let answered = "select count(*) from session_event where kind in ('answered', 'seconded')";
    assert_eq!(plane.postgres.number(answered).await, 0);
    eve.get(&path).await.ok();
    let done = eve.post(&path, &[("what", "deny"), ("reason", "order 7 is <i>open</i>")]).await;
    assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, path.as_str()));
    let page = eve.get(&path).await.ok();
    assert!(page.contains("Denied by eve") && page.contains("order 7 is &lt;i&gt;open&lt;/i&gt;"), "{page}");
    assert!(!page.contains("value=\"deny\""), "{page}");
    assert_eq!(plane.postgres.number(answered).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_late_is_told_who_was_first_and_two_people_are_two() {
    let plane = plane().await;
    let refund = open_request(&plane, "c1", "refund_order", ARGUMENTS).await;
    let transfer = open_request(&plane, "c2", "transfer_money", r#"{"to":"x"}"#).await;
    let mut eve = Browser::of(&plane, "eve", &[Role::Admin]).await;
    let mut bob = Browser::of(&plane, "bob", &[Role::Approver]).await;
    eve.get(&refund).await.ok();
    bob.get(&refund).await.ok();
    assert_eq!(eve.post(&refund, &[("what", "approve")]).await.status, StatusCode::SEE_OTHER);
    let late = bob.post(&refund, &[("what", "deny"), ("reason", "no")]).await;
    assert_eq!(late.status, StatusCode::CONFLICT);
    assert!(
        late.html.contains("Your answer was not accepted") && late.html.contains("Approved by eve"),
        "{}",
        late.html
    );
    // A part that asks how it stands makes the page be loaded again.
    let part = bob.get(&format!("{refund}?part=standing&seen=open")).await;
    assert_eq!(part.headers["hx-refresh"], "true");
    let part = bob.get(&format!("{refund}?part=standing&seen=approved")).await;
    assert!(
        !part.headers.contains_key("hx-refresh") && part.html.starts_with("\n<section id=\"standing\""),
        "{}",
        part.html
    );

    let outside = bob.get(&transfer).await.ok();
    assert!(outside.contains("Only members of the group finance may answer."), "{outside}");
    let mut people = Vec::new();
    for name in ["fay", "kim"] {
        let person = MappedIdentity { groups: vec!["finance".into()], ..who(name, &[Role::Approver]) };
        people.push(Browser::with_token(&plane, &token(&plane.gate, person).await.0).await);
    }
    let mine = people[0].get("/approvals?whose=mine").await.ok();
    assert!(mine.contains(&transfer), "{mine}");
    assert!(!bob.get("/approvals?whose=mine").await.ok().contains(&transfer));
    people[0].get(&transfer).await.ok();
    assert_eq!(people[0].post(&transfer, &[("what", "approve")]).await.status, StatusCode::SEE_OTHER);
    let page = people[0].get(&transfer).await.ok();
    assert!(page.contains("First approval by fay.") && page.contains("You have approved it."), "{page}");
    people[1].get(&transfer).await.ok();
    assert_eq!(people[1].post(&transfer, &[("what", "approve")]).await.status, StatusCode::SEE_OTHER);
    assert!(people[1].get(&transfer).await.ok().contains("Approved by kim"), "the second yes");
    let all = people[1].get("/approvals?state=all").await.ok();
    assert!(all.contains(&refund) && all.contains(&transfer), "{all}");
    // Open requests are read once per quarter of a second, for all watchers.
    tokio::time::sleep(callgate_server::gate::LOOK_EVERY).await;
    assert!(people[1].get("/approvals").await.ok().contains("No open approval requests."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_do_not_see_each_others_questions() {
    let plane = plane().await;
    let path = open_request(&plane, "c1", "refund_order", ARGUMENTS).await;
    token(&plane.gate, who("root", &[Role::Admin])).await;
    let root = Actor::from("root");
    let TenantChange::Done(acme) =
        plane.gate.identities.create_tenant("acme", &Quotas::default(), &root).await.expect("an answer")
    else {
        panic!("there was no such tenant")
    };
    let hank = who("hank", &[Role::Admin]);
    let (stranger, _) = plane.gate.identities.create_token(acme.id, hank, None, &root).await.expect("a token");
    let mut stranger = Browser::with_token(&plane, &stranger).await;
    let list = stranger.get("/approvals?state=all").await.ok();
    assert!(!list.contains(&path), "{list}");
    assert_eq!(stranger.get(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(stranger.post(&path, &[("what", "approve")]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(plane.postgres.number("select count(*) from session_event where kind = 'answered'").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_arguments_are_looked_at_before_they_are_approved() {
    let plane = plane().await;
    let path = open_request(&plane, "c1", "refund_order", r#"{"amount":500,"id":"7","note":"a\u202eb"}"#).await;
    let mut eve = Browser::of(&plane, "eve", &[Role::Admin]).await;
    let page = eve.get(&path).await.ok();
    // The input field holds the arguments as they will execute, with invisible characters escaped.
    assert!(page.contains("&#34;amount&#34;: 500,") && page.contains("a\\u202eb&#34;"), "{page}");
    let look = |edited: &'static str| [("what", "look"), ("edited", edited), ("reason", "less <b>will do</b>")];
    for (wrong, why) in [
        ("{\"amount\": 1", "the input is not JSON: "),
        (r#"{"amount":500,"id":"7","note":"a\u202eb"}"#, "approve the call as it is"),
    ] {
        let told = eve.post(&path, &look(wrong)).await;
        assert_eq!(told.status, StatusCode::BAD_REQUEST);
        assert!(told.html.contains(why) && told.html.contains("<details open>"), "{}", told.html);
        let kept = wrong.replace('"', "&#34;");
        assert!(told.html.contains(&kept), "what was typed is there: {}", told.html);
    }
    let unseen = [("what", "edit"), ("edited", "{}"), ("digest", "")];
    assert_eq!(eve.post(&path, &unseen).await.status, StatusCode::BAD_REQUEST);
    let answered = "select count(*) from session_event where kind in ('answered', 'seconded')";
    let seen = eve.post(&path, &look(r#"{"id": "7", "amount": 50}"#)).await.ok();
    assert_eq!(plane.postgres.number(answered).await, 0, "it was only looked at");
    for shown in ["Preview of your changes", "<del>500</del>", "<ins>50</ins>", "less &#60;b&#62;will do"] {
        assert!(seen.contains(shown), "{shown}: {seen}");
    }
    assert!(!seen.contains("Approve once"), "one yes at a time: {seen}");
    let digest = seen.split("name=\"digest\" value=\"").nth(1).and_then(|rest| rest.get(..64)).expect("a digest");
    let edited = r#"{"amount":50,"id":"7"}"#;
    let other = [("what", "edit"), ("edited", r#"{"amount":60,"id":"7"}"#), ("digest", digest)];
    assert_eq!(eve.post(&path, &other).await.status, StatusCode::CONFLICT, "not what was seen");
    let yes = [("what", "edit"), ("edited", edited), ("digest", digest), ("reason", "less <b>will do</b>")];
    let done = eve.post(&path, &yes).await;
    assert_eq!((done.status, done.location()), (StatusCode::SEE_OTHER, path.as_str()));
    let page = eve.get(&path).await.ok();
    for shown in ["Approved with other arguments by eve", "never runs", "Approved arguments", "less &lt;b&gt;will do"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains("value=\"deny\"") && !page.contains("id=\"edited\""), "{page}");
    assert_eq!(eve.get(&format!("{path}?part=edited")).await.ok(), edited);
    assert!(eve.get("/approvals?state=all").await.ok().contains("approved with other arguments"));
    let token = token(&plane.gate, who("desk", &[Role::Agent])).await.0;
    let mut client = plane.client().await;
    let call = refund("c1", "refund_order", r#"{"amount":500,"id":"7","note":"a\u202eb"}"#);
    let told = evaluate_as(Some(&token), &mut client, call).await;
    assert_eq!((told.decision(), told.approved_arguments_json.as_str()), (Decision::Deny, edited));
    let told = eve.get("/calls/s/c1").await.ok();
    assert!(told.contains("approved other arguments; this call does not run"), "{told}");
    assert!(!told.contains("<dt>Allowed by</dt>"), "{told}");
    // The approval request and the executed call link to each other.
    let ran = evaluate_as(Some(&token), &mut client, refund("c2", "refund_order", edited)).await;
    assert_eq!(ran.decision(), Decision::Allow, "{ran:?}");
    let page = eve.get(&path).await.ok();
    assert!(page.contains("<a href=\"/calls/s/c2\">c2</a> ran with those arguments"), "{page}");
    let told = eve.get("/calls/s/c2").await.ok();
    assert!(told.contains("<dt>Allowed by</dt>") && told.contains(&format!("<a href=\"{path}\">")), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_person_is_shown_what_the_first_one_chose() {
    let plane = plane().await;
    let path = open_request(&plane, "c1", "transfer_money", r#"{"to":"x","amount":500}"#).await;
    let secret = format!("{{\"to\":\"x\",\"password\":\"{}\"}}", "s3cret");
    let hidden = open_request(&plane, "c2", "refund_order", &secret).await;
    token(&plane.gate, who("root", &[Role::Admin])).await;
    let mut people = Vec::new();
    for name in ["fay", "kim"] {
        let person = MappedIdentity { groups: vec!["finance".into()], ..who(name, &[Role::Approver]) };
        people.push(Browser::with_token(&plane, &token(&plane.gate, person).await.0).await);
    }
    let [fay, kim] = &mut people[..] else { panic!("two") };
    fay.get(&path).await.ok();
    let seen = fay.post(&path, &[("what", "look"), ("edited", r#"{"to":"x","amount":5}"#)]).await.ok();
    let digest = seen.split("name=\"digest\" value=\"").nth(1).and_then(|rest| rest.get(..64)).expect("a digest");
    let yes = [("what", "edit"), ("edited", r#"{"amount":5,"to":"x"}"#), ("digest", digest)];
    assert_eq!(fay.post(&path, &yes).await.status, StatusCode::SEE_OTHER);
    let page = kim.get(&path).await.ok();
    assert!(page.contains("Arguments that fay approved") && !page.contains("Approve once"), "{page}");
    // An approval without the displayed arguments is rejected.
    let plain = kim.post(&path, &[("what", "approve")]).await;
    assert_eq!(plain.status, StatusCode::CONFLICT);
    assert!(plain.html.contains("fay approved other arguments"), "{}", plain.html);
    assert_eq!(kim.post(&path, &yes).await.status, StatusCode::SEE_OTHER);
    assert!(kim.get(&path).await.ok().contains("Approved with other arguments by kim</strong> and fay"));
    let page = kim.get(&hidden).await.ok();
    assert!(page.contains("Cannot be edited here: the policy redacts password."), "{page}");
    assert!(!page.contains("name=\"edited\""), "{page}");
}
