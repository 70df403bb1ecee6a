//! The MCP proxy between clients and a server over HTTP.

use std::{fs, net::SocketAddr, path::PathBuf, process::Stdio};

use callgate_proto::v1::{self, CallState, approval_service_client::ApprovalServiceClient};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
};

use super::{Scene, open_ones, read_text};
use crate::{
    common::{in_time, process::signal, until, wire::from},
    server::{path, program},
};

/// A proxy before a server, both on ports of their own.
pub(super) struct Proxy {
    child: Child,
    errors: BufReader<ChildStderr>,
    pub(super) address: SocketAddr,
    server: Child,
    pub(super) server_address: SocketAddr,
    /// Messages sent to the server.
    pub(super) kept: PathBuf,
}

/// A connection to one of them.
struct Connection(SendRequest<Full<Bytes>>);

const BOTH: &str = "application/json, text/event-stream";

impl Scene {
    pub(super) async fn http(&self, options: &[&str]) -> Proxy {
        let kept = self.home.file("kept", "");
        self.before("web_server.py", path(&kept), options).await
    }

    /// A proxy before the server of this script, which prints its port first.
    pub(super) async fn before(&self, script: &str, argument: &str, options: &[&str]) -> Proxy {
        let kept = self.home.file("kept", "");
        let script = format!("{}/tests/serve/mcp/{script}", env!("CARGO_MANIFEST_DIR"));
        let mut server = Command::new("python3");
        let mut server =
            server.args([&script, argument]).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("run");
        let mut ports = String::new();
        let mut output = BufReader::new(server.stdout.take().expect("piped"));
        in_time("a port", output.read_line(&mut ports)).await.expect("a line");
        let port = ports.split_whitespace().next().expect("a port");
        let server_address: SocketAddr = format!("127.0.0.1:{port}").parse().expect("an address");

        let mut command = Command::from(program());
        command.env("XDG_STATE_HOME", kept.with_file_name("state")).stderr(Stdio::piped()).kill_on_drop(true);
        command.args(["mcp-proxy", "--server", &self.url, "--session", "s", "--server-name", "t"]).args(options);
        command.args(["--listen", "127.0.0.1:0", "--url", &format!("http://{server_address}/mcp")]);
        let mut child = command.spawn().expect("it runs");
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        in_time("an address", errors.read_line(&mut line)).await.expect("a line");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
        let address = address.parse().unwrap_or_else(|_| panic!("{line}"));
        Proxy { child, errors, address, server, server_address, kept }
    }
}

impl Proxy {
    async fn connect(&self) -> Connection {
        connect(self.address).await
    }

