//! Leases: a call that nobody reports on counts as unknown, and is settled as soon as somebody does.

use callgate::{
    domain::{effect::EffectKind, outcome::OutcomeStatus, time::Timestamp, tool::ToolSpec},
    gate::Gate,
    policy::Policy,
    store::LeaseLook,
};

use crate::common::{
    books::{gapless, good, sums},
    gates::{ask, evaluate, gate, policy, record, report, said, success, tool, two_gates},
    postgres::{Postgres, writers_waiting},
    until,
};

const ARGUMENTS: &str = r#"{"order":1}"#;

fn leased(lease_ms: u64) -> Policy {
    let mut policy = policy(&["same_call"]);
    policy.declare("save", ToolSpec { lease_ms, ..tool(EffectKind::Write) });
    policy.declare("work", ToolSpec { lease_ms, ..ToolSpec::default() });
    policy
}

/// Settles what ran out within the last hour; gives how many.
async fn sweep(gate: &Gate) -> usize {
    let now = gate.now();
    let since = Timestamp::from_millis(now.as_millis() - 3_600_000);
    Box::pin(gate.expire_leases(LeaseLook::Ended(since), now)).await.expect("readable")
}

/// Waits until one call was settled because its lease ran out.
async fn run_out(gate: &Gate) {
    let mut settled = 0;
    until("the lease to run out", async || {
        settled += sweep(gate).await;
        settled > 0
    })
    .await;
    assert_eq!(settled, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_keeps_a_call_running_for_people_too() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &leased(60_000)).await;
    let outcome = async || postgres.rows("select outcome, lease_until > now() from tool_call").await;
    evaluate(&gate, ask("s", "c1", "save", ARGUMENTS)).await;
    assert_eq!(outcome().await, ["(running,t)"]);
    record(&gate, report("s", "c1", OutcomeStatus::Running)).await;
    postgres.tamper("update call set lease_until = now() - interval '1 hour'").await;
    assert_eq!(outcome().await, ["(running,t)"], "the heartbeat's lease holds");
    postgres.tamper("update outcome set lease_until = now() - interval '1 minute'").await;
    assert_eq!(outcome().await, ["(unknown,f)"], "nobody was heard of since");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_settles_as_unknown_until_a_late_report() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &leased(1_000)).await;
    evaluate(&one, ask("s", "c1", "save", ARGUMENTS)).await;
    assert_eq!(sweep(&one).await, 0, "it has just begun");
    run_out(&one).await;
    assert_eq!(sweep(&other).await, 0, "whoever comes second finds nothing to do");
    assert_eq!(postgres.rows("select call_id, status, by_lease from outcome").await, ["(c1,4,t)"]);
    assert_eq!(postgres.rows("select outcome from tool_call").await, ["(unknown)"]);
    assert_eq!(postgres.rows("select state, open_calls from ledger, call_tree").await, ["(4,0)"]);

    for (call, gate) in [("c2", &one), ("c3", &other)] {
        assert_eq!(said(&evaluate(gate, ask("s", call, "save", ARGUMENTS)).await), "DENY outcome_unknown");
    }
    let late = record(&other, success("s", "c1", "saved")).await;
    assert!(!late.replayed);
    assert_eq!(
        postgres.rows("select call_id, status, by_lease from outcome order by seq").await,
        ["(c1,4,t)", "(c1,1,f)"]
    );
    for (call, gate) in [("c4", &one), ("c5", &other)] {
        assert_eq!(said(&evaluate(gate, ask("s", call, "save", ARGUMENTS)).await), "REUSE duplicate_call_blocked");
    }
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_counts_before_anybody_sweeps() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &leased(1_000)).await;
    evaluate(&gate, ask("s", "c1", "save", ARGUMENTS)).await;
    let mut n = 1;
    until("the lease to run out", async || {
        n += 1;
        match &*said(&evaluate(&gate, ask("s", &format!("c{n}"), "save", ARGUMENTS)).await) {
            "WAIT call_in_flight" => false,
            said => {
                assert_eq!(said, "DENY outcome_unknown");
                true
            }
        }
    })
    .await;
    assert_eq!(postgres.number("select count(*) from outcome").await, 0);
    record(&gate, success("s", "c1", "saved")).await;
    assert_eq!(sweep(&gate).await, 0, "it was reported on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_call_asked_again_after_its_lease_can_still_be_reported_on() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &leased(1_000)).await;
    evaluate(&gate, ask("s", "c1", "save", ARGUMENTS)).await;
    run_out(&gate).await;
    assert_eq!(said(&evaluate(&gate, ask("s", "c1", "save", ARGUMENTS)).await), "DENY outcome_unknown");
    assert!(!record(&gate, success("s", "c1", "saved")).await.replayed);
    assert_eq!(said(&evaluate(&gate, ask("s", "c2", "save", ARGUMENTS)).await), "REUSE duplicate_call_blocked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_extends_the_lease() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &leased(2_000)).await;
    let first = evaluate(&one, ask("s", "c1", "work", ARGUMENTS)).await;
    let lease_until = first.verdict.permit.expect("a permit").lease_until;
    until("the first lease to be over", async || {
        assert!(!record(&one, report("s", "c1", OutcomeStatus::Running)).await.replayed);
        one.now() > lease_until.plus_ms(200)
    })
    .await;
    assert_eq!(sweep(&other).await, 0, "its lease was extended");
    assert_eq!(said(&evaluate(&other, ask("s", "c2", "work", ARGUMENTS)).await), "WAIT call_in_flight");
    assert_eq!(
        postgres.rows("select outcome, count(*) from tool_call where call_id = 'c1' group by 1").await,
        ["(running,1)"]
    );

    run_out(&other).await;
    let unknown = postgres.rows("select status, by_lease from outcome order by seq desc limit 1").await;
    assert_eq!(unknown, ["(4,t)"]);
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_heartbeat_goes_before_the_sweep_that_did_not_see_it() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &leased(2_000)).await;
    let first = evaluate(&one, ask("s", "c1", "save", ARGUMENTS)).await;
    let lease_until = first.verdict.permit.expect("a permit").lease_until;
    until("the lease to be over", async || one.now() > lease_until).await;
    let mut locked = postgres.connect().await;
    sqlx::raw_sql("begin; select from call_tree for update").execute(&mut locked).await.expect("a lock");
    let heartbeat = tokio::spawn(async move { record(&one, report("s", "c1", OutcomeStatus::Running)).await });
    writers_waiting(&postgres, 1).await;
    let swept = tokio::spawn(async move { sweep(&other).await });
    writers_waiting(&postgres, 2).await;
    sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    heartbeat.await.expect("no panic");
    assert_eq!(swept.await.expect("no panic"), 0);
    assert_eq!(postgres.rows("select status, by_lease from outcome").await, ["(0,f)"]);
}

