//! Policy pages: permissions, activation, checks before it, and trials on stored calls.

use callgate_core::{
    domain::{
        identity::{MappedIdentity, Role},
        ids::DEFAULT_TENANT,
    },
    policy::{self, Policy},
};
use callgate_proto::v1::policy_service_client::PolicyServiceClient;
use callgate_server::gate::TenantChange;
use http::StatusCode;

use super::{Browser, serve_console};
use crate::{
    common::{
        until,
        wire::{Plane, call, evaluate_as, question, with_token},
    },
    credentials::{token, who},
};

const TEXT: &str = "policy_engine:\n  tool_schemas:\n    get_order: {effect: read, side_effect_resource: order}\n";
const STRICT: &str = "policy_engine:\n  authorization: {tiers: [{name: none, pattern: 'get_*', action: deny}]}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_exchanges_the_policy_after_a_look_and_an_analyst_reads_it() {
    let plane = serve_console(&Policy::default()).await;
    token(&plane.gate, who("root", &[Role::Admin])).await;
    let mut admin = Browser::of(&plane, "ada", &[Role::Admin]).await;
    let mut analyst = Browser::of(&plane, "ann", &[Role::Analyst]).await;
    let bad = "policy_engine:\n  budgets: {run: {max_steps: <b>many}}\n";
    for browser in [&mut admin, &mut analyst] {
        let page = browser.get("/policy").await.ok();
        assert!(page.contains("The built-in policy"), "{page}");
        let page = browser.post("/policy", &[("what", "check"), ("text", bad)]).await.ok();
        assert!(page.contains("The policy is invalid.") && page.contains("href=\"#line-2\">line 2, column "), "{page}");
        assert!(page.contains("&lt;b&gt;many") && !page.contains("<b>many"), "{page}");
        assert!(page.contains("<span class=\"bad\">← here</span>"), "{page}");
        let page = browser.post("/policy", &[("what", "check"), ("text", TEXT)]).await.ok();
        assert!(page.contains("The policy is valid. Nothing was changed.") && page.contains("get_order"), "{page}");
        assert!(page.contains("are refused (DENY)"), "{page}");
    }
    let page = analyst.post("/policy", &[("what", "check"), ("text", TEXT)]).await.ok();
    assert!(page.contains("Start the backtest") && !page.contains("value=\"apply\""), "{page}");

    let apply = [("what", "apply"), ("text", TEXT), ("note", "<i>first</i>"), ("revision", "0"), ("sure", "yes")];
    let refused = analyst.post("/policy", &apply).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.html);
    assert!(refused.html.contains("The request failed: this method requires"), "{}", refused.html);
    let unsure = admin.post("/policy", &apply[..4]).await;
    assert_eq!(unsure.status, StatusCode::BAD_REQUEST, "{}", unsure.html);
    assert!(
        unsure.html.contains("sure: confirm that it applies") && unsure.html.contains("get_order"),
        "{}",
        unsure.html
    );
    assert!(unsure.html.contains("value=\"&#60;i&#62;first&#60;/i&#62;\""), "{}", unsure.html);
    assert_eq!(admin.post("/policy", &apply).await.location(), "/policy");
    let page = analyst.get("/policy").await.ok();
    assert!(page.contains("get_order") && page.contains("&lt;i&gt;first&lt;/i&gt;"), "{page}");
    assert!(!page.contains("/policy/rollback"), "who cannot is not offered it");
    // A conflict: the current revision is shown, with the entered text.
    let stale = [("what", "apply"), ("text", STRICT), ("revision", "0"), ("sure", "yes"), ("note", "mine")];
    let stale = admin.post("/policy", &stale).await;
    assert_eq!(stale.status, StatusCode::CONFLICT, "{}", stale.html);
    assert!(stale.html.contains("revision 1 is the active one") && stale.html.contains("value=\"mine\""));
    assert!(stale.html.contains("pattern: &#39;get_*&#39;"), "{}", stale.html);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn difference_is_shown_before_an_activation_or_rollback() {
    let plane = serve_console(&Policy::default()).await;
    let mut ada = Browser::sign_in_as(&plane, "ada").await;
    ada.get("/policy").await.ok();
    for (revision, text) in [("0", TEXT), ("1", STRICT)] {
        let apply = [("what", "apply"), ("text", text), ("revision", revision), ("sure", "yes"), ("note", "so")];
        assert_eq!(ada.post("/policy", &apply).await.location(), "/policy");
    }
    let (first, second) = (policy::hash(TEXT), policy::hash(STRICT));
    let page = ada.get("/policy/difference").await.ok();
    assert!(page.contains(&format!("<option value=\"{second}\" selected>Revision 2")), "{page}");
    let key = "<code>policy_engine.tool_schemas.get_order.effect</code></td><td>";
    assert!(page.contains(&format!("{key}<del>&quot;read&quot;</del>")), "{page}");
    let page = ada.get(&format!("/policy/difference?from={second}&to={first}")).await.ok();
    assert!(page.contains(&format!("{key}<span class=\"muted\">not set</span>")), "{page}");
    let page = ada.get(&format!("/policy/difference?from={first}&to={first}")).await.ok();
    assert!(page.contains("No differences."), "{page}");
    assert_eq!(ada.get("/policy/difference?from=00000000&to=").await.status, StatusCode::NOT_FOUND);

    let page = ada.get("/policy/rollback").await.ok();
    assert!(
        page.contains(&first[..16])
            && page.contains("Changes to the active policy")
            && page.contains("<h2>Confirm</h2>")
    );
    let stale = ada.post("/policy/rollback", &[("revision", "1"), ("note", "too \"late\"")]).await;
    assert_eq!(stale.status, StatusCode::CONFLICT, "{}", stale.html);
    assert!(stale.html.contains("Nothing was changed: revision 2 is the active one"), "{}", stale.html);
    assert!(stale.html.contains("value=\"too &#34;late&#34;\""), "{}", stale.html);
    let back = ada.post("/policy/rollback", &[("revision", "2"), ("note", "it refused all")]).await;
    assert_eq!(back.location(), "/policy", "{}", back.html);
    let page = ada.get("/policy").await.ok();
    assert!(page.contains("it refused all") && page.contains("Revision 3,"), "{page}");
    let page = ada.get(&format!("/policy/activate?hash={second}")).await.ok();
    assert!(page.contains("<h2>Confirm</h2>") && page.contains(key), "{page}");
    let done = ada.post("/policy/activate", &[("hash", &second), ("revision", "3")]).await;
    assert_eq!(done.location(), "/policy", "{}", done.html);
    token(&plane.gate, who("root", &[Role::Admin])).await;
    let mut analyst = Browser::of(&plane, "ann", &[Role::Analyst]).await;
    let page = analyst.get("/policy/rollback").await.ok();
    assert!(page.contains("Only administrators can change the policy") && !page.contains("<h2>Confirm</h2>"), "{page}");
    let refused = analyst.post("/policy/rollback", &[("revision", "4")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.html);
}

async fn ask(plane: &Plane, token: &str, session: &str) {
    let asked = question(session, call("c1", "get_order", r#"{"id":1}"#));
    evaluate_as(Some(token), &mut plane.client().await, asked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backtest_runs_in_the_background_for_its_tenant_alone_until_cancelled() {
    let plane = serve_console(&Policy::default()).await;
    let agent = MappedIdentity { any_session: true, ..who("desk", &[Role::Agent, Role::Admin]) };
    let (agent, _) = token(&plane.gate, agent).await;
    for session in ["s1", "s2"] {
        ask(&plane, &agent, session).await;
    }
    let mut ann = Browser::of(&plane, "ann", &[Role::Analyst]).await;
    let mut otto = Browser::of(&plane, "otto", &[Role::Operator]).await;
    let mut eve = Browser::of(&plane, "eve", &[Role::Approver]).await;
    let made =
        plane.gate.identities.create_tenant("acme", &Default::default(), &"root".into()).await.expect("an answer");
    let TenantChange::Done(acme) = made else { panic!("{made:?}") };
    let theirs =
        plane.gate.identities.create_token(acme.id, who("mallory", &[Role::Analyst]), None, &"root".into()).await;
    let mut mallory = Browser::with_token(&plane, &theirs.expect("a token").0).await;
    for browser in [&mut ann, &mut otto, &mut eve, &mut mallory] {
        browser.get("/policy").await.ok();
    }
    let wanted = [("text", STRICT), ("days", "1"), ("calls", "1000")];
    // The calls cannot be read until this goes.
    let mut lock = plane.postgres.connect().await;
    sqlx::raw_sql("begin; lock table callgate.outcome in access exclusive mode")
        .execute(&mut lock)
        .await
        .expect("held");
    let began = ann.post("/policy/backtests", &wanted).await;
    let path = began.location().to_owned();
    assert!(path.starts_with("/policy/backtests/"), "{}", began.html);
    let page = ann.get(&path).await.ok();
    assert!(page.contains(">Cancel</button>") && page.contains("hx-trigger=\"live-tick from:body\""), "{page}");
    let second = ann.post("/policy/backtests", &wanted).await;
    assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS, "{}", second.html);
    assert!(second.html.contains("one at a time"), "{}", second.html);
    assert!(second.html.contains("pattern: &#39;get_*&#39;"), "what they had written is kept: {}", second.html);
    for stranger in [&mut mallory, &mut eve] {
        assert_eq!(stranger.get(&path).await.status, StatusCode::NOT_FOUND);
        assert_eq!(stranger.post(&path, &[]).await.status, StatusCode::NOT_FOUND);
        assert!(!stranger.get("/policy").await.ok().contains(&path));
    }
    assert!(otto.get("/policy").await.ok().contains(&path), "a colleague sees it");
    assert_eq!(otto.post(&path, &[]).await.location(), path);
    until("the slot to be free", async || plane.gate.policies.backtest_slot(DEFAULT_TENANT).is_some()).await;
    assert!(ann.get(&path).await.ok().contains("Cancelled."));
    sqlx::raw_sql("rollback").execute(&mut lock).await.expect("given back");

    let path = ann.post("/policy/backtests", &wanted).await.location().to_owned();
    until("the result", async || ann.get(&path).await.ok().contains("id=\"came\"")).await;
    let page = ann.get(&path).await.ok();
    assert!(page.contains("2 of 2 calls would get another decision"), "{page}");
    let trust = "Accuracy: the compared policy judged 2 of these calls";
    assert!(page.contains(trust), "{page}");
    assert!(page.contains("2 newly refused") && page.contains("/calls/s1/c1"), "{page}");
    assert!(page.contains("Limits: a backtest cannot know") && page.contains("a restart loses it"), "{page}");
    let part = ann.get(&format!("{path}?part=standing")).await;
    assert_eq!(part.headers.get("hx-refresh").map(|value| value.as_bytes()), Some(&b"true"[..]));
    let (_, id) = path.rsplit_once('/').expect("an id");
    let page = ann.get(&format!("/policy?try={id}")).await.ok();
    assert!(page.contains("The policy is valid.") && page.contains("pattern: &#39;get_*&#39;"), "{page}");
    assert_eq!(mallory.get(&format!("/policy?try={id}")).await.status, StatusCode::NOT_FOUND);
    // Of the other tenant none of these calls.
    let path = mallory.post("/policy/backtests", &wanted).await.location().to_owned();
    until("the result", async || mallory.get(&path).await.ok().contains("id=\"came\"")).await;
    let page = mallory.get(&path).await.ok();
    assert!(page.contains("No calls in this period.") && !page.contains("/calls/"), "{page}");
    let mut policies = PolicyServiceClient::new(plane.channel().await);
    let stored =
        policies.list_policies(with_token(Some(&agent), Default::default())).await.expect("a list").into_inner();
    assert!(stored.revisions.is_empty(), "nothing was stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollout_is_started_compared_and_promoted_on_its_page() {
    let plane = serve_console(&Policy::default()).await;
    let (root, _) = token(&plane.gate, who("root", &[Role::Admin])).await;
    let mut admin = Browser::with_token(&plane, &root).await;
    let mut analyst = Browser::of(&plane, "ann", &[Role::Analyst]).await;
    let apply = callgate_proto::v1::ApplyPolicyRequest {
        text: STRICT.into(),
        mode: callgate_proto::v1::ApplyMode::Store.into(),
        ..Default::default()
    };
    let mut policies = PolicyServiceClient::new(plane.channel().await);
    let hash = policies.apply_policy(with_token(Some(&root), apply)).await.expect("stored").into_inner().hash;

    let page = admin.get(&format!("/policy/rollout?hash={hash}")).await.ok();
    assert!(page.contains("There was no rollout yet.") && page.contains(&format!("value=\"{hash}\"")), "{page}");
    let wrong = [("what", "start"), ("hash", hash.as_str()), ("share", "<b>many"), ("agents", "")];
    let refused = admin.post("/policy/rollout", &wrong).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.html);
    assert!(refused.html.contains("share: must be a percentage") && refused.html.contains("&#60;b&#62;many"));
    let begin =
        [("what", "start"), ("hash", hash.as_str()), ("share", ""), ("agents", " desk \r\n"), ("note", "a try")];
    assert_eq!(analyst.post("/policy/rollout", &begin).await.status, StatusCode::FORBIDDEN);
    assert_eq!(admin.post("/policy/rollout", &begin).await.location(), "/policy/rollout");
    plane.gate.store.skip(2_100);

    let (agent, _) = token(&plane.gate, who("bot", &[Role::Agent])).await;
    let mut client = plane.client().await;
    let caller = callgate_proto::v1::Caller { agent_id: "desk".into(), ..crate::common::wire::caller("s1") };
    let asked =
        callgate_proto::v1::EvaluateRequest { caller: Some(caller), ..question("s1", call("c1", "get_order", "{}")) };
    evaluate_as(Some(&agent), &mut client, asked).await;
    let page = analyst.get("/policy/rollout").await.ok();
    assert!(page.contains("It judges the agents desk.") && page.contains("a try"), "{page}");
    assert!(page.contains("DENY") && page.contains("href=\"/calls/s1/c1\""), "{page}");
    assert!(page.contains("Only administrators") && !page.contains("value=\"promote\""), "{page}");
    let part = analyst.get("/policy/rollout?part=standing").await.ok();
    assert!(part.contains("id=\"standing\"") && !part.contains("<html"), "{part}");

    // The rollout that the page showed, and no other one.
    let other = [("what", "promote"), ("hash", &"0".repeat(64)[..])];
    assert_eq!(admin.post("/policy/rollout", &other).await.status, StatusCode::NOT_FOUND);
    let end = [("what", "promote"), ("hash", hash.as_str()), ("note", "as compared")];
    assert_eq!(admin.post("/policy/rollout", &end).await.location(), "/policy/rollout");
    let page = admin.get("/policy/rollout").await.ok();
    assert!(page.contains("promoted") && page.contains("Start a rollout"), "{page}");
    assert!(admin.get("/policy").await.ok().contains("as compared"));
}
