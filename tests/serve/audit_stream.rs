//! Export of the audit log to a collector, over an outage and a kill.

use std::net::SocketAddr;

use crate::{
    collector::{Logs, Metrics, ReceivedTelemetry, Record, Traces},
    common::{postgres::Postgres, until},
    server::{Server, ran},
};

fn attribute<'a>(record: &'a Record, key: &str) -> Option<&'a crate::collector::AnyValue> {
    record.attributes.iter().find(|one| one.key == key).and_then(|one| one.value.as_ref())
}

/// Numbers and hashes of the received entries, in the order of their arrival.
fn entries(got: &ReceivedTelemetry) -> Vec<(i64, String)> {
    let records = got.records.lock().expect("whole");
    let entry = |record: &Record| {
        let number = attribute(record, "callgate.audit.number")?.number;
        Some((number, attribute(record, "callgate.audit.hash")?.text.clone()))
    };
    records.iter().filter_map(entry).collect()
}

async fn halt(server: &Server, tool: &str) {
    let url = format!("http://{}", server.address);
    let (code, _, error) = ran(&["sessions", "halt", "tool", tool, "--reason", "trial", "--server", &url]).await;
    assert_eq!(code, Some(0), "{error}");
}

async fn collect_at(address: SocketAddr, got: ReceivedTelemetry) {
    let listener = tokio::net::TcpListener::bind(address).await.expect("the port");
    let collector = tonic::transport::Server::builder()
        .add_service(Traces(got.clone()))
        .add_service(Metrics(got.clone()))
        .add_service(Logs(got))
        .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener));
    collector.await.expect("collects");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_gets_each_audit_entry_once_after_an_outage_and_a_kill() {
    let postgres = Postgres::start().await;
    let address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let (url, endpoint) = (postgres.url(), format!("http://{address}"));
    let args = ["--listen", "127.0.0.1:0", "--database-url", &url, "--otlp-endpoint", &endpoint];

    let first = Server::with(&args);
    halt(&first, "pay").await;
    halt(&first, "mail").await;
    let claims = "select count(*) from audit_stream where claimed_until > now() and number = 0";
    until("a failed export", async || postgres.number(claims).await == 1).await;
    first.kill();

    let got = ReceivedTelemetry::default();
    let collector = tokio::spawn(collect_at(address, got.clone()));
    let replicas = [Server::with(&args), Server::with(&args)];
    // The dead replica's claim ends by itself after 45 s.
    postgres.tamper("update audit_stream set claimed_until = now()").await;
    until("the entries of the outage", async || entries(&got).len() >= 2).await;
    halt(&replicas[0], "wire").await;
    until("a new entry", async || entries(&got).len() >= 3).await;
    halt(&replicas[1], "post").await;
    until("the next one", async || entries(&got).len() >= 4).await;

    let stored = postgres.rows("select number || ' ' || hash from callgate.audit_log order by number").await;
    let received: Vec<String> = entries(&got).iter().map(|(number, hash)| format!("(\"{number} {hash}\")")).collect();
    assert_eq!(received, stored);
    let records = got.records.lock().expect("whole");
    let of_first = records.iter().find(|one| attribute(one, "callgate.audit.number").is_some()).expect("a record");
    let text = |key: &str| attribute(of_first, key).map(|value| value.text.clone()).unwrap_or_default();
    assert_eq!((text("callgate.audit.kind"), text("callgate.audit.reason")), ("halted".into(), "trial".into()));
    assert!(text("callgate.audit.action").contains("pay"), "{of_first:?}");
    let lines = records.iter().filter(|one| {
        attribute(one, "callgate.audit.kind").is_some() && attribute(one, "callgate.audit.number").is_none()
    });
    assert_eq!(lines.count(), 0, "an entry is exported as a log line too");
    collector.abort();
}
