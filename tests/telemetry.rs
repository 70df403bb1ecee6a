//! A process with telemetry installed, and collectors that are there, away, or silent. The process is this test binary
//! again: what it installs is for a whole process.

#[path = "telemetry/collector.rs"]
mod collector;

use std::{
    env,
    io::Read as _,
    net::TcpListener,
    process::{Command, Output},
    time::Duration,
};

use callgate::{
    clock::Clock,
    domain::{
        call::{Proposal, Request},
        ids::{CallId, DEFAULT_TENANT, SessionId, ToolName},
        json,
        time::Timestamp,
        tree::CallTree,
        verdict::Verdict,
    },
    engine::{self, Judgement, Shared},
    policy::Policy,
    telemetry::{self, LogFormat, Settings, Telemetry, names, verdict},
};
use collector::{Attribute, Got, Logs, Metrics, Traces};
use serde_json::Value;

const ENDPOINT: &str = "CALLGATE_TEST_OTLP_ENDPOINT";
const DECISIONS: usize = 1_000;
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// Blocking on a collector, even once, would take longer than either.
const WORK_MAX: Duration = Duration::from_secs(5);
const SHUTDOWN_MAX: Duration = Duration::from_secs(3);

fn allowed() -> (Proposal, Verdict) {
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
    match engine::evaluate(&policy, &tree, &Shared::default(), &proposal, None, now) {
        Ok(Judgement::New(verdict, _)) => (proposal, verdict),
        other => panic!("{other:?}"),
    }
}

/// The other process: decides a thousand times, on a runtime that a single blocking call would stop.
#[test]
fn other_process() {
    let Ok(endpoint) = env::var(ENDPOINT) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let telemetry = Telemetry::start(&Settings {
            log_format: LogFormat::Json,
            log_filter: Some("warn,callgate=debug".to_owned()),
            otlp_endpoint: Some(endpoint),
        })
        .expect("installed");
        let again = Telemetry::start(&Settings::default()).map(drop).expect_err("it is installed");
        assert!(again.to_string().starts_with("telemetry is installed already"), "{again}");

        let (metrics, clock) = (telemetry.metrics(), Clock::System);
        let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let headers = [(http::HeaderName::from_static("traceparent"), traceparent.parse().expect("a header"))];
        let headers = http::HeaderMap::from_iter(headers);
        let (proposal, verdict) = allowed();
        let mut worked = Duration::ZERO;
        for i in 0..DECISIONS {
            let started = clock.tick();
            telemetry::evaluate_span(&headers).in_scope(|| verdict::evaluated(&verdict, &proposal, []));
            metrics.evaluated(&verdict, &proposal, clock.elapsed(started));
            worked += clock.elapsed(started);
            if i % 10 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        assert!(worked < WORK_MAX, "the work took {worked:?}");
        let started = clock.tick();
        telemetry.shutdown().await;
        let took = clock.elapsed(started);
        assert!(took < SHUTDOWN_MAX, "the end took {took:?}");
    });
}

/// Runs the other process against `endpoint`; gives its log lines.
fn run(endpoint: &str) -> Vec<Value> {
    let Output { status, stdout, stderr } = Command::new(env::current_exe().expect("this binary"))
        .args(["--exact", "other_process"])
        .env(ENDPOINT, endpoint)
        .env("OTEL_BSP_SCHEDULE_DELAY", "20")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "20")
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
    assert!(message.starts_with(&format!("the collector at {endpoint} takes no ")), "{message}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_gets_every_span_metric_and_line_before_the_end() {
    let got = Got::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let server = tonic::transport::Server::builder()
        .add_service(Traces(got.clone()))
        .add_service(Metrics(got.clone()))
        .add_service(Logs(got.clone()))
        .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener));
    let server = tokio::spawn(server);
    let lines = tokio::task::spawn_blocking(move || run(&endpoint)).await.expect("runs");
    server.abort();
    assert!(lines.is_empty(), "{lines:#?}");

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
