//! Lost answers: of a hanging server, on a lossy connection, and to a killed hook or host.

use std::{fs, future::pending, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

use super::{Agent, Desk, MAIL, mail};
use crate::{
    common::{in_time, process::signal, until},
    relay::{LostHalf, Relay},
};

const PAY: &str = "mcp__bank__pay";

impl Desk {
    /// A desk whose hooks use a relay, with the relay and the direct address.
    async fn behind_relay() -> (Self, Relay, String) {
        let mut desk = Self::open().await;
        let relay = Relay::to(&desk.url).await;
        let direct = std::mem::replace(&mut desk.url, relay.url.clone());
        (desk, relay, direct)
    }

    /// True when a call was permitted and has no outcome.
    async fn is_open(&self, call_id: &str) -> bool {
        let sql = "select count(*) from call c where call_id = $1 and attempt is not null and not exists
                   (select from outcome o where o.session_id = c.session_id and o.permit_seq = c.seq)";
        let open = sqlx::query_scalar(sql).bind(call_id).fetch_one(&mut self.home.connect().await).await;
        open.is_ok_and(|open: i64| open > 0)
    }

    async fn is_called_off(&self, call_id: &str) {
        until("the call to be called off", async || !self.is_open(call_id).await).await;
    }

    /// Outcomes of the calls, in order.
    async fn outcomes(&self) -> Vec<i16> {
        let sql = "select status from outcome order by seq";
        sqlx::query_scalar(sql).fetch_all(&mut self.home.connect().await).await.expect("outcomes")
    }

    /// Waits until no hook has a call noted.
    async fn has_nothing_noted(&self) {
        let folder = self.state().join("callgate/hooks/claude-code");
        let noted = || {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
            entries.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).into_iter().flatten()).count()
        };
        until("an end of calling off", async || noted() == 0).await;
    }

    async fn approves(&self) {
        let mut listed = String::new();
        until("the question", async || {
            listed = self.does("approvals list").await;
            listed.contains("apr_")
        })
        .await;
        let id = listed.split_whitespace().find(|word| word.starts_with("apr_")).expect("an id").to_owned();
        self.does(&format!("approvals approve {id} --by eve --reason checked")).await;
    }
}

fn call(id: &str, tool: &str, input: Value) -> Value {
    json!({"tool_name": tool, "tool_input": input, "tool_use_id": id})
}

