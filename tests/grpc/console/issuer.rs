//! Sign-in by an issuer (OpenID Connect) of the test: its requests, and possible results.

use std::sync::{Arc, Mutex};

use callgate_core::policy::Policy;
use callgate_server::auth::{file, jwt::Keys};
use http::{StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use url::{Url, form_urlencoded};

use super::{Browser, serve_console};
use crate::common::issuer::{Issuer, key_set};

/// Responses of the issuer to codes, and its received requests.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) id_token: String,
    pub(super) asked: Vec<String>,
    /// The status of its answers to codes; 200 without one.
    pub(super) refuses: Option<u16>,
    /// Replacement of its metadata, with a status.
    pub(super) says: Option<(u16, Value)>,
}

/// An issuer that listens, and its URL.
pub(super) async fn desk() -> (String, Arc<Mutex<Desk>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let desk = Arc::new(Mutex::new(Desk::default()));
    let (own, known) = (url.clone(), Arc::clone(&desk));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            let mut part = [0; 4096];
            while !is_whole(&asked) {
                let read = stream.read(&mut part).await.expect("a request");
                asked.extend_from_slice(&part[..read]);
            }
            let asked = String::from_utf8(asked).expect("UTF-8");
            let (status, answer) = {
                let mut desk = known.lock().expect("no panic");
                let answer = if asked.starts_with("GET /.well-known/openid-configuration ") {
                    let truth = json!({"issuer": own, "authorization_endpoint": format!("{own}/authorize"),
                                       "token_endpoint": format!("{own}/token")});
                    desk.says.clone().unwrap_or((200, truth))
                } else {
                    (desk.refuses.unwrap_or(200), json!({"id_token": desk.id_token, "token_type": "Bearer"}))
                };
                desk.asked.push(asked);
                answer
            };
            let (answer, length) = (answer.to_string(), answer.to_string().len());
            let head =
                format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(format!("{head}{answer}").as_bytes()).await.expect("sent");
        }
    });
    (url, desk)
}

/// Is all of a request there?
fn is_whole(asked: &[u8]) -> bool {
    let Some((head, body)) = std::str::from_utf8(asked).unwrap_or_default().split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_none_or(|length| body.len() == length.parse::<usize>().expect("a number"))
}

