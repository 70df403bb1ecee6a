//! Forged sign-in by an issuer: planted, stored, repeated and foreign parts.

use std::sync::{Arc, Mutex};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use callgate_core::{domain::identity::Role, policy::Policy};
use callgate_server::auth::{file, jwt::Keys};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{StatusCode, header};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{
    Browser, Page,
    issuer::{Desk, desk, parameters},
    serve_console,
};
use crate::{
    common::{
        issuer::{Issuer, key_set},
        wire::Plane,
    },
    credentials::{token, who},
};

/// A server with two issuers for sign-in.
struct Scene {
    plane: Plane,
    urls: [String; 2],
    desks: [Arc<Mutex<Desk>>; 2],
    issuers: [Issuer; 2],
}

/// A started sign-in: the cookie, and the expected redirect.
struct StartedSignIn {
    cookie: String,
    state: String,
    nonce: String,
}

impl Scene {
    async fn start() -> Self {
        let plane = serve_console(&Policy::default()).await;
        let (desks, issuers) = ([desk().await, desk().await], [Issuer::es256("k"), Issuer::es256("k")]);
        let urls = [desks[0].0.clone(), desks[1].0.clone()];
        let of = |url: &String| {
            format!(
                "- issuer: {url}\n  audience: console\n  jwks: /nobody/reads/it\n  rules:\n  \
                 - {{claims: {{sub: '*'}}, as: {{roles: [analyst]}}}}\n  \
                 sign_in: {{redirect: 'http://localhost/sign-in/callback'}}\n"
            )
        };
        let auth = format!("issuers:\n{}{}", of(&urls[0]), of(&urls[1]));
        plane.gate.identities.map(file::read(&auth).expect("a mapping")).await.expect("its tenant");
        for (place, issuer) in issuers.iter().enumerate() {
            plane.gate.identities.set_keys(place, Keys::read(&key_set(&[issuer])).expect("a key set"));
        }
        Self { plane, urls, desks: desks.map(|(_, desk)| desk), issuers }
    }

    fn now_s(&self) -> i64 {
        self.plane.gate.store.now().as_millis() / 1_000
    }

    /// The first issuer gives a token of this one, for this sign-in.
    fn gives(&self, place: usize, nonce: &str) {
        let claims = json!({"iss": self.urls[place], "aud": "console", "exp": self.now_s() + 900, "sub": "ada",
            "nonce": nonce});
        self.desks[0].lock().expect("no panic").id_token = self.issuers[place].token(&claims);
    }

    /// Number of codes redeemed at an issuer.
    fn count_redeemed(&self, place: usize) -> usize {
        self.desks[place].lock().expect("no panic").asked.iter().filter(|asked| asked.starts_with("POST")).count()
    }

    async fn begin(&self, place: usize) -> StartedSignIn {
        let page = Browser::new(&self.plane).get(&format!("/sign-in/with/{place}?next=%2Faudit")).await;
        let asked = parameters(page.location());
        let text = |name: &str| asked[name].as_str().expect("a text").to_owned();
        StartedSignIn { cookie: cookies(&page)[0].clone(), state: text("state"), nonce: text("nonce") }
    }

    /// The response to a redirect with these cookies.
    async fn follow_redirect(&self, cookies: &str, state: &str, more: &str) -> Page {
        let mut browser = Browser::new(&self.plane);
        browser.headers.insert("cookie", cookies.to_owned());
        browser.get(&format!("/sign-in/callback?code=c0de&state={state}{more}")).await
    }

    /// True if this cookie belongs to a signed-in session.
    async fn is_signed_in(&self, cookie: &str) -> bool {
        let mut browser = Browser::new(&self.plane);
        browser.headers.insert("cookie", cookie.to_owned());
        browser.get("/audit").await.status == StatusCode::OK
    }

    async fn sessions(&self) -> i64 {
        self.plane.postgres.number("select count(*) from console_session").await
    }
}

