//! The page of what is now: for whom it is, what it says, and the part of it that is asked for again.

use callgate::{
    domain::identity::Role,
    grpc::v1::{self, HaltScope, session_service_client::SessionServiceClient},
    policy::{self, Policy},
};
use http::StatusCode;

use super::{Browser, served};
use crate::{
    common::wire::{call, evaluate, from, question},
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_what_is_and_whether_that_is_bad() {
    let plane = served(&policy::compile(POLICY).expect("a good policy")).await;
    story(&mut plane.client().await).await;
    let halt =
        v1::HaltRequest { scope: HaltScope::Tool.into(), name: "<b>pay".into(), reason: "it's \u{202e}odd".into() };
    SessionServiceClient::new(plane.channel().await).halt(from("eve", halt)).await.expect("a halt");
    let mut ada = Browser::named(&plane, "ada").await;
    let html = ada.get("/").await.ok();
    assert!(html.contains("<h1>Now</h1>") && html.contains("This needs somebody"), "{html}");
    let calls = card(&html, "calls");
    assert!(calls.contains("17 in the last minute: ALLOW 12, ASK 1, REUSE 2, DENY 1, STOP 1."), "{calls}");
    assert!(calls.contains("fine"), "{calls}");
    assert!(card(&html, "approvals").contains("1 to be answered The oldest is open for"), "{html}");
    assert!(card(&html, "held").contains("1 wait for a person"), "{html}");
    assert!(card(&html, "stopped").contains("1 look why"), "{html}");
    assert!(card(&html, "budgets").contains("2 used up 1 used up: what they cover is stopped."), "{html}");
    assert!(html.contains("session two and its sub-agents") && html.contains("5 tool calls of 5 tool calls"), "{html}");
    assert!(card(&html, "plane").contains("Well fine"), "{html}");
    assert!(html.contains("<strong>$0.02</strong>") && html.contains("by 1 of 2 answers from memory"), "{html}");
    assert!(html.contains("<strong>1,000</strong>"), "{html}");
    assert!(html.contains("tool &lt;b&gt;pay") && html.contains("it&#39;s <mark class=\"unseen\">U+202E</mark>odd"));
    assert_eq!(html.matches("<tr><td data-value=").count(), 120, "an hour for each of two charts");
    let part = ada.get("/?part=live").await.ok();
    assert!(part.trim_start().starts_with("<div id=\"now\"") && part.trim_end().ends_with("</div>"), "{part}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_fleet_needs_nobody_and_knows_no_money() {
    let plane = served(&Policy::default()).await;
    let mut ada = Browser::named(&plane, "ada").await;
    let html = ada.get("/").await.ok();
    assert!(html.contains("Nothing needs you.") && card(&html, "calls").contains("No call in the last minute."));
    assert!(html.contains("<dt>Money</dt><dd>unknown</dd>") && !html.contains("$0"), "{html}");
    evaluate(&mut plane.client().await, question("s", call("c1", "look", "{}"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_not_see_it_is_led_to_what_they_may() {
    let plane = served(&Policy::default()).await;
    token(&plane.gate, who("root", &[Role::Admin])).await;
    for role in [Role::Approver, Role::Operator, Role::Analyst, Role::Admin] {
        let html = Browser::of(&plane, "ann", &[role]).await.get("/").await.ok();
        assert!(html.contains("<h1>Now</h1>") && html.contains("href=\"/\" data-key=\"n\""), "{role:?}: {html}");
    }
    let page = Browser::of(&plane, "desk", &[Role::Agent]).await.get("/").await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    let mut stranger = Browser::new(&plane);
    assert_eq!(stranger.get("/").await.location(), "/sign-in?next=%2F");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_database_the_page_says_so() {
    let plane = served(&Policy::default()).await;
    let mut ada = Browser::named(&plane, "ada").await;
    ada.get("/").await.ok();
    let _frozen = plane.postgres.freeze();
    let told = async {
        while !ada.get("/?part=live").await.ok().contains("Nothing can be told now.") {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    crate::common::within(std::time::Duration::from_secs(15), "what is wrong", told).await;
}
