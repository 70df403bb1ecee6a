//! Leases: a call without a report becomes unknown, and is settled by a later one.

use std::sync::{Arc, atomic};

use callgate_core::{
    domain::{
        effect::EffectKind, ids::DEFAULT_TENANT, outcome::OutcomeStatus, report::OutcomeReport, time::Timestamp,
        tool::ToolSpec,
    },
    policy::Policy,
};
use callgate_server::gate::{Gate, GateError};
use callgate_store::{DecisionStore as _, Store};

use crate::common::{
    citus,
    gates::{ask, describe_answer, evaluate, gate, policy, record, report, run_call, store, success, tool, two_gates},
    invariants::{gapless, good, sums},
    postgres::{Postgres, writers_waiting},
    until,
};

const ARGUMENTS: &str = r#"{"order":1}"#;

fn lease_policy(lease_ms: u64) -> Policy {
    let mut policy = policy(&["same_call"]);
    policy.declare("save", ToolSpec { lease_ms, ..tool(EffectKind::Write) });
    policy.declare("work", ToolSpec { lease_ms, ..ToolSpec::default() });
    policy
}

async fn sweep(gate: &Arc<Gate>) -> usize {
    Box::pin(gate.decisions.expire_leases(gate.store.now())).await.expect("readable")
}

