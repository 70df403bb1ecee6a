//! Tokens of issuers: what Kubernetes gives a pod is let in as the mapping says; what is wrong with one is told to
//! nobody.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use callgate_core::{domain::time::Timestamp, policy::Policy};
use callgate_server::auth::{
    file,
    jwt::{self, Keys},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tonic::{Code, Status};

use crate::{
    common::{
        in_time,
        issuer::{Issuer, key_set},
        wire::{Plane, call, pair, question},
    },
    credentials::bearer,
};

const AUTH: &str = r#"
issuers:
- issuer: https://kubernetes.default.svc
  audience: callgate
  jwks: /nobody/reads/it
  rules:
  - claims: {sub: "system:serviceaccount:agents:*", kubernetes.io/namespace: agents}
    as: {roles: [agent], agents: "desk-*"}
"#;

fn keys(issuers: &[&Issuer]) -> Keys {
    Keys::read(&key_set(issuers)).expect("a key set")
}

async fn ask(plane: &Plane, token: &str) -> Result<(), Status> {
    let mut request = question("s", call("c", "look", "{}"));
    request.caller.as_mut().expect("a caller").agent_id = "desk-1".into();
    in_time("an answer", plane.client().await.evaluate(bearer(token, request))).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_account_is_let_in_and_nothing_that_is_wrong_opens_anything() {
    let plane = Plane::start(&Policy::default()).await;
    plane.gate.identities.map(file::read(AUTH).expect("a mapping")).await.expect("its tenant");
    let (issuer, foreign, rotated) = (Issuer::es256("k1"), Issuer::es256("k1"), Issuer::es256("k2"));
    let now = plane.gate.server.now().as_millis() / 1_000;
    let claims = json!({"iss": "https://kubernetes.default.svc", "aud": ["callgate"], "exp": now + 600, "nbf": now,
        "sub": "system:serviceaccount:agents:desk", "kubernetes.io": {"namespace": "agents"}});
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        issuer.token(&claims)
    };
    let good = issuer.token(&claims);
    let unread = ask(&plane, &good).await.expect_err("its keys were never read");
    assert_eq!(pair(&unread), (Code::Unavailable, "CREDENTIALS_UNCHECKED".into()));
    plane.gate.identities.set_keys(0, keys(&[&issuer]));
    ask(&plane, &good).await.expect("it holds");
    let unsigned = {
        let token = issuer.sign(&json!({"alg": "none"}), &claims);
        token[..=token.rfind('.').expect("a dot")].to_owned()
    };
    let mut changed = good.clone().into_bytes();
    let at = good.find('.').expect("a dot") + 20;
    changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
    for (what, token) in [
        ("another key of that name", foreign.token(&claims)),
        ("no signature", unsigned),
        ("a secret for a key", issuer.sign(&json!({"alg": "HS256", "kid": "k1"}), &claims)),
        ("another way to sign", issuer.sign(&json!({"alg": "RS256", "kid": "k1"}), &claims)),
        ("a changed claim", String::from_utf8(changed).expect("ASCII")),
        ("another issuer", with("iss", "https://elsewhere".into())),
        ("another audience", with("aud", "vault".into())),
        ("no audience", with("aud", Value::Null)),
        ("expired", with("exp", now.into())),
        ("no end", with("exp", Value::Null)),
        ("an end that is no time", with("exp", "tomorrow".into())),
        ("not yet", with("nbf", (now + 300).into())),
        ("a start that is no time", with("nbf", "yesterday".into())),
        ("another namespace", with("kubernetes.io", json!({"namespace": "default"}))),
        ("another account", with("sub", "system:serviceaccount:default:desk".into())),
    ] {
        let status = ask(&plane, &token).await.expect_err(what);
        assert_eq!(pair(&status), (Code::Unauthenticated, "UNAUTHENTICATED".into()), "{what}: {status:?}");
    }
    // Both hold while the issuer changes its key, and only the new one after it.
    let new = rotated.token(&claims);
    plane.gate.identities.set_keys(0, keys(&[&issuer, &rotated]));
    for token in [&good, &new] {
        ask(&plane, token).await.expect("both hold");
    }
    plane.gate.identities.set_keys(0, keys(&[&rotated]));
    ask(&plane, &new).await.expect("it holds");
    let status = ask(&plane, &good).await.expect_err("its key is gone");
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
}

/// Signed with a secret, as HS256 has it.
fn by_secret(secret: &[u8], kid: &str, claims: &Value) -> String {
    let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let header = json!({"alg": "HS256", "typ": "JWT", "kid": kid}).to_string();
    let message = format!("{}.{}", b64(header.as_bytes()), b64(claims.to_string().as_bytes()));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key");
    mac.update(message.as_bytes());
    format!("{message}.{}", b64(&mac.finalize().into_bytes()))
}

const NOW_S: i64 = 1_800_000_000;

/// Does a server that knows these keys let somebody in with it?
fn opens(keys: &Keys, token: &str) -> bool {
    let issuers = file::read(AUTH).expect("a mapping").issuers;
    let now = Timestamp::from_millis(NOW_S * 1_000);
    jwt::is_one(token) && jwt::issuer(&issuers, token) == Some(0) && jwt::verify(&issuers[0], keys, token, now).is_ok()
}

fn claims() -> Value {
    json!({"iss": "https://kubernetes.default.svc", "aud": "callgate", "exp": NOW_S + 600,
        "sub": "system:serviceaccount:agents:desk", "kubernetes.io": {"namespace": "agents"}})
}

#[test]
fn a_public_key_is_no_secret_and_none_is_no_signature() {
    let (ec, rsa, ed) = (Issuer::es256("k1"), Issuer::rs256("k2"), Issuer::eddsa("k3"));
    let keys = keys(&[&ec, &rsa, &ed]);
    let text = |key: &Value, name: &str| key[name].as_str().expect("a text").to_owned();
    let raw = |text: &str| URL_SAFE_NO_PAD.decode(text).expect("base64");
    let mut secrets = vec![Vec::new()];
    for issuer in [&ec, &rsa, &ed] {
        assert!(opens(&keys, &issuer.token(&claims())), "it holds");
        let key = issuer.jwk();
        let main = text(&key, if key["kty"] == "RSA" { "n" } else { "x" });
        secrets.extend([key.to_string().into_bytes(), raw(&main), main.into_bytes()]);
    }
    let ec_key = ec.jwk();
    secrets.push([vec![4], raw(&text(&ec_key, "x")), raw(&text(&ec_key, "y"))].concat());
    for (secret, kid) in secrets.iter().flat_map(|secret| ["k1", "k2", "k3"].map(|kid| (secret, kid))) {
        let token = by_secret(secret, kid, &claims());
        assert!(!opens(&keys, &token), "{kid}, by {} bytes of the public key", secret.len());
    }
    for alg in ["none", "None", "NONE", "nOnE", "", "HS256"] {
        let token = ec.sign(&json!({"alg": alg, "kid": "k1"}), &claims());
        let bare = token[..=token.rfind('.').expect("a dot")].to_owned();
        assert!(!opens(&keys, &token) && !opens(&keys, &bare), "{alg:?}");
    }
}

#[test]
fn a_token_that_plays_with_its_header_or_its_claims_opens_nothing() {
    let (ec, rsa, mallory) = (Issuer::es256("k1"), Issuer::rs256("k2"), Issuer::es256("k9"));
    let both = keys(&[&ec, &rsa]);
    let text = claims().to_string();
    let headed = |issuer: &Issuer, header: &str| issuer.sign_text(header, &text);
    let with = |more: &str| {
        let claims = text.replacen('{', &format!("{{{more},"), 1);
        ec.sign_text(r#"{"alg":"ES256","kid":"k1"}"#, &claims)
    };
    assert!(opens(&both, &with(r#""x":1"#)) && opens(&both, &headed(&rsa, r#"{"alg":"RS256","kid":"k2"}"#)));
    let own = mallory.jwk();
    let elsewhere = r#"{"alg":"ES256","kid":"k1","jku":"http://127.0.0.1:9/k","x5u":"https://evil.example/c"}"#;
    for (what, token) in [
        ("no kid, of two keys", headed(&ec, r#"{"alg":"ES256"}"#)),
        ("a kid that nobody has", headed(&ec, r#"{"alg":"ES256","kid":"../../dev/null"}"#)),
        ("another's kid", headed(&ec, r#"{"alg":"ES256","kid":"k2"}"#)),
        ("another way to sign, of the same kind", headed(&rsa, r#"{"alg":"PS256","kid":"k2"}"#)),
        ("a key of its own", headed(&mallory, &json!({"alg": "ES256", "kid": "k1", "jwk": own}).to_string())),
        ("a key of its own, and no kid", headed(&mallory, &json!({"alg": "ES256", "jwk": own}).to_string())),
        ("keys elsewhere", headed(&mallory, elsewhere)),
        ("an extension", headed(&ec, r#"{"alg":"ES256","kid":"k1","crit":["b64"],"b64":false}"#)),
        ("an alg twice", headed(&ec, r#"{"alg":"none","alg":"ES256","kid":"k1"}"#)),
        ("a kid twice", headed(&ec, r#"{"alg":"ES256","kid":"k2","kid":"k1"}"#)),
        ("a sub twice", with(r#""sub":"system:serviceaccount:agents:root""#)),
        ("an aud twice", with(r#""aud":"vault""#)),
        ("an exp twice", with(r#""exp":1"#)),
        ("a name twice below", with(r#""x":{"y":1,"y":2}"#)),
        ("no object", ec.sign_text(r#"{"alg":"ES256","kid":"k1"}"#, "[]")),
        ("four parts", format!("{}.e30", ec.token(&claims()))),
        ("two parts", ec.token(&claims()).rsplit_once('.').expect("a dot").0.to_owned()),
        ("more than is read", with(&format!(r#""x":"{}""#, "x".repeat(17 << 10)))),
    ] {
        assert!(!opens(&both, &token), "{what}");
    }
}

#[test]
fn a_key_that_is_published_for_something_else_verifies_nothing() {
    let ec = Issuer::es256("k1");
    let published = |name: &str, value: &Value| {
        let mut key = ec.jwk();
        key[name] = value.clone();
        opens(&Keys::read(&json!({"keys": [key]}).to_string()).expect("a key set"), &ec.token(&claims()))
    };
    for (name, value) in [
        ("use", json!("enc")),
        ("use", json!("other")),
        ("key_ops", json!(["encrypt"])),
        ("key_ops", json!([])),
        ("alg", json!("ES384")),
        ("alg", json!("RSA-OAEP")),
        ("alg", json!("of the future")),
    ] {
        assert!(!published(name, &value), "{name}: {value}");
    }
    for (name, value) in [("key_ops", json!(["verify"])), ("use", Value::Null), ("alg", Value::Null)] {
        assert!(published(name, &value), "{name}: {value}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_a_megabyte_is_refused_at_the_door() {
    let plane = Plane::start(&Policy::default()).await;
    plane.gate.identities.map(file::read(AUTH).expect("a mapping")).await.expect("its tenant");
    let issuer = Issuer::es256("k1");
    plane.gate.identities.set_keys(0, keys(&[&issuer]));
    let mut claims = claims();
    claims["exp"] = (plane.gate.server.now().as_millis() / 1_000 + 600).into();
    for (bytes, is_read) in [(20 << 10, true), (1 << 20, false)] {
        claims["x"] = "x".repeat(bytes).into();
        let status = ask(&plane, &issuer.token(&claims)).await.expect_err("too long");
        match is_read {
            true => assert_eq!(pair(&status), (Code::Unauthenticated, "UNAUTHENTICATED".into())),
            false => assert_ne!(status.code(), Code::Ok, "{status:?}"),
        }
    }
    claims["x"] = Value::Null;
    ask(&plane, &issuer.token(&claims)).await.expect("nobody else waits for that");
}
