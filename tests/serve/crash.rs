//! Crash of a server under load: everything acknowledged is stored, and sessions continue. Tested without
//! authentication, and for two tenants with a token each and identical calls.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use callgate_proto::v1::{
    ApplyPolicyRequest, CallState, CallSummary, CreateTenantRequest, Decision, EvaluateRequest, GetSessionStateRequest,
    Permit, policy_service_client::PolicyServiceClient, tenant_service_client::TenantServiceClient,
};
use sqlx::Row as _;

use crate::{
    common::{
        all, in_time, until,
        wire::{Client, call, evaluate_as, from, question, record_as, success, with_token},
    },
    server::{Home, Server, path, ran},
};

const SESSIONS: usize = 4;
/// Acknowledged reports after which the server is killed, and so is the next one.
const ACKS: usize = 60;
const POLICY: &str = "policy_engine:
  rules: {growth: {mode: off}}
  tool_schemas: {pay: {once: true}, work: {}}
";

/// Caller of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Caller {
    tenant: i64,
    token: Option<String>,
    sessions: usize,
}

impl Caller {
    fn sessions(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.sessions).map(|s| format!("s{s}"))
    }
}

/// Acknowledged results, in order.
#[derive(Debug, Clone)]
struct Ack {
    caller: Caller,
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

fn count_recorded(history: &History) -> usize {
    acks(history).iter().filter(|ack| ack.recorded).count()
}

fn evaluate_request(session: &str, n: usize) -> EvaluateRequest {
    let arguments = format!(r#"{{"session":"{session}","n":{n}}}"#);
    question(session, call(&format!("c{n}"), ["pay", "work"][n % 2], &arguments))
}

fn result(caller: &Caller, n: usize) -> String {
    format!("result {n} of {}", caller.tenant)
}

/// One agent: evaluates, reports, and records acknowledgments until the server is gone.
async fn agent(mut client: Client, caller: Caller, session: String, first: usize, history: History) {
    let token = caller.token.clone();
    for n in first.. {
        let id = format!("c{n}");
        let Ok(answer) = client.evaluate(with_token(token.as_deref(), evaluate_request(&session, n))).await else {
            return;
        };
        let Some(permit) = answer.into_inner().verdict.and_then(|verdict| verdict.permit) else { continue };
        let at = {
            let mut history = history.lock().expect("no panic");
            let (caller, session, call) = (caller.clone(), session.clone(), id.clone());
            history.push(Ack { caller, session, call, permit, recorded: false });
            history.len() - 1
        };
        // Some stay open.
        if n % 5 == 4 {
            continue;
        }
        let report = success(&session, &id, &result(&caller, n));
        let Ok(answer) = client.record(with_token(token.as_deref(), report)).await else { return };
        assert!(!answer.into_inner().replayed);
        history.lock().expect("no panic")[at].recorded = true;
    }
}

/// Lets the agents work until `enough` reports are acknowledged, and kills the server while they go on.
async fn work_and_kill(server: Server, callers: &[Caller], first: usize, history: &History, enough: usize) {
    let client = server.client().await;
    let gone = Arc::new(AtomicBool::new(false));
    let sessions = callers.iter().flat_map(|caller| caller.sessions().map(move |session| (caller, session)));
    let agents: Vec<_> = sessions
        .map(|(caller, session)| {
            let (client, history, gone) = (client.clone(), Arc::clone(history), Arc::clone(&gone));
            let caller = caller.clone();
            async move {
                agent(client, caller, session, first, history).await;
                gone.store(true, Ordering::SeqCst);
            }
        })
        .collect();
    let killing = async {
        until("enough to lose", async || {
            assert!(!gone.load(Ordering::SeqCst), "an agent gave up too early");
            count_recorded(history) >= enough
        })
        .await;
        server.kill();
    };
    tokio::join!(all(agents), killing);
}

async fn states(client: &mut Client, caller: &Caller) -> Vec<(String, CallSummary)> {
    let mut all = Vec::new();
    for session in caller.sessions() {
        let request = GetSessionStateRequest { session_id: session.clone(), last_calls: 64, summary_tokens: 0 };
        let state = client.get_session_state(with_token(caller.token.as_deref(), request));
        let state = in_time("a state", state).await.expect("a state").into_inner().state.expect("a state");
        all.extend(state.calls.into_iter().map(|call| (session.clone(), call)));
    }
    all
}

/// Compares all acknowledgments with the rows, the state, and repeated requests.
async fn check(home: &Home, client: &mut Client, caller: &Caller, history: &[Ack]) {
    let sql = "select session_id, call_id, idempotency_key, outcome, result from tool_call where tenant_id = $1";
    let rows = sqlx::query(sql).bind(caller.tenant).fetch_all(&mut home.connect().await).await.expect("rows");
    let (states, token) = (states(client, caller).await, caller.token.as_deref());
    let foreign = |row: &&sqlx::postgres::PgRow| {
        row.get::<Option<&str>, _>(4).is_some_and(|result| !result.ends_with(&format!(" of {}", caller.tenant)))
    };
    assert_eq!(rows.iter().filter(foreign).count(), 0, "{caller:?} has results of another tenant");
    for ack in history.iter().filter(|ack| ack.caller == *caller) {
        let result = result(caller, ack.number());
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
                let again = evaluate_as(token, client, evaluate_request(&ack.session, ack.number())).await;
                assert!(again.replayed && again.permit.as_ref() == Some(&ack.permit), "{ack:?}: {again:?}");
            }
            None => {
                // More calls than a state contains: then this one is among the oldest.
                assert!(states.iter().filter(|(session, _)| *session == ack.session).count() >= 64, "{ack:?} is gone");
            }
            Some(other) => panic!("{ack:?} is {other:?}"),
        }
        let again = record_as(token, client, success(&ack.session, &ack.call, &result)).await;
        assert!(again.replayed || !ack.recorded, "{ack:?}");
    }
}