/// Permits calls until there are `calls` more of them, sixty-four at a time.
async fn permit(gate: &Gate, calls: usize) {
    for n in (0..calls).step_by(64) {
        let requests = (n..calls.min(n + 64))
            .map(|n| ask(&format!("s{}", n / 64), &format!("c{n}"), "look", &format!(r#"{{"n":{n}}}"#)));
        Box::pin(gate.evaluate(requests.collect())).await.expect("permitted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_look_settles_all_that_ran_out() {
    const CALLS: usize = 1_100;
    let postgres = Postgres::start().await;
    let [permitting, gate] = two_gates(&postgres, &leased(60_000)).await;
    permit(&permitting, CALLS).await;
    // Those of one batch have one lease.
    postgres.tamper("update call set lease_until = now() - interval '1 minute' - seq * interval '1 ms'").await;
    let settled = Box::pin(gate.expire_leases(LeaseLook::Open(Timestamp::default()), gate.now())).await;
    assert_eq!(settled.expect("readable"), CALLS);
    assert_eq!(sweep(&gate).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_all_ran_out_at_one_time_are_settled_too() {
    const CALLS: usize = 1_100;
    let postgres = Postgres::start().await;
    let [permitting, gate] = two_gates(&postgres, &leased(60_000)).await;
    permit(&permitting, CALLS).await;
    postgres.tamper("update call set lease_until = now() - interval '1 minute'").await;
    assert_eq!(sweep(&gate).await, CALLS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_open_trees_finds_a_lease_that_a_heartbeat_had_extended() {
    let postgres = Postgres::start().await;
    let [permitting, gate] = two_gates(&postgres, &leased(60_000)).await;
    evaluate(&permitting, ask("s", "c1", "work", ARGUMENTS)).await;
    record(&permitting, report("s", "c1", OutcomeStatus::Running)).await;
    evaluate(&permitting, ask("s", "settled", "look", "{}")).await;
    record(&permitting, success("s", "settled", "row")).await;
    postgres.tamper("update call set lease_until = now() - interval '3 days'").await;
    let all = async || {
        let look = gate.expire_leases(LeaseLook::Open(Timestamp::default()), gate.now());
        Box::pin(look).await.expect("readable")
    };
    assert_eq!(all().await, 0, "the heartbeat's lease holds");
    postgres.tamper("update outcome set lease_until = now() - interval '2 days' where status = 0").await;
    assert_eq!(all().await, 1);
    assert_eq!(postgres.rows("select open_calls from call_tree").await, ["(0)"]);
}
