//! Caller identities by `--auth`, through the built server: tokens of an issuer with published keys, as of a Kubernetes
//! pod, and client certificates by their SPIFFE ids.

use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use callgate_net::clock::Clock;
use callgate_proto::v1::{
    self, ConnectRequest, HaltScope, TaggedRequest, gate_service_client::GateServiceClient,
    session_service_client::SessionServiceClient, tagged_answer::Answer, tagged_request,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
    time::sleep,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        pki_types::{PrivateKeyDer, pem::PemObject as _},
    },
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

use crate::{
    common::{
        certificates::{Authority, Pair, der, write_atomically},
        in_time,
        issuer::{Issuer, key_set},
        until,
        wire::{call, pair, question, tls_channel, with_token},
    },
    server::{Home, Server, path},
};

/// Credential of a pod for the key endpoint.
const OF_THE_POD: &str = "the-token-of-the-pod";

/// Endpoint of an issuer's keys, which may change or be unavailable.
struct KeysAt {
    address: SocketAddr,
    serves: Arc<Mutex<Option<String>>>,
}

impl KeysAt {
    async fn start(pair: &Pair) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
        let config = config.expect("versions").with_no_client_auth();
        let config = config.with_single_cert(vec![der(&pair.certificate)], key).expect("a certificate and its key");
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, serves) = (listener.local_addr().expect("a port"), Arc::<Mutex<Option<String>>>::default());
        let keys = Arc::clone(&serves);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let keys = keys.lock().expect("no panic").clone();
                let (Some(keys), Ok(mut stream)) = (keys, tls.accept(stream).await) else { continue };
                let mut asked = [0; 4_096];
                let read = stream.read(&mut asked).await.unwrap_or(0);
                let asked = String::from_utf8_lossy(&asked[..read]);
                let is_good = asked.starts_with("GET /openid/v1/jwks HTTP/1.1\r\n")
                    && asked.contains(&format!("authorization: Bearer {OF_THE_POD}\r\n"));
                let status = if is_good { "200 OK" } else { "401 Unauthorized" };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{keys}", keys.len());
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { address, serves }
    }

    fn serve(&self, issuers: &[&Issuer]) {
        *self.serves.lock().expect("no panic") = Some(key_set(issuers));
    }

    fn leave(&self) {
        *self.serves.lock().expect("no panic") = None;
    }
}

/// A server behind TLS that knows callers by these lines.
struct ServedIdentities {
    server: Server,
    home: Home,
    authority: Authority,
}

impl ServedIdentities {
    async fn start(auth: impl FnOnce(&Home) -> String, authority: Authority, more: &[(&str, &str)]) -> Self {
        let home = Home::with_cluster().await;
        let pair = authority.server();
        let files = [("tls.crt", &pair.certificate), ("tls.key", &pair.key), ("auth.yaml", &auth(&home))];
        let [certificate, key, auth] = files.map(|(name, text)| home.file(name, text));
        let (dir, log) = (home.data_dir(), home.file("log", ""));
        let mut args = vec!["--data-dir", path(&dir), "--auth", path(&auth)];
        args.extend(["--tls-cert", path(&certificate), "--tls-key", path(&key)]);
        let more: Vec<_> = more.iter().map(|(flag, text)| (*flag, home.file(&flag[2..], text))).collect();
        more.iter().for_each(|(flag, file)| args.extend([*flag, path(file)]));
        let server = Server::logging(&args, &log);
        Self { server, home, authority }
    }

    async fn connect(&self, shown: Option<&Pair>) -> Channel {
        tls_channel(self.server.address, &self.authority, shown).await.expect("TLS")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.data_dir().with_file_name("log")).expect("a log")
    }
}

fn now() -> i64 {
    Clock::System.now().as_millis() / 1_000
}

/// A service account's token, as the kubelet projects it into a pod.
fn service_account_claims(namespace: &str, account: &str, for_s: i64) -> Value {
    json!({"aud": ["callgate"], "exp": now() + for_s, "iat": now(), "nbf": now(),
        "iss": "https://kubernetes.default.svc.cluster.local", "jti": "0a1b2c3d-0000-4000-8000-000000000001",
        "kubernetes.io": {"namespace": namespace, "node": {"name": "node-1", "uid": "9f"},
            "pod": {"name": "desk-7d9f", "uid": "7e"}, "serviceaccount": {"name": account, "uid": "1c"}},
        "sub": format!("system:serviceaccount:{namespace}:{account}")})
}

