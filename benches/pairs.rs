//! Pairs (Evaluate + Record) a second over gRPC, against a server in a second process with its private database:
//! `cargo bench --bench pairs`. Beside each figure stands the same load of health checks in the same run: what gRPC
//! alone costs on this machine. `CALLGATE_BENCH_AGAINST=PATH` runs the same loads against another build's binary
//! instead, in turns: what a change costs. `CALLGATE_BENCH_SECONDS` is the length of a round.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints figures")]

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use callgate::grpc::v1::{
    Caller, Decision, EvaluateRequest, OutcomeStatus, RecordRequest, ToolCall, ToolError,
    gate_service_client::GateServiceClient,
};
use hdrhistogram::Histogram;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

const CONNECTIONS: usize = 8;
const ROUNDS: usize = 3;
const PAIRS_PER_SESSION: u64 = 50;

/// Limits that a benchmark would run into are lifted; every rule but the rate brake runs.
const POLICY: &str = "policy_engine:
  rules: {growth: {mode: off}}
  budgets:
    tenant: {max_total_cost_usd: 0}
    agent: {max_total_cost_usd: 0}
";

struct Server {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(binary: &str) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("own directory");
        let policy = folder.path().join("policy.yaml");
        std::fs::write(&policy, POLICY).expect("writable");
        let mut child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--data-dir"])
            .arg(folder.path().join("data"))
            .arg("--policy")
            .arg(&policy)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let line = stdout.lines().map_while(Result::ok).find(|line| line.contains("serves gRPC on"));
        let line = line.expect("the server says where it listens");
        let address = line.rsplit(' ').next().unwrap_or_default().to_owned();
        Self { child, url: format!("http://{address}"), _folder: folder }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy)]
enum Load {
    Health,
    Pairs,
    /// One pair in five fails, and the next call corrects it.
    FailingPairs,
}

async fn worker(channel: Channel, load: Load, id: usize, stop: Arc<AtomicBool>) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three digits");
    let mut health = HealthClient::new(channel.clone());
    let mut gate = GateServiceClient::new(channel);
    let run = uuid::Uuid::now_v7();
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        match load {
            Load::Health => {
                health.check(HealthCheckRequest::default()).await.expect("healthy");
                health.check(HealthCheckRequest::default()).await.expect("healthy");
            }
            Load::Pairs | Load::FailingPairs => {
                let fails = matches!(load, Load::FailingPairs) && n % 5 == 4;
                pair(&mut gate, &format!("{run}-{id}-{}", n / PAIRS_PER_SESSION), n, fails).await;
            }
        }
        n += 1;
        histogram.record(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)).expect("in range");
    }
    histogram
}

async fn pair(gate: &mut GateServiceClient<Channel>, session: &str, n: u64, fails: bool) {
    let caller = Caller { session_id: session.to_owned(), agent_id: "bench".to_owned(), ..Caller::default() };
    let call_id = format!("call-{n}");
    let call = ToolCall {
        call_id: call_id.clone(),
        tool: "search_direct_flight".to_owned(),
        arguments_json: format!(
            r#"{{"origin":"JFK","destination":"SEA","date":"2024-05-20","page":{n},"sort":"price"}}"#
        ),
        ..ToolCall::default()
    };
    let question = EvaluateRequest { caller: Some(caller.clone()), call: Some(call), ..EvaluateRequest::default() };
    let verdict = gate.evaluate(question).await.expect("an answer").into_inner().verdict.expect("a verdict");
    assert_eq!(verdict.decision(), Decision::Allow, "{verdict:?}");
    let told = RecordRequest { caller: Some(caller), call_id, ..RecordRequest::default() };
    let report = if fails {
        let message = format!("Error: no flight on page {n}");
        let error = Some(ToolError { http_status: Some(404), message, ..ToolError::default() });
        RecordRequest { status: OutcomeStatus::Error.into(), error, ..told }
    } else {
        let result = format!(r#"[{{"flight_number":"HAT{n}","status":"available","prices":{{"economy":{n}}}}}]"#);
        RecordRequest { status: OutcomeStatus::Success.into(), result: Some(result), ..told }
    };
    gate.record(report).await.expect("stored");
}

async fn round(url: &str, load: Load, in_flight: usize, time: Duration) -> (f64, u64, u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for connection in 0..CONNECTIONS {
        let channel = Endpoint::from_shared(url.to_owned()).expect("a URL").connect().await.expect("a server");
        for place in 0..in_flight {
            let id = connection * in_flight + place;
            workers.push(tokio::spawn(worker(channel.clone(), load, id, Arc::clone(&stop))));
        }
    }
    let started = Instant::now();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Histogram::<u64>::new(3).expect("three digits");
    for worker in workers {
        all.add(worker.await.expect("a worker ends")).expect("same precision");
    }
    let rate = all.len() as f64 / started.elapsed().as_secs_f64();
    (rate, all.value_at_quantile(0.5), all.value_at_quantile(0.99))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` and clippy only want to know that it builds.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let server = Server::start(env!("CARGO_BIN_EXE_callgate"));
    let seconds = std::env::var("CALLGATE_BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    let time = Duration::from_secs(seconds);
    if let Ok(binary) = std::env::var("CALLGATE_BENCH_AGAINST") {
        return against(&server, &Server::start(&binary), time).await;
    }
    round(&server.url, Load::Pairs, 8, Duration::from_secs(3)).await;
    println!("load                pairs/s      p50 ms   p99 ms   health pairs/s   ratio");
    for in_flight in [1, 8, 64] {
        let mut rows = Vec::new();
        for _ in 0..ROUNDS {
            let pairs = round(&server.url, Load::Pairs, in_flight, time).await;
            let health = round(&server.url, Load::Health, in_flight, time / 2).await;
            rows.push((pairs, health.0));
        }
        println!(
            "{CONNECTIONS} x {in_flight:<3} in flight   {:>7.0}   {:>8.1} {:>8.1}   {:>14.0}   {:.2}",
            median(rows.iter().map(|row| row.0.0).collect()),
            median(rows.iter().map(|row| row.0.1 as f64 / 1000.0).collect()),
            median(rows.iter().map(|row| row.0.2 as f64 / 1000.0).collect()),
            median(rows.iter().map(|row| row.1).collect()),
            median(rows.iter().map(|row| row.0.0 / row.1).collect()),
        );
    }
}

/// Rounds against another build: more of them, since the difference is small.
const ROUNDS_AGAINST: usize = 7;

async fn against(this: &Server, other: &Server, time: Duration) {
    for server in [this, other] {
        round(&server.url, Load::Pairs, 8, Duration::from_secs(3)).await;
    }
    println!("load                          pairs/s   other build's   ratio");
    for (name, load) in [("all succeed", Load::Pairs), ("one in five fails", Load::FailingPairs)] {
        for in_flight in [8, 64] {
            let mut rows = Vec::new();
            for n in 0..ROUNDS_AGAINST {
                // Who goes first changes, so that neither gets the warmer disk.
                let order = if n % 2 == 0 { [this, other] } else { [other, this] };
                let first = round(&order[0].url, load, in_flight, time).await.0;
                let second = round(&order[1].url, load, in_flight, time).await.0;
                rows.push(if n % 2 == 0 { (first, second) } else { (second, first) });
            }
            println!(
                "{name:<18} {CONNECTIONS} x {in_flight:<3}   {:>7.0}   {:>13.0}   {:.3}",
                median(rows.iter().map(|row| row.0).collect()),
                median(rows.iter().map(|row| row.1).collect()),
                median(rows.iter().map(|row| row.0 / row.1).collect()),
            );
        }
    }
}
