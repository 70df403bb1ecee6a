//! Connection limits, with sockets that violate the protocol.

use std::{convert::Infallible, future::pending, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use callgate_net::listener::{
    Address, BoundListener, ConnectionLimits, ListenerContext, Peer, Tls, TlsFiles, TransportSettings,
};
use callgate_proto::v1::{self, session_service_client::SessionServiceClient};
use callgate_server::grpc::GrpcSettings;
use http::{Request, Response};
use hyper::{body::Incoming, service::Service};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tonic::{Code, body::Body};

use crate::{
    clients::tls,
    common::{
        certificates::{Authority, der, fetch_certificate, write_atomically},
        gates::policy,
        in_time, until,
        wire::{Plane, call, evaluate, pair, question},
    },
};

/// Responds with the caller, or never.
#[derive(Debug, Clone)]
struct CallerEcho;

impl Service<Request<Incoming>> for CallerEcho {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() == "/slow" {
                pending::<()>().await;
            }
            let peer = request.extensions().get::<Arc<Peer>>().expect("a peer");
            Ok(Response::new(Body::new(format!("{:?}", peer.names))))
        })
    }
}

/// A server within these limits, for as long as the sender lives.
pub(crate) async fn serve(limits: ConnectionLimits, way: &TransportSettings) -> (SocketAddr, watch::Sender<bool>) {
    let bound = BoundListener::bind(([127, 0, 0, 1], 0).into(), way).expect("a port");
    let (Address::Tcp(address) | Address::Tls(address)) = bound.address() else { unreachable!("it is a port") };
    let listener = bound.listen().expect("it is ours");
    let (end, ending) = watch::channel(false);
    tokio::spawn(async move { ListenerContext::new(limits).serve(listener, CallerEcho, ending).await });
    (address, end)
}

async fn connect(address: SocketAddr) -> TcpStream {
    in_time("a connection", TcpStream::connect(address)).await.expect("it listens")
}

/// The answer to a request of HTTP/1 on a connection that stays.
pub(crate) async fn send_request<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, headers: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut bytes = vec![0; 4_096];
    let read = in_time("an answer", stream.read(&mut bytes)).await.unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// Time until the server closes a silent connection.