    /// Sends a POST over a connection of its own.
    async fn posts(&self, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<Incoming> {
        self.connect().await.sends("POST", headers, body).await
    }

    /// Calls a tool; gives the result.
    async fn calls(&self, id: u64, tool: &str, arguments: Value) -> Value {
        let answer = text(self.posts(&[], call(id, tool, arguments)).await).await;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"));
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }

    pub(super) fn sent_requests(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.kept).expect("a file");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

async fn connect(address: SocketAddr) -> Connection {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(connection);
    Connection(sender)
}

impl Connection {
    async fn sends(&mut self, method: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri("/mcp");
        for (name, value) in [("host", "localhost"), ("accept", BOTH)] {
            if !headers.iter().any(|(given, _)| *given == name) {
                request = request.header(name, value);
            }
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        in_time("an answer", self.0.send_request(request)).await.expect("an answer")
    }
}

fn call(id: u64, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

async fn text(answer: Response<Incoming>) -> String {
    let body = in_time("a body", answer.into_body().collect()).await.expect("a whole body");
    String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8")
}

/// The next part of a stream.
async fn part(answer: &mut Response<Incoming>) -> String {
    let frame = in_time("a part", answer.body_mut().frame()).await.expect("more").expect("a whole part");
    String::from_utf8(frame.into_data().expect("data").to_vec()).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_answers_pass_as_they_are_but_what_is_refused() {
    let scene = Scene::open().await;
    let proxy = scene.http(&[]).await;
    let headers = [
        ("authorization", "Bearer t"),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", "initialize"),
        ("accept-encoding", "gzip"),
    ];
    let initialize = r#"{"method" : "initialize","id":"a\u0062","x":[12345678901234567890, 1.10]}"#;
    let look = r#"{"id":7,"method":"tools/call", "params":{"name":"look","arguments":{"n":12345678901234567890}}}"#;
    let stream = r#"{"id":8,"method":"tools/call","params":{"name":"stream"}}"#;
    for body in [initialize, look, stream, r#"{"method":"notifications/initialized"}"#] {
        let through = proxy.posts(&headers, body).await;
        let kept = proxy.sent_requests().pop().expect("a request");
        assert_eq!(kept["body"], body);
        let passed = json!({"authorization": "Bearer t", "mcp-protocol-version": "2025-11-25",
            "mcp-method": "initialize", "accept-encoding": "identity"});
        assert_eq!(kept["headers"], passed, "all but what could not be read");
        let direct = connect(proxy.server_address).await.sends("POST", &headers, body).await;
        assert_eq!(through.status(), direct.status());
        for name in ["content-type", "mcp-session-id"] {
            assert_eq!(through.headers().get(name), direct.headers().get(name));
        }
        assert_eq!(text(through).await, text(direct).await);
    }

    // None of these reaches the server, with any headers.
    let count = proxy.sent_requests().len();
    let forbidden = call(9, "forbidden", json!({}));
    let result: Value =
        serde_json::from_str(&text(proxy.posts(&[("mcp-method", "ping")], forbidden.clone()).await).await)
            .expect("JSON");
    assert_eq!((&result["id"], &result["result"]["isError"]), (&json!(9), &json!(true)));
    let event = proxy.posts(&[("accept", "text/event-stream")], forbidden.clone()).await;
    assert_eq!(event.headers()["content-type"], "text/event-stream");
    assert!(text(event).await.starts_with("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\""));
    let utf16: Vec<u8> = forbidden.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (headers, body, status) in [
        (&[("x", "y")], Bytes::from(utf16.clone()), StatusCode::BAD_REQUEST),
        (&[("content-type", "application/json; charset=utf-16le")], utf16.into(), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (&[("content-encoding", "gzip")], forbidden.clone().into(), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (&[("x", "y")], format!("{forbidden}{forbidden}").into(), StatusCode::BAD_REQUEST),
        (&[("x", "y")], format!("[[{forbidden}]]").into(), StatusCode::BAD_REQUEST),
        (&[("x", "y")], Bytes::from_static(b"name=forbidden"), StatusCode::BAD_REQUEST),
        (&[("x", "y")], " ".repeat((16 << 20) + 1).into(), StatusCode::PAYLOAD_TOO_LARGE),
        (&[("host", "evil.example")], forbidden.clone().into(), StatusCode::FORBIDDEN),
        (&[("origin", "https://evil.example")], forbidden.clone().into(), StatusCode::FORBIDDEN),
    ] {
        assert_eq!(proxy.posts(headers, body).await.status(), status, "{headers:?}");
    }
    assert_eq!(proxy.sent_requests().len(), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_over_http_are_recorded() {
    let scene = Scene::open().await;
    let proxy = scene.http(&[]).await;
    assert_eq!(read_text(&proxy.calls(1, "send", json!({"to": "a"})).await), json!({"to": "a"}));
    scene.newest("mcp__t__send", CallState::Succeeded).await;
    let again = proxy.calls(2, "send", json!({"to": "a"})).await;
    assert_eq!(read_text(&again)["previous_result"], json!({"to": "a"}), "{again}");
    proxy.calls(3, "fail", json!({})).await;
    scene.newest("mcp__t__fail", CallState::Failed).await;
    text(proxy.posts(&[], call(4, "stream", json!({}))).await).await;
    scene.newest("mcp__t__stream", CallState::Succeeded).await;
    let overloaded = proxy.posts(&[], call(5, "overload", json!({}))).await;
    assert_eq!((overloaded.status(), text(overloaded).await), (StatusCode::SERVICE_UNAVAILABLE, "no\n".to_owned()));
    scene.newest("mcp__t__overload", CallState::Failed).await;

    // An end without a result is reported to a connected client.
    let quiet = text(proxy.posts(&[], call(6, "quiet", json!({}))).await).await;
    assert!(
        quiet.starts_with(": nothing more\n\nevent: message\ndata: {") && quiet.contains("may have taken"),
        "{quiet}"
    );
    scene.newest("mcp__t__quiet", CallState::Unknown).await;

    // A client that follows a redirect would ask the server itself.
    let away = text(proxy.posts(&[], call(7, "away", json!({}))).await).await;
    assert!(away.contains("redirects to http://127.0.0.1:9/elsewhere") && away.contains("not executed"), "{away}");
    scene.newest("mcp__t__away", CallState::Cancelled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_answer_is_read_or_refused() {
    let scene = Scene::open().await;
    let proxy = scene.http(&[]).await;
    for (id, tool) in [(1, "gzip"), (2, "deflate")] {
        let answer = proxy.posts(&[], call(id, tool, json!({}))).await;
        assert_eq!(answer.headers().get("content-encoding"), None);
        assert!(text(answer).await.contains("zipped"));
        scene.newest(&format!("mcp__t__{tool}"), CallState::Succeeded).await;
    }
    // Each event is passed on once the server has flushed it.
    let mut stream = proxy.posts(&[], call(3, "zipped_stream", json!({}))).await;
    assert_eq!(part(&mut stream).await, ": hello\n\n");
    fs::write(proxy.kept.with_file_name("kept.go"), "").expect("a file");
    assert!(text(stream).await.contains("streamed"));
    scene.newest("mcp__t__zipped_stream", CallState::Succeeded).await;

    // A result that the proxy cannot read does not reach the client.
    for (id, tool, why) in [(4, "brotli", "(br), which callgate cannot read"), (5, "cut", "broke off its answer")] {
        let answer = text(proxy.posts(&[], call(id, tool, json!({}))).await).await;
        assert!(answer.contains(why) && answer.contains("may have taken effect"), "{answer}");
        scene.newest(&format!("mcp__t__{tool}"), CallState::Unknown).await;
    }
    // Nothing that is read as no result is kept whole: a quarter of a gibibyte passes through.
    let mut huge = proxy.posts(&[], call(6, "huge", json!({}))).await;
    let mut bytes = 0;
    while let Some(frame) = in_time("a part", huge.body_mut().frame()).await {
        bytes += frame.expect("a whole part").into_data().map_or(0, |data| data.len());
    }
    assert_eq!(bytes, 256 << 20);
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.child.id().expect("it runs"))).expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kib < 160 << 10, "{kib} KiB after {bytes} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_may_come_on_another_stream_of_its_session() {
    let scene = Scene::open().await;
    let proxy = scene.http(&[]).await;
    for (tool, last) in [("resume", "x"), ("accept", "y")] {
        let of_session = [("mcp-session-id", "one")];
        text(proxy.posts(&of_session, call(1, tool, json!({}))).await).await;
        scene.newest(&format!("mcp__t__{tool}"), CallState::InFlight).await;
        let headers = [("mcp-session-id", "one"), ("last-event-id", last)];
        let rest = text(proxy.connect().await.sends("GET", &headers, "").await).await;
        assert!(rest.starts_with(": resumed\n\ndata: {"), "{rest}");
        scene.newest(&format!("mcp__t__{tool}"), CallState::Succeeded).await;
    }
    // After the session's end no client waits for it.
    let of_session = [("mcp-session-id", "one")];
    text(proxy.posts(&of_session, call(2, "resume", json!({"n": 2}))).await).await;
    scene.newest("mcp__t__resume", CallState::InFlight).await;
    assert_eq!(proxy.connect().await.sends("DELETE", &of_session, "").await.status(), StatusCode::OK);
    scene.newest("mcp__t__resume", CallState::Unknown).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_over_http_is_judged_call_by_call() {
    let scene = Scene::open().await;
    let proxy = scene.http(&[]).await;
    let whole = format!("[{}, {} ]", call(1, "look", json!({})), call(2, "look", json!({"n": 1})));
    let answer = text(proxy.posts(&[], whole.clone()).await).await;
    assert_eq!(serde_json::from_str::<Vec<Value>>(&answer).expect("a list").len(), 2);
    assert_eq!(proxy.sent_requests().pop().expect("a request")["body"], whole);

    let partly = format!("[{},{}]", call(3, "forbidden", json!({})), call(4, "look", json!({"n": 2})));
    let answer: Vec<Value> = serde_json::from_str(&text(proxy.posts(&[], partly).await).await).expect("a list");
    assert_eq!((&answer[0]["id"], &answer[0]["result"]["isError"]), (&json!(3), &json!(true)));
    assert_eq!((&answer[1]["id"], &answer[1]["result"]["content"][0]["text"]), (&json!(4), &json!("listed")));
    let none = format!("[{}]", call(5, "forbidden", json!({})));
    assert!(text(proxy.posts(&[], none).await).await.starts_with("[{"));
    assert!(proxy.sent_requests().iter().all(|kept| !kept["body"].to_string().contains("forbidden")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_waited_for_and_taken_back_when_its_client_leaves() {
    let scene = Scene::open().await;
    let proxy = scene.http(&[]).await;
    let mut resolver = ApprovalServiceClient::new(scene.server.as_ref().expect("it runs").channel().await);
    let mut listing = resolver.clone();
    let mut open = async || listing.list_approvals(open_ones()).await.expect("a list").into_inner().approvals;
    let asks = |id: u64| {
        let params = json!({"name": "drop", "arguments": {"id": id}, "_meta": {"progressToken": "p"}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    let mut answer = proxy.posts(&[], asks(1)).await;
    let progress = part(&mut answer).await;
    assert!(progress.contains("notifications/progress") && progress.contains("approval"), "{progress}");
    let approval_id = open().await[0].approval_id.clone();
    let yes = v1::ResolveApprovalRequest { approval_id, approve: true, ..Default::default() };
    resolver.resolve_approval(from("eve", yes)).await.expect("approved");
    let rest = text(answer).await;
    assert!(rest.contains("content"), "{rest}");
    scene.newest("mcp__t__drop", CallState::Succeeded).await;

    let left = tokio::time::timeout(std::time::Duration::from_secs(2), proxy.posts(&[], asks(2))).await;
    assert!(left.is_err(), "it waits");
    until("the withdrawal", async || open().await.is_empty()).await;

    // By the notification of a session.
    let of_session = [("mcp-session-id", "one")];
    let (mut asking, body) = (proxy.connect().await, asks(3));
    let waits = tokio::spawn(async move { text(asking.sends("POST", &[("mcp-session-id", "one")], body).await).await });
    until("the question", async || open().await.len() == 1).await;
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#;
    assert_eq!(proxy.posts(&[], cancelled).await.status(), StatusCode::ACCEPTED, "another client's goes on");
    assert_eq!(proxy.posts(&of_session, cancelled).await.status(), StatusCode::ACCEPTED);
    assert_eq!(waits.await.expect("an end"), "");
    until("the withdrawal", async || open().await.is_empty()).await;
    let executed = proxy.sent_requests().iter().filter(|kept| kept["body"].to_string().contains("drop")).count();
    assert_eq!(executed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_calls_of_a_lost_client_or_server_are_reported() {
    let mut scene = Scene::open().await;
    let mut proxy = scene.http(&[]).await;
    for (version, state) in [("2026-07-28", CallState::Cancelled), ("2025-11-25", CallState::Unknown)] {
        let headers = [("mcp-protocol-version", version)];
        let mut answer = proxy.posts(&headers, call(1, "never", json!({"version": version}))).await;
        part(&mut answer).await;
        scene.newest("mcp__t__never", CallState::InFlight).await;
        // Another client counts its own requests: the same id is another call.
        assert_eq!(read_text(&proxy.calls(1, "look", json!({"version": version})).await)["version"], version);
        drop(answer);
        until("the outcome", async || scene.calls().await[1] == ("mcp__t__never".to_owned(), state)).await;
    }
    let died = text(proxy.posts(&[], call(2, "die", json!({}))).await).await;
    assert!(died.contains(r#""id":2,"error""#) && died.contains("may have taken effect"), "{died}");
    scene.newest("mcp__t__die", CallState::Unknown).await;
    in_time("its end", proxy.server.wait()).await.expect("a child");
    let away = text(proxy.posts(&[], call(3, "look", json!({"n": 3}))).await).await;
    assert!(away.contains("The call was not executed."), "{away}");
    scene.newest("mcp__t__look", CallState::Cancelled).await;

    scene.server.take().expect("it runs").kill();
    let unjudged = proxy.calls(4, "look", json!({"n": 4})).await;
    assert_eq!((&read_text(&unjudged)["status"], &unjudged["isError"]), (&json!("callgate_unavailable"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_it_in_order_and_it_listens_on_this_machine_alone() {
    let scene = Scene::open().await;
    let mut proxy = scene.http(&[]).await;
    let mut answer = proxy.posts(&[], call(1, "never", json!({}))).await;
    part(&mut answer).await;
    scene.newest("mcp__t__never", CallState::InFlight).await;
    assert!(signal(proxy.child.id().expect("it runs"), "TERM"));
    assert!(in_time("an end", proxy.child.wait()).await.expect("a child").success());
    scene.newest("mcp__t__never", CallState::Unknown).await;
    let mut said = String::new();
    in_time("the rest", proxy.errors.read_to_string(&mut said)).await.expect("UTF-8");
    assert!(said.contains("stopping"), "{said}");

    for (options, problem) in [
        (["--listen", "0.0.0.0:0", "--url", "http://127.0.0.1:9/mcp"], "can be reached from other machines"),
        (["--listen", "127.0.0.1:0", "--url", "http://me:secret@localhost/mcp"], "other users of this machine"),
    ] {
        let output = Command::from(program()).arg("mcp-proxy").args(options).output();
        let output = in_time("an end", output).await.expect("it runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!output.status.success() && said.contains(problem) && !said.contains("secret"), "{said}");
    }
}
