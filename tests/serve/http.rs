//! What is asked over HTTP/1 on the port of the calls.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    common::{
        in_time,
        process::{children, signal},
        until,
        wire::{call, evaluate, question, record, success},
    },
    server::{Home, Server},
};

/// The whole answer to a request of HTTP/1, head and body.
async fn get(server: &Server, path: &str) -> String {
    let ask = async {
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: callgate\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    in_time("an answer", ask).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_and_figures_are_told_over_http_on_the_same_port() {
    let home = Home::prepared().await;
    let server = Server::start(&home, &[]);
    let mut client = server.client().await;
    assert!(evaluate(&mut client, question("s", call("c1", "look", "{}"))).await.permit.is_some());
    record(&mut client, success("s", "c1", "row")).await;

    assert!(get(&server, "/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"));
    until("readiness", async || get(&server, "/readyz").await.starts_with("HTTP/1.1 200 OK\r\n")).await;
    let figures = get(&server, "/metrics").await;
    assert!(figures.starts_with("HTTP/1.1 200 OK\r\n"), "{figures}");
    for part in [
        "content-type: text/plain; version=0.0.4",
        "cache-control: no-store",
        "# TYPE callgate_evaluations_total counter",
        "callgate_decision=\"ALLOW\"",
        "callgate_records_total",
        "# TYPE callgate_evaluate_duration_seconds histogram",
        "callgate_commit_duration_seconds_count",
    ] {
        assert!(figures.contains(part), "{part} is missing in {figures}");
    }

    let database = home.postmaster().expect("it runs");
    // It starts no more sessions once it is stopped, so these are all.
    assert!(signal(database, "STOP"));
    let sessions = children(database);
    for pid in &sessions {
        signal(*pid, "STOP");
    }
    until("no readiness", async || get(&server, "/readyz").await.starts_with("HTTP/1.1 503 ")).await;
    assert!(get(&server, "/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"), "a restart would help nobody");
    for pid in sessions.iter().chain([&database]) {
        signal(*pid, "CONT");
    }
    until("readiness", async || get(&server, "/readyz").await.starts_with("HTTP/1.1 200 OK\r\n")).await;
}
