//! Sign-in sessions: holders, expiry, and protection against cross-site requests.

use callgate_core::{domain::identity::Role, policy::Policy};
use http::{Method, StatusCode, header};

use super::{Browser, serve_console};
use crate::credentials::{token, who};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_signed_in_is_led_to_the_sign_in_and_back() {
    let plane = serve_console(&Policy::default()).await;
    let (admin, _) = token(&plane.gate, who("ada", &[Role::Admin])).await;
    let mut browser = Browser::new(&plane);
    let page = browser.get("/audit?after=x").await;
    assert_eq!((page.status, page.location()), (StatusCode::SEE_OTHER, "/sign-in?next=%2Faudit%3Fafter%3Dx"));
    let page = browser.get("/sign-in?next=%2Faudit").await.ok();
    assert!(page.contains(r#"name="next" value="/audit""#) && page.contains("id=\"token\""), "{page}");
    let page = browser.post("/sign-in", &[("token", &admin), ("next", "/audit")]).await;
    assert_eq!((page.status, page.location()), (StatusCode::SEE_OTHER, "/audit"));
    let page = browser.get("/audit").await.ok();
    assert!(page.contains("No entries yet.") || page.contains("token"), "{page}");
    // A part of a page is led by htmx.
    let mut stranger = Browser::new(&plane);
    stranger.headers.insert("hx-request", "true".into());
    stranger.headers.insert("hx-current-url", "http://plane.example/audit?after=y".into());
    let part = stranger.get("/audit").await;
    assert_eq!(part.status, StatusCode::UNAUTHORIZED);
    assert_eq!(part.headers["hx-redirect"], "/sign-in?next=%2Faudit%3Fafter%3Dy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_credential_signs_nobody_in_and_redirects_nowhere() {
    let plane = serve_console(&Policy::default()).await;
    let (admin, known) = token(&plane.gate, who("ada", &[Role::Admin])).await;
    let mut browser = Browser::new(&plane);
    let forms: [&[(&str, &str)]; 5] = [
        &[("token", "cg_admin_wrong")],
        &[("token", "")],
        &[("name", "ada")],
        &[("certificate", "yes")],
        &[("token", "not\u{7f}text\n")],
    ];
    for form in forms {
        let page = browser.post("/sign-in", form).await;
        assert!(page.status.is_client_error(), "{form:?}: {}", page.status);
        assert!(!page.headers.contains_key(header::SET_COOKIE), "{form:?}");
        assert!(page.html.contains("role=\"alert\""), "{}", page.html);
        assert!(!page.html.contains("wrong"), "what was shown is told to nobody: {}", page.html);
    }
    let page = browser.post("/sign-in", &[("token", &admin), ("next", "//evil.example/x")]).await;
    assert_eq!(page.location(), "/");
    plane
        .gate
        .identities
        .revoke_token(
            callgate_core::domain::ids::DEFAULT_TENANT,
            &known.id,
            &callgate_core::domain::audit::Actor::from("root"),
        )
        .await
        .expect("revoked");
    let page = browser.get("/audit").await;
    assert_eq!(page.location(), "/sign-in?next=%2Faudit", "a revoked token is no way in any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cross_site_request_does_nothing() {
    let plane = serve_console(&Policy::default()).await;
    let mut browser = Browser::of(&plane, "ada", &[Role::Admin]).await;
    browser.get("/audit").await.ok();
    for (name, value) in
        [("sec-fetch-site", "cross-site"), ("sec-fetch-site", "same-site"), ("origin", "https://evil.example")]
    {
        let mut other = Browser::new(&plane);
        other.headers.clone_from(&browser.headers);
        other.headers.insert(name, value.into());
        assert_eq!(other.post("/sign-out", &[]).await.status, StatusCode::FORBIDDEN, "{name}: {value}");
    }
    // A form that does not know what ours carry.
    let forged = browser.send(Method::POST, "/sign-out", "csrf=forged".into()).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN, "{}", forged.html);
    let none = browser.send(Method::POST, "/sign-out", "x=y".into()).await;
    assert_eq!(none.status, StatusCode::FORBIDDEN, "{}", none.html);
    assert_eq!(browser.get("/sign-out").await.status, StatusCode::METHOD_NOT_ALLOWED);
    browser.get("/audit").await.ok();
    // Signing out ends it for every holder of the cookie.
    let mut copy = Browser::new(&plane);
    copy.headers.clone_from(&browser.headers);
    copy.get("/audit").await.ok();
    assert_eq!(browser.post("/sign-out", &[]).await.location(), "/sign-in");
    assert_eq!(copy.get("/audit").await.status, StatusCode::SEE_OTHER, "the session has ended, not only the cookie");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_by_itself_and_what_is_stored_is_no_way_in() {
    let plane = serve_console(&Policy::default()).await;
    let (admin, _) = token(&plane.gate, who("ada", &[Role::Admin])).await;
    let mut browser = Browser::with_token(&plane, &admin).await;
    browser.get("/audit").await.ok();
    let cookie = browser.headers["cookie"].clone();
    let stored = plane.postgres.rows("select encode(session_id, 'hex'), encode(sealed, 'escape') from console_session");
    let stored = stored.await.concat();
    assert!(!stored.contains(&admin) && !stored.contains(cookie.split_once('=').expect("a pair").1), "{stored}");
    // An idle hour; a page's own refresh is no activity.
    plane.postgres.tamper("update console_session set seen_at = now() - interval '59 minutes'").await;
    browser.headers.insert("callgate-live", "1".into());
    browser.get("/audit").await.ok();
    plane.postgres.tamper("update console_session set seen_at = seen_at - interval '2 minutes'").await;
    assert_eq!(browser.get("/audit").await.status, StatusCode::SEE_OTHER);
    browser.headers.remove("callgate-live");
    let mut browser = Browser::with_token(&plane, &admin).await;
    plane.postgres.tamper("update console_session set seen_at = now() - interval '59 minutes'").await;
    browser.get("/audit").await.ok();
    let seen = "select count(*) from console_session where seen_at > now() - interval '1 minute'";
    assert_eq!(plane.postgres.number(seen).await, 1, "somebody did something");
    // And a working day, regardless of activity.
    plane.postgres.tamper("update console_session set expires_at = now() - interval '1 second'").await;
    assert_eq!(browser.get("/audit").await.status, StatusCode::SEE_OTHER);
    Browser::with_token(&plane, &admin).await;
    let left = plane.postgres.number("select count(*) from console_session").await;
    assert_eq!(left, 1, "what has ended is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_by_name_is_for_servers_without_authentication_and_own_pages() {
    let plane = serve_console(&Policy::default()).await;
    let mut browser = Browser::sign_in_as(&plane, "ada").await;
    let page = browser.get("/audit").await.ok();
    assert!(page.contains(">ada<"), "{page}");
    let mut rebound = Browser::new(&plane);
    rebound.headers.insert("host", "evil.example:7600".into());
    assert_eq!(rebound.get("/sign-in").await.status, StatusCode::FORBIDDEN);
    assert_eq!(rebound.post("/sign-in", &[("name", "eve")]).await.status, StatusCode::FORBIDDEN);
    for name in ["", "\u{e9}\u{7f}"] {
        assert!(browser.post("/sign-in", &[("name", name)]).await.status.is_client_error(), "{name:?}");
    }
    // From the first token on a name is nothing.
    token(&plane.gate, who("root", &[Role::Admin])).await;
    assert_eq!(browser.get("/audit").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_decide_what_is_seen_and_every_answer_is_guarded() {
    let plane = serve_console(&Policy::default()).await;
    token(&plane.gate, who("root", &[Role::Admin])).await;
    let mut analyst = Browser::of(&plane, "ann", &[Role::Analyst]).await;
    assert!(analyst.get("/audit").await.ok().contains("href=\"/audit\""));
    let mut approver = Browser::of(&plane, "bob", &[Role::Approver]).await;
    let refused = approver.get("/audit").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(!refused.html.contains("<table"), "{}", refused.html);
    let mut agent = Browser::of(&plane, "desk", &[Role::Agent]).await;
    assert_eq!(agent.get("/").await.status, StatusCode::FORBIDDEN, "no page is for agents");
    let mut stranger = Browser::new(&plane);
    for (browser, path) in [(&mut analyst, "/audit"), (&mut agent, "/"), (&mut stranger, "/sign-in")] {
        let page = browser.get(path).await;
        let policy = page.headers["content-security-policy"].to_str().expect("ASCII");
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(page.headers["x-frame-options"], "DENY", "{path}");
        assert_eq!(page.headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(page.headers["cache-control"], "no-store", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_and_sign_out_are_audited_in_the_tenant_and_failures_are_not() {
    let plane = serve_console(&Policy::default()).await;
    let mut browser = Browser::sign_in_as(&plane, "eve").await;
    let (admin, known) = token(&plane.gate, who("ada", &[Role::Admin])).await;
    let mut stranger = Browser::new(&plane);
    for form in [[("token", "cg_admin_wrong")], [("name", "mallory")], [("certificate", "yes")]] {
        assert!(stranger.post("/sign-in", &form).await.status.is_client_error(), "{form:?}");
    }
    // The previous session's token is invalid after sign-in.
    assert_eq!(browser.post("/sign-out", &[]).await.status, StatusCode::SEE_OTHER);
    let mut browser = Browser::with_token(&plane, &admin).await;
    let page = browser.get("/audit").await.ok();
    assert!(page.contains(">signed_in</span> the console"), "{page}");
    let mut copy = Browser::new(&plane);
    copy.headers.clone_from(&browser.headers);
    copy.get("/audit").await.ok();
    assert_eq!(browser.post("/sign-out", &[]).await.location(), "/sign-in");
    copy.post("/sign-out", &[]).await;
    let told = "select tenant_id, kind, who, credential, origin, what, why from audit_log where kind like 'signed%'
                order by number";
    let by = format!("ada,\"token {}\",127.0.0.1,\"the console\",", known.id);
    let first = "(1,signed_in,eve,local,,\"the console\",)".to_owned();
    let expected = [first, format!("(1,signed_in,{by})"), format!("(1,signed_out,{by})")];
    assert_eq!(plane.postgres.rows(told).await, expected);
    let words = plane.postgres.rows("select words::text from audit").await.concat();
    assert!(!words.contains(&admin) && !words.contains("mallory"), "{words}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_request_and_late_form_are_reported_on_a_page() {
    let plane = serve_console(&Policy::default()).await;
    let mut browser = Browser::of(&plane, "ada", &[Role::Admin]).await;
    for path in
        ["/learning/zzz", "/tools/zzz", "/policy/backtest/zz", "/sessions/a/b/c", "/tools?days=abc", "/sessions/%ff%fe"]
    {
        let page = browser.get(path).await;
        assert!(page.status.is_client_error(), "{path}: {}", page.status);
        assert!(
            page.html.contains("role=\"alert\"") && page.html.contains("Open the console"),
            "{path}: {}",
            page.html
        );
    }
    assert_eq!(browser.get("/sessions/").await.location(), "/sessions");
    assert_eq!(browser.get("/policy/").await.location(), "/policy");

    let mut late = Browser::new(&plane);
    late.headers.insert("referer", "http://plane.example/approvals/apr_1".into());
    let to = late.post("/approvals/apr_1", &[("what", "deny")]).await;
    assert_eq!(to.location(), "/sign-in?next=%2Fapprovals%2Fapr_1&unsent=yes");
    assert!(late.get(to.location()).await.ok().contains("the form was not accepted"));
    let (robot, _) = token(&plane.gate, who("robot", &[Role::Agent])).await;
    let mut robot = Browser::with_token(&plane, &robot).await;
    let page = robot.get("/").await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.html.contains("/sign-in?anew=yes"), "there is a way out: {}", page.html);
    assert!(robot.get("/sign-in?anew=yes").await.ok().contains("id=\"token\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_sign_in_ends_the_former_one() {
    let plane = serve_console(&Policy::default()).await;
    let mut browser = Browser::of(&plane, "ada", &[Role::Admin]).await;
    let mut copy = Browser::new(&plane);
    copy.headers.clone_from(&browser.headers);
    // A failed sign-in ends no session.
    assert_eq!(browser.post("/sign-in", &[("token", "cg_admin_wrong")]).await.status, StatusCode::UNAUTHORIZED);
    copy.get("/audit").await.ok();
    let (other, _) = token(&plane.gate, who("bob", &[Role::Admin])).await;
    assert_eq!(browser.post("/sign-in", &[("token", &other)]).await.location(), "/");
    assert_eq!(copy.get("/audit").await.location(), "/sign-in?next=%2Faudit");
    assert_eq!(plane.postgres.number("select count(*) from console_session").await, 1);
    assert_eq!(plane.postgres.rows("select who from audit_log where kind = 'signed_out'").await, ["(ada)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_nothing_that_somebody_does_and_ends_with_the_session() {
    let plane = serve_console(&Policy::default()).await;
    let mut browser = Browser::of(&plane, "ada", &[Role::Admin]).await;
    browser.get("/audit").await.ok();
    plane.postgres.tamper("update console_session set seen_at = now() - interval '50 minutes'").await;
    let mut listens = Browser::new(&plane);
    listens.headers.clone_from(&browser.headers);
    let idle = "select count(*) from console_session where seen_at < now() - interval '49 minutes'";
    let listened = async { listens.get("/events").await.ok() };
    let signs_out = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(plane.postgres.number(idle).await, 1, "nobody did anything");
        assert_eq!(browser.post("/sign-out", &[]).await.location(), "/sign-in");
    };
    let (told, ()) = tokio::join!(listened, signs_out);
    assert!(told.contains("event: tick"), "{told}");
}