async fn time_until_closed(stream: &mut TcpStream) -> Duration {
    let since = Instant::now();
    let mut rest = Vec::new();
    let _ = in_time("the end", stream.read_to_end(&mut rest)).await;
    since.elapsed()
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request without a body.
fn request(stream: u32, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("short");
    let head = [&[0x82, 0x86, 0x41, 1, b'x', 0x44, length], path.as_bytes()].concat();
    frame(HEADERS, 0x5, stream, &head)
}

/// HTTP/2, by hand.
struct Http2(TcpStream);

impl Http2 {
    async fn connect(address: SocketAddr) -> Self {
        let mut stream = connect(address).await;
        let hello = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
        stream.write_all(&hello).await.expect("sent");
        Self(stream)
    }

    async fn send(&mut self, bytes: &[u8]) {
        // A server that has enough reads no further.
        let _ = self.0.write_all(bytes).await;
    }

    /// The next frame: kind, stream, payload; none at the end.
    async fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let read = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let [a, b, c, kind, _, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            Some((kind, u32::from_be_bytes(stream), payload))
        };
        in_time("a frame", read).await
    }

    /// The payload of the next frame of a kind; none when the connection ends before.
    async fn until(&mut self, wanted: u8, of_stream: u32) -> Option<Vec<u8>> {
        loop {
            let (kind, stream, payload) = self.next().await?;
            if (kind, stream) == (wanted, of_stream) {
                return Some(payload);
            }
        }
    }

    /// Why the server goes away.
    async fn goaway(&mut self) -> Option<u32> {
        let payload = self.until(GOAWAY, 0).await?;
        Some(u32::from_be_bytes(payload[4..8].try_into().expect("four bytes")))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_and_all_together_have_so_many_connections() {
    for limits in [
        ConnectionLimits { connections_per_address: 2, ..ConnectionLimits::default() },
        ConnectionLimits { connections: 2, ..ConnectionLimits::default() },
    ] {
        let (address, _server) = serve(limits, &TransportSettings::default()).await;
        let (mut first, mut second) = (connect(address).await, connect(address).await);
        for stream in [&mut first, &mut second] {
            assert!(send_request(stream, "").await.starts_with("HTTP/1.1 200"));
        }
        time_until_closed(&mut connect(address).await).await;
        assert!(send_request(&mut first, "").await.starts_with("HTTP/1.1 200"), "who is there stays");
        drop(second);
        until("a place", async || send_request(&mut connect(address).await, "").await.starts_with("HTTP/1.1 200"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_or_incomplete_connection_is_closed() {
    let handshake = Duration::from_millis(400);
    let limits = || ConnectionLimits { handshake, ..ConnectionLimits::default() };
    let authority = Authority::new("ours");
    let (way, _folder) = tls(&authority.server(), None, None);
    let (clear, _clear) = serve(limits(), &TransportSettings::default()).await;
    let (encrypted, _encrypted) = serve(limits(), &way).await;
    for (address, said) in [(clear, ""), (clear, "PRI * HT"), (clear, "GET / HTTP/1.1\r\nhost: "), (encrypted, "")] {
        let mut stream = connect(address).await;
        stream.write_all(said.as_bytes()).await.expect("sent");
        let took = time_until_closed(&mut stream).await;
        assert!(took >= handshake / 2, "{said:?} was closed after {took:?}");
    }
    let mut stream = connect(clear).await;
    assert!(send_request(&mut stream, "").await.starts_with("HTTP/1.1 200"));
    let mut http2 = Http2::connect(clear).await;
    sleep(handshake * 2).await;
    http2.send(&request(1, "/")).await;
    assert!(http2.until(HEADERS, 1).await.is_some(), "who has begun has time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connection_is_closed_and_a_waiting_one_is_not() {
    let limits = ConnectionLimits {
        idle: Duration::from_millis(600),
        handshake: Duration::from_millis(100),
        grace: Duration::from_millis(200),
        ..ConnectionLimits::default()
    };
    let (address, _server) = serve(limits, &TransportSettings::default()).await;
    let (mut quiet, mut waiting) = (Http2::connect(address).await, Http2::connect(address).await);
    quiet.send(&request(1, "/")).await;
    waiting.send(&request(1, "/slow")).await;
    assert_eq!(quiet.goaway().await, Some(0), "no error");
    let ended = timeout(Duration::from_secs(2), waiting.goaway()).await;
    assert!(ended.is_err(), "it waits for an answer: {ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_connection_is_ended_in_order_and_then_cut_off() {
    let limits = ConnectionLimits {
        age: Some(Duration::from_millis(500)),
        grace: Duration::from_millis(500),
        ..ConnectionLimits::default()
    };
    let (address, _server) = serve(limits, &TransportSettings::default()).await;
    let mut old = Http2::connect(address).await;
    old.send(&request(1, "/slow")).await;
    assert_eq!(old.goaway().await, Some(0), "no error");
    let since = Instant::now();
    while old.next().await.is_some() {}
    assert!(since.elapsed() >= Duration::from_millis(300), "what is open has time: {:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_frames_streams_and_resets_are_bounded() {
    let limits = ConnectionLimits { header_bytes: 16 << 10, streams: 7, resets: 20, ..ConnectionLimits::default() };
    let (address, _server) = serve(limits, &TransportSettings::default()).await;
    let long = format!("x-long: {}\r\n", "x".repeat(20 << 10));
    let answer = send_request(&mut connect(address).await, &long).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer:?}");
    let many = "x-many: x\r\n".repeat(101);
    assert!(send_request(&mut connect(address).await, &many).await.starts_with("HTTP/1.1 431"));

    // A head of 24 KiB in two frames.
    let mut head = [&[0x82, 0x86, 0x84, 0x41, 1, b'x'][..], &[0, 1, b'y', 0x7f, 0x81, 0xbf, 0x01]].concat();
    head.extend(vec![b'z'; 24 << 10]);
    let mut http2 = Http2::connect(address).await;
    http2.send(&[frame(HEADERS, 0x1, 1, &head[..16_000]), frame(9, 0x4, 1, &head[16_000..])].concat()).await;
    let refused = async {
        loop {
            match http2.next().await {
                None | Some((GOAWAY | RST_STREAM, ..)) => return true,
                // 431, of the static table's names: a literal status.
                Some((HEADERS, _, payload)) => {
                    return payload.windows(3).any(|three| three == b"431") || payload[0] != 0x88;
                }
                _ => {}
            }
        }
    };
    assert!(refused.await, "not a 200");

    let mut http2 = Http2::connect(address).await;
    let settings = http2.until(SETTINGS, 0).await.expect("settings");
    let told: Vec<(u8, u32)> =
        settings.chunks(6).map(|one| (one[1], u32::from_be_bytes(one[2..6].try_into().expect("four bytes")))).collect();
    assert!(told.contains(&(3, 7)), "streams at a time: {told:?}");
    assert!(told.contains(&(6, 16 << 10)), "bytes of a head: {told:?}");
    http2.send(&frame(0, 0, 1, &vec![0; (16 << 10) + 1])).await;
    assert_eq!(http2.goaway().await, Some(6), "a frame that is too large");

    let mut http2 = Http2::connect(address).await;
    for n in 0..8 {
        http2.send(&request(2 * n + 1, "/slow")).await;
    }
    let refused = http2.until(RST_STREAM, 15).await.expect("the eighth is refused");
    assert_eq!(refused, 7_u32.to_be_bytes(), "REFUSED_STREAM");

    let mut http2 = Http2::connect(address).await;
    let taken_back =
        |n: u32| [request(2 * n + 1, "/slow"), frame(RST_STREAM, 0, 2 * n + 1, &8_u32.to_be_bytes())].concat();
    http2.send(&(0..2_000).flat_map(taken_back).collect::<Vec<u8>>()).await;
    assert_eq!(http2.goaway().await, Some(11), "ENHANCE_YOUR_CALM");
    let mut others = connect(address).await;
    assert!(send_request(&mut others, "").await.starts_with("HTTP/1.1 200"), "others are served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_do_not_fit_together_are_not_used() {
    let authority = Authority::new("ours");
    let pair = authority.server();
    let (way, folder) = tls(&pair, None, None);
    let (address, _server) = serve(ConnectionLimits::default(), &way).await;
    let other = authority.server();
    write_atomically(folder.path(), "tls.crt", &other.certificate);
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(fetch_certificate(address, &authority).await, der(&pair.certificate), "its key is not there yet");
    write_atomically(folder.path(), "tls.key", "no key");
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(fetch_certificate(address, &authority).await, der(&pair.certificate));
    write_atomically(folder.path(), "tls.key", &other.key);
    until("the new certificate", async || fetch_certificate(address, &authority).await == der(&other.certificate))
        .await;

    let told = |certificate: &str, key: &str, ca: &str| {
        let file = |name: &str, text: &str| write_atomically(folder.path(), name, text);
        let client_ca = Some(file("c.ca", ca));
        let files =
            TlsFiles { certificate: file("c.crt", certificate), key: file("c.key", key), client_ca, client_crl: None };
        Tls::open(files).expect_err("refused").to_string()
    };
    let good = (&pair.certificate, &pair.key, &authority.pem);
    assert!(told("", good.1, good.2).ends_with("c.crt has no certificate in PEM"));
    assert!(told(good.0, "", good.2).ends_with("c.key has no private key in PEM"));
    assert!(told(good.0, &other.key, good.2).contains("c.key is not the key of "));
    assert!(told(good.0, good.1, "").ends_with("c.ca has no certificate in PEM"));
    let files = TlsFiles { certificate: "/no/such".into(), key: "/no/such".into(), client_ca: None, client_crl: None };
    assert!(Tls::open(files).expect_err("refused").to_string().starts_with("/no/such cannot be read: "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_on_an_old_connection_says_so_and_calls_go_on() {
    let limits = ConnectionLimits { age: Some(Duration::from_secs(2)), ..ConnectionLimits::default() };
    let settings = GrpcSettings { limits, ..GrpcSettings::default() };
    let plane = Plane::serve_with(&policy(&["same_call"]), &TransportSettings::default(), settings).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("c", "look", "{}"))).await;
    let request = v1::WatchSessionRequest { session_id: "s".to_owned() };
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let mut watch = sessions.watch_session(request).await.expect("a stream").into_inner();
    let end = loop {
        match in_time("the end", watch.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it does not say why it ends"),
            Err(status) => break status,
        }
    };
    assert_eq!(pair(&end), (Code::Unavailable, "SHUTTING_DOWN".to_owned()));
    // tonic's client fails requests that it was about to send on an ending connection, or sent after the GOAWAY; others
    // use the next connection.
    let is_unsent = |status: &tonic::Status| {
        let is_after_goodbye = || format!("{status:?}").contains("GoAway(b\"\", NO_ERROR, Remote)");
        status.code() == Code::Cancelled || status.code() == Code::Internal && is_after_goodbye()
    };
    let (since, mut n, mut unsent) = (Instant::now(), 0, 0);
    while since.elapsed() < Duration::from_secs(5) {
        n += 1;
        // Each in a tree of its own, because they get no report.
        let asked = question(&format!("s{n}"), call(&format!("c{n}"), "look", "{}"));
        match in_time("an answer", client.evaluate(asked.clone())).await {
            Err(status) if is_unsent(&status) => unsent += 1,
            answer => drop(answer.expect("no call fails that was sent")),
        }
    }
    assert!(n > 20 && unsent <= 5, "{unsent} of {n} calls were not sent, in some three connections");
}
