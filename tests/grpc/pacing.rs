//! Fifty clients against a provider with a limit: they take turns after the first rate limit.

use std::{sync::Arc, time::Duration};

use callgate_core::policy;
use callgate_proto::{
    time::{duration, millis},
    v1::{self, Decision, OutcomeStatus},
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

use crate::common::{
    all,
    gates::policy_text,
    wire::{Client, Plane, call, evaluate, outcome, question, record, success},
};

const AGENTS: usize = 50;
const TIME: Duration = Duration::from_secs(12);
/// Calls per second that the provider accepts, and at once after a pause.
const RATE: f64 = 20.0;
const BURST: f64 = 20.0;
const RETRY_AFTER_MS: u64 = 1_000;
/// Time that the provider takes, and that an agent thinks.
const LATENCY: Duration = Duration::from_millis(100);

/// A provider with a token bucket.
struct Provider(Mutex<Bucket>);

struct Bucket {
    tokens: f64,
    at: Instant,
    accepted: u32,
    limited: u32,
}

impl Provider {
    fn new() -> Self {
        Self(Mutex::new(Bucket { tokens: BURST, at: Instant::now(), accepted: 0, limited: 0 }))
    }

    async fn call(&self) -> bool {
        sleep(LATENCY).await;
        let mut bucket = self.0.lock().await;
        let now = Instant::now();
        bucket.tokens = (bucket.tokens + now.duration_since(bucket.at).as_secs_f64() * RATE).min(BURST);
        bucket.at = now;
        let accepts = bucket.tokens >= 1.0;
        if accepts {
            bucket.tokens -= 1.0;
            bucket.accepted += 1;
        } else {
            bucket.limited += 1;
        }
        accepts
    }
}

fn limit_report(session: &str, call_id: &str) -> v1::RecordRequest {
    let error = v1::ToolError {
        http_status: Some(429),
        message: "Too Many Requests".to_owned(),
        retry_after: Some(duration(RETRY_AFTER_MS)),
        ..v1::ToolError::default()
    };
    v1::RecordRequest { error: Some(error), ..outcome(session, call_id, OutcomeStatus::Error) }
}

/// One agent, until the time is over; returns the number of its calls that were accepted.
async fn agent(mut client: Client, provider: Arc<Provider>, n: usize, until: Instant) -> u32 {
    let (session, mut accepted) = (format!("agent-{n}"), 0);
    for k in 0.. {
        let (id, arguments) = (format!("c{k}"), format!(r#"{{"n":{k}}}"#));
        loop {
            if Instant::now() >= until {
                return accepted;
            }
            let verdict = evaluate(&mut client, question(&session, call(&id, "search", &arguments))).await;
            if verdict.decision() == Decision::Allow {
                break;
            }
            assert_eq!((verdict.decision(), verdict.reason.as_str()), (Decision::Wait, "cooldown"), "{verdict:?}");
            sleep(Duration::from_millis(millis(verdict.retry_after.as_ref()))).await;
        }
        if provider.call().await {
            record(&mut client, success(&session, &id, &format!("found {k}"))).await;
            accepted += 1;
            sleep(LATENCY).await;
        } else {
            let advice = record(&mut client, limit_report(&session, &id)).await.advice.expect("advice");
            sleep(Duration::from_millis(millis(advice.retry_after.as_ref()).max(RETRY_AFTER_MS))).await;
        }
    }
    accepted
}

/// Calls that the provider limited and accepted.
async fn work(pacing: bool) -> (u32, u32) {
    let circuit = format!("budgets: {{}}, tool_circuit_breaker: {{pacing: {pacing}}}");
    let text = policy_text(&["tool_circuit_breaker"], "").replace("budgets: {}", &circuit);
    let plane = Plane::start(&policy::compile(&text).expect("a good policy")).await;
    let (provider, until) = (Arc::new(Provider::new()), Instant::now() + TIME);
    let mut clients = Vec::with_capacity(AGENTS);
    for _ in 0..AGENTS {
        clients.push(plane.client().await);
    }
    let agents = clients.into_iter().enumerate();
    let accepted = all(agents.map(|(n, client)| agent(client, Arc::clone(&provider), n, until))).await;
    let bucket = provider.0.lock().await;
    assert_eq!(accepted.iter().sum::<u32>(), bucket.accepted);
    (bucket.limited, bucket.accepted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_take_turns_after_a_rate_limit() {
    let (limited, accepted) = work(true).await;
    let (limited_by_circuit, accepted_by_circuit) = work(false).await;
    let share = |limited: u32, accepted: u32| f64::from(limited) / f64::from(limited + accepted);
    let (paced, unpaced) = (share(limited, accepted), share(limited_by_circuit, accepted_by_circuit));
    println!("paced {limited} of {accepted}, circuit {limited_by_circuit} of {accepted_by_circuit}");
    assert!(limited > 0 && paced * 2.0 < unpaced, "{paced:.3} of the calls were limited, {unpaced:.3} without pacing");
}
