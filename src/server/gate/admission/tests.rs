//! Who is let in, who waits, and who is told at once.

use tokio::task::JoinHandle;

use super::*;
use callgate_core::domain::{ids::DEFAULT_TENANT, time::Timestamp};

fn door() -> (Arc<Door>, Clock) {
    let clock = Clock::fake(Timestamp::from_millis(1_000));
    (Door::new(clock.clone(), Metrics::none()), clock)
}

fn tree(name: &str) -> Tree {
    (DEFAULT_TENANT, SessionId::parse("session", name).unwrap())
}

async fn enter(door: &Arc<Door>, name: &str, left: Option<Duration>) -> Result<Seat, NoAnswer> {
    door.enter(|| tree(name), 1, left).await
}

async fn full(door: &Arc<Door>) -> Vec<Seat> {
    let (mut seats, most) = (Vec::new(), door.line.lock().most);
    for _ in 0..most {
        seats.push(enter(door, "busy", None).await.unwrap());
    }
    seats
}

/// One that waits; it is in the line when this returns.
async fn waits(door: &Arc<Door>, name: &'static str) -> JoinHandle<Result<Seat, NoAnswer>> {
    let before = door.line.lock().waiting;
    let waiting = tokio::spawn({
        let door = Arc::clone(door);
        async move { enter(&door, name, None).await }
    });
    while door.line.lock().waiting == before {
        tokio::task::yield_now().await;
    }
    waiting
}

#[test]
fn turns_go_round_the_trees() {
    let (door, _) = door();
    let mut line = door.line.lock();
    line.working = line.most;
    let _heavy: Vec<_> = (0..50).map(|_| line.queue(&tree("heavy"), 1)).collect();
    let (light, _turn) = line.queue(&tree("light"), 1);
    line.working -= 3;
    let next: Vec<u64> = std::iter::from_fn(|| line.next()).map(|waiter| waiter.number).collect();
    assert_eq!(next, [0, light, 1], "one of each, though the heavy one was there fifty times before");
    line.working = 0;
    assert_eq!(std::iter::from_fn(|| line.next()).count(), 48);
    assert_eq!((line.waiting, line.turns.len(), line.shares.len()), (0, 0, 0));
}

#[tokio::test]
async fn turns_go_round_the_tenants_before_they_go_round_the_trees_of_one() {
    let (door, clock) = door();
    let mut line = door.line.lock();
    line.working = line.most;
    let of = |tenant, name: &str| (TenantId(tenant), SessionId::parse("session", name).unwrap());
    let heavy: Vec<_> = (0..60).map(|n| line.queue(&of(1, &format!("tree-{n}")), 1)).collect();
    let (light, _turn) = line.queue(&of(2, "s"), 1);
    line.working -= 3;
    let next: Vec<u64> = std::iter::from_fn(|| line.next()).map(|waiter| waiter.number).collect();
    assert_eq!(next, [heavy[0].0, light, heavy[1].0], "sixty trees of one tenant are one turn of it");
    line.rate = Some(100.0);
    assert_eq!(line.wait(&of(2, "s")), Duration::from_millis(20), "one turn of its own, and one of the other tenant");
    assert_eq!(line.wait(&of(1, "new")), Duration::from_millis(590), "all of its tenant's trees come before it");
    // A full line makes room by the tenant that has the most in it.
    let more: Vec<_> = (58..WAITING_MAX).map(|n| line.queue(&of(1, &format!("more-{n}")), 1)).collect();
    assert_eq!(line.waiting, WAITING_MAX);
    assert!(!line.makes_room(&of(1, "another")), "not for one of its own trees, each of which has one");
    assert!(line.makes_room(&of(2, "s")));
    assert_eq!((line.waiting, line.shares[&TenantId(1)].waiting), (WAITING_MAX - 1, WAITING_MAX - 1));
    drop((more, clock));
}

#[tokio::test]
async fn who_would_wait_too_long_is_told_at_once_and_others_are_not() {
    let (door, clock) = door();
    let _seats = full(&door).await;
    let _turns: Vec<_> = (0..50).map(|_| door.line.lock().queue(&tree("heavy"), 1)).collect();
    // Ten answers in a tenth of a second, so a hundred in a second.
    clock.advance(100);
    door.line.lock().answered = 10;
    door.line.lock().answered(0, &clock);
    assert_eq!(door.line.lock().rate, Some(100.0));
    let crowded = enter(&door, "heavy", None).await.unwrap_err();
    assert_eq!(crowded, NoAnswer::Crowded(Duration::from_millis(510)), "fifty wait in front of it");
    let hasty = enter(&door, "light", Some(Duration::from_millis(10))).await.unwrap_err();
    assert_eq!(hasty, NoAnswer::Crowded(Duration::from_millis(20)), "it has less than one turn of two takes");
    assert_eq!(door.line.lock().waiting, 50, "neither waits");
    drop(waits(&door, "light").await);
}

#[tokio::test]
async fn nobody_waits_for_long_and_who_has_gone_is_not_let_in() {
    let (door, _) = door();
    let seats = full(&door).await;
    let (late, gone) = (waits(&door, "s").await, waits(&door, "s").await);
    gone.abort();
    assert!(matches!(late.await.unwrap(), Err(NoAnswer::Crowded(_))));
    assert!(gone.await.unwrap_err().is_cancelled());
    let line = || {
        let line = door.line.lock();
        (line.working, line.waiting, line.shares.len(), line.turns.len())
    };
    assert_eq!(line(), (WORKING_MAX, 0, 0, 0));
    drop(seats);
    assert_eq!(line(), (0, 0, 0, 0));
}

#[tokio::test]
async fn the_line_is_bounded_and_the_longest_makes_room() {
    let (door, _) = door();
    let _seats = full(&door).await;
    let mut line = door.line.lock();
    let mut heavy: Vec<_> = (0..WAITING_MAX).map(|_| line.queue(&tree("heavy"), 1).1).collect();
    assert!(!line.makes_room(&tree("heavy")));
    assert!(line.makes_room(&tree("light")) && line.waiting == WAITING_MAX - 1);
    let newest = heavy.pop().unwrap().try_recv();
    assert_eq!(newest.unwrap_err(), oneshot::error::TryRecvError::Closed, "it is told");
}

#[test]
fn as_many_are_at_work_as_are_answered_in_time() {
    let (door, clock) = door();
    let mut line = door.line.lock();
    let mut round = |answered: usize| {
        line.waiting = 1;
        line.working = answered;
        clock.advance(100);
        line.answered(answered, &clock);
        line.most
    };
    // 2,000 a second are 200 in a tenth of one.
    let slow: Vec<usize> = (0..10).map(|_| round(200)).collect();
    assert!(slow[0] == 356 && slow.is_sorted_by(|before, after| before >= after) && slow[9] == 200, "{slow:?}");
    assert_eq!((0..10).map(|_| round(1)).last(), Some(WORKING_MIN));
    assert_eq!((0..10).map(|_| round(5_000)).last(), Some(WORKING_MAX));
    line.waiting = 0;
    clock.advance(100);
    line.answered(0, &clock);
    assert_eq!((line.most, line.rate), (WORKING_MAX, None), "a door that nobody waits at says nothing of the rate");
}