/// The cookies that a browser is to keep, each by its name.
fn cookies(page: &Page) -> Vec<String> {
    let all = page.headers.get_all(header::SET_COOKIE).iter();
    all.map(|cookie| cookie.to_str().expect("ASCII").split(';').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_chosen_before_the_sign_in_is_never_signed_in() {
    let scene = Scene::start().await;
    let planted = format!("__Host-callgate={}", URL_SAFE_NO_PAD.encode([7; 32]));
    let begun = scene.begin(0).await;
    scene.gives(0, &begun.nonce);
    let back = scene.follow_redirect(&format!("{planted}; {}", begun.cookie), &begun.state, "").await;
    let made = cookies(&back)[0].clone();
    back.ok();
    assert_ne!(made, planted);
    assert!(scene.is_signed_in(&made).await && !scene.is_signed_in(&planted).await);
    // The sign-in's secret is no session either, because earlier readers of the cookie know it.
    let secret = begun.cookie.split(['=', '.']).nth(1).expect("a secret");
    assert!(!scene.is_signed_in(&format!("__Host-callgate={secret}")).await);
    // By a token, the same.
    let (admin, _) = token(&scene.plane.gate, who("ada", &[Role::Admin])).await;
    let mut browser = Browser::new(&scene.plane);
    browser.headers.insert("cookie", planted.clone());
    assert_eq!(browser.post("/sign-in", &[("token", &admin)]).await.status, StatusCode::SEE_OTHER);
    assert!(browser.headers["cookie"] != planted && !scene.is_signed_in(&planted).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_is_valid_once_for_its_own_sign_in() {
    let scene = Scene::start().await;
    let (one, other) = (scene.begin(0).await, scene.begin(0).await);
    assert!(one.state != other.state && one.nonce != other.nonce && one.state != one.nonce);
    scene.gives(0, &one.nonce);
    for (cookie, state) in [(&one.cookie, &other.state), (&other.cookie, &one.state), (&one.cookie, &one.nonce)] {
        assert_eq!(scene.follow_redirect(cookie, state, "").await.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(scene.count_redeemed(0), 0, "no code was shown to anybody");
    let mixed = scene.follow_redirect(&other.cookie, &other.state, "").await;
    assert_eq!(mixed.status, StatusCode::BAD_REQUEST, "the nonce of the other one");
    let back = scene.follow_redirect(&one.cookie, &one.state, "").await;
    let kept = cookies(&back);
    back.ok();
    assert_eq!((kept[1].as_str(), scene.sessions().await), ("__Host-callgate-sign-in=", 1));
    // Replayed: by the browser now, and by one that kept its old cookie, with a used code.
    let count = scene.count_redeemed(0);
    let again = scene.follow_redirect(&kept.join("; "), &one.state, "").await;
    assert_eq!((again.status, scene.count_redeemed(0)), (StatusCode::BAD_REQUEST, count));
    scene.desks[0].lock().expect("no panic").refuses = Some(400);
    let again = scene.follow_redirect(&one.cookie, &one.state, "").await;
    assert_eq!((again.status, cookies(&again).len(), scene.sessions().await), (StatusCode::BAD_GATEWAY, 0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_that_was_begun_too_long_ago_is_over_whatever_the_browser_keeps() {
    let scene = Scene::start().await;
    let begun = scene.begin(0).await;
    scene.gives(0, &begun.nonce);
    let (name, value) = begun.cookie.split_once('=').expect("a pair");
    let parts: Vec<&str> = value.split('.').collect();
    let secret = URL_SAFE_NO_PAD.decode(parts[0]).expect("base64");
    let at = |seconds_ago: i64| {
        let at = (scene.now_s() - seconds_ago) * 1_000;
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret).expect("a key");
        mac.update(format!("state {at}").as_bytes());
        let cookie = format!("{name}={}.{}.{at}.{}", parts[0], parts[1], parts[3]);
        (cookie, URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    };
    for seconds_ago in [605, 86_400, -605, i64::from(i32::MAX)] {
        let (cookie, state) = at(seconds_ago);
        assert_eq!(
            scene.follow_redirect(&cookie, &state, "").await.status,
            StatusCode::BAD_REQUEST,
            "{seconds_ago} s ago"
        );
    }
    assert_eq!(scene.count_redeemed(0), 0);
    let (cookie, _) = at(60);
    assert_eq!(
        scene.follow_redirect(&cookie, &begun.state, "").await.status,
        StatusCode::BAD_REQUEST,
        "the time is in the state"
    );
    let (cookie, state) = at(590);
    scene.follow_redirect(&cookie, &state, "").await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_issuer_is_not_taken_for_the_one_that_was_asked() {
    let scene = Scene::start().await;
    let begun = scene.begin(0).await;
    let from = |url: &str| format!("&iss={}", url::form_urlencoded::byte_serialize(url.as_bytes()).collect::<String>());
    scene.gives(0, &begun.nonce);
    let mixed = scene.follow_redirect(&begun.cookie, &begun.state, &from(&scene.urls[1])).await;
    assert_eq!(mixed.status, StatusCode::BAD_REQUEST, "{}", mixed.html);
    assert_eq!(scene.count_redeemed(0) + scene.count_redeemed(1), 0, "its code is shown to nobody");
    // A good token of the other one, for this very sign-in.
    scene.gives(1, &begun.nonce);
    assert_eq!(scene.follow_redirect(&begun.cookie, &begun.state, "").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(scene.sessions().await, 0);
    scene.gives(0, &begun.nonce);
    scene.follow_redirect(&begun.cookie, &begun.state, &from(&scene.urls[0])).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_ask_an_issuer_so_often_and_the_database_never_and_shut_nobody_out() {
    let scene = Scene::start().await;
    let plane = &scene.plane;
    let mut person = Browser::of(plane, "ada", &[Role::Admin]).await;
    let begun = scene.begin(0).await;
    scene.gives(0, "another");
    for _ in 0..20 {
        scene.follow_redirect(&begun.cookie, &begun.state, "").await;
    }
    let asked = || scene.desks[0].lock().expect("no panic").asked.len();
    let before = asked();
    assert_eq!(scene.follow_redirect(&begun.cookie, &begun.state, "").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(Browser::new(plane).get("/sign-in/with/0").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(asked(), before, "nor is the issuer asked");
    // From the same address: a signed-in user, and a valid token.
    person.get("/audit").await.ok();
    Browser::of(plane, "bob", &[Role::Admin]).await.get("/audit").await.ok();
    // The sessions cannot be read until this goes.
    let mut lock = plane.postgres.connect().await;
    let sql = "begin; lock table callgate.console_session in access exclusive mode";
    sqlx::raw_sql(sql).execute(&mut lock).await.expect("held");
    for n in 0..50 {
        let mut stranger = Browser::new(plane);
        stranger.headers.insert("cookie", format!("__Host-callgate={}", URL_SAFE_NO_PAD.encode([n; 32])));
        assert_eq!(stranger.get("/audit").await.location(), "/sign-in?next=%2Faudit");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_leads_nobody_to_what_is_no_endpoint_of_its() {
    let scene = Scene::start().await;
    let own = &scene.urls[0];
    let says = |to: &str, token: &str| json!({"issuer": own, "authorization_endpoint": to, "token_endpoint": token});
    let (good, token) = (format!("{own}/authorize"), format!("{own}/token"));
    let wrong: [(u16, Value); 7] = [
        (200, says("javascript:alert(1)", &token)),
        (200, says("http://id.example/authorize", &token)),
        (200, says(&good, "http://10.0.0.1/token")),
        (200, says(&good, "file:///etc/passwd")),
        (302, says(&good, &token)),
        (404, says(&good, &token)),
        (200, json!({"issuer": scene.urls[1], "authorization_endpoint": good, "token_endpoint": token})),
    ];
    let begun = scene.begin(0).await;
    for said in wrong {
        scene.desks[0].lock().expect("no panic").says = Some(said.clone());
        let page = Browser::new(&scene.plane).get("/sign-in/with/0").await;
        assert_eq!((page.status, page.location()), (StatusCode::BAD_GATEWAY, ""), "{said:?}");
        assert!(cookies(&page).is_empty());
        assert_eq!(
            scene.follow_redirect(&begun.cookie, &begun.state, "").await.status,
            StatusCode::BAD_GATEWAY,
            "{said:?}"
        );
    }
    assert_eq!(scene.count_redeemed(0) + scene.count_redeemed(1), 0);
}