fn evaluate_request(call_id: &str) -> v1::EvaluateRequest {
    let mut request = question("s", call(call_id, "look", &format!(r#"{{"of":"{call_id}"}}"#)));
    request.caller.as_mut().expect("a caller").agent_id = "desk-1".into();
    request
}

async fn ask(channel: &Channel, token: Option<&str>, call_id: &str) -> Result<(), Status> {
    let mut client = GateServiceClient::new(channel.clone());
    Box::pin(in_time("an answer", client.evaluate(with_token(token, evaluate_request(call_id))))).await.map(drop)
}

fn to_refusal(answer: Result<(), Status>) -> (Code, String) {
    pair(&answer.expect_err("refused"))
}

fn unauthenticated() -> (Code, String) {
    (Code::Unauthenticated, "UNAUTHENTICATED".into())
}

type ClientConnect = (mpsc::Sender<ConnectRequest>, Streaming<v1::ConnectResponse>);

/// A stream of requests, opened with this token.
async fn stream(channel: &Channel, token: &str) -> ClientConnect {
    let (to, requests) = mpsc::channel(1);
    let mut client = GateServiceClient::new(channel.clone());
    let opened = client.connect(with_token(Some(token), ReceiverStream::new(requests)));
    let mut answers = in_time("a stream", opened).await.expect("a stream").into_inner();
    in_time("its limits", answers.message()).await.expect("no error").expect("limits");
    (to, answers)
}

/// Asks on it, and is answered.
async fn ask_on((to, answers): &mut ClientConnect, call_id: &str) {
    let request = Some(tagged_request::Request::Evaluate(evaluate_request(call_id)));
    let request = TaggedRequest { tag: 1, request, ..TaggedRequest::default() };
    to.send(ConnectRequest { requests: vec![request] }).await.expect("it is open");
    let frame = in_time("an answer", answers.message()).await.expect("no error").expect("a frame");
    assert!(matches!(frame.answers[0].answer, Some(Answer::Evaluate(_))), "{frame:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pods_token_is_known_by_keys_at_an_address_that_change_and_may_be_away() {
    let authority = Authority::new("ours");
    let keys = KeysAt::start(&authority.server()).await;
    let (old, rsa, new) = (Issuer::es256("k1"), Issuer::rs256("k2"), Issuer::eddsa("k3"));
    keys.serve(&[&old, &rsa]);
    let (port, ca) = (keys.address.port(), authority.pem.clone());
    let auth = |home: &Home| {
        let (ca, bearer) = (home.file("jwks.ca", &ca), home.file("pod.token", &format!("{OF_THE_POD}\n")));
        let (ca, bearer) = (path(&ca), path(&bearer));
        format!(
            "issuers:
- issuer: https://kubernetes.default.svc.cluster.local
  audience: callgate
  jwks: https://localhost:{port}/openid/v1/jwks
  ca: {ca}
  bearer_file: {bearer}
  rules:
  - claims: {{kubernetes.io/namespace: agents, kubernetes.io/serviceaccount/name: 'desk|planner'}}
    as: {{roles: [agent], agents: 'desk-*'}}
  - claims: {{sub: 'system:serviceaccount:ops:*'}}
    as: {{roles: [operator]}}
"
        )
    };
    let served = ServedIdentities::start(auth, authority, &[]).await;
    let channel = served.connect(None).await;
    let desk = |issuer: &Issuer| issuer.token(&service_account_claims("agents", "desk", 3_600));
    until("the keys", async || ask(&channel, Some(&desk(&old)), "c1").await.is_ok()).await;
    ask(&channel, Some(&desk(&rsa)), "c2").await.expect("another key of the set, of another kind");
    let stranger = rsa.token(&service_account_claims("other", "desk", 3_600));
    assert_eq!(to_refusal(ask(&channel, Some(&stranger), "x").await), unauthenticated(), "of another namespace");
    let operator = rsa.token(&service_account_claims("ops", "pager", 3_600));
    assert_eq!(to_refusal(ask(&channel, Some(&operator), "x").await), (Code::PermissionDenied, "ROLE_MISSING".into()));

    // After the issuer's key rotation open streams continue; the next call needs the new key.
    let before = desk(&old);
    let mut lasting = stream(&channel, &before).await;
    ask_on(&mut lasting, "c3").await;
    keys.serve(&[&new]);
    let mut tries = 0;
    while let Err(status) = ask(&channel, Some(&desk(&new)), "c4").await {
        assert_eq!(pair(&status), unauthenticated());
        tries += 1;
        assert!(tries < 12, "a key that nobody knows is looked for");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        to_refusal(ask(&channel, Some(&before), "x").await),
        unauthenticated(),
        "its key is none of the issuer's any more"
    );
    ask_on(&mut lasting, "c5").await;

    // The endpoint is unavailable: known keys stay valid, and no others are.
    keys.leave();
    let mut tries = 0;
    while !served.log().contains("its keys cannot be read, and the last hold") {
        assert_eq!(to_refusal(ask(&channel, Some(&desk(&old)), "x").await), unauthenticated());
        tries += 1;
        assert!(tries < 12, "{}", served.log());
        sleep(Duration::from_secs(1)).await;
    }
    ask(&channel, Some(&desk(&new)), "c6").await.expect("what was read holds");
    let (_asks, mut short) = stream(&channel, &new.token(&service_account_claims("agents", "planner", 3))).await;
    let ended = in_time("the end of the token", short.message()).await.expect_err("it has expired");
    assert_eq!(pair(&ended), unauthenticated());
    ask_on(&mut lasting, "c7").await;
    for token in [before, desk(&new)] {
        assert!(!served.log().contains(&token), "no token is in the log");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_whom_its_spiffe_id_is_mapped_to_until_it_is_revoked() {
    let (ours, fleet) = (Authority::new("ours"), Authority::new("fleet"));
    let auth = |_: &Home| {
        "certificates:
- san: 'uri:spiffe://fleet.example/agent/*'
  as: {roles: [agent], agents: 'desk-*'}
- san: 'uri:spiffe://fleet.example/pager'
  as: {roles: [operator], name: pager}
"
        .to_owned()
    };
    let of = |id: &str| fleet.client(&[], &[&format!("spiffe://fleet.example/{id}")]);
    let (agent, pager, stranger) = (of("agent/7"), of("pager"), of("mallory"));
    let more = [("--client-ca", fleet.pem.as_str()), ("--client-crl", &fleet.revocation_list(&[], 2999))];
    let served = ServedIdentities::start(auth, ours, &more).await;
    let halt = |scope: HaltScope| v1::HaltRequest { scope: scope.into(), name: "drop".into(), ..Default::default() };

    let (desk, paged) = (served.connect(Some(&agent)).await, served.connect(Some(&pager)).await);
    ask(&desk, None, "c1").await.expect("an agent");
    let refusal = SessionServiceClient::new(desk.clone()).halt(halt(HaltScope::Tool)).await.expect_err("no operator");
    assert_eq!(pair(&refusal), (Code::PermissionDenied, "ROLE_MISSING".into()));
    let halted = SessionServiceClient::new(paged.clone()).halt(halt(HaltScope::Tool)).await.expect("an operator");
    assert_eq!(halted.into_inner().halt.expect("a halt").by, "pager");
    assert_eq!(to_refusal(ask(&paged, None, "x").await), (Code::PermissionDenied, "ROLE_MISSING".into()));
    let unmapped = served.connect(Some(&stranger)).await;
    assert_eq!(to_refusal(ask(&unmapped, None, "x").await), unauthenticated(), "a good certificate of nobody");
    assert_eq!(to_refusal(ask(&served.connect(None).await, None, "x").await), unauthenticated());
    let owner = "select owner from session_owner";
    let owner: String = sqlx::query_scalar(owner).fetch_one(&mut served.home.connect().await).await.expect("a row");
    assert_eq!(owner, "spiffe://fleet.example/agent/7", "the session is its own");

    let folder = served.home.data_dir().with_file_name("");
    write_atomically(&folder, "client-crl", &fleet.revocation_list(&[&agent], 2999));
    // The client of the connection that is ended makes another one by itself, and is not let in.
    until("the revocation", async || ask(&desk, None, "c2").await.is_err()).await;
    sleep(Duration::from_millis(1_500)).await;
    let status = ask(&desk, None, "c2").await.expect_err("revoked");
    assert_ne!(status.code(), Code::Ok, "{status:?}");
    let mut pager = SessionServiceClient::new(paged);
    pager.halt(halt(HaltScope::Tool)).await.expect("who was not revoked goes on, on the connection that they had");
}
