//! Overview page: access, contents, and its refreshed part.

use std::collections::BTreeMap;

use callgate_core::{
    domain::identity::Role,
    policy::{self, Policy},
};
use callgate_proto::v1::{self, HaltScope, OutcomeStatus, session_service_client::SessionServiceClient};
use http::StatusCode;

use super::{Browser, serve_console};
use crate::{
    common::wire::{call, evaluate, from, outcome, question, record},
    credentials::{token, who},
    fleet::{POLICY, story},
};

/// The text of a card, without its elements.
fn card(html: &str, id: &str) -> String {
    let (_, rest) = html.split_once(&format!("id=\"card-{id}\"")).unwrap_or_else(|| panic!("no card {id}: {html}"));
    let (card, _) = rest.split_once("</div>").expect("its end");
    let mut text = String::new();
    for part in card.split('<').skip(1) {
        text += part.split_once('>').map_or("", |(_, text)| text);
        text.push(' ');
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The columns of the table of the last hour, by their heads.
fn minutes(html: &str) -> BTreeMap<String, Vec<String>> {
    let (_, table) = html.split_once("id=\"minutes\"").expect("the table");
    let (head, body) = table.split_once("</thead><tbody>").or_else(|| table.split_once("<tbody>")).expect("its body");
    let heads = head.split("data-chart=").skip(1).map(|head| head.split(['>', '<']).nth(1).expect("a name").to_owned());
    let rows: Vec<Vec<&str>> = body
        .split_once("</tbody>")
        .expect("its end")
        .0
        .split("<tr>")
        .skip(1)
        .map(|row| row.split("<td>").skip(1).map(str::trim).collect())
        .collect();
    heads.enumerate().map(|(at, head)| (head, rows.iter().map(|row| row[at].to_owned()).collect())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_what_is_and_whether_that_is_bad() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    let halt =
        v1::HaltRequest { scope: HaltScope::Tool.into(), name: "<b>pay".into(), reason: "it's \u{202e}odd".into() };
    SessionServiceClient::new(plane.channel().await).halt(from("eve", halt)).await.expect("a halt");
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    let html = ada.get("/").await.ok();
    assert!(html.contains("<h1>Overview</h1>") && html.contains("Needs attention:"), "{html}");
    let calls = card(&html, "calls");
    assert!(calls.contains("17 in the last minute: ALLOW 12, ASK 1, REUSE 2, DENY 1, STOP 1."), "{calls}");
    assert!(calls.contains("ok 17 in"), "{calls}");
    assert!(card(&html, "approvals").contains("1 waiting The oldest is open for"), "{html}");
    assert!(card(&html, "held").contains("1 for approval"), "{html}");
    assert!(card(&html, "stopped").contains("1 check"), "{html}");
    assert!(card(&html, "budgets").contains("2 exhausted 1 exhausted: their calls are stopped."), "{html}");
    assert!(html.contains("session two and its sub-agents") && html.contains("5 tool calls of 5 tool calls"), "{html}");
    assert!(card(&html, "plane").contains("Healthy ok"), "{html}");
    assert!(html.contains("<strong>$0.02</strong>") && html.contains("by 1 of 2 reused results"), "{html}");
    assert!(html.contains("<strong>1,000</strong>"), "{html}");
    assert!(html.contains("tool &lt;b&gt;pay") && html.contains("it&#39;s <mark class=\"unseen\">U+202E</mark>odd"));
    assert_eq!(html.matches("<figure class=\"chart").count(), 2, "decisions and spend");
    let charts = ada.get("/charts").await.ok();
    assert_eq!(charts.matches("<tr><td data-value=").count(), 60, "an hour, for all charts");
    let minutes = minutes(&charts);
    let sum = |name: &str| minutes[name].iter().filter_map(|value| value.parse::<f64>().ok()).sum::<f64>();
    let last = |name: &str| minutes[name].last().expect("a minute").as_str();
    let now = ["Open requests", "Sessions waiting", "Sessions stopped", "Halts"].map(last);
    assert_eq!(now, ["1", "1", "1", "1"], "{minutes:?}");
    assert_eq!((sum("ALLOW"), sum("Reused"), sum("Denied"), sum("Stopped")), (12.0, 2.0, 1.0, 1.0));
    assert_eq!((sum("Cost, US dollars"), sum("Tokens")), (0.02, 1_000.0));
    assert_eq!((last("Oldest request, minutes"), minutes["Oldest request, minutes"][0].as_str()), ("0.0", ""));
    let unseen = ["Open circuit breakers", "Budgets near their limit", "Calls queued", "Database, milliseconds"];
    assert!(unseen.iter().all(|name| minutes[*name].iter().all(String::is_empty)), "nobody looked: {minutes:?}");
    assert!(charts.contains("Sampled by this server."), "{charts}");
    assert!(card(&html, "spend").contains("$0.02") && html.contains("href=\"/sessions?agent=robot\""), "{html}");
    let part = ada.get("/?part=live").await.ok();
    assert!(part.trim_start().starts_with("<div id=\"now\"") && part.trim_end().ends_with("</div>"), "{part}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_fleet_needs_nobody_and_knows_no_money() {
    let plane = serve_console(&Policy::default()).await;
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    let html = ada.get("/").await.ok();
    assert!(html.contains("Nothing needs attention.") && card(&html, "calls").contains("No call in the last minute."));
    assert!(html.contains("<dt>Cost</dt><dd>unknown</dd>"), "{html}");
    assert!(html.contains("No calls in this period. Connect an agent"), "{html}");
    let html = ada.get("/charts").await.ok();
    assert!(!html.contains("chart-cost") && !html.contains("chart-tokens"), "{html}");
    evaluate(&mut plane.client().await, question("s", call("c1", "look", "{}"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_metrics_are_shown_with_their_start() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    plane.gate.decisions.share_health().await.expect("told");
    plane.gate.identities.read_tenants().await.expect("known");
    plane.gate.insight.take_stock().await.expect("counted");
    plane.gate.insight.tell_load();
    let html = Browser::sign_in_as(&plane, "ada").await.get("/charts").await.ok();
    assert!(html.contains("Sampled by this server since "), "{html}");
    let minutes = minutes(&html);
    let seen = |name: &str| {
        let seen: Vec<&str> = minutes[name].iter().map(String::as_str).filter(|value| !value.is_empty()).collect();
        assert!((1..=2).contains(&seen.len()), "{name}: {seen:?}");
        seen[0].to_owned()
    };
    let told = ["Open circuit breakers", "Budgets near their limit", "Calls queued", "No response"].map(seen);
    assert_eq!(told, ["0", "2", "0", "0"], "{minutes:?}");
    seen("Database, milliseconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_not_see_it_is_led_to_what_they_may() {
    let plane = serve_console(&Policy::default()).await;
    token(&plane.gate, who("root", &[Role::Admin])).await;
    for role in [Role::Approver, Role::Operator, Role::Analyst, Role::Admin] {
        let html = Browser::of(&plane, "ann", &[role]).await.get("/").await.ok();
        assert!(html.contains("<h1>Overview</h1>") && html.contains("href=\"/\" data-key=\"o\""), "{role:?}: {html}");
    }
    let page = Browser::of(&plane, "desk", &[Role::Agent]).await.get("/").await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    let mut stranger = Browser::new(&plane);
    assert_eq!(stranger.get("/").await.location(), "/sign-in?next=%2F");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_database_the_page_says_so() {
    let plane = serve_console(&Policy::default()).await;
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    ada.get("/").await.ok();
    let _frozen = plane.postgres.freeze();
    let told = async {
        while !ada.get("/?part=live").await.ok().contains("No data available.") {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    crate::common::within(std::time::Duration::from_secs(15), "what is wrong", told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_is_a_page_of_the_console_with_the_next_step() {
    let plane = serve_console(&Policy::default()).await;
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    let missing = ada.get("/sessions/none/at/all").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    for text in ["aria-label=\"Pages\"", "<h1>Not found</h1>", "Check the address, or search under Sessions."] {
        assert!(missing.html.contains(text), "{text}: {}", missing.html);
    }
    let wrong = ada.get("/audit?from=soon").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert!(wrong.html.contains("aria-label=\"Pages\"") && wrong.html.contains("Go back, correct the value"));
    let mut stranger = Browser::new(&plane);
    let missing = stranger.get("/sessions/none/at/all").await.html;
    assert!(missing.contains("Check the address") && !missing.contains("aria-label=\"Pages\""), "{missing}");
    ada.headers.insert("hx-request", "true".into());
    let part = ada.get("/audit?from=soon").await.html;
    assert!(!part.contains("aria-label=\"Pages\""), "a part of a page has no frame: {part}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costs_and_tenants_say_what_was_spent_and_what_has_no_price() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    let html = ada.get("/costs?days=1").await.ok();
    assert!(card(&html, "reported").contains("$0.02"), "{html}");
    assert!(card(&html, "priced").contains("1,000 of 1,000 tokens are not priced"), "{html}");
    assert!(html.contains("href=\"/sessions?tool=get_order\"") && html.contains("href=\"/sessions?agent=robot\""));
    plane.gate.identities.create_tenant("acme", &Default::default(), &"root".into()).await.expect("an answer");
    let html = ada.get("/tenants").await.ok();
    let (_, own) = html.split_once("<td>default<br>").expect("the own tenant");
    assert!(own.contains("$0.02") && own.contains("1 exhausted, 1 near the limit"), "{html}");
    let (_, acme) = html.split_once("<td>acme<br>").expect("the other tenant");
    let acme = acme.split("</tr>").next().expect("its row");
    assert!(acme.contains("$0.00") && acme.contains("none near its limit"), "nothing of another tenant: {acme}");
    let page = Browser::of(&plane, "ann", &[Role::Operator]).await.get("/tenants").await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_tools_says_which_are_in_trouble_now() {
    let plane = serve_console(&policy::compile(POLICY).expect("a good policy")).await;
    let mut client = plane.client().await;
    let limited = v1::ToolError {
        message: "429".into(),
        http_status: Some(429),
        retry_after: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..Default::default()
    };
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    assert!(ada.get("/tools").await.ok().contains("No open circuit breaker and no repeated failures."));
    evaluate(&mut client, question("s", call("c1", "a&b", "{}"))).await;
    record(&mut client, v1::RecordRequest { error: Some(limited), ..outcome("s", "c1", OutcomeStatus::Error) }).await;
    plane.gate.decisions.share_health().await.expect("told");
    crate::common::until("an answer that is not shared any more", async || {
        ada.get("/tools?part=now").await.ok().contains("<code>a&amp;b</code>")
    })
    .await;
    let html = ada.get("/tools?tool=a%26b").await.ok();
    assert!(
        html.contains("circuit breaker open for another ")
            && html.contains("(rate limited): calls wait or are refused"),
        "{html}"
    );
    assert!(html.contains("href=\"/sessions?tool=a%26b&#38;outcome=error&#38;hours=1\""), "{html}");
    assert!(html.contains("hx-get=\"/tools?part=now&amp;tool=a%26b\""), "{html}");
    let part = ada.get("/tools?part=now&tool=other").await.ok();
    assert!(part.trim_start().starts_with("<section id=\"present\"") && !part.contains("open for another"), "{part}");
    assert!(part.contains("<code>other</code> has no open circuit breaker and no repeated failures."), "{part}");
}
