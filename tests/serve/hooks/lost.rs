//! Answers that do not come: of a server that hangs, and on a way that loses them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{Agent, Desk, MAIL, mail};
use crate::common::{process::signal, until};

/// A way to a server that may lose all that the server says.
struct Relay {
    url: String,
    loses: Arc<AtomicBool>,
}

impl Relay {
    async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (loses, server) = (Arc::new(AtomicBool::new(true)), server.trim_start_matches("http://").to_owned());
        let switch = Arc::clone(&loses);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, loses) = (server.clone(), Arc::clone(&switch));
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let ((mut asks, mut hears), (mut says, mut takes)) = (client.into_split(), server.into_split());
                    let answers = async {
                        let mut part = [0; 4_096];
                        while let Ok(read @ 1..) = says.read(&mut part).await {
                            if !loses.load(Ordering::SeqCst) {
                                let _ = hears.write_all(&part[..read]).await;
                            }
                        }
                    };
                    let asked = async {
                        let _ = tokio::io::copy(&mut asks, &mut takes).await;
                        let _ = takes.shutdown().await;
                    };
                    tokio::join!(answers, asked);
                });
            }
        });
        Self { url, loses }
    }
}

impl Desk {
    /// Whether a call was permitted, and has no outcome.
    async fn is_open(&self, call_id: &str) -> bool {
        let sql = "select count(*) from call c where call_id = $1 and attempt is not null and not exists
                   (select from outcome o where o.session_id = c.session_id and o.permit_seq = c.seq)";
        let open = sqlx::query_scalar(sql).bind(call_id).fetch_one(&mut self.home.connect().await).await;
        open.is_ok_and(|open: i64| open > 0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_permission_was_lost_on_the_way_is_called_off() {
    let mut desk = Desk::open().await;
    let relay = Relay::to(&desk.url).await;
    let direct = std::mem::replace(&mut desk.url, relay.url.clone());
    let asked = json!({"tool_name": MAIL, "tool_input": mail("a"), "tool_use_id": "t1"});
    let (code, _, error) = desk.agent("claude-code", "s1").runs("PreToolUse", asked).await;
    assert!(code == 2 && error.contains("did not answer within"), "{error}");
    assert!(desk.is_open("t1").await, "it was permitted");
    relay.loses.store(false, Ordering::SeqCst);
    until("the call to be called off", async || !desk.is_open("t1").await).await;
    let kept = "select status from outcome";
    let status: i16 = sqlx::query_scalar(kept).fetch_one(&mut desk.home.connect().await).await.expect("an outcome");
    assert_eq!(status, 3, "cancelled");
    // Nothing of it is open: the same mail may be sent.
    desk.url = direct;
    assert_eq!(desk.agent("claude-code", "s1").asks("t2", MAIL, mail("a")).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_costs_a_hook_seconds() {
    let desk = Desk::open().await;
    let pid = desk.server.as_ref().expect("it runs").pid();
    assert_eq!(desk.agent("claude-code", "s1").asks("t1", MAIL, mail("a")).await, None);
    assert!(signal(pid, "STOP"));
    // Each hook ends within the tests' patience, or `runs` fails; before, the first waited for ten minutes.
    let asked = json!({"tool_name": MAIL, "tool_input": mail("b"), "tool_use_id": "t2"});
    let agent = desk.agent("claude-code", "s1");
    let (code, _, error) = agent.runs("PreToolUse", asked).await;
    assert!(code == 2 && error.contains("must not run") && error.contains("did not answer"), "{error}");
    let open = Agent { args: vec!["--fail-open"], ..agent.clone() };
    let unasked = json!({"tool_name": MAIL, "tool_input": mail("c"), "tool_use_id": "t3"});
    let (code, _, error) = open.runs("PreToolUse", unasked).await;
    assert!(code == 0 && error.contains("runs unasked"), "{error}");
    let gave = json!({"tool_name": MAIL, "tool_input": mail("a"), "tool_use_id": "t1", "tool_response": "sent"});
    let (code, _, error) = agent.runs("PostToolUse", gave).await;
    assert!(code == 1 && error.contains("was not recorded"), "{error}");
    assert!(signal(pid, "CONT"));
    until("what was blocked to be called off", async || !desk.is_open("t2").await).await;
}
