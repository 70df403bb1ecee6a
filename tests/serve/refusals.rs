//! Refused starts: each ends with exit code 1, and reports the problem and its fix.

use std::fs;

use callgate_proto::v1::gate_service_client::GateServiceClient;
use tonic::{Code, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{
    common::{
        in_time,
        postgres::Postgres,
        process::is_alive,
        until,
        wire::{call, evaluate, pair, question},
    },
    http::said_at,
    server::{Home, Server, fail_to_start, path},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_on_the_same_directory_is_refused() {
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &[]);
    let data_dir = fs::canonicalize(home.data_dir()).expect("it is there");
    let (code, said) = fail_to_start(&["--listen", "127.0.0.1:0", "--data-dir", path(&home.data_dir())]).await;
    assert_eq!(code, Some(1));
    for part in ["callgate: ", path(&data_dir), &format!("pid {}", server.pid())] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let database = home.postmaster().expect("it runs");
    assert!(is_alive(database), "the first one's database is unharmed");
    let mut client = server.client().await;
    assert!(evaluate(&mut client, question("s", call("c", "look", "{}"))).await.permit.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_others_can_reach_is_refused() {
    let home = Home::empty();
    let (code, said) = fail_to_start(&["--listen", "0.0.0.0:1", "--data-dir", path(&home.data_dir())]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("--listen 0.0.0.0:1 can be reached from other machines"), "{said}");
    assert!(said.contains("or listen on 127.0.0.1:PORT or [::1]:PORT"), "{said}");
    assert!(!home.data_dir().exists(), "no database is created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_cannot_serve_changes_nothing() {
    let (postgres, home) = (Postgres::start().await, Home::empty());
    let url = postgres.url();
    let one = home.file("one.yaml", "policy_engine: {tool_schemas: {look: {effect: read}}}");
    let other = home.file("other.yaml", "policy_engine: {tool_schemas: {look: {effect: write}}}");
    let server = Server::with(&["--database-url", &url, "--policy", path(&one)]);
    let activations = "select count(*) from policy_activation";
    assert_eq!(postgres.number(activations).await, 1);
    let address = server.address.to_string();
    for listen in [address.as_str(), "0.0.0.0:1"] {
        let args = ["--listen", listen, "--database-url", &url, "--policy", path(&other)];
        assert_eq!(fail_to_start(&args).await.0, Some(1));
        assert_eq!(postgres.number(activations).await, 1, "{listen}");
    }
    let (_, said) = fail_to_start(&["--listen", &address, "--data-dir", path(&home.data_dir())]).await;
    let problem = format!("cannot listen on {address}: another process listens there");
    assert!(said.contains(&problem) && said.matches(&address).count() == 1, "{said}");
    assert!(!home.data_dir().exists(), "no database is created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_policy_is_refused_with_key_and_line() {
    let home = Home::empty();
    let cases = [
        ("policy_engine:\n  loops:\n    windw: 3\n", vec!["line 3", "windw"]),
        (
            "policy_engine:\n  loops: {window: 3}\n  rules: {repeet: {mode: off}}\n",
            vec!["loops.window", "rules.repeet"],
        ),
        ("policy_engine: [\n", vec!["line 1"]),
    ];
    for (text, parts) in cases {
        let file = home.file("policy.yaml", text);
        let data_dir = home.data_dir();
        let args = ["--listen", "127.0.0.1:0", "--data-dir", path(&data_dir), "--policy", path(&file)];
        let (code, said) = fail_to_start(&args).await;
        assert_eq!(code, Some(1), "{said}");
        for part in parts.into_iter().chain([path(&file)]) {
            assert!(said.contains(part), "{part} is missing in {said}");
        }
    }
    let (code, said) = fail_to_start(&["--policy", path(&home.data_dir().join("none.yaml"))]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot read the policy") && said.contains("none.yaml"), "{said}");
    assert!(!home.data_dir().exists(), "nothing was started");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_postgresql_there_are_three_ways_out() {
    let home = Home::empty();
    let empty = home.data_dir().join("empty");
    fs::create_dir_all(&empty).expect("a folder");
    let data_dir = home.data_dir().join("data");
    let args = ["--listen", "127.0.0.1:0", "--data-dir", path(&data_dir), "--pg-bin", path(&empty)];
    let (code, said) = fail_to_start(&args).await;
    assert_eq!(code, Some(1));
    for part in [path(&empty), "postgres", "initdb", "--pg-bin", "--database-url", "package manager"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_out_of_reach_is_refused_without_its_password() {
    let home = Home::empty();
    // A socket's folder without a server.
    let folder = home.data_dir();
    fs::create_dir_all(&folder).expect("a folder");
    let url = format!("postgresql://user:sesame@localhost/db?host={}", path(&folder));
    let (code, said) = fail_to_start(&["--listen", "127.0.0.1:0", "--database-url", &url]).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot use the database") && !said.contains("sesame"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_a_database_that_answers_nobody_yet() {
    let postgres = Postgres::start().await;
    let (home, url, frozen) = (Home::empty(), postgres.url(), postgres.freeze());
    fs::create_dir_all(home.data_dir()).expect("a folder");
    let log = home.data_dir().join("log");
    let (kept, socket) = (log.clone(), format!("unix:{}", path(&home.folder().join("gate.sock"))));
    // A known port, taken in advance.
    let operations = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let args = ["--database-url", &url, "--listen", &socket, "--ops-listen", &operations.to_string()];
    let args = args.map(str::to_owned);
    let starting = tokio::task::spawn_blocking(move || Server::logging(&args.each_ref().map(String::as_str), &kept));
    until("the wait", async || fs::read_to_string(&log).is_ok_and(|log| log.contains("is waited for"))).await;
    let ready =
        async || said_at(operations, "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    let told = ready().await;
    assert!(told.starts_with("HTTP/1.1 503") && told.ends_with("the server starts\n"), "{told}");
    let channel = in_time("a connection", Endpoint::from_shared(socket).expect("an address").connect()).await;
    let channel = channel.expect("it listens");
    let mut checks = HealthClient::new(channel.clone());
    let health = checks.check(HealthCheckRequest { service: "callgate.v1.GateService".to_owned() });
    let health = in_time("health", health).await.expect("a health service");
    assert_eq!(health.into_inner().status(), ServingStatus::NotServing);
    let mut waiting = GateServiceClient::new(channel);
    let refused = in_time("an answer", waiting.evaluate(question("s", call("c", "look", "{}")))).await;
    let refused = refused.expect_err("nobody can judge");
    assert_eq!(pair(&refused), (Code::Unavailable, "STORE_UNAVAILABLE".to_owned()));
    drop(frozen);
    let server = starting.await.expect("it serves");
    until("readiness", async || ready().await.starts_with("HTTP/1.1 200")).await;
    // The same client, on the same socket.
    assert!(evaluate(&mut waiting, question("w", call("w", "look", "{}"))).await.permit.is_some());
    let mut client = server.client().await;
    assert!(evaluate(&mut client, question("s", call("c", "look", "{}"))).await.permit.is_some());
}