/// CANCELLED, which means never run, and UNKNOWN.
const CANCELLED: i16 = 3;
const UNKNOWN: i16 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_permission_was_lost_on_the_way_is_called_off() {
    let (mut desk, relay, direct) = Desk::behind_relay().await;
    relay.loses(LostHalf::Answers);
    let asked = desk.agent("claude-code", "s1").event("PreToolUse", call("t1", MAIL, mail("a")));
    let hook = desk.starts(&["claude-code"], &asked).await;
    until("the permit", async || desk.is_open("t1").await).await;
    let output = in_time("an end", hook.wait_with_output()).await.expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("did not answer within"), "{error}");
    relay.loses(LostHalf::Nothing);
    desk.is_called_off("t1").await;
    assert_eq!(desk.outcomes().await, [CANCELLED]);
    // Nothing of it is open: the same mail may be sent.
    desk.url = direct;
    assert_eq!(desk.agent("claude-code", "s1").asks("t2", MAIL, mail("a")).await, None);
    desk.has_nothing_noted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_was_lost_leaves_nothing_open() {
    let (desk, relay, _) = Desk::behind_relay().await;
    relay.loses(LostHalf::Questions);
    let agent = desk.agent("claude-code", "s1");
    let (code, _, error) = agent.runs("PreToolUse", call("t1", MAIL, mail("a"))).await;
    assert!(code == 2 && error.contains("was refused"), "{error}");
    relay.loses(LostHalf::Nothing);
    assert_eq!(agent.asks("t2", MAIL, mail("a")).await, None);
    desk.has_nothing_noted().await;
    assert!(!desk.is_open("t1").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_that_was_lost_while_a_person_was_waited_for_is_called_off() {
    let (mut desk, relay, direct) = Desk::behind_relay().await;
    let agent = Agent { args: vec!["--timeout", "15"], ..desk.agent("claude-code", "s1") };
    let asked = agent.event("PreToolUse", call("t1", PAY, json!({"amount": 7})));
    let hook = desk.starts(&["claude-code", "--timeout", "15"], &asked).await;
    desk.url = direct;
    until("the question", async || desk.does("approvals list").await.contains("apr_")).await;
    relay.loses(LostHalf::Answers);
    desk.approves().await;
    until("the permit", async || desk.is_open("t1").await).await;
    let output = in_time("an end", hook.wait_with_output()).await.expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    relay.loses(LostHalf::Nothing);
    desk.is_called_off("t1").await;
    assert_eq!(desk.outcomes().await, [CANCELLED]);
    desk.has_nothing_noted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_a_killed_hook_is_cancelled_by_the_next_and_may_have_run() {
    let (mut desk, relay, direct) = Desk::behind_relay().await;
    let agent = desk.agent("claude-code", "s1");
    // Killed after its answer: the tool runs, and is not cancelled.
    assert_eq!(agent.asks("t0", MAIL, mail("0")).await, None);
    // Killed before its request arrived.
    relay.loses(LostHalf::Questions);
    let mut unheard = desk.starts(&["claude-code"], &agent.event("PreToolUse", call("t1", MAIL, mail("1")))).await;
    let folder = desk.state().join("callgate/hooks/claude-code");
    let is_noted = || {
        let folders = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.filter_map(|entry| fs::read_dir(entry.path()).ok()).flatten().count() > 0
    };
    until("the note", async || is_noted()).await;
    unheard.kill().await.expect("it runs");
    // Killed while it waited for the answer.
    relay.loses(LostHalf::Answers);
    let mut killed = desk.starts(&["claude-code"], &agent.event("PreToolUse", call("t2", MAIL, mail("2")))).await;
    until("the permit", async || desk.is_open("t2").await).await;
    killed.kill().await.expect("it runs");
    relay.loses(LostHalf::Nothing);

    desk.url = direct;
    let agent = desk.agent("claude-code", "s1");
    assert_eq!(agent.asks("t3", MAIL, mail("3")).await, None);
    desk.is_called_off("t2").await;
    assert_eq!(desk.outcomes().await, [UNKNOWN], "the host may have run it");
    desk.has_nothing_noted().await;
    assert!(desk.is_open("t0").await && desk.is_open("t3").await, "they run");
    assert!(!desk.is_open("t1").await);
    // It did.
    agent.gave("t2", MAIL, mail("2"), "sent as message 2").await;
    assert!(desk.does("sessions show s1").await.contains("message 2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_costs_a_hook_seconds() {
    let desk = Desk::open().await;
    let pid = desk.server.as_ref().expect("it runs").pid();
    assert_eq!(desk.agent("claude-code", "s1").asks("t1", MAIL, mail("a")).await, None);
    assert!(signal(pid, "STOP"));
    // Each hook ends within the tests' patience, or `runs` fails; before, the first waited for ten minutes.
    let asked = call("t2", MAIL, mail("b"));
    let agent = desk.agent("claude-code", "s1");
    let (code, _, error) = agent.runs("PreToolUse", asked).await;
    assert!(code == 2 && error.contains("was refused") && error.contains("did not answer"), "{error}");
    let open = Agent { args: vec!["--fail-open"], ..agent.clone() };
    let unasked = call("t3", MAIL, mail("c"));
    let (code, _, error) = open.runs("PreToolUse", unasked).await;
    assert!(code == 0 && error.contains("runs without a decision"), "{error}");
    let gave = json!({"tool_name": MAIL, "tool_input": mail("a"), "tool_use_id": "t1", "tool_response": "sent"});
    let (code, _, error) = agent.runs("PostToolUse", gave).await;
    assert!(code == 1 && error.contains("was not recorded"), "{error}");
    assert!(signal(pid, "CONT"));
    desk.is_called_off("t2").await;
}

/// Sends an event to the route, and leaves once `left` is done; gives the answer if it comes before.
async fn posts(url: &str, event: &str, left: impl Future<Output = ()>) -> Option<String> {
    let mut host = TcpStream::connect(url.trim_start_matches("http://")).await.expect("it listens");
    let head = "host: localhost\r\ncontent-type: application/json\r\nconnection: close";
    let length = event.len();
    let request = format!("POST /hooks/claude-code HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{event}");
    host.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    tokio::select! {
        read = host.read_to_string(&mut answer) => read.ok().map(|_| answer),
        () = left => None,
    }
}

async fn post_event(url: &str, event: &str) -> String {
    in_time("an answer", posts(url, event, pending())).await.expect("it is answered")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_a_disconnected_host_is_cancelled_and_may_have_run() {
    let (mut desk, relay, direct) = Desk::behind_relay().await;
    let agent = desk.agent("claude-code", "s1");
    let asks = |id: &str, tool: &str, input: Value| agent.event("PreToolUse", call(id, tool, input));
    let [first, unheard, lost] = ["1", "2", "3"].map(|n| asks(&format!("t{n}"), MAIL, mail(n)));
    let [waits, frozen] = [asks("t4", PAY, json!({"amount": 7})), asks("t5", MAIL, mail("5"))];
    let stop = agent.event("Stop", json!({}));
    let gave = json!({"tool_name": MAIL, "tool_input": mail("5"), "tool_use_id": "t5", "tool_response": "sent as 5"});
    let gave = agent.event("PostToolUse", gave);
    let patience = || sleep(Duration::from_secs(1));
    assert!(post_event(&direct, &first).await.contains("{}"));
    // The request is lost: nothing is open.
    relay.loses(LostHalf::Questions);
    assert_eq!(posts(&relay.url, &unheard, patience()).await, None);
    assert!(!desk.is_open("t2").await);
    // The answer is lost behind the server: the end of the turn calls it off, at the latest.
    relay.loses(LostHalf::Answers);
    assert_eq!(posts(&relay.url, &lost, patience()).await.as_deref().unwrap_or_default(), "");
    relay.loses(LostHalf::Nothing);
    assert!(desk.is_open("t3").await && desk.is_open("t1").await, "the host may have it");
    post_event(&direct, &stop).await;
    assert!(!desk.is_open("t3").await && !desk.is_open("t1").await);
    assert_eq!(desk.outcomes().await, [UNKNOWN, UNKNOWN]);
    // The host leaves while a person is waited for.
    desk.url = direct.clone();
    let question = async { until("the question", async || desk.does("approvals list").await.contains("apr_")).await };
    assert_eq!(Box::pin(posts(&direct, &waits, question)).await, None);
    desk.approves().await;
    assert!(!desk.is_open("t4").await);

    // The host leaves while the permit is stored.
    let (mut holder, mut looks) = (desk.home.connect().await, desk.home.connect().await);
    sqlx::raw_sql("begin; lock table call in share mode").execute(&mut holder).await.expect("locked");
    let waiting = "select count(*) from pg_locks where not granted";
    let stored = async {
        until("the writer", async || {
            sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut looks).await.is_ok_and(|waiting| waiting > 0)
        })
        .await;
    };
    assert_eq!(posts(&direct, &frozen, stored).await, None);
    // The server sees that it is gone.
    patience().await;
    sqlx::raw_sql("commit").execute(&mut holder).await.expect("unlocked");
    until("an outcome", async || desk.outcomes().await.len() == 3).await;
    assert_eq!(desk.outcomes().await, [UNKNOWN; 3], "the host may have run it");
    // It did.
    post_event(&direct, &gave).await;
    assert!(desk.does("sessions show s1").await.contains("sent as 5"));
}
