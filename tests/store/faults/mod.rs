//! Three replicas on one database, each behind a line that can go wrong; clients that ask until they are told, always
//! with the same call_id; a tool that notes what it does to the world; and a history of all that was acknowledged.
//! After each fault nothing acknowledged is lost, nothing was done twice, and every error was a documented one.

mod cold;
mod commits;
mod crashes;
mod holes;
mod proxy;
mod storms;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use callgate::{
    domain::{call::Request, ids::DEFAULT_TENANT, report::Report},
    gate::{EvaluateAnswer, Gate, GateError, NoAnswer, RecordAnswer},
    policy::Policy,
};
use sqlx::Row as _;
use tokio::time::{Instant, sleep};

use self::proxy::Proxy;
use crate::common::{
    STEP,
    books::{gapless, good, one_open_permit, sums},
    gates::{gate_on, key, open, success, try_evaluate},
    in_time,
    postgres::Postgres,
};

/// No caller waits longer for an answer or an error: the store's own limits add up to 8.3 s (two batches of the writer,
/// a connection, a read); the rest is for a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(15);

struct Replicas {
    gates: [Arc<Gate>; 3],
    proxies: [Proxy; 3],
    // Last, so that it outlives the others.
    postgres: Postgres,
}

impl Replicas {
    async fn start(policy: &Policy) -> Self {
        let postgres = Postgres::start().await;
        let proxies = [(); 3].map(|()| Proxy::to(&postgres));
        let [a, b, c] = &proxies;
        let gate = async |proxy: &Proxy| gate_on(open(proxy.options.clone()).await.expect("a store"), policy);
        let gates = [gate(a).await, gate(b).await, gate(c).await];
        Self { gates, proxies, postgres }
    }
}

/// What clients were told, and what they did on it.
#[derive(Default)]
struct History(Mutex<Told>);

#[derive(Default, Clone)]
struct Told {
    /// The key of the permit of a session's call.
    permits: BTreeMap<(String, String), String>,
    /// The result that was acknowledged for it.
    results: BTreeMap<(String, String), String>,
    /// What the tool did.
    executed: Vec<String>,
    errors: usize,
}

impl History {
    fn told(&self) -> Told {
        self.0.lock().expect("no panic").clone()
    }

    fn note(&self, note: impl FnOnce(&mut Told)) {
        note(&mut self.0.lock().expect("no panic"));
    }

    /// Once the answer is here: an error has to be a documented one, that says to come back.
    fn passing<T, R: Debug>(&self, outcome: Result<T, GateError<R>>, since: Instant) -> Option<T> {
        assert!(since.elapsed() < ANSWER_MAX, "that took {:?}", since.elapsed());
        match outcome {
            Ok(answer) => Some(answer),
            Err(GateError::NoAnswer(
                NoAnswer::OutOfReach(_) | NoAnswer::Overloaded(_) | NoAnswer::Crowded(_) | NoAnswer::Contention,
            )) => {
                self.note(|told| told.errors += 1);
                None
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// A session's call, as the books name it.
fn name(request: &Request) -> (String, String) {
    (request.session.to_string(), request.call_id.to_string())
}

/// Asks one replica after the other until it is told, and notes a permit.
async fn ask_until_told(gates: &[Arc<Gate>; 3], first: usize, request: &Request, history: &History) -> EvaluateAnswer {
    let asked = async {
        for n in first.. {
            let since = Instant::now();
            let outcome = try_evaluate(&gates[n % 3], request.clone()).await;
            if let Some(answer) = history.passing(outcome, since) {
                return answer;
            }
            sleep(STEP * 5).await;
        }
        unreachable!("one never tires");
    };
    let answer = Box::pin(in_time("an answer", asked)).await;
    if let Some(key) = key(&answer) {
        let before = (history.0.lock().expect("no panic").permits).insert(name(request), key.clone());
        assert!(before.is_none_or(|before| before == key), "another permit for {:?}", name(request));
    }
    answer
}

/// Reports to one replica after the other until that is heard.
async fn report_until_heard(gates: &[Arc<Gate>; 3], first: usize, report: &Report, history: &History) -> RecordAnswer {
    let reported = async {
        for n in first.. {
            let since = Instant::now();
            let outcome = gates[n % 3].record(DEFAULT_TENANT, report.clone(), None).await;
            if let Some(answer) = history.passing(outcome, since) {
                return answer;
            }
            sleep(STEP * 5).await;
        }
        unreachable!("one never tires");
    };
    let answer = Box::pin(in_time("an answer", reported)).await;
    let call = (report.session.to_string(), report.call_id.to_string());
    history.note(|told| {
        told.results.insert(call, report.result.clone().unwrap_or_default());
    });
    answer
}

/// A client with one call: asks, executes when it may, and reports. What it does to the world is the tool with its
/// arguments.
async fn client(gates: [Arc<Gate>; 3], first: usize, request: Request, history: Arc<History>) -> EvaluateAnswer {
    let answer = ask_until_told(&gates, first, &request, &history).await;
    if answer.verdict.permit.is_some() {
        history.note(|told| told.executed.push(format!("{} {:?}", request.tool, request.arguments)));
        let (session, call) = name(&request);
        let report = success(&session, &call, &format!("result of {call}"));
        report_until_heard(&gates, first + 1, &report, &history).await;
    }
    answer
}

/// Compares everything that was acknowledged and done with what is stored.
async fn check(postgres: &Postgres, history: &History) {
    let told = history.told();
    let sql = "select session_id, call_id, idempotency_key, outcome, result from tool_call";
    let rows = sqlx::query(sql).fetch_all(&mut postgres.connect().await).await.expect("rows");
    let mut stored: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in &rows {
        stored.entry((row.get::<String, _>(0), row.get::<String, _>(1))).or_default().push(row);
    }
    for (call, key) in &told.permits {
        let [row] = stored.get(call).map(Vec::as_slice).unwrap_or_default() else {
            panic!("{call:?} was permitted, and has not one row")
        };
        assert_eq!(row.get::<Option<&str>, _>(2), Some(key.as_str()), "{call:?} has another permit");
    }
    for (call, result) in &told.results {
        let [row] = stored.get(call).map(Vec::as_slice).unwrap_or_default() else {
            panic!("{call:?} was reported, and has not one row")
        };
        let settled = (row.get::<Option<&str>, _>(3), row.get::<Option<&str>, _>(4));
        assert_eq!(settled, (Some("success"), Some(result.as_str())), "{call:?} has another outcome");
    }
    let done: BTreeSet<_> = told.executed.iter().collect();
    assert_eq!(done.len(), told.executed.len(), "done twice: {:?}", told.executed);
    let twice = [
        "select session_id, call_id from call group by session_id, call_id, round having count(*) > 1",
        "select session_id, call_id from outcome where status = 1 group by session_id, call_id having count(*) > 1",
    ];
    for sql in twice {
        assert_eq!(postgres.rows(sql).await, [""; 0], "{sql}");
    }
    good([one_open_permit(postgres).await]);
    for root in postgres.rows("select root_id from call_tree").await {
        let root = root.trim_matches(['(', ')']);
        good([gapless(postgres, root).await, sums(postgres, root).await]);
    }
}