/// Kills the server twice during this load, and checks the result.
async fn killed_amid_work(home: &Home, args: &[&str], callers: &[Caller]) {
    let history = History::default();
    work_and_kill(Server::start(home, args), callers, 0, &history, ACKS / 2).await;
    work_and_kill(Server::start(home, args), callers, 1_000, &history, ACKS).await;

    let server = Server::start(home, args);
    let mut client = server.client().await;
    let history = acks(&history);
    assert!(history.len() >= ACKS);
    for caller in callers {
        check(home, &mut client, caller, &history).await;
    }
    for caller in callers {
        for session in caller.sessions() {
            let next = evaluate_as(caller.token.as_deref(), &mut client, evaluate_request(&session, 9_999)).await;
            assert_eq!(next.decision(), Decision::Allow, "the session goes on: {next:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_calls_survive_a_killed_server() {
    let home = Home::with_cluster().await;
    let policy = home.file("policy.yaml", POLICY);
    killed_amid_work(&home, &["--policy", path(&policy)], &[Caller { tenant: 1, token: None, sessions: SESSIONS }])
        .await;
}

/// Creates a token on the database, as for an unreachable deployment.
async fn token(home: &Home, tenant: &str, role: &str) -> String {
    let dir = home.data_dir();
    let made = ["tokens", "create", role, "--role", role, "--tenant", tenant, "--data-dir", path(&dir)];
    let (code, said, error) = ran(&made).await;
    assert_eq!(code, Some(0), "{error}");
    said.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_calls_of_two_tenants_survive_a_killed_server() {
    let home = Home::with_cluster().await;
    let policy = home.file("policy.yaml", POLICY);
    let args = ["--policy", path(&policy)];
    let callers = {
        let server = Server::start(&home, &args);
        let mut tenants = TenantServiceClient::new(server.channel().await);
        let acme = CreateTenantRequest { name: "acme".into(), ..Default::default() };
        tenants.create_tenant(from("root", acme)).await.expect("a tenant");
        let (_, admin) = (token(&home, "default", "admin").await, token(&home, "acme", "admin").await);
        let apply = ApplyPolicyRequest { text: POLICY.into(), ..Default::default() };
        let mut policies = PolicyServiceClient::new(server.channel().await);
        policies.apply_policy(with_token(Some(&admin), apply)).await.expect("its own policy");
        let mine = token(&home, "default", "agent").await;
        let theirs = token(&home, "acme", "agent").await;
        [(1, mine), (2, theirs)].map(|(tenant, token)| Caller { tenant, token: Some(token), sessions: SESSIONS / 2 })
    };
    killed_amid_work(&home, &args, &callers).await;
}
