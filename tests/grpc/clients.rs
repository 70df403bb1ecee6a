//! Client certificates: authorities, expiry, and revocation.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use callgate_net::{
    clock::Clock,
    listener::{ConnectionLimits, Tls, TlsFiles, TransportSettings},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};
use tokio_rustls::{client::TlsStream, rustls::HandshakeKind};

use crate::{
    common::{
        certificates::{Authority, Pair, client_config, handshake_as, handshake_by, write_atomically},
        in_time,
    },
    edge::{send_request, serve},
};

pub(crate) fn tls(pair: &Pair, client_ca: Option<&Authority>, crl: Option<&str>) -> (TransportSettings, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = pair.write(folder.path());
    let client_ca = client_ca.map(|authority| write_atomically(folder.path(), "client.ca", &authority.pem));
    let client_crl = crl.map(|crl| write_atomically(folder.path(), "client.crl", crl));
    let tls = Arc::new(Tls::open(TlsFiles { certificate, key, client_ca, client_crl }).expect("good files"));
    let following = Arc::clone(&tls);
    tokio::spawn(async move { following.follow().await });
    (TransportSettings { tls: Some(tls), ..TransportSettings::default() }, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_certificate_is_verified_and_its_names_go_on() {
    let (ours, clients, strangers) = (Authority::new("ours"), Authority::new("clients"), Authority::new("strangers"));
    let (way, folder) = tls(&ours.server(), Some(&clients), None);
    let (address, _server) = serve(ConnectionLimits::default(), &way).await;
    let pair = clients.client(&["agent.fleet"], &["spiffe://fleet/agent/7"]);
    let mut stream = handshake_as(address, &ours, Some(&pair)).await.expect("TLS");
    let answer = send_request(&mut stream, "").await;
    assert!(answer.contains(r#"dns: ["agent.fleet"], uris: ["spiffe://fleet/agent/7"]"#), "{answer}");
    let mut unnamed = handshake_as(address, &ours, None).await.expect("TLS");
    assert!(send_request(&mut unnamed, "").await.ends_with("None"), "who shows none is nobody by it");
    // In TLS 1.3 a client learns only with its first words that it is refused.
    let foreign = strangers.client(&["agent.fleet"], &[]);
    let refused = match handshake_as(address, &ours, Some(&foreign)).await {
        Ok(mut stream) => {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
            !matches!(in_time("an end", stream.read(&mut [0; 64])).await, Ok(1..))
        }
        Err(_) => true,
    };
    assert!(refused, "of an authority that is none of ours");
    // A server's certificate is none for a client.
    let misused = handshake_as(address, &ours, Some(&clients.server())).await;
    if let Ok(mut stream) = misused {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(!matches!(in_time("an end", stream.read(&mut [0; 64])).await, Ok(1..)));
    }

    write_atomically(folder.path(), "client.ca", &strangers.pem);
    let mut rest = [0; 64];
    let ended = in_time("the end", stream.read(&mut rest)).await;
    assert!(!matches!(ended, Ok(1..)), "its authority vouches for nobody any more: {ended:?}");
    assert!(send_request(&mut unnamed, "").await.ends_with("None"), "who showed none stays");
    let mut now = handshake_as(address, &ours, Some(&foreign)).await.expect("TLS");
    assert!(send_request(&mut now, "").await.contains("agent.fleet"));
}

/// True when nothing is answered on it: in TLS 1.3 a client learns only with its first words that it is refused.
async fn is_refused(stream: io::Result<TlsStream<TcpStream>>) -> bool {
    let Ok(mut stream) = stream else { return true };
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    !matches!(in_time("an end", stream.read(&mut [0; 64])).await, Ok(1..))
}

async fn is_ended(stream: &mut TlsStream<TcpStream>) -> bool {
    !matches!(in_time("the end", stream.read(&mut [0; 64])).await, Ok(1..))
}

async fn shakes(address: SocketAddr, ours: &Authority, pair: &Pair) -> TlsStream<TcpStream> {
    handshake_as(address, ours, Some(pair)).await.expect("TLS")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_certificate_makes_no_connection_and_ends_those_that_it_has() {
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let (way, folder) = tls(&ours.server(), Some(&clients), Some(&clients.revocation_list(&[], 2999)));
    let (address, _server) = serve(ConnectionLimits::default(), &way).await;
    let [lost, kept] = ["lost", "kept"].map(|name| clients.client(&[name], &[]));
    let (mut ends, mut stays) = (shakes(address, &ours, &lost).await, shakes(address, &ours, &kept).await);
    for (stream, name) in [(&mut ends, "lost"), (&mut stays, "kept")] {
        assert!(send_request(stream, "").await.contains(name));
    }
    write_atomically(folder.path(), "client.crl", &clients.revocation_list(&[&lost], 2999));
    assert!(is_ended(&mut ends).await, "it was revoked");
    assert!(send_request(&mut stays, "").await.contains("kept"), "this one was not");
    assert!(is_refused(handshake_as(address, &ours, Some(&lost)).await).await);
    assert!(send_request(&mut shakes(address, &ours, &kept).await, "").await.contains("kept"));
    let mut unnamed = handshake_as(address, &ours, None).await.expect("TLS");
    assert!(send_request(&mut unnamed, "").await.ends_with("None"), "who shows none is asked for another credential");
    // An invalid list is ignored, and revocations stay.
    write_atomically(folder.path(), "client.crl", "no list");
    sleep(Duration::from_millis(2_500)).await;
    assert!(is_refused(handshake_as(address, &ours, Some(&lost)).await).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_without_a_current_revocation_list_is_rejected() {
    let (ours, clients, others) = (Authority::new("ours"), Authority::new("clients"), Authority::new("others"));
    let pair = clients.client(&["desk"], &[]);
    for (what, list) in [
        ("a list that has ended", clients.revocation_list(&[], 2025)),
        ("another authority's", others.revocation_list(&[], 2999)),
    ] {
        let (way, _folder) = tls(&ours.server(), Some(&clients), Some(&list));
        let (address, _server) = serve(ConnectionLimits::default(), &way).await;
        assert!(is_refused(handshake_as(address, &ours, Some(&pair)).await).await, "{what}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = ours.server().write(folder.path());
    let (client_ca, client_crl) =
        (write_atomically(folder.path(), "ca", &clients.pem), write_atomically(folder.path(), "crl", &clients.pem));
    let (client_ca, client_crl) = (Some(client_ca), Some(client_crl));
    let wrong = Tls::open(TlsFiles { certificate, key, client_ca, client_crl }).expect_err("a certificate is no list");
    assert!(wrong.to_string().ends_with("crl has no list of revoked certificates in PEM (X509 CRL)"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ends_with_the_certificate_that_made_it() {
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let (way, _folder) = tls(&ours.server(), Some(&clients), None);
    let (address, _server) = serve(ConnectionLimits::default(), &way).await;
    let now = u64::try_from(Clock::System.now().as_millis() / 1_000).expect("after 1970");
    let pair = clients.client_until(&["short"], &[], Some(now + 4));
    let config = client_config(&ours, Some(&pair));
    let mut first = handshake_by(address, Arc::clone(&config)).await.expect("TLS");
    assert!(send_request(&mut first, "").await.contains("short"));
    let mut again = handshake_by(address, Arc::clone(&config)).await.expect("TLS");
    assert_eq!(again.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
    assert!(send_request(&mut again, "").await.contains("short"), "who resumes is known by what was shown before");
    assert!(is_ended(&mut first).await && is_ended(&mut again).await);
    let over = u64::try_from(Clock::System.now().as_millis() / 1_000).expect("after 1970");
    assert!(over > now + 4, "not before its time");
    assert!(is_refused(handshake_by(address, config).await).await, "a session of TLS that is resumed opens nothing");
    assert!(is_refused(handshake_as(address, &ours, Some(&pair)).await).await);
}
