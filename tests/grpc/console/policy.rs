//! The policy in the console: who sees it, who exchanges it, and what is checked before.

use callgate::{domain::identity::Role, policy::Policy};
use http::StatusCode;

use super::{Browser, served};
use crate::credentials::{token, who};

const TEXT: &str = "policy_engine:\n  tool_schemas:\n    get_order: {effect: read, side_effect_resource: order}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_exchanges_the_policy_after_a_look_and_an_analyst_reads_it() {
    let plane = served(&Policy::default()).await;
    token(&plane.gate, who("root", &[Role::Admin])).await;
    let mut admin = Browser::of(&plane, "ada", &[Role::Admin]).await;
    let mut analyst = Browser::of(&plane, "ann", &[Role::Analyst]).await;
    for browser in [&mut admin, &mut analyst] {
        let page = browser.get("/policy").await.ok();
        assert!(page.contains("The built-in policy"), "{page}");
    }
    let bad = "policy_engine:\n  budgets: {run: {max_steps: <b>many}}\n";
    let page = admin.post("/policy", &[("what", "check"), ("text", bad)]).await.ok();
    assert!(page.contains("It is no policy") && page.contains("href=\"#line-2\""), "{page}");
    assert!(page.contains("&lt;b&gt;many") && !page.contains("<b>many"), "{page}");
    let page = admin.post("/policy", &[("what", "check"), ("text", TEXT)]).await.ok();
    assert!(page.contains("It is a policy. Nothing was changed.") && page.contains("get_order"), "{page}");

    let apply = [("what", "apply"), ("text", TEXT), ("note", "<i>first</i>"), ("revision", "0"), ("sure", "yes")];
    let refused = analyst.post("/policy", &apply).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.html);
    let unsure = admin.post("/policy", &apply[..4]).await;
    assert_eq!(unsure.status, StatusCode::BAD_REQUEST, "{}", unsure.html);
    assert_eq!(admin.post("/policy", &apply).await.location(), "/policy");
    let page = analyst.get("/policy").await.ok();
    assert!(page.contains("get_order") && page.contains("&lt;i&gt;first&lt;/i&gt;"), "{page}");
    assert!(!page.contains("value=\"rollback\""), "who cannot is not offered it");
    // Somebody else was faster.
    let stale = [("what", "apply"), ("text", "policy_engine: {}\n"), ("revision", "0"), ("sure", "yes")];
    let stale = admin.post("/policy", &stale).await;
    assert_eq!(stale.status, StatusCode::CONFLICT, "{}", stale.html);
    let page = admin.get("/policy").await.ok();
    assert!(page.contains("Revision 1,"), "{page}");
}
