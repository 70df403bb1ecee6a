//! Process with telemetry, and collectors that respond, are unavailable, or hang. The process is this test binary
//! again, because telemetry is installed per process.

#[path = "common/certificates.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod certificates;
#[path = "telemetry/collector.rs"]
mod collector;
#[path = "telemetry/posted.rs"]
mod posted;

use std::{
    env,
    io::Read as _,
    net::TcpListener,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use callgate_core::{
    domain::{
        call::{Proposal, Request},
        ids::{CallId, DEFAULT_TENANT, SessionId, ToolName},
        json,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Evaluation, SharedState},
    policy::Policy,
};
use callgate_net::clock::Clock;
use callgate_server::telemetry::{self, LineFormat, Telemetry, TelemetrySettings, names, verdict};
use certificates::Authority;
use collector::{Attribute, Logs, Metrics, ReceivedTelemetry, Traces};
use serde_json::Value;

const ENDPOINT: &str = "CALLGATE_TEST_OTLP_ENDPOINT";
const DECISIONS: usize = 1_000;
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// Blocking on a collector, even once, would take longer than either.
const WORK_MAX: Duration = Duration::from_secs(5);
const SHUTDOWN_MAX: Duration = Duration::from_secs(3);

fn allowed_call() -> (Proposal, Verdict) {
    let session = SessionId::parse("session", "s1").expect("a name");
    let policy = Policy::default();
    let proposal = policy.propose(Request::new(
        DEFAULT_TENANT,
        session.clone(),
        CallId::parse("call_id", "c1").expect("a name"),
        ToolName::parse("tool", "search").expect("a name"),
        json::parse(r#"{"q":"flights"}"#).expect("JSON"),
    ));
    let now = Timestamp::from_millis(0);
    let tree = CallTree::new(DEFAULT_TENANT, session, now);
    match engine::evaluate(&policy, &tree, &SharedState::default(), &proposal, None, now) {
        Ok(Evaluation::New(verdict, _)) => (proposal, verdict),
        other => panic!("{other:?}"),
    }
}

/// The other process: decides a thousand times, on a runtime that a single blocking call would stop.
#[test]
fn other_process() {
    let Ok(endpoint) = env::var(ENDPOINT) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let telemetry = Telemetry::start(&TelemetrySettings {
            log_format: LineFormat::Json,
            log_filter: Some("warn,callgate=debug".to_owned()),
            otlp_endpoint: Some(endpoint),
        })
        .expect("installed");
        let again = Telemetry::start(&TelemetrySettings::default()).map(drop).expect_err("it is installed");
        assert!(again.to_string().starts_with("telemetry is installed already"), "{again}");

        let (metrics, clock) = (telemetry.metrics(), Clock::System);
        let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let headers = [(http::HeaderName::from_static("traceparent"), traceparent.parse().expect("a header"))];
        let headers = http::HeaderMap::from_iter(headers);
        let (proposal, verdict) = allowed_call();
        let mut worked = Duration::ZERO;
        for i in 0..DECISIONS {
            let started = clock.tick();
            telemetry::evaluate_span(&headers).in_scope(|| verdict::log_verdict(&verdict, &proposal, 0, []));
            metrics.record_evaluate(&verdict, &proposal, clock.elapsed_since(started));
            worked += clock.elapsed_since(started);
            if i % 10 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        assert!(worked < WORK_MAX, "the work took {worked:?}");
        let started = clock.tick();
        telemetry.shutdown().await;
        let took = clock.elapsed_since(started);
        assert!(took < SHUTDOWN_MAX, "the end took {took:?}");
    });
}

/// Runs the other process against `endpoint`; gives its log lines.
fn run(endpoint: &str) -> Vec<Value> {
    run_with(endpoint, &[])
}

/// The same with more variables in its environment.
fn run_with(endpoint: &str, environment: &[(&str, &str)]) -> Vec<Value> {
    let Output { status, stdout, stderr } = Command::new(env::current_exe().expect("this binary"))
        .args(["--exact", "other_process"])
        .env(ENDPOINT, endpoint)
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
        .env("OTEL_TRACES_SAMPLER", "parentbased_always_on")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "20")
        .envs(environment.iter().copied())
        .output()
        .expect("runs");
    let (said, logged) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{said}");
    let lines: Vec<Value> =
        logged.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect();
    assert_eq!(lines.iter().filter(|line| line["message"] == "allow search").count(), DECISIONS);
    assert!(lines.iter().filter(|line| line["message"] == "allow search").all(|line| line[names::TRACE_ID] == TRACE));
    lines.into_iter().filter(|line| line["message"] != "allow search").collect()
}

