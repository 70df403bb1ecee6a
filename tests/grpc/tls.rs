//! TLS, and the reload of its files.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use callgate_net::listener::{Tls, TlsFiles, TransportSettings};
use callgate_proto::v1::gate_service_client::GateServiceClient;
use callgate_server::grpc::GrpcSettings;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};

use crate::common::{
    certificates::{Authority, Pair, der, fetch_certificate, write_atomically},
    gates::policy,
    in_time, until,
    wire::{Client, Plane, call, evaluate, pair, question, record, success, tls_channel},
};

/// A server with TLS, and the folder of its files.
async fn plane(pair: &Pair, client_ca: Option<&Authority>) -> (Plane, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = pair.write(folder.path());
    let client_ca = client_ca.map(|authority| write_atomically(folder.path(), "client.ca", &authority.pem));
    let tls = Tls::open(TlsFiles { certificate, key, client_ca, client_crl: None }).expect("good files");
    let way = TransportSettings { tls: Some(Arc::new(tls)), ..TransportSettings::default() };
    (Plane::serve_with(&policy(&["same_call"]), &way, GrpcSettings::default()).await, folder)
}

/// A new connection that trusts `authority`.
async fn connect(plane: &Plane, authority: &Authority) -> Result<Channel, tonic::transport::Error> {
    tls_channel(plane.address, authority, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_over_tls_and_none_goes_without() {
    let authority = Authority::new("ours");
    let (plane, _folder) = plane(&authority.server(), None).await;
    let mut client = GateServiceClient::new(connect(&plane, &authority).await.expect("TLS"));
    assert!(evaluate(&mut client, question("s", call("c1", "look", "{}"))).await.permit.is_some());
    record(&mut client, success("s", "c1", "row")).await;

    let stranger = Authority::new("somebody else");
    connect(&plane, &stranger).await.expect_err("a client that trusts another authority goes away");
    let clear = Endpoint::from_shared(format!("http://{}", plane.address)).expect("an address");
    let mut clear = GateServiceClient::new(clear.connect_lazy());
    let asked = in_time("an end", clear.evaluate(question("s", call("c2", "look", "{}")))).await;
    asked.expect_err("nothing is answered in the clear");
    assert_eq!(plane.postgres.number("select count(*) from call").await, 1);
}

/// Pairs of calls from a client that reconnects for each pair, and from one that stays connected, until stopped.
async fn load(
    mut client: Client,
    again: Option<(Arc<Plane>, Arc<Authority>)>,
    n: usize,
    over: Arc<AtomicBool>,
) -> usize {
    let mut pairs = 0;
    while !over.load(Ordering::Relaxed) {
        if let Some((plane, authority)) = &again {
            client = GateServiceClient::new(connect(plane, authority).await.expect("a connection at any time"));
        }
        let (session, id) = (format!("s{n}"), format!("c{n}-{pairs}"));
        let asked = question(&session, call(&id, "look", &format!(r#"{{"n":"{id}"}}"#)));
        // No patience: one call that fails is one too many.
        let verdict = in_time("an answer", client.evaluate(asked)).await.expect("an answer").into_inner();
        assert!(verdict.verdict.is_some_and(|verdict| verdict.permit.is_some()));
        in_time("an answer", client.record(success(&session, &id, "row"))).await.expect("an answer");
        pairs += 1;
    }
    pairs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_exchanged_under_load_without_a_failed_call() {
    let authority = Arc::new(Authority::new("ours"));
    let (plane, folder) = plane(&authority.server(), None).await;
    let (plane, over) = (Arc::new(plane), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for n in 0..8 {
        let client = GateServiceClient::new(connect(&plane, &authority).await.expect("TLS"));
        let again = (n % 2 == 0).then(|| (Arc::clone(&plane), Arc::clone(&authority)));
        tasks.push(tokio::spawn(load(client, again, n, Arc::clone(&over))));
    }
    for _ in 0..3 {
        let new = authority.server();
        // Replaced one by one, with a check while they do not match.
        write_atomically(folder.path(), "tls.crt", &new.certificate);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        write_atomically(folder.path(), "tls.key", &new.key);
        let is_shown = async || fetch_certificate(plane.address, &authority).await == der(&new.certificate);
        until("the new certificate", is_shown).await;
    }
    over.store(true, Ordering::Relaxed);
    let mut pairs = 0;
    for task in tasks {
        pairs += in_time("the load", task).await.expect("no call failed");
    }
    assert!(pairs >= 100, "{pairs} pairs are no load");
    assert_eq!(plane.postgres.number("select count(*) from outcome").await, i64::try_from(pairs).expect("few"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credential_is_required_on_a_public_address() {
    let way = TransportSettings { is_behind_proxy: true, ..TransportSettings::default() };
    let plane = Plane::serve_with(&policy(&["same_call"]), &way, GrpcSettings::default()).await;
    let asked = plane.client().await.evaluate(question("s", call("c1", "look", "{}"))).await;
    assert_eq!(pair(&asked.expect_err("nobody is known")).0, Code::Unauthenticated);
    for (path, code) in [("/healthz", 200), ("/metrics", 401), ("/nothing", 404), ("/callgate.v1.GateService/x", 404)] {
        let mut stream = TcpStream::connect(plane.address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        in_time("an answer", stream.read_to_string(&mut answer)).await.expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {answer}");
        assert_eq!(answer.contains("nothing is served under this path"), code == 404, "{path}: {answer}");
    }
    assert_eq!(plane.row_count().await, 0);
}
