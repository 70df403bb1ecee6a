//! Webhook notifications of approval requests: by one replica, retried until accepted, and never blocking a call.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use callgate_proto::v1::{self, Decision};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Mutex, Semaphore, mpsc},
};

use crate::{
    common::{
        in_time,
        postgres::Postgres,
        until,
        wire::{call, evaluate, question},
    },
    server::{Home, Server, fail_to_start, path},
};

const SECRET: [u8; 32] = [7; 32];
const POLICY: &str = "policy_engine:
  authorization:
    tiers: [{name: money, pattern: 'refund_*', action: hitl}, {name: rest, pattern: '*', action: allowlist}]
  tool_schemas: {refund_order: {effect: write, once: true}, get_order: {effect: read}}
";

/// A receiver, with its received requests.
struct Receiver {
    url: String,
    told: Mutex<mpsc::UnboundedReceiver<Request>>,
    /// Each answer takes one.
    answers: Arc<Semaphore>,
    /// The next answers; 204 after them.
    statuses: Arc<Mutex<Vec<u16>>>,
    /// Target of its redirects.
    leads_to: Arc<Mutex<String>>,
}

#[derive(Debug)]
struct Request {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Request {
    async fn read(stream: &mut TcpStream) -> Self {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let pairs = head.lines().skip(1).filter_map(|line| line.split_once(": "));
                let headers: BTreeMap<_, _> =
                    pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
                if body.len() >= headers["content-length"].parse().expect("a length") {
                    return Self { headers, body: body.to_owned() };
                }
            }
            let read = stream.read(&mut buffer).await.expect("readable");
            assert!(read > 0, "it ended early: {text}");
            bytes.extend_from_slice(&buffer[..read]);
        }
    }

    /// True if signed by Standard Webhooks with the secret.
    fn is_signed(&self) -> bool {
        self.is_signed_at(&self.headers["webhook-timestamp"])
    }

    fn is_signed_at(&self, at: &str) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(&SECRET).expect("a key");
        let id = &self.headers["webhook-id"];
        mac.update(format!("{id}.{at}.{}", self.body).as_bytes());
        self.headers["webhook-signature"] == format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

impl Receiver {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let (tell, told) = mpsc::unbounded_channel();
        let answers = Arc::new(Semaphore::new(100));
        let statuses = Arc::new(Mutex::new(Vec::new()));
        let leads_to = Arc::<Mutex<String>>::default();
        let (permits, next, to) = (Arc::clone(&answers), Arc::clone(&statuses), Arc::clone(&leads_to));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let (tell, permits) = (tell.clone(), Arc::clone(&permits));
                let (next, to) = (Arc::clone(&next), Arc::clone(&to));
                tokio::spawn(async move {
                    let request = Request::read(&mut stream).await;
                    let _ = tell.send(request);
                    permits.acquire().await.expect("open").forget();
                    let status = next.lock().await.pop().unwrap_or(204);
                    let to = to.lock().await.clone();
                    let head = format!("HTTP/1.1 {status} x\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
                    let _ = stream.write_all(head.as_bytes()).await;
                });
            }
        });
        Arc::new(Self { url, told: Mutex::new(told), answers, statuses, leads_to })
    }

    async fn next(&self) -> Request {
        in_time("what is told", async { self.told.lock().await.recv().await }).await.expect("it is open")
    }

    async fn is_quiet(&self) -> bool {
        self.told.lock().await.try_recv().is_err()
    }
}

