//! Tokens of issuers: what Kubernetes gives a pod is let in as the mapping says; what is wrong with one is told to
//! nobody.

use callgate::auth::{file, jwt::Keys};
use callgate_core::policy::Policy;
use serde_json::{Value, json};
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
    plane.gate.map(file::read(AUTH).expect("a mapping")).await.expect("its tenant");
    let (issuer, foreign, rotated) = (Issuer::es256("k1"), Issuer::es256("k1"), Issuer::es256("k2"));
    let now = plane.gate.now().as_millis() / 1_000;
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
    plane.gate.set_keys(0, keys(&[&issuer]));
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
    plane.gate.set_keys(0, keys(&[&issuer, &rotated]));
    for token in [&good, &new] {
        ask(&plane, token).await.expect("both hold");
    }
    plane.gate.set_keys(0, keys(&[&rotated]));
    ask(&plane, &new).await.expect("it holds");
    let status = ask(&plane, &good).await.expect_err("its key is gone");
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
}
