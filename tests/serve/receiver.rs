//! A receiver of HTTP requests on this machine, with answers and delays of the test's choice.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Mutex, Semaphore, mpsc},
};

use crate::common::in_time;

/// Secret of webhooks.
pub(crate) const SECRET: [u8; 32] = [7; 32];

/// The file of the secret.
pub(crate) fn secret_text() -> String {
    format!("whsec_{}\n", BASE64.encode(SECRET))
}

/// A receiver, with its received requests.
pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Mutex<mpsc::UnboundedReceiver<Request>>,
    /// Each answer takes one.
    pub(crate) answers: Arc<Semaphore>,
    /// The next answers, the last one first; 204 after them.
    pub(crate) statuses: Arc<Mutex<Vec<u16>>>,
    /// Target of its redirects.
    pub(crate) leads_to: Arc<Mutex<String>>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
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

    /// The body, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// True if signed by Standard Webhooks with the secret.
    pub(crate) fn is_signed(&self) -> bool {
        self.is_signed_at(&self.headers["webhook-timestamp"])
    }

    pub(crate) fn is_signed_at(&self, at: &str) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(&SECRET).expect("a key");
        let id = &self.headers["webhook-id"];
        mac.update(format!("{id}.{at}.{}", self.body).as_bytes());
        self.headers["webhook-signature"] == format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

impl Receiver {
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let (tell, received) = mpsc::unbounded_channel();
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
        Arc::new(Self { url, received: Mutex::new(received), answers, statuses, leads_to })
    }

    /// The next request.
    pub(crate) async fn next(&self) -> Request {
        in_time("a request", async { self.received.lock().await.recv().await }).await.expect("it is open")
    }

    pub(crate) async fn is_quiet(&self) -> bool {
        self.received.lock().await.try_recv().is_err()
    }
}
