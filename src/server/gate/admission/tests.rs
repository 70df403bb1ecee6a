//! Tests of admission control: admit, queue, shed.

use tokio::task::JoinHandle;

use super::*;
use callgate_core::domain::{ids::DEFAULT_TENANT, time::Timestamp};

fn admission() -> (Arc<Admission>, Clock) {
    let clock = Clock::fake(Timestamp::from_millis(1_000));
    (Admission::new(clock.clone(), Metrics::none()), clock)
}

fn tree(name: &str) -> AdmissionTree {
    (DEFAULT_TENANT, SessionId::parse("session", name).unwrap())
}

async fn admit(admission: &Arc<Admission>, name: &str, left: Option<Duration>) -> Result<AdmissionPermit, NoAnswer> {
    admission.admit(|| tree(name), 1, left).await
}

async fn full(admission: &Arc<Admission>) -> Vec<AdmissionPermit> {
    let (mut permits, most) = (Vec::new(), admission.queue.lock().most);
    for _ in 0..most {
        permits.push(admit(admission, "busy", None).await.unwrap());
    }
    permits
}

/// A waiting request, which is in the queue when this returns.
async fn waits(admission: &Arc<Admission>, name: &'static str) -> JoinHandle<Result<AdmissionPermit, NoAnswer>> {
    let before = admission.queue.lock().waiting;
    let waiting = tokio::spawn({
        let admission = Arc::clone(admission);
        async move { admit(&admission, name, None).await }
    });
    while admission.queue.lock().waiting == before {
        tokio::task::yield_now().await;
    }
    waiting
}

#[test]
fn turns_go_round_the_trees() {
    let (admission, _) = admission();
    let mut queue = admission.queue.lock();
    queue.working = queue.most;
    let _heavy: Vec<_> = (0..50).map(|_| queue.queue(&tree("heavy"), 1)).collect();
    let (light, _turn) = queue.queue(&tree("light"), 1);
    queue.working -= 3;
    let next: Vec<u64> = std::iter::from_fn(|| queue.next()).map(|waiter| waiter.number).collect();
    assert_eq!(next, [0, light, 1], "one of each, though the heavy one was there fifty times before");
    queue.working = 0;
    assert_eq!(std::iter::from_fn(|| queue.next()).count(), 48);
    assert_eq!((queue.waiting, queue.turns.len(), queue.tenants.len()), (0, 0, 0));
}

#[tokio::test]
async fn turns_go_round_the_tenants_before_they_go_round_the_trees_of_one() {
    let (admission, clock) = admission();
    let mut queue = admission.queue.lock();
    queue.working = queue.most;
    let of = |tenant, name: &str| (TenantId(tenant), SessionId::parse("session", name).unwrap());
    let heavy: Vec<_> = (0..60).map(|n| queue.queue(&of(1, &format!("tree-{n}")), 1)).collect();
    let (light, _turn) = queue.queue(&of(2, "s"), 1);
    queue.working -= 3;
    let next: Vec<u64> = std::iter::from_fn(|| queue.next()).map(|waiter| waiter.number).collect();
    assert_eq!(next, [heavy[0].0, light, heavy[1].0], "sixty trees of one tenant are one turn of it");
    queue.rate = Some(100.0);
    assert_eq!(queue.wait(&of(2, "s")), Duration::from_millis(20), "one turn of its own, and one of the other tenant");
    assert_eq!(queue.wait(&of(1, "new")), Duration::from_millis(590), "all of its tenant's trees come before it");
    // A full queue makes room by the tenant that has the most in it.
    let more: Vec<_> = (58..WAITING_MAX).map(|n| queue.queue(&of(1, &format!("more-{n}")), 1)).collect();
    assert_eq!(queue.waiting, WAITING_MAX);
    assert!(!queue.make_room(&of(1, "another")), "not for one of its own trees, each of which has one");
    assert!(queue.make_room(&of(2, "s")));
    assert_eq!((queue.waiting, queue.tenants[&TenantId(1)].waiting), (WAITING_MAX - 1, WAITING_MAX - 1));
    drop((more, clock));
}

#[tokio::test]
async fn request_that_would_wait_too_long_is_shed_at_once() {
    let (admission, clock) = admission();
    let _seats = full(&admission).await;
    let _turns: Vec<_> = (0..50).map(|_| admission.queue.lock().queue(&tree("heavy"), 1)).collect();
    // Ten answers in a tenth of a second, so a hundred in a second.
    clock.advance(100);
    admission.queue.lock().answered = 10;
    admission.queue.lock().count_answers(0, &clock);
    assert_eq!(admission.queue.lock().rate, Some(100.0));
    let crowded = admit(&admission, "heavy", None).await.unwrap_err();
    assert_eq!(crowded, NoAnswer::Crowded(Duration::from_millis(510)), "fifty wait in front of it");
    let hasty = admit(&admission, "light", Some(Duration::from_millis(10))).await.unwrap_err();
    assert_eq!(hasty, NoAnswer::Crowded(Duration::from_millis(20)), "it has less than one turn of two takes");
    assert_eq!(admission.queue.lock().waiting, 50, "neither waits");
    drop(waits(&admission, "light").await);
}

#[tokio::test]
async fn wait_is_bounded_and_a_cancelled_request_is_not_admitted() {
    let (admission, _) = admission();
    let permits = full(&admission).await;
    let (late, gone) = (waits(&admission, "s").await, waits(&admission, "s").await);
    gone.abort();
    assert!(matches!(late.await.unwrap(), Err(NoAnswer::Crowded(_))));
    assert!(gone.await.unwrap_err().is_cancelled());
    let queue = || {
        let queue = admission.queue.lock();
        (queue.working, queue.waiting, queue.tenants.len(), queue.turns.len())
    };
    assert_eq!(queue(), (WORKING_MAX, 0, 0, 0));
    drop(permits);
    assert_eq!(queue(), (0, 0, 0, 0));
}

#[tokio::test]
async fn the_line_is_bounded_and_the_longest_makes_room() {
    let (admission, _) = admission();
    let _seats = full(&admission).await;
    let mut queue = admission.queue.lock();
    let mut heavy: Vec<_> = (0..WAITING_MAX).map(|_| queue.queue(&tree("heavy"), 1).1).collect();
    assert!(!queue.make_room(&tree("heavy")));
    assert!(queue.make_room(&tree("light")) && queue.waiting == WAITING_MAX - 1);
    let newest = heavy.pop().unwrap().try_recv();
    assert_eq!(newest.unwrap_err(), oneshot::error::TryRecvError::Closed, "it is told");
}

#[test]
fn as_many_are_at_work_as_are_answered_in_time() {
    let (admission, clock) = admission();
    let mut queue = admission.queue.lock();
    let mut round = |answered: usize| {
        queue.waiting = 1;
        queue.working = answered;
        clock.advance(100);
        queue.count_answers(answered, &clock);
        queue.most
    };
    // 2,000 a second are 200 in a tenth of one.
    let slow: Vec<usize> = (0..10).map(|_| round(200)).collect();
    assert!(slow[0] == 356 && slow.is_sorted_by(|before, after| before >= after) && slow[9] == 200, "{slow:?}");
    assert_eq!((0..10).map(|_| round(1)).last(), Some(WORKING_MIN));
    assert_eq!((0..10).map(|_| round(5_000)).last(), Some(WORKING_MAX));
    queue.waiting = 0;
    clock.advance(100);
    queue.count_answers(0, &clock);
    assert_eq!(
        (queue.most, queue.rate),
        (WORKING_MAX, None),
        "a admission that nobody waits at says nothing of the rate"
    );
}
