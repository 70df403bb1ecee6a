//! Overload by one call tree: shed requests, and fairness to other trees.

use std::{
    collections::BTreeSet,
    fs,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use callgate_proto::v1::{self, Decision, tagged_answer::Answer, tagged_request::Request as Asked};
use prost::Message as _;
use sqlx::Row as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{
    common::{
        in_time,
        process::signal,
        until,
        wire::{Client, call, evaluate, pair, question, record, success},
    },
    server::{Home, Server, program},
};

/// Requests in flight per stream: far more than are judged in time.
const IN_FLIGHT: u64 = 1_024;
const STREAMS: u64 = 4;
const FLOOD: Duration = Duration::from_secs(4);
/// Calls in progress may take ten seconds; with none there is nothing to wait for.
const UNASKED_MAX: Duration = Duration::from_secs(8);
const GROWTH_KIB_MAX: u64 = 400 << 10;

fn ask(n: u64) -> v1::TaggedRequest {
    let request = question("heavy", call(&format!("h{n}"), "look", &format!(r#"{{"n":{n}}}"#)));
    v1::TaggedRequest { tag: n, request: Some(Asked::Evaluate(request)), ..Default::default() }
}

/// Keeps the requests in flight until `over`. Returns the judged calls, and the number of shed ones.
async fn flood(mut client: Client, first: u64, over: &AtomicBool) -> (BTreeSet<String>, usize) {
    let (to, frames) = mpsc::channel(64);
    let mut from = in_time("a stream", client.connect(ReceiverStream::new(frames))).await.expect("one").into_inner();
    let (mut judged, mut turned_away) = (BTreeSet::new(), 0);
    let (mut next, mut in_flight) = (first, 0);
    loop {
        let more = if over.load(Ordering::Relaxed) { 0 } else { IN_FLIGHT - in_flight };
        if more + in_flight == 0 {
            return (judged, turned_away);
        }
        if more > 0 {
            let requests = (next..next + more).map(ask).collect();
            in_time("room", to.send(v1::ConnectRequest { requests })).await.expect("a server");
            (next, in_flight) = (next + more, in_flight + more);
        }
        let frame = in_time("answers", from.message()).await.expect("answers").expect("the stream is open");
        in_flight -= frame.answers.len() as u64;
        for answer in frame.answers {
            match answer.answer.expect("an answer") {
                Answer::Evaluate(_) => assert!(judged.insert(format!("h{}", answer.tag)), "answered twice"),
                Answer::Error(told) => {
                    let details = told.encode_to_vec().into();
                    let status = Status::with_details(Code::from(told.code), told.message, details);
                    let documented = [
                        (Code::ResourceExhausted, "OVERLOADED"),
                        (Code::ResourceExhausted, "TOO_MANY_OPEN_CALLS"),
                        (Code::Aborted, "CONTENTION"),
                    ];
                    let (code, reason) = pair(&status);
                    assert!(documented.contains(&(code, reason.as_str())), "{status:?}");
                    if reason == "OVERLOADED" {
                        assert!(status.get_details_retry_info().is_some(), "{status:?}");
                        turned_away += 1;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_killed_in_the_middle_of_its_streams_leaves_nothing_behind() {
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &[]);
    let url = format!("http://{}", server.address);
    let load = ["--transport", "stream", "--load", "2x64", "--yardsticks", "none", "--rounds", "1", "--round", "60s"];
    let mut client = program();
    client.args(["bench", "--server", &url]).args(load).stdout(Stdio::null()).stderr(Stdio::null());
    let mut client = client.spawn().expect("it runs");
    let mut database = home.connect().await;
    until("it to be at work", async || {
        let calls = sqlx::query("select count(*) from call").fetch_one(&mut database).await.expect("a count");
        calls.get::<i64, _>(0) > 200
    })
    .await;
    client.kill().expect("it runs");
    client.wait().expect("a child");
    let mut client = server.client().await;
    assert!(evaluate(&mut client, question("s", call("c1", "look", "{}"))).await.permit.is_some());
    // Each event of a tree has its own place, and none is missing.
    let torn = "select count(*) from call_tree t where t.version <> (select count(*) from call c
          where c.tenant_id = t.tenant_id and c.root_id = t.root_id) + (select count(*) from outcome o
          where o.tenant_id = t.tenant_id and o.root_id = t.root_id)";
    let torn = sqlx::query(torn).fetch_one(&mut database).await.expect("a count").get::<i64, _>(0);
    assert_eq!(torn, 0);
    // No stream of it is waited for.
    assert!(signal(server.pid(), "TERM"));
    assert_eq!(server.wait_for_end(UNASKED_MAX).await.0.code(), Some(0));
}

fn resident_kib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_asks_for_too_much_is_told_so_and_the_others_are_served() {
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &[]);
    let mut light = server.client().await;
    evaluate(&mut light, question("light", call("first", "look", "{}"))).await;
    let before = resident_kib(&server);
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let mut floods = Vec::new();
    for n in 0..STREAMS {
        let (client, over) = (server.client().await, std::sync::Arc::clone(&over));
        floods.push(tokio::spawn(async move { flood(client, n << 32, &over).await }));
    }
    let mut served = 0;
    let serve = async {
        loop {
            let (session, id) = (format!("light-{}", served % 5), format!("c{served}"));
            let asked = question(&session, call(&id, "look", &format!(r#"{{"n":{served}}}"#)));
            assert_eq!(evaluate(&mut light, asked).await.decision(), Decision::Allow);
            record(&mut light, success(&session, &id, "row")).await;
            served += 1;
        }
    };
    let _ = tokio::time::timeout(FLOOD, serve).await;
    let grown = resident_kib(&server).saturating_sub(before);
    over.store(true, Ordering::Relaxed);
    let (mut judged, mut turned_away) = (BTreeSet::new(), 0);
    for flood in floods {
        let (more, away) = in_time("the end of the flood", flood).await.expect("no panic");
        (judged, turned_away) = (judged.into_iter().chain(more).collect(), turned_away + away);
    }
    assert!(turned_away > 0 && !judged.is_empty() && served > 0, "{turned_away} {} {served}", judged.len());
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB for what waits");
    // Exactly the answered calls are stored: none lost, none without an answer.
    let sql = "select distinct call_id from call where session_id = 'heavy'";
    let stored = sqlx::query(sql).fetch_all(&mut home.connect().await).await.expect("rows");
    let stored: BTreeSet<String> = stored.iter().map(|row| row.get(0)).collect();
    assert_eq!(stored.len(), judged.len());
    assert_eq!(stored, judged);
}
