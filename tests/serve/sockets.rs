//! Unix socket beside the port: permissions, and its state after an orderly or abrupt end.

use std::{fs, os::unix::fs::MetadataExt as _, time::Duration};

use callgate_proto::v1::gate_service_client::GateServiceClient;
use tonic::transport::Endpoint;

use crate::{
    common::{
        in_time,
        process::signal,
        wire::{call, evaluate, question, record, success},
    },
    server::{Home, Server, fail_to_start, path, ran},
};

const STOP_MAX: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_is_served_like_a_port_and_outlives_no_server() {
    let home = Home::with_cluster().await;
    let socket = home.file("none", "").with_file_name("gate.sock");
    let url = format!("unix:{}", path(&socket));
    let serve = || Server::start(&home, &["--listen", &url, "--socket-mode", "0600"]);

    let server = serve();
    let both = format!("serves gRPC on {} and {url}", server.address);
    assert!(server.greeting.contains(&both), "{}", server.greeting);
    assert_eq!(fs::metadata(&socket).expect("a socket").mode() & 0o777, 0o600);
    let endpoint = Endpoint::from_shared(url.clone()).expect("an address");
    let mut client = GateServiceClient::new(in_time("a connection", endpoint.connect()).await.expect("it listens"));
    let verdict = evaluate(&mut client, question("s", call("c1", "look", "{}"))).await;
    assert!(verdict.permit.is_some());
    record(&mut server.client().await, success("s", "c1", "row")).await;
    let (code, said, _) = ran(&["sessions", "list", "--server", &url]).await;
    assert_eq!(code, Some(0));
    assert!(said.contains('s'), "{said}");

    let home_of_another = Home::empty();
    let data_dir = home_of_another.data_dir();
    let (code, said) = fail_to_start(&["--listen", &url, "--data-dir", path(&data_dir)]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("cannot listen on {url}: another process listens there")), "{said}");
    assert!(!data_dir.exists(), "no database is created");
    assert!(evaluate(&mut client, question("s", call("c2", "look", "{}"))).await.permit.is_some(), "it goes on");

    server.kill();
    assert!(socket.exists(), "nobody could remove it");
    let server = serve();
    let channel = in_time("a connection", endpoint.connect()).await.expect("it listens again");
    evaluate(&mut GateServiceClient::new(channel), question("s", call("c3", "look", "{}"))).await;
    assert!(signal(server.pid(), "TERM"));
    assert_eq!(server.wait_for_end(STOP_MAX).await.0.code(), Some(0));
    assert!(!socket.exists() && !socket.with_file_name("gate.sock.lock").exists(), "nothing stays behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_cannot_be_is_refused_before_anything_is_started() {
    let home = Home::empty();
    let data_dir = home.data_dir();
    let file = home.file("precious", "text");
    for (listen, words) in [
        (format!("unix:{}", path(&file)), "no socket: remove it, or choose another path"),
        (format!("unix:{}/s", path(&data_dir)), "its folder has to exist"),
        (format!("unix:/{}", "x".repeat(200)), "choose a shorter one"),
    ] {
        let (code, said) = fail_to_start(&["--listen", &listen, "--data-dir", path(&data_dir)]).await;
        assert_eq!(code, Some(1));
        assert!(said.contains(&format!("callgate: cannot listen on {listen}: it ")) && said.contains(words), "{said}");
    }
    let (code, said) =
        fail_to_start(&["--listen", "unix:s", "--socket-mode", "rw", "--data-dir", path(&data_dir)]).await;
    assert_eq!(code, Some(2));
    assert!(said.contains("not an octal mode such as 0660"), "{said}");
    assert!(!data_dir.exists(), "no database is created");
    assert_eq!(fs::read_to_string(file).expect("it is there"), "text");
}
