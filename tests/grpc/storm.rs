//! Clients that give up after a few milliseconds, by the hundred: the server loses nothing over it, and no caller's
//! impatience reaches another.

use std::time::Duration;

use callgate::grpc::v1::{Decision, Verdict};
use tonic::Request;

use crate::common::{
    all,
    books::{gapless, good, one_open_permit, sums},
    gates::policy,
    wire::{Client, Plane, call, evaluate, question, record, success},
    within,
};

const CALLS: usize = 200;
const SESSIONS: usize = 10;
/// Longest time for a call that nobody gives up: a server that waits for something that will not come takes longer.
const SOON: Duration = Duration::from_secs(5);

fn names(n: usize) -> (String, String) {
    (format!("s{}", n % SESSIONS), format!("c{n}"))
}

fn asked(n: usize) -> Request<callgate::grpc::v1::EvaluateRequest> {
    let (session, id) = names(n);
    let tool = ["pay", "work"][n / SESSIONS % 2];
    Request::new(question(&session, call(&id, tool, &format!(r#"{{"n":{n}}}"#))))
}

fn impatience(n: usize) -> Duration {
    Duration::from_millis(1 + n as u64 % 5)
}

/// Gives up by closing the stream, or by a deadline that the server knows of.
async fn hasty_evaluate(mut client: Client, n: usize) -> Option<Verdict> {
    let mut request = asked(n);
    if n.is_multiple_of(3) {
        request.set_timeout(impatience(n));
        return client.evaluate(request).await.ok()?.into_inner().verdict;
    }
    let answer = tokio::time::timeout(impatience(n), client.evaluate(request)).await;
    answer.ok()?.ok()?.into_inner().verdict
}

async fn hasty_record(mut client: Client, n: usize) -> bool {
    let (session, id) = names(n);
    let told = client.record(success(&session, &id, "done"));
    tokio::time::timeout(impatience(n), told).await.is_ok_and(|answer| answer.is_ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_cancelled_calls_harms_nobody() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let (mut client, mut stormy) = (plane.client().await, plane.client().await);
    let hasty = all((0..CALLS).map(|n| hasty_evaluate(stormy.clone(), n))).await;
    // On the connection of the storm, and on one that had no part in it.
    for (id, client) in [("c1", &mut stormy), ("c2", &mut client)] {
        let next = evaluate(client, question("calm", call(id, "look", &format!(r#"{{"id":"{id}"}}"#))));
        assert_eq!(within(SOON, "the next call", next).await.decision(), Decision::Allow);
    }

    // Whoever got no answer asks again, of the same server: the answer is the one that was stored, if it was.
    for (n, first) in hasty.iter().enumerate() {
        let again = within(SOON, "an answer", evaluate(&mut client, asked(n).into_inner())).await;
        assert_eq!(again.decision(), Decision::Allow, "{again:?}");
        if let Some(first) = first {
            assert!(again.replayed && again.permit == first.permit, "{first:?} then {again:?}");
        }
    }
    let permits = "select count(*), count(distinct idempotency_key) from call where attempt is not null";
    assert_eq!(plane.postgres.rows(permits).await, [format!("({},{})", CALLS + 2, CALLS + 2)]);
    good([one_open_permit(&plane.postgres).await]);

    let hasty = all((0..CALLS).map(|n| hasty_record(stormy.clone(), n))).await;
    for (n, answered) in hasty.into_iter().enumerate() {
        let (session, id) = names(n);
        let again = within(SOON, "an answer", record(&mut client, success(&session, &id, "done"))).await;
        assert!(again.replayed || !answered, "call {n} was recorded twice");
    }
    assert_eq!(plane.postgres.number("select count(*) from outcome").await, CALLS as i64);
    for n in 0..SESSIONS {
        let root = format!("s{n}");
        good([gapless(&plane.postgres, &root).await, sums(&plane.postgres, &root).await]);
    }
    let stuck = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    assert_eq!(plane.postgres.number(stuck).await, 0);
}