/// Waits until one call was settled because its lease ran out.
async fn run_out(gate: &Arc<Gate>) {
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
    let gate = gate(&postgres, &lease_policy(60_000)).await;
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
    let [one, other] = two_gates(&postgres, &lease_policy(1_000)).await;
    evaluate(&one, ask("s", "c1", "save", ARGUMENTS)).await;
    assert_eq!(sweep(&one).await, 0, "it has just begun");
    run_out(&one).await;
    assert_eq!(sweep(&other).await, 0, "whoever comes second finds nothing to do");
    assert_eq!(postgres.rows("select call_id, status, by_lease from outcome").await, ["(c1,4,t)"]);
    assert_eq!(postgres.rows("select outcome from tool_call").await, ["(unknown)"]);
    assert_eq!(postgres.rows("select state, open_calls from ledger, call_tree").await, ["(4,0)"]);

    for (call, gate) in [("c2", &one), ("c3", &other)] {
        assert_eq!(describe_answer(&evaluate(gate, ask("s", call, "save", ARGUMENTS)).await), "DENY outcome_unknown");
    }
    let late = record(&other, success("s", "c1", "saved")).await;
    assert!(!late.replayed);
    assert_eq!(
        postgres.rows("select call_id, status, by_lease from outcome order by seq").await,
        ["(c1,4,t)", "(c1,1,f)"]
    );
    for (call, gate) in [("c4", &one), ("c5", &other)] {
        assert_eq!(
            describe_answer(&evaluate(gate, ask("s", call, "save", ARGUMENTS)).await),
            "REUSE duplicate_call_blocked"
        );
    }
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_attempt_is_settled_after_a_later_permit() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &lease_policy(1_000)).await;
    let attempt = async |session: &str, call: &str| {
        let answer = evaluate(&gate, ask(session, call, "work", ARGUMENTS)).await;
        answer.verdict.permit.map(|permit| permit.attempt)
    };
    // By the same call_id, and by another one.
    for (session, next) in [("s", "c1"), ("t", "c2")] {
        assert_eq!(attempt(session, "c1").await, Some(1));
        until("the lease to run out", async || attempt(session, next).await == Some(2)).await;
        record(&gate, success(session, next, "done")).await;
        run_out(&gate).await;
        let open = format!("select open_calls from call_tree where root_id = '{session}'");
        assert_eq!(postgres.rows(&open).await, ["(0)"]);
        let stored =
            format!("select permit_seq, status, by_lease from outcome where root_id = '{session}' order by seq");
        let stored = postgres.rows(&stored).await;
        assert!(stored.len() == 2 && stored[0].ends_with(",1,f)") && stored[1] == "(1,4,t)", "{stored:?}");
        good([gapless(&postgres, session).await, sums(&postgres, session).await]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_counts_before_anybody_sweeps() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &lease_policy(1_000)).await;
    evaluate(&gate, ask("s", "c1", "save", ARGUMENTS)).await;
    let mut n = 1;
    until("the lease to run out", async || {
        n += 1;
        match &*describe_answer(&evaluate(&gate, ask("s", &format!("c{n}"), "save", ARGUMENTS)).await) {
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
    let gate = gate(&postgres, &lease_policy(1_000)).await;
    evaluate(&gate, ask("s", "c1", "save", ARGUMENTS)).await;
    run_out(&gate).await;
    assert_eq!(describe_answer(&evaluate(&gate, ask("s", "c1", "save", ARGUMENTS)).await), "DENY outcome_unknown");
    assert!(!record(&gate, success("s", "c1", "saved")).await.replayed);
    assert_eq!(
        describe_answer(&evaluate(&gate, ask("s", "c2", "save", ARGUMENTS)).await),
        "REUSE duplicate_call_blocked"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_extends_the_lease() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &lease_policy(2_000)).await;
    let first = evaluate(&one, ask("s", "c1", "work", ARGUMENTS)).await;
    let lease_until = first.verdict.permit.expect("a permit").lease_until;
    until("the first lease to be over", async || {
        assert!(!record(&one, report("s", "c1", OutcomeStatus::Running)).await.replayed);
        one.store.now() > lease_until.plus_ms(200)
    })
    .await;
    assert_eq!(sweep(&other).await, 0, "its lease was extended");
    assert_eq!(describe_answer(&evaluate(&other, ask("s", "c2", "work", ARGUMENTS)).await), "WAIT call_in_flight");
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
    let [one, other] = two_gates(&postgres, &lease_policy(2_000)).await;
    let first = evaluate(&one, ask("s", "c1", "save", ARGUMENTS)).await;
    let lease_until = first.verdict.permit.expect("a permit").lease_until;
    assert_eq!(describe_answer(&evaluate(&other, ask("s", "c2", "save", ARGUMENTS)).await), "WAIT call_in_flight");
    until("the lease to be over", async || one.store.now() > lease_until && other.store.now() > lease_until).await;
    let mut locked = postgres.connect().await;
    // Waiters for a changed row race for its new version; a row that was only locked goes to the first. A distributed
    // database locks rows of many shards only by changing them.
    let lock = match citus::is_wanted() {
        true => "begin; update call_tree set version = version",
        false => "begin; select from call_tree for update",
    };
    sqlx::raw_sql(lock).execute(&mut locked).await.expect("a lock");
    let heartbeat = tokio::spawn(async move { record(&one, report("s", "c1", OutcomeStatus::Running)).await });
    writers_waiting(&postgres, 1).await;
    let unknown = OutcomeReport { by_lease: true, ..report("s", "c1", OutcomeStatus::Unknown) };
    let swept = tokio::spawn(async move { other.decisions.record(DEFAULT_TENANT, unknown, None).await });
    writers_waiting(&postgres, 2).await;
    sqlx::raw_sql("commit").execute(&mut locked).await.expect("unlocked");
    heartbeat.await.expect("no panic");
    let swept = swept.await.expect("no panic");
    assert!(matches!(swept, Err(GateError::Rejected(_))), "{swept:?}");
    assert_eq!(postgres.rows("select status, by_lease from outcome").await, ["(0,f)"]);
}

fn session_name(n: usize) -> String {
    format!(r#"{{"n":{n}}}"#)
}

/// Permits calls until there are `calls` of them, sixty-four a session and turn.
async fn permit(gate: &Gate, calls: usize) {
    for n in (0..calls).step_by(64) {
        let requests =
            (n..calls.min(n + 64)).map(|n| ask(&format!("s{}", n / 64), &format!("c{n}"), "work", &session_name(n)));
        Box::pin(gate.decisions.evaluate(requests.collect())).await.expect("permitted");
    }
}

const UNSETTLED: &str = "select coalesce(sum(open_calls), 0) from call_tree";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_sweep_at_once_settle_each_call_once() {
    const CALLS: usize = 1_100;
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &lease_policy(60_000)).await;
    permit(&one, CALLS).await;
    postgres.tamper("update call set lease_until = now() - interval '1 minute'").await;
    postgres.tamper("update call_tree set due = now() - interval '1 minute'").await;
    // The memory of `one` is stale.
    let third = gate(&postgres, &lease_policy(60_000)).await;
    let mut settled = 0;
    until("all to be settled", async || {
        let (by_third, by_other) = tokio::join!(sweep(&third), sweep(&other));
        settled += by_third + by_other;
        // A busy machine postpones its claimed trees.
        postgres.tamper("update call_tree set due = now() where due is not null").await == 0
    })
    .await;
    assert_eq!((settled, postgres.number(UNSETTLED).await), (CALLS, 0));
    assert_eq!(postgres.number("select count(*) from outcome where by_lease").await, CALLS as i64);
    assert_eq!(postgres.number("select count(due) from call_tree").await, 0, "nothing is left to look after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_settled_within_a_minute_beside_a_stream_of_calls_that_are_reported_on() {
    const CALLS: usize = 3_200;
    let postgres = Postgres::start().await;
    let [busy, sweeping] = two_gates(&postgres, &lease_policy(3_000)).await;
    let is_over = Arc::new(atomic::AtomicBool::default());
    let stream = tokio::spawn({
        let (busy, is_over) = (Arc::clone(&busy), Arc::clone(&is_over));
        async move {
            let mut n = 0;
            while !is_over.load(atomic::Ordering::Relaxed) {
                n += 1;
                run_call(&busy, ask(&format!("stream-{}", n % 8), &format!("c{n}"), "look", &session_name(n)), "row")
                    .await;
            }
            n
        }
    });
    permit(&busy, CALLS).await;
    until("the burst to be settled", async || {
        sweep(&sweeping).await;
        postgres.number("select count(*) from outcome where by_lease").await == CALLS as i64
    })
    .await;
    is_over.store(true, atomic::Ordering::Relaxed);
    assert!(stream.await.expect("no panic") > 0);
    let late = "select count(*) from call c join outcome o using (shard, tenant_id, epoch, session_id)
        where o.permit_seq = c.seq and o.by_lease and o.at > c.lease_until + interval '1 minute'";
    assert_eq!((postgres.number(late).await, postgres.number(UNSETTLED).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_reported_on_in_time_does_not_move_when_its_tree_is_due() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &lease_policy(2_000)).await;
    let due = async || postgres.rows("select due from call_tree").await;
    run_call(&gate, ask("s", "c0", "work", ARGUMENTS), "row").await;
    let first = due().await;
    assert_ne!(first, ["()"]);
    for n in 1..8 {
        run_call(&gate, ask("s", &format!("c{n}"), "look", &session_name(n)), "row").await;
    }
    assert_eq!(due().await, first);
    until("nobody to be needed any more", async || {
        assert_eq!(sweep(&gate).await, 0);
        due().await == ["()"]
    })
    .await;
    run_call(&gate, ask("s", "c8", "work", &session_name(8)), "row").await;
    assert_ne!(due().await, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_dies_over_a_tree_leaves_it_to_the_next_look() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &lease_policy(1_000)).await;
    let lease_until = evaluate(&gate, ask("s", "c1", "work", ARGUMENTS)).await.verdict.permit.expect("one").lease_until;
    let (dies, other) = (store(&postgres).await, store(&postgres).await);
    let taken = async |store: &Store, at| store.take_due(at).await.expect("readable").trees.len();
    assert_eq!(taken(&dies, lease_until.plus_ms(10)).await, 1);
    assert_eq!(taken(&other, lease_until.plus_ms(20)).await, 0, "somebody is at it");
    assert_eq!(taken(&other, lease_until.plus_ms(21_000)).await, 1);
    until("it to be settled", async || {
        postgres.tamper("update call_tree set due = now()").await;
        sweep(&gate).await == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_finds_a_lease_that_a_heartbeat_had_extended() {
    let postgres = Postgres::start().await;
    let [permitting, gate] = two_gates(&postgres, &lease_policy(60_000)).await;
    evaluate(&permitting, ask("s", "c1", "work", ARGUMENTS)).await;
    record(&permitting, report("s", "c1", OutcomeStatus::Running)).await;
    postgres.tamper("update call set lease_until = now() - interval '3 days'").await;
    postgres.tamper("update call_tree set due = now() - interval '3 days'").await;
    assert_eq!(sweep(&gate).await, 0, "the heartbeat's lease holds");
    let same = "select t.due = o.lease_until from call_tree t, outcome o";
    assert_eq!(postgres.rows(same).await, ["(t)"], "nobody looks before it ends");
    postgres.tamper("update outcome set lease_until = now() - interval '2 days' where status = 0").await;
    postgres.tamper("update call_tree set due = now() - interval '2 days'").await;
    let cold = self::gate(&postgres, &lease_policy(60_000)).await;
    assert_eq!(sweep(&cold).await, 1);
    assert_eq!(postgres.rows("select open_calls, due from call_tree").await, ["(0,)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_reads_what_is_due_and_nothing_else() {
    const DUE: i64 = 3;
    if citus::lacks("it reads the statistics of rows, which are each worker's own") {
        return;
    }
    let postgres = Postgres::start().await;
    let [busy, sweeping] = two_gates(&postgres, &lease_policy(600_000)).await;
    for n in 0..400 {
        run_call(&busy, ask(&format!("done-{n}"), "c", "look", "{}"), "row").await;
    }
    for n in 0..DUE {
        evaluate(&busy, ask(&format!("due-{n}"), "c", "work", "{}")).await;
    }
    let mut tampering = postgres.connect().await;
    for sql in [
        "update call set lease_until = now() where session_id like 'due-%'",
        // More than the planner would rather read from end to end.
        "insert into call_tree (shard, tenant_id, root_id, epoch, version, started_at, last_at)
           select 0, 1, 'quiet-' || n, now(), 1, now(), now() from generate_series(1, 20000) n",
        "update call_tree set due = now() where root_id like 'due-%'",
        "vacuum analyze call_tree",
        // Statistics of this session are flushed now, not at its end.
        "select pg_stat_force_next_flush()",
        "select 1",
    ] {
        sqlx::raw_sql(sql).execute(&mut tampering).await.expect(sql);
    }
    assert_eq!(Box::pin(busy.decisions.expire_leases(Timestamp::default())).await.expect("readable"), 0);
    let read = async |what: &str| postgres.number(what).await;
    let (by_index, by_table) = (
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'call_tree_due'",
        "select sum(seq_tup_read) from pg_stat_user_tables where relname ~ '^(call|outcome|session|call_tree)'",
    );
    until("the counts to be still", async || {
        let before = read(by_table).await;
        tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
        before == read(by_table).await
    })
    .await;
    let (entries, rows) = (read(by_index).await, read(by_table).await);
    assert_eq!(sweep(&sweeping).await as i64, DUE);
    // An idle session publishes its statistics.
    until("the counts", async || read(by_index).await > entries).await;
    let (entries, rows) = (read(by_index).await - entries, read(by_table).await - rows);
    assert!((DUE..=3 * DUE).contains(&entries), "{entries} entries");
    let tables = "select relname, seq_scan, seq_tup_read from pg_stat_user_tables where seq_tup_read > 0";
    assert_eq!(rows, 0, "no table is read from end to end: {:?}", postgres.rows(tables).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_cannot_be_read_keeps_no_other_from_being_settled() {
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &lease_policy(1_000)).await;
    for tree in ["a", "broken", "c"] {
        evaluate(&first, ask(tree, "c1", "save", ARGUMENTS)).await;
    }
    evaluate(&first, ask("nameless", "c1", "save", ARGUMENTS)).await;
    assert_eq!(postgres.tamper("update call set decision = 99 where session_id = 'broken'").await, 1);
    assert_eq!(postgres.tamper("update call_tree set root_id = '' where root_id = 'nameless'").await, 1);
    let cold = gate(&postgres, &lease_policy(1_000)).await;
    let mut settled = 0;
    until("the leases to run out", async || {
        settled += sweep(&cold).await;
        settled == 2
    })
    .await;
    assert_eq!(postgres.rows("select session_id, status from outcome order by 1").await, ["(a,4)", "(c,4)"]);
    // It is claimed again by the next sweep.
    assert_eq!(postgres.tamper("update call set decision = 0 where session_id = 'broken'").await, 1);
    postgres.tamper("update call_tree set due = now() - interval '1 s' where root_id = 'broken'").await;
    assert_eq!(sweep(&cold).await, 1);
}
