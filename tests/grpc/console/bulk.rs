//! Approval requests in the console at scale: filters, groups, several answers on one page, claims and comments.

use callgate_core::{domain::identity::Role, policy};
use callgate_proto::v1::{self, Decision};
use http::StatusCode;

use super::{Browser, serve_console};
use crate::common::wire::{Plane, call, evaluate, question};

const POLICY: &str = "policy_engine:
  authorization:
    tiers:
      - {name: mail, pattern: send_mail, action: hitl, bulk_approve: true}
      - {name: rest, pattern: '*', action: hitl}
  tool_schemas: {send_mail: {effect: write}, drop_table: {effect: write, risk_level: HIGH}}
";

async fn open_request(plane: &Plane, call_id: &str, tool: &str, arguments: &str) -> String {
    let call = v1::ToolCall { justification: "<i>asked</i> to".into(), ..call(call_id, tool, arguments) };
    let verdict = evaluate(&mut plane.client().await, question("s", call)).await;
    assert_eq!(verdict.decision(), Decision::Ask, "{verdict:?}");
    verdict.approval_id
}

/// The digest that a page selects a request by.
fn digest(html: &str, id: &str) -> String {
    let field = format!("name=\"pick-{id}\" value=\"");
    let at = html.find(&field).unwrap_or_else(|| panic!("{id}: {html}")) + field.len();
    html[at..at + 64].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_requests_are_answered_on_one_page_with_a_result_each() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    let first = open_request(&plane, "c1", "send_mail", r#"{"to":"<b>a</b>","amount":70}"#).await;
    let second = open_request(&plane, "c2", "send_mail", r#"{"to":"b"}"#).await;
    let dropped = open_request(&plane, "c3", "drop_table", r#"{"id":1}"#).await;
    let mut eve = Browser::of(&plane, "root", &[Role::Admin]).await;
    let list = eve.get("/approvals?by=tool").await.ok();
    for shown in [
        "amount 70",
        "The model: “&lt;i&gt;asked&lt;/i&gt; to”",
        "rule <code>tier</code>",
        "/approvals?tool=drop_table\"",
        "<td class=\"number\">2</td>",
        "/approvals/bulk?",
    ] {
        assert!(list.contains(shown), "{shown}: {list}");
    }
    let narrowed = eve.get("/approvals?tool=send_mail&order=amount&min=60&agent=").await.ok();
    assert!(narrowed.contains(&first) && !narrowed.contains(&second) && !narrowed.contains(&dropped), "{narrowed}");
    assert_eq!(eve.get("/approvals?min=x").await.status, StatusCode::BAD_REQUEST);

    let page = eve.get("/approvals/bulk?").await.ok();
    assert!(page.contains("&lt;b&gt;a&lt;/b&gt;") && page.contains("1 request needs a page of its own"), "{page}");
    assert!(!page.contains(&format!("pick-{dropped}")) && !page.contains("checked"), "{page}");
    assert_eq!(eve.get("/approvals/bulk?all=1").await.ok().matches(" checked").count(), 2);
    let (seen, forged) = (digest(&page, &first), "0".repeat(64));
    let answered = "select count(*) from session_event where kind = 'answered'";
    let none = eve.post("/approvals/bulk", &[("what", "approve")]).await.ok();
    assert!(none.contains("Nothing was answered"), "{none}");
    let denial = eve.post("/approvals/bulk", &[("what", "deny"), ("reason", " "), ("until", "1")]).await.ok();
    assert!(denial.contains("reason: required"), "{denial}");
    assert_eq!(plane.postgres.number(answered).await, 0);
    let picks = [format!("pick-{first}"), format!("pick-{second}"), format!("pick-{dropped}")];
    let fields = [("what", "approve"), (&*picks[0], &*seen), (&*picks[1], &*forged), (&*picks[2], &*forged)];
    let fields = [&fields[..], &[("order", "amount")]].concat();
    let page = eve.get("/approvals/bulk?order=amount").await.ok();
    assert!(page.contains(&picks[0]), "{page}");
    let done = eve.post("/approvals/bulk", &fields).await.ok();
    assert!(done.contains("1 of 3 answered") && done.matches("ARGUMENTS_CHANGED").count() == 2, "{done}");
    assert!(!done.contains(&picks[0]) && done.contains(&picks[1]), "the answered one is gone: {done}");
    assert_eq!(plane.postgres.number(answered).await, 1);

    let until = plane.postgres.number("select extract(epoch from now()) * 1000").await + 60_000;
    let until = until.to_string();
    let fields = [("what", "deny"), ("reason", "not today"), ("until", &*until), ("tool", "drop_table")];
    let done = eve.post("/approvals/bulk", &fields).await.ok();
    assert!(done.contains("1 of 1 answered") && done.contains("drop_table"), "{done}");
    assert!(eve.get(&format!("/approvals/{dropped}")).await.ok().contains("Denied by root"));
    assert!(eve.get(&format!("/approvals/{second}")).await.ok().contains("Waiting for an approver"));
    let mut analyst = Browser::of(&plane, "ann", &[Role::Analyst]).await;
    let page = analyst.get("/approvals/bulk?").await.ok();
    assert!(page.contains("needs the role approver") && !page.contains("value=\"deny\""), "{page}");
    let refused = analyst.post("/approvals/bulk", &fields).await.ok();
    assert!(refused.contains("Nothing was answered"), "{refused}");
    assert_eq!(plane.postgres.number(answered).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_several_answers_are_shown_also_where_the_list_cannot_be_read() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    let id = open_request(&plane, "c1", "send_mail", r#"{"to":"a"}"#).await;
    let mut eve = Browser::of(&plane, "root", &[Role::Admin]).await;
    let seen = digest(&eve.get("/approvals/bulk?").await.ok(), &id);
    let pick = format!("pick-{id}");
    let fields = [("what", "approve"), (&*pick, &*seen), ("min", "x")];
    let done = eve.post("/approvals/bulk", &fields).await.ok();
    assert!(done.contains("1 of 1 answered") && !done.contains(&pick), "{done}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_comments_are_made_and_seen_on_the_page_of_a_request() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    let path = format!("/approvals/{}", open_request(&plane, "c1", "send_mail", r#"{"to":"a"}"#).await);
    let mut root = Browser::of(&plane, "root", &[Role::Admin]).await;
    let mut eve = Browser::of(&plane, "eve", &[Role::Approver]).await;
    assert!(root.get(&path).await.ok().contains("Claim for 15 minutes"));
    assert_eq!(root.post(&path, &[("what", "claim")]).await.status, StatusCode::SEE_OTHER);
    assert!(root.get(&path).await.ok().contains("Release your claim"));
    let seen = eve.get(&path).await.ok();
    assert!(seen.contains("Claimed by root") && seen.contains("value=\"approve\""), "{seen}");
    assert!(eve.get("/approvals").await.ok().contains("claimed by root"));
    let refused = eve.post(&path, &[("what", "claim")]).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.html);
    eve.get(&path).await.ok();
    let said = eve.post(&path, &[("what", "comment"), ("comment", "<b>ask</b> Ann")]).await;
    assert_eq!(said.status, StatusCode::SEE_OTHER, "{}", said.html);
    let seen = root.get(&path).await.ok();
    assert!(seen.contains("&lt;b&gt;ask&lt;/b&gt; Ann") && !seen.contains("<b>ask"), "{seen}");
    assert_eq!(root.post(&path, &[("what", "release")]).await.status, StatusCode::SEE_OTHER);
    assert!(!eve.get(&path).await.ok().contains("Claimed by"));
}
