//! Early refusals over HTTP/1.1, before the body is read, with clients that keep sending.

use std::{net::SocketAddr, time::Duration};

use callgate_core::policy::Policy;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

use crate::{
    common::{in_time, wire::Plane},
    console::serve_console,
};

/// More than sockets hold on both sides, so that who sends it sees the end of the connection.
const BODY: usize = 8 << 20;
const NEXT: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Sends all of it at once, and reads when all of it is sent; gives the answers, or how the connection broke.
async fn send_bytes(address: SocketAddr, bytes: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let mut answers = Vec::new();
    let talk = async {
        stream.write_all(bytes).await?;
        // The refusal was sent long before.
        sleep(Duration::from_millis(300)).await;
        stream.read_to_end(&mut answers).await
    };
    in_time("the end", talk).await?;
    Ok(String::from_utf8_lossy(&answers).into_owned())
}

fn head(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_refusal_arrives_whole_and_nothing_of_the_body_is_a_request() {
    let plane = serve_console(&Policy::default()).await;
    let body = "x".repeat(BODY);
    // The body is full of smuggled requests, whatever the refusal.
    let smuggled = NEXT.repeat(BODY / NEXT.len());
    let json = "content-type: application/json\r\n";
    let calls = "/callgate.v1.GateService/Evaluate";
    for (path, more, code) in [
        (calls, json, " 4"),
        (calls, "content-type: text/plain\r\n", " 415"),
        ("/nowhere", json, " 404"),
        ("/nowhere", "content-type: application/grpc\r\n", " 200"),
        ("/sign-in", "content-type: application/x-www-form-urlencoded\r\n", " 4"),
        (calls, "content-type: application/json\r\norigin: https://evil.example\r\n", " 403"),
        (calls, "content-type: application/grpc\r\nauthorization: Bearer wrong\r\n", " 200"),
        ("/metrics", "authorization: Bearer wrong\r\n", " 401"),
    ] {
        for body in [&body, &smuggled] {
            let length = format!("{more}content-length: {}\r\n", body.len());
            let chunked = format!("{more}transfer-encoding: chunked\r\n");
            let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            for (how, bytes) in [
                ("length", format!("{}{body}{NEXT}", head(path, &length))),
                ("chunked", format!("{}{chunks}{NEXT}", head(path, &chunked))),
                ("expect", format!("{}{body}{NEXT}", head(path, &format!("{length}expect: 100-continue\r\n")))),
            ] {
                let told = send_bytes(plane.address, bytes.as_bytes()).await;
                let told = told.unwrap_or_else(|error| panic!("{path} {more:?} {how}: {error}"));
                let first = told.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
                assert!(first.starts_with(&format!("HTTP/1.1{code}")), "{path} {more:?} {how}: {told}");
                assert!(told.matches("HTTP/1.1 200 OK").count() <= 1 + usize::from(code == " 200"), "{how}: {told}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_request_is_rejected_and_ends_the_connection() {
    let plane = Plane::start(&Policy::default()).await;
    let rest = NEXT.repeat(BODY / NEXT.len());
    for more in [
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length: +4\r\n",
        "content-length: -1\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "no colon\r\n",
        &format!("long: {}\r\n", "x".repeat(100_000)),
    ] {
        let bytes = format!("{}{rest}", head("/healthz", more));
        let told = send_bytes(plane.address, bytes.as_bytes()).await;
        let told = told.unwrap_or_else(|error| panic!("{more:.60?}: {error}"));
        assert!(told.starts_with("HTTP/1.1 4") && !told.contains("200 OK"), "{more:.60?}: {told}");
    }
}
