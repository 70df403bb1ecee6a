//! The server is killed in the middle of its work: whatever it acknowledged is there, and the sessions go on.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use callgate::grpc::v1::{CallState, CallSummary, Decision, EvaluateRequest, GetSessionStateRequest, Permit};
use sqlx::Row as _;

use crate::{
    common::{
        all, in_time, until,
        wire::{Client, call, evaluate, question, record, success},
    },
    server::{Home, Server, path},
};

const SESSIONS: usize = 4;
/// Acknowledged reports after which the server is killed, and so is the next one.
const ACKS: usize = 60;
const POLICY: &str = "policy_engine:
  rules: {growth: {mode: off}}
  tool_schemas: {pay: {once: true}, work: {}}
";

/// What was acknowledged, in the order in which it was.
#[derive(Debug, Clone)]
struct Ack {
    session: String,
    call: String,
    permit: Permit,
    recorded: bool,
}

impl Ack {
    fn number(&self) -> usize {
        self.call[1..].parse().expect("a number")
    }
}

type History = Arc<Mutex<Vec<Ack>>>;

fn acks(history: &History) -> Vec<Ack> {
    history.lock().expect("no panic").clone()
}

fn recorded(history: &History) -> usize {
    acks(history).iter().filter(|ack| ack.recorded).count()
}

fn asked(session: &str, n: usize) -> EvaluateRequest {
    let arguments = format!(r#"{{"session":"{session}","n":{n}}}"#);
    question(session, call(&format!("c{n}"), ["pay", "work"][n % 2], &arguments))
}

/// One agent: asks, reports, and notes what it was told, until the server is gone.
async fn agent(mut client: Client, session: String, first: usize, history: History) {
    for n in first.. {
        let id = format!("c{n}");
        let Ok(answer) = client.evaluate(asked(&session, n)).await else { return };
        let Some(permit) = answer.into_inner().verdict.and_then(|verdict| verdict.permit) else { continue };
        let at = {
            let mut history = history.lock().expect("no panic");
            history.push(Ack { session: session.clone(), call: id.clone(), permit, recorded: false });
            history.len() - 1
        };
        // Some stay open.
        if n % 5 == 4 {
            continue;
        }
        let Ok(answer) = client.record(success(&session, &id, &format!("result {n}"))).await else { return };
        assert!(!answer.into_inner().replayed);
        history.lock().expect("no panic")[at].recorded = true;
    }
}

/// Lets the agents work until `enough` reports are acknowledged, and kills the server while they go on.
async fn work_and_kill(server: Server, first: usize, history: &History, enough: usize) {
    let client = server.client().await;
    let gone = Arc::new(AtomicBool::new(false));
    let agents: Vec<_> = (0..SESSIONS)
        .map(|s| {
            let (client, history, gone) = (client.clone(), Arc::clone(history), Arc::clone(&gone));
            async move {
                agent(client, format!("s{s}"), first, history).await;
                gone.store(true, Ordering::SeqCst);
            }
        })
        .collect();
    let killing = async {
        until("enough to lose", async || {
            assert!(!gone.load(Ordering::SeqCst), "an agent gave up too early");
            recorded(history) >= enough
        })
        .await;
        server.kill();
    };
    tokio::join!(all(agents), killing);
}

async fn states(client: &mut Client) -> Vec<(String, CallSummary)> {
    let mut all = Vec::new();
    for s in 0..SESSIONS {
        let session = format!("s{s}");
        let request = GetSessionStateRequest { session_id: session.clone(), last_calls: 64, summary_tokens: 0 };
        let state = in_time("a state", client.get_session_state(request)).await.expect("a state").into_inner();
        let state = state.state.expect("a state");
        all.extend(state.calls.into_iter().map(|call| (session.clone(), call)));
    }
    all
}

/// Everything that was acknowledged, compared with the rows, with the state, and with what is answered once more.
async fn check(home: &Home, client: &mut Client, history: &[Ack]) {
    let sql = "select session_id, call_id, idempotency_key, outcome, result from tool_call";
    let rows = sqlx::query(sql).fetch_all(&mut home.connect().await).await.expect("rows");
    let states = states(client).await;
    for ack in history {
        let result = format!("result {}", ack.number());
        let name = (ack.session.as_str(), ack.call.as_str());
        let mine: Vec<_> = rows.iter().filter(|row| (row.get::<&str, _>(0), row.get::<&str, _>(1)) == name).collect();
        let [row] = mine[..] else { panic!("{ack:?} has {} rows", mine.len()) };
        assert_eq!(row.get::<&str, _>(2), ack.permit.idempotency_key);
        if ack.recorded {
            assert_eq!((row.get::<&str, _>(3), row.get::<&str, _>(4)), ("success", result.as_str()));
        }
        let known = states.iter().find(|(session, call)| (session.as_str(), call.call_id.as_str()) == name);
        match known.map(|(_, call)| call.state()) {
            Some(CallState::Succeeded) => {}
            Some(CallState::InFlight) => {
                assert!(!ack.recorded, "{ack:?}");
                let again = evaluate(client, asked(&ack.session, ack.number())).await;
                assert!(again.replayed && again.permit.as_ref() == Some(&ack.permit), "{ack:?}: {again:?}");
            }
            None => {
                // More calls than a state tells: then this one is among the oldest.
                assert!(states.iter().filter(|(session, _)| *session == ack.session).count() >= 64, "{ack:?} is gone");
            }
            Some(other) => panic!("{ack:?} is {other:?}"),
        }
        let again = record(client, success(&ack.session, &ack.call, &result)).await;
        assert!(again.replayed || !ack.recorded, "{ack:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let home = Home::prepared().await;
    let policy = home.file("policy.yaml", POLICY);
    let args = ["--policy", path(&policy)];
    let history = History::default();
    work_and_kill(Server::start(&home, &args), 0, &history, ACKS / 2).await;
    work_and_kill(Server::start(&home, &args), 1_000, &history, ACKS).await;

    let server = Server::start(&home, &args);
    let mut client = server.client().await;
    let history = acks(&history);
    assert!(history.len() >= ACKS);
    check(&home, &mut client, &history).await;
    for s in 0..SESSIONS {
        let next = evaluate(&mut client, asked(&format!("s{s}"), 9_999)).await;
        assert_eq!(next.decision(), Decision::Allow, "the session goes on: {next:?}");
    }
}