fn assert_one_warning(lines: &[Value], endpoint: &str) {
    let [line] = lines else { panic!("{lines:#?}") };
    assert_eq!(line["level"], "WARN");
    assert_eq!(line[names::OTLP_ENDPOINT], endpoint);
    let message = line["message"].as_str().expect("a message");
    assert!(message.starts_with(&format!("the collector at {endpoint} accepts no ")), "{message}");
}

#[test]
fn a_dead_collector_costs_one_line_and_no_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    assert_one_warning(&run(&endpoint), &endpoint);
}

#[test]
fn neither_does_one_that_takes_the_connection_and_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    assert_one_warning(&run(&endpoint), &endpoint);
}

#[test]
fn a_collector_behind_https_is_greeted_with_tls() {
    const HANDSHAKE: u8 = 0x16;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("https://{}", listener.local_addr().expect("an address"));
    let greeting = std::thread::spawn(move || {
        let (mut connection, mut first) = (listener.accept().expect("a connection").0, [0]);
        connection.read_exact(&mut first).expect("a greeting");
        first[0]
    });
    assert_one_warning(&run(&endpoint), &endpoint);
    assert_eq!(greeting.join().expect("a byte"), HANDSHAKE);
}

const HTTP: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");

#[test]
fn invalid_collector_costs_one_line_too() {
    let said = |rubbish: &'static [u8], environment: &[(&str, &str)]| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for mut connection in listener.incoming().map_while(Result::ok) {
                let _ = connection.read(&mut [0; 512]);
                let _ = std::io::Write::write_all(&mut connection, rubbish);
            }
        });
        let lines = run_with(&endpoint, environment);
        assert_one_warning(&lines, &endpoint);
        lines[0][names::ERROR].as_str().expect("an error").to_owned()
    };
    said(b"220 mail.example ESMTP\r\n", &[]);
    let error = said(b"220 mail.example ESMTP\r\n", &[HTTP]);
    assert!(error.starts_with("invalid HTTP version parsed"), "{error}");
    let error = said(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", &[HTTP]);
    assert!(error.contains("404"), "{error}");
}

#[test]
fn over_http_the_cause_of_a_failure_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let lines = run_with(&endpoint, &[HTTP]);
    assert_one_warning(&lines, &endpoint);
    let error = lines[0][names::ERROR].as_str().expect("an error");
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_every_span_metric_and_line_before_the_end() {
    let got = ReceivedTelemetry::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let server = tokio::spawn(serve_collector(tonic::transport::Server::builder(), listener, got.clone()));
    let lines = tokio::task::spawn_blocking(move || run(&endpoint)).await.expect("runs");
    server.abort();
    assert!(lines.is_empty(), "{lines:#?}");
    assert_everything(&got);
}

async fn serve_collector(
    mut server: tonic::transport::Server,
    listener: tokio::net::TcpListener,
    got: ReceivedTelemetry,
) {
    let server =
        server.add_service(Traces(got.clone())).add_service(Metrics(got.clone())).add_service(Logs(got.clone()));
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    server.serve_with_incoming(incoming).await.expect("serves");
}

