//! Database outage in the middle of everything: nothing is permitted meanwhile, nothing is lost or done twice.

use std::{sync::Arc, time::Duration};

use callgate_core::domain::{call::Request, halt::HaltTarget, ids::DEFAULT_TENANT};
use callgate_server::gate::{EvaluateAnswer, EvaluateError, Gate, GateError, NoAnswer};
use tokio::time::Instant;

use crate::common::{
    all,
    gates::{ask, describe_answer, insist, key, policy, record, run_call, success, try_evaluate, two_gates},
    invariants::{gapless, good, one_open_permit, sums},
    postgres::Postgres,
    until,
};

/// No caller waits longer for an answer or an error: two tries of the writer, one after the other, and a read.
const ERROR_MAX: Duration = Duration::from_millis(8_500);

type TimedAnswer = (Request, Result<EvaluateAnswer, EvaluateError>, Duration);

/// One call each of new and of known sessions, payments and others, in turn of one gate and the other.
fn requests(round: usize) -> Vec<Request> {
    let request = |n: usize| {
        let session = if n.is_multiple_of(3) { format!("known{}", n % 6) } else { format!("new{round}-{n}") };
        ask(&session, &format!("c{round}-{n}"), ["pay", "work"][n % 2], &format!(r#"{{"round":{round},"n":{n}}}"#))
    };
    (0..24).map(request).collect()
}

async fn ask_all(gates: &[Arc<Gate>; 2], requests: Vec<Request>) -> Vec<TimedAnswer> {
    let asked = requests.into_iter().enumerate().map(|(i, request)| {
        let gate = Arc::clone(&gates[i % 2]);
        async move {
            let since = Instant::now();
            let answer = try_evaluate(&gate, request.clone()).await;
            (request, answer, since.elapsed())
        }
    });
    all(asked).await
}

/// Callers without an answer retry at the other gate; every call then has one permit.
async fn ask_again(postgres: &Postgres, gates: &[Arc<Gate>; 2], asked: Vec<TimedAnswer>) {
    for (i, (request, answer, took)) in asked.into_iter().enumerate() {
        assert!(took < ERROR_MAX, "{request:?} took {took:?}");
        if let Err(error) = &answer {
            assert!(matches!(error, GateError::NoAnswer(NoAnswer::OutOfReach(_))), "{error:?}");
        }
        let again = insist(&gates[(i + 1) % 2], &request).await;
        assert_eq!(describe_answer(&again), "ALLOW");
        if let Ok(first) = answer {
            assert!(again.verdict.replayed);
            assert_eq!(key(&again), key(&first));
        }
        let (session, call) = (request.session.to_string(), request.call_id.to_string());
        record(&gates[i % 2], success(&session, &call, "done")).await;
    }
    let twice = "select session_id, call_id from call group by 1, 2 having count(*) > 1";
    assert_eq!(postgres.rows(twice).await, [""; 0]);
    good([one_open_permit(postgres).await]);
    for row in postgres.rows("select root_id from call_tree").await {
        let root = row.trim_matches(['(', ')']);
        good([gapless(postgres, root).await, sums(postgres, root).await]);
    }
}

async fn start_gates() -> (Postgres, [Arc<Gate>; 2]) {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    for n in [0, 3] {
        run_call(&gates[n % 2], ask(&format!("known{n}"), "before", "look", "{}"), "row").await;
    }
    (postgres, gates)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_answer_lets_nothing_through() {
    let (postgres, gates) = start_gates().await;
    let frozen = postgres.freeze();
    let asked = ask_all(&gates, requests(0)).await;
    for (request, answer, _) in &asked {
        assert!(matches!(answer, Err(GateError::NoAnswer(NoAnswer::OutOfReach(_)))), "{request:?}: {answer:?}");
    }
    drop(frozen);
    ask_again(&postgres, &gates, asked).await;
    assert_eq!(postgres.number("select count(*) from call").await, 24 + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_under_load_loses_and_doubles_nothing() {
    let (postgres, gates) = start_gates().await;
    let mut asked = Vec::new();
    for round in 1..=2 {
        let crash = async {
            // Not before some are under way, not after all are.
            until("the first rows", async || postgres.number("select count(*) from call").await > 2).await;
            postgres.crash().await;
        };
        let load = async {
            let mut all = ask_all(&gates, requests(round * 10)).await;
            all.extend(ask_all(&gates, requests(round * 10 + 1)).await);
            all
        };
        let ((), load) = tokio::join!(Box::pin(crash), Box::pin(load));
        asked.extend(load);
    }
    ask_again(&postgres, &gates, asked).await;
    assert_eq!(postgres.number("select count(*) from call").await, 4 * 24 + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_reads_that_the_policy_names_run_while_the_database_is_away() {
    let postgres = Postgres::start().await;
    let file = "policy_engine:
  tool_schemas:
    look: {effect: read, on_store_unavailable: allow, schema: {properties: {id: {type: integer}}}}
    peek: {effect: read}
    pay: {once: true}
";
    let policy = callgate_core::policy::compile(file).expect("a good policy");
    let gates = two_gates(&postgres, &policy).await;
    let frozen = postgres.freeze();
    let asked = ["look", "peek", "pay"].map(|tool| try_evaluate(&gates[0], ask("s", tool, tool, "{}")));
    let [look, peek, pay] = asked;
    let answer = look.await.expect("a read that may run");
    assert_eq!(describe_answer(&answer), "ALLOW");
    assert_eq!(key(&answer).as_deref(), Some(""), "nobody knows which execution it is");
    assert!(answer.verdict.context_hint().is_some_and(|hint| hint.contains("without a record")), "it says so");
    for other in [peek.await, pay.await] {
        assert!(matches!(other, Err(GateError::NoAnswer(NoAnswer::OutOfReach(_)))), "{other:?}");
    }
    drop(frozen);
    assert_eq!(postgres.number("select count(*) from call").await, 0);
    // The kill switch, and what a policy says of arguments, hold without a database too.
    gates[0].decisions.halt(DEFAULT_TENANT, &HaltTarget::Tenant, "eve", "a drill").await.expect("a halt");
    let frozen = postgres.freeze();
    let halted = try_evaluate(&gates[0], ask("s", "halted", "look", "{}")).await;
    assert!(matches!(halted, Err(GateError::NoAnswer(NoAnswer::OutOfReach(_)))), "{halted:?}");
    let invalid = try_evaluate(&gates[1], ask("s", "invalid", "look", r#"{"id":"x"}"#)).await;
    assert!(matches!(invalid, Err(GateError::NoAnswer(NoAnswer::OutOfReach(_)))), "{invalid:?}");
    drop(frozen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_replica_lets_nothing_through_unrecorded() {
    const READERS: usize = 8;
    let postgres = Postgres::start().await;
    let file = "policy_engine:
  tool_schemas:
    look: {effect: read, on_store_unavailable: allow}
";
    let policy = callgate_core::policy::compile(file).expect("a good policy");
    let [warm, cold] = two_gates(&postgres, &policy).await;
    for n in 0..=READERS {
        run_call(&warm, ask(&format!("s{n}"), "before", "look", "{}"), "row").await;
    }
    let look = |n: usize| ask(&format!("s{n}"), "c", "look", r#"{"n":1}"#);
    let mut locked = postgres.connect().await;
    let lock = "begin; lock table call in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut locked).await.expect("a lock");
    let stuck = (0..READERS).map(|n| {
        let cold = Arc::clone(&cold);
        tokio::spawn(async move { try_evaluate(&cold, look(n)).await })
    });
    let stuck: Vec<_> = stuck.collect();
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("all who load trees to wait", async || postgres.number(waiting).await == 2).await;
    // No connection is free for another load, and PostgreSQL is healthy.
    let crowded = try_evaluate(&cold, look(READERS)).await;
    assert!(matches!(crowded, Err(GateError::NoAnswer(NoAnswer::Overloaded(_)))), "{crowded:?}");
    for stuck in stuck {
        let late = stuck.await.expect("no panic");
        assert!(matches!(late, Err(GateError::NoAnswer(NoAnswer::Overloaded(_)))), "{late:?}");
    }
    sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    assert_eq!(describe_answer(&insist(&cold, &look(READERS)).await), "ALLOW");
    assert_eq!(postgres.number("select count(*) from call where call_id = 'c'").await, 1);
}
