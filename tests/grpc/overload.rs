//! Overload: shed requests, and guarantees that still hold.

use std::time::Duration;

use callgate_proto::v1::{
    Decision, GetServerInfoRequest, server_service_client::ServerServiceClient, tagged_answer::Answer,
    tagged_request::Request as Asked,
};
use sqlx::PgConnection;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::{
    common::{
        all,
        gates::policy,
        in_time,
        invariants::{gapless, good},
        until,
        wire::{Client, Plane, call, evaluate, pair, question, record, success},
    },
    connect::{ClientStream, error, tag_request, verdict},
};

const SESSIONS: u64 = 16;

/// A server with all sessions in memory.
async fn warm() -> Plane {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    for n in 0..SESSIONS {
        evaluate(&mut client, question(&format!("s{n}"), call("first", "look", "{}"))).await;
    }
    plane
}

fn ask(n: u64) -> Asked {
    let session = format!("s{}", n % SESSIONS);
    Asked::Evaluate(question(&session, call(&format!("c{n}"), "look", &format!(r#"{{"n":{n}}}"#))))
}

/// Until it is rolled back, nothing is written.
async fn stop_writing(plane: &Plane) -> PgConnection {
    let mut locked = plane.postgres.connect().await;
    let lock = "begin; lock table call in exclusive mode; lock table outcome in exclusive mode";
    sqlx::raw_sql(lock).execute(&mut locked).await.expect("a lock");
    locked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_request_is_shed_at_once_and_reports_go_first() {
    const ASKED: u64 = 2_000;
    let plane = warm().await;
    let client = plane.client().await;
    let mut lines = [ClientStream::open(client.clone()).await, ClientStream::open(client.clone()).await];
    let mut locked = stop_writing(&plane).await;
    for (line, half) in lines.iter().zip([0..ASKED / 2, ASKED / 2..ASKED]) {
        line.send(half.map(|n| tag_request(n, ask(n)))).await;
    }
    // Nothing is written, so at most one batch is judged: all others are shed, long before it continues.
    let mut told = Vec::new();
    let mut answers = std::collections::BTreeMap::new();
    let turned_away = async {
        while answers.len() < ASKED as usize - 512 {
            let [one, other] = &mut lines;
            let more = tokio::select! {
                more = one.frame() => more,
                more = other.frame() => more,
            };
            answers.extend(more.expect("answers").expect("open").into_iter().map(|one| (one.tag, one.answer.unwrap())));
        }
    };
    in_time("those that are turned away", turned_away).await;
    for answer in answers.values() {
        let status = error(answer);
        assert_eq!(pair(&status), (Code::ResourceExhausted, "OVERLOADED".into()), "{status:?}");
        let again = status.get_details_retry_info().and_then(|info| info.retry_delay).expect("when to come back");
        assert!(again >= Duration::from_millis(500), "{status:?}");
        told.push(status);
    }
    assert!(told.len() >= 1_488, "{}", told.len());
    let mut reporter = client.clone();
    let report = tokio::spawn(async move { record(&mut reporter, success("s0", "first", "row")).await });
    sqlx::raw_sql("rollback").execute(&mut locked).await.expect("unlocked");
    in_time("the report", report).await.expect("no panic");
    let [one, other] = &mut lines;
    while answers.len() < ASKED as usize {
        let more = tokio::select! {
            more = one.frame() => more,
            more = other.frame() => more,
        };
        answers.extend(more.expect("answers").expect("open").into_iter().map(|one| (one.tag, one.answer.unwrap())));
    }
    let allowed = answers.values().filter(|answer| matches!(answer, Answer::Evaluate(_)));
    assert!(allowed.clone().all(|answer| verdict(answer).decision() == Decision::Allow));
    assert_eq!(allowed.count() as i64, plane.postgres.number("select count(*) - 16 from call").await);
    for n in 0..SESSIONS {
        good([gapless(&plane.postgres, &format!("s{n}")).await]);
    }
    // A retrying client is served.
    let mut client = client;
    let again = question("s1", call("again", "pay", r#"{"n":"again"}"#));
    assert_eq!(evaluate(&mut client, again).await.decision(), Decision::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_caller_went_away_before_it_was_judged_is_not_judged() {
    let plane = warm().await;
    let mut line = ClientStream::open(plane.client().await).await;
    let mut locked = stop_writing(&plane).await;
    line.send((0..1_024).map(|n| tag_request(n, ask(n)))).await;
    // After the first shed request there is no slot until a write.
    let turned_away = in_time("one to be turned away", line.frame()).await.expect("answers").expect("open");
    assert!(turned_away.iter().all(|one| !matches!(one.answer, Some(Answer::Evaluate(_)))), "nothing is written");
    let channel = plane.channel().await;
    let client = Client::new(channel.clone());
    let hasty = all((2_000..2_050).map(|n| {
        let mut client = client.clone();
        async move {
            let Asked::Evaluate(request) = ask(n) else { unreachable!("it is one") };
            // A client with an immediate error does not wait either.
            tokio::time::timeout(Duration::from_millis(50), client.evaluate(request)).await.is_err()
        }
    }));
    assert!(hasty.await.into_iter().any(|gave_up| gave_up), "somebody waited");
    // Requests on the same connection are processed after the cancellation.
    let mut servers = ServerServiceClient::new(channel);
    in_time("an answer", servers.get_server_info(GetServerInfoRequest {})).await.expect("one");
    sqlx::raw_sql("rollback").execute(&mut locked).await.expect("unlocked");
    let next = question("s0", call("next", "look", r#"{"n":"next"}"#));
    assert_eq!(evaluate(&mut client.clone(), next).await.decision(), Decision::Allow);
    let theirs = "select count(*) from call where call_id ~ '^c2[0-9]{3}$'";
    assert_eq!(plane.postgres.number(theirs).await, 0, "judged for nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_whose_time_is_over_is_told_that_it_is() {
    let plane = warm().await;
    let _locked = stop_writing(&plane).await;
    let client = plane.client().await;
    // The client's own clock ends at the same time, and may be faster on a busy machine.
    let told = async {
        loop {
            let mut request = tonic::Request::new(question("s0", call("late", "look", "{}")));
            request.set_timeout(Duration::from_millis(500));
            let status = client.clone().evaluate(request).await.expect_err("nothing is written");
            if status.code() != Code::Cancelled {
                return status;
            }
        }
    };
    let status = in_time("an answer", told).await;
    assert_eq!(pair(&status), (Code::DeadlineExceeded, "DEADLINE".into()), "{status:?}");
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_are_bounded_by_their_bytes() {
    const BYTES: usize = 1 << 20;
    const REPORTS: usize = 160;
    let plane = warm().await;
    let mut locked = stop_writing(&plane).await;
    let clients = [plane.client().await, plane.client().await];
    let reports = (0..REPORTS).map(|n| {
        let mut client = clients[n % 2].clone();
        async move {
            let report = success(&format!("s{}", n as u64 % SESSIONS), "first", &"x".repeat(BYTES - 10));
            client.record(report).await.map_err(|status| pair(&status))
        }
    });
    let reports: Vec<_> = reports.map(tokio::spawn).collect();
    // Requests over the limit fail before anything is written; the others do not.
    until("the others to be told", async || reports.iter().filter(|report| report.is_finished()).count() >= 20).await;
    sqlx::raw_sql("rollback").execute(&mut locked).await.expect("unlocked");
    let (mut stored, mut told, mut late) = (0, 0, 0);
    for report in reports {
        match in_time("an answer", report).await.expect("no panic") {
            Ok(_) => stored += 1,
            Err((Code::ResourceExhausted, reason)) if reason == "OVERLOADED" => told += 1,
            // A busy machine may take longer to read them all than a change is tried: then some give their room back
            // before the others come, or take it twice.
            Err((Code::DeadlineExceeded | Code::Unavailable, _)) => late += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(late > 0 || (1..=REPORTS - 120).contains(&told), "{stored} {told}");
    // Room that was taken is given back.
    let report = success("s0", "first", &"x".repeat(BYTES - 10));
    let stored = async || clients[0].clone().record(report.clone()).await.is_ok();
    Box::pin(until("a report to be stored", stored)).await;
}