pub(super) fn parameters(url: &str) -> Value {
    let url = Url::parse(url).expect("a URL");
    url.query_pairs()
        .map(|(name, value)| (name.into_owned(), Value::from(value.into_owned())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_sign_in_by_an_issuer_and_nobody_by_what_was_begun_elsewhere() {
    let plane = serve_console(&Policy::default()).await;
    let (url, desk) = desk().await;
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "s3cret/&\n").expect("written");
    let auth = format!(
        "issuers:\n- issuer: {url}\n  audience: console\n  jwks: /nobody/reads/it\n  rules:\n  \
         - {{claims: {{email: '*@fleet.example'}}, as: {{roles: [analyst]}}}}\n  \
         sign_in: {{label: The <fleet>, redirect: 'http://localhost/sign-in/callback', scopes: [email],\n    \
         client_secret_file: {}}}\n",
        secret.path().display()
    );
    plane.gate.identities.map(file::read(&auth).expect("a mapping")).await.expect("its tenant");
    let issuer = Issuer::es256("k1");
    plane.gate.identities.set_keys(0, Keys::read(&key_set(&[&issuer])).expect("a key set"));
    let now = plane.gate.store.now().as_millis() / 1_000;
    let claims = |nonce: &str, email: &str| {
        let exp = now + 600;
        json!({"iss": url, "aud": "console", "exp": exp, "sub": "ada", "email": email, "nonce": nonce})
    };

    let mut browser = Browser::new(&plane);
    let page = browser.get("/sign-in?next=%2Faudit").await.ok();
    assert!(page.contains("href=\"/sign-in/with/0?next=/audit\">Sign in with The &lt;fleet&gt;</a>"), "{page}");
    let begun = browser.get("/sign-in/with/0?next=%2Faudit").await;
    assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.html);
    let asked = parameters(begun.location());
    assert!(begun.location().starts_with(&format!("{url}/authorize?")), "{}", begun.location());
    assert_eq!(
        (&asked["client_id"], &asked["response_type"], &asked["scope"]),
        (&json!("console"), &json!("code"), &json!("openid email"))
    );
    let (state, nonce) = (asked["state"].as_str().expect("a text"), asked["nonce"].as_str().expect("a text"));
    let cookie = begun.headers[header::SET_COOKIE].to_str().expect("ASCII").to_owned();
    let kept = ["; Secure", "; HttpOnly", "; SameSite=Lax", "; Path=/", "; Max-Age=600"];
    assert!(kept.iter().all(|word| cookie.contains(word)), "{cookie}");

    // Foreign or missing sign-ins, and a token of another sign-in.
    let led = |state: &str| format!("/sign-in/callback?code=c0de&state={state}");
    let mut other = Browser::new(&plane);
    assert_eq!(other.get(&led(state)).await.status, StatusCode::BAD_REQUEST, "another browser");
    assert_eq!(browser.get(&led("forged")).await.status, StatusCode::BAD_REQUEST);
    assert!(desk.lock().expect("no panic").asked.iter().all(|asked| asked.starts_with("GET")), "no code was redeemed");
    desk.lock().expect("no panic").id_token = issuer.token(&claims("another", "ada@fleet.example"));
    assert_eq!(browser.get(&led(state)).await.status, StatusCode::BAD_REQUEST, "another nonce");
    desk.lock().expect("no panic").id_token = issuer.token(&claims(nonce, "eve@evil.example"));
    assert_eq!(browser.get(&led(state)).await.status, StatusCode::UNAUTHORIZED, "nobody of the mapping");
    desk.lock().expect("no panic").id_token = Issuer::es256("k1").token(&claims(nonce, "ada@fleet.example"));
    assert_eq!(browser.get(&led(state)).await.status, StatusCode::UNAUTHORIZED, "another's signature");
    let refused = browser.get(&format!("/sign-in/callback?state={state}&error=access_denied")).await;
    assert!(refused.status == StatusCode::UNAUTHORIZED && refused.html.contains("access_denied"), "{}", refused.html);

    desk.lock().expect("no panic").id_token = issuer.token(&claims(nonce, "ada@fleet.example"));
    let back = browser.get(&led(state)).await;
    let cookies: Vec<&str> =
        back.headers.get_all(header::SET_COOKIE).iter().map(|cookie| cookie.to_str().expect("ASCII")).collect();
    assert!(cookies[0].starts_with("__Host-callgate=") && cookies[0].contains("SameSite=Strict"), "{cookies:?}");
    assert!(cookies[1].contains("Max-Age=0"), "what was begun is over: {cookies:?}");
    let signed_in = cookies[0].split(';').next().expect("a pair").to_owned();
    assert!(back.ok().contains("content=\"0;url=/audit\""), "a page of ours goes on");
    browser.headers.insert("cookie", signed_in);
    let page = browser.get("/audit").await.ok();
    assert!(page.contains(">ada<"), "{page}");

    let asked = desk.lock().expect("no panic").asked.iter().rfind(|asked| asked.starts_with("POST")).cloned();
    let asked = asked.expect("a code was redeemed");
    assert!(asked.contains("authorization: Basic Y29uc29sZTpzM2NyZXQlMkYlMjY="), "{asked}");
    let form = asked.rsplit("\r\n\r\n").next().expect("a body");
    let form: Vec<(String, String)> = form_urlencoded::parse(form.as_bytes()).into_owned().collect();
    let of = |name: &str| form.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).expect(name);
    let challenge = parameters(begun.location())["code_challenge"].as_str().expect("a text").to_owned();
    let verified = base64::Engine::encode(
        &base64::engine::general_purpose::URL_SAFE_NO_PAD,
        Sha256::digest(of("code_verifier").as_bytes()),
    );
    assert_eq!((of("code"), of("grant_type"), verified), ("c0de".into(), "authorization_code".into(), challenge));
}