fn refund(session: &str) -> v1::EvaluateRequest {
    question(session, call("c1", "refund_order", r#"{"card":"4111-hush"}"#))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_is_sent_by_one_replica_until_it_is_accepted() {
    let (postgres, home, receiver) = (Postgres::start().await, Home::empty(), Receiver::start().await);
    let policy = home.file("policy.yaml", POLICY);
    let secret = home.file("secret", &format!("whsec_{}\n", BASE64.encode(SECRET)));
    let file =
        format!("url: {}\nsecret_file: {}\nconsole_url: https://plane.example/\n", receiver.url, secret.display());
    let (file, url) = (home.file("webhook.yaml", &file), postgres.url());
    let args = ["--database-url", url.as_str(), "--policy", path(&policy), "--approvals-webhook", path(&file)];
    let (first, second) = (Server::with(&args), Server::with(&args));
    let mut client = first.client().await;
    receiver.statuses.lock().await.extend([503, 500]);
    let asked = evaluate(&mut client, refund("s1")).await;
    assert_eq!(asked.decision(), Decision::Ask);
    for _ in 0..3 {
        let told = receiver.next().await;
        assert!(told.is_signed(), "{told:?}");
        assert_eq!(told.headers["webhook-id"], asked.approval_id);
        assert!(!told.body.contains("hush"), "no arguments unless somebody asks for them: {}", told.body);
        let body: serde_json::Value = serde_json::from_str(&told.body).expect("JSON");
        let link = format!("https://plane.example/approvals/{}", asked.approval_id);
        assert_eq!((&body["type"], &body["data"]["url"]), (&"approval.requested".into(), &link.into()));
        assert_eq!((&body["data"]["tool"], &body["data"]["risk"]), (&"refund_order".into(), &"HIGH".into()));
    }
    let told = "select count(*) from approval_notice where delivered_at is not null and attempts = 3";
    until("it is noted", async || postgres.number(told).await == 1).await;

    // One that does not answer: calls go on.
    receiver.answers.forget_permits(100);
    let stuck = evaluate(&mut client, refund("s2")).await;
    assert_eq!(receiver.next().await.headers["webhook-id"], stuck.approval_id);
    let look = question("s3", call("c1", "get_order", r#"{"id":1}"#));
    assert_eq!(evaluate(&mut client, look).await.decision(), Decision::Allow);
    assert!(receiver.is_quiet().await, "one of them tells it");

    // The claiming replica dies. After a minute, the claim's expiry, another one sends it with the same id.
    first.kill();
    second.kill();
    receiver.answers.add_permits(100);
    let _third = Server::with(&args);
    postgres.tamper("update callgate.approval_notice set claimed_until = now() where delivered_at is null").await;
    let again = receiver.next().await;
    assert_eq!(again.headers["webhook-id"], stuck.approval_id);
    assert!(again.is_signed(), "{again:?}");
    until("it is noted", async || {
        postgres.number("select count(*) from approval_notice where delivered_at is not null").await == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_gets_a_text_and_a_wrong_file_is_told_before_anything_starts() {
    let (home, receiver) = (Home::with_cluster().await, Receiver::start().await);
    let wrong =
        home.file("wrong.yaml", "url: http://hooks.example/x\nconsole_url: https://plane.example\nformat: slack\n");
    let (code, error) =
        fail_to_start(&["--data-dir", path(&home.data_dir()), "--approvals-webhook", path(&wrong)]).await;
    assert!(code == Some(1) && error.contains("url: has to begin with https://"), "{code:?}: {error}");
    let policy = home.file("policy.yaml", POLICY);
    let file = format!("url: {}\nconsole_url: https://plane.example\nformat: slack\n", receiver.url);
    let file = home.file("webhook.yaml", &file);
    let server = Server::start(&home, &["--policy", path(&policy), "--approvals-webhook", path(&file)]);
    let asked = evaluate(&mut server.client().await, refund("s1")).await;
    let told = receiver.next().await;
    assert!(!told.headers.contains_key("webhook-signature"), "{told:?}");
    let body: serde_json::Value = serde_json::from_str(&told.body).expect("JSON");
    let text = body["text"].as_str().expect("a text");
    assert!(text.starts_with("*refund_order* waits for a person (high risk"), "{text}");
    assert!(text.ends_with(&format!("<https://plane.example/approvals/{}|Look at it and answer>", asked.approval_id)));
    assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_is_signed_at_its_own_time_and_a_redirect_is_not_followed() {
    let (home, receiver, elsewhere) = (Home::with_cluster().await, Receiver::start().await, Receiver::start().await);
    let policy = home.file("policy.yaml", POLICY);
    let secret = home.file("secret", &format!("whsec_{}", BASE64.encode(SECRET)));
    let text = format!("url: {}\nsecret_file: {}\nconsole_url: https://plane.example\n", receiver.url, path(&secret));
    let file = home.file("webhook.yaml", &text);
    *receiver.leads_to.lock().await = elsewhere.url.clone();
    // The last is the first.
    receiver.statuses.lock().await.extend([503, 308, 307, 302]);
    let server = Server::start(&home, &["--policy", path(&policy), "--approvals-webhook", path(&file)]);
    let asked = evaluate(&mut server.client().await, refund("s1")).await;
    let mut times = Vec::new();
    for _ in 0..5 {
        let told = receiver.next().await;
        let at: i64 = told.headers["webhook-timestamp"].parse().expect("seconds");
        assert!(told.is_signed() && told.headers["webhook-id"] == asked.approval_id, "{told:?}");
        assert!(!told.is_signed_at(&(at + 300).to_string()), "its time is part of what is signed");
        times.push(at);
    }
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "waits of a second and more: {times:?}");
    assert!(elsewhere.is_quiet().await, "nobody is told where a receiver leads");
}