/// TLS files of both sides of a connection.
fn tls_environment(authority: &Authority) -> (tempfile::TempDir, Vec<(&'static str, String)>) {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key) = authority.client(&["gate.example"], &[]).write(folder.path());
    let ca = certificates::write_atomically(folder.path(), "ca.crt", &authority.pem);
    let path = |path: std::path::PathBuf| path.to_str().expect("text").to_owned();
    let environment = vec![
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", path(ca)),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", path(certificate)),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", path(key)),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".to_owned()),
        ("OTEL_EXPORTER_OTLP_HEADERS", format!("{}={}", posted::KEY.0, posted::KEY.1.replace(' ', "%20"))),
    ];
    (folder, environment)
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_with_client_certificates_gets_everything_before_the_end() {
    let (authority, got) = (Authority::new("collectors"), ReceivedTelemetry::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("https://localhost:{}", listener.local_addr().expect("an address").port());
    let (folder, environment) = tls_environment(&authority);
    let shown = authority.server();
    let tls = tonic::transport::ServerTlsConfig::new()
        .identity(tonic::transport::Identity::from_pem(&shown.certificate, &shown.key))
        .client_ca_root(tonic::transport::Certificate::from_pem(&authority.pem));
    let server = tonic::transport::Server::builder().tls_config(tls).expect("TLS");
    let server = tokio::spawn(serve_collector(server, listener, got.clone()));
    let work = move || run_with(&endpoint, &borrow_pairs(&environment));
    let lines = tokio::task::spawn_blocking(work).await.expect("runs");
    server.abort();
    drop(folder);
    assert!(lines.is_empty(), "{lines:#?}");
    assert_everything(&got);
    let keys = got.keys.lock().expect("whole");
    assert!(!keys.is_empty() && keys.iter().all(|key| key == posted::KEY.1), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn and_one_over_http_by_three_connections_in_all() {
    let (authority, got, connections) =
        (Authority::new("collectors"), ReceivedTelemetry::default(), Arc::<AtomicUsize>::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("https://localhost:{}/otel", listener.local_addr().expect("an address").port());
    let (folder, mut environment) = tls_environment(&authority);
    environment.push((HTTP.0, HTTP.1.to_owned()));
    let server = tokio::spawn(posted::serve(listener, authority, got.clone(), connections.clone()));
    let work = move || run_with(&endpoint, &borrow_pairs(&environment));
    let lines = tokio::task::spawn_blocking(work).await.expect("runs");
    server.abort();
    drop(folder);
    assert!(lines.is_empty(), "{lines:#?}");
    assert_everything(&got);
    assert_eq!(connections.load(Ordering::SeqCst), 3, "one for each signal, kept");
}

fn borrow_pairs<'a>(environment: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    environment.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

fn assert_everything(got: &ReceivedTelemetry) {
    let spans = got.spans.lock().expect("whole");
    assert_eq!(spans.len(), DECISIONS);
    let trace = hex::decode(TRACE).expect("hexadecimal");
    assert!(spans.iter().all(|span| span.name == names::SPAN_EVALUATE && span.trace_id == trace));
    let records = got.records.lock().expect("whole");
    let said: Vec<_> =
        records.iter().filter(|record| record.body.as_ref().is_some_and(|b| b.text == "allow search")).collect();
    assert_eq!(said.len(), DECISIONS);
    assert!(said.iter().all(|record| record.trace_id == trace), "each line is in its trace");
    assert!(said[0].attributes.iter().any(|a| a.key == names::TOOL), "{:?}", said[0]);
    let metrics = got.metrics.lock().expect("whole");
    for name in [names::METRIC_EVALUATIONS, names::METRIC_EVALUATE_DURATION] {
        assert!(metrics.iter().any(|metric| metric.name == name), "{name} is missing");
    }
    let resources = got.resources.lock().expect("whole");
    for name in [names::SERVICE_VERSION, names::SERVICE_INSTANCE_ID] {
        assert!(
            resources.iter().all(|resource| resource.attributes.iter().any(|a| a.key == name)),
            "{name} is missing"
        );
    }
    let service = |a: &Attribute| a.key == "service.name" && a.value.as_ref().is_some_and(|v| v.text == names::SERVICE);
    assert!(resources.iter().all(|resource| resource.attributes.iter().any(service)));
}
