//! Retention of whole months, beside running servers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use callgate_core::domain::call::Request;
use callgate_net::clock::Clock;
use callgate_store::{CopyError, RetentionResult};

use crate::common::{
    all, citus,
    gates::{ask, describe_answer, evaluate, gate, policy, run_call, session, store, two_gates},
    invariants::{fold, gapless, good, sums},
    postgres::Postgres,
};

/// Puts trees into a month of long ago, as if they had been born then: as one step, beside replicas that use them.
pub(crate) async fn backdate(postgres: &Postgres, roots: &str, last_at: &str) {
    let tree = format!("epoch = '2025-01-15', last_at = {last_at}");
    let mut sql = format!("begin; update call_tree set {tree} where root_id like '{roots}';");
    for table in ["call", "outcome"] {
        // A month's partition is bound to its readers by the server that makes it.
        let reads = if citus::is_wanted() {
            String::new()
        } else {
            format!("grant select on {table}_2025_01 to callgate_reader;")
        };
        sql += &format!(
            "create table if not exists {table}_2025_01 partition of {table} for values from ('2025-01-01') to \
             ('2025-02-01'); {reads} update {table} set epoch = '2025-01-15' where root_id like '{roots}';"
        );
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql + "commit")).execute(&mut postgres.connect().await).await.expect("moved");
}

async fn retain(postgres: &Postgres, days: u32) -> Result<RetentionResult, CopyError> {
    let (clocks, retained) = callgate_store::retain(postgres.options.clone(), days, Clock::System.now(), None).await?;
    assert!(clocks.agree(), "{clocks:?}");
    Ok(retained)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_months_are_dropped_under_load_and_what_still_lives_moves_on() {
    let postgres = Postgres::start().await;
    let policy = policy(&["same_call"]);
    let gate = gate(&postgres, &policy).await;
    for root in ["old-1", "old-2", "lives"] {
        run_call(&gate, ask(root, "c1", "save", &format!(r#"{{"of":"{root}"}}"#)), "saved").await;
        let child = ask(&format!("{root}-child"), "c1", "look", "{}");
        run_call(&gate, Request { parent: Some(session(root)), ..child }, "row").await;
    }
    backdate(&postgres, "old-%", "'2025-01-20'").await;
    backdate(&postgres, "lives", "now()").await;
    let is_over = Arc::new(AtomicBool::default());
    let stream = tokio::spawn({
        let (gate, is_over) = (Arc::clone(&gate), Arc::clone(&is_over));
        async move {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                n += 1;
                let arguments = format!(r#"{{"n":{n}}}"#);
                run_call(&gate, ask(&format!("young-{}", n % 8), &format!("c{n}"), "look", &arguments), "row").await;
            }
        }
    });
    let first = retain(&postgres, 90).await.expect("dropped");
    let partitions = vec!["call_2025_01".to_owned(), "outcome_2025_01".to_owned()];
    assert_eq!((first.trees, first.moved, first.dropped), (2, 1, partitions));
    let left = "select count(*) from session where root_id like 'old-%' or session_id like 'old-%'";
    assert_eq!(postgres.number(left).await, 0);
    assert_eq!(retain(&postgres, 90).await.expect("nothing"), RetentionResult::default());
    is_over.store(true, Ordering::Relaxed);
    stream.await.expect("no panic");

    assert_eq!(postgres.number("select count(*) from ledger").await, 3, "what was done once is still known");
    assert_eq!(postgres.number("select count(*) from call where epoch < '2025-02-01'").await, 0);
    // The active tree continues with all its history.
    let again = evaluate(&gate, ask("lives", "c9", "save", r#"{"of":"lives"}"#)).await;
    assert_eq!(describe_answer(&again), "REUSE duplicate_call_blocked");
    // A returning session starts empty, also where a replica still had the tree in memory.
    let again = evaluate(&gate, ask("old-1", "c2", "look", "{}")).await;
    assert_eq!(describe_answer(&again), "ALLOW");
    for root in ["old-1", "young-1", "lives"] {
        good([gapless(&postgres, root).await, sums(&postgres, root).await]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_is_moved_to_another_month_while_two_replicas_use_it_loses_nothing() {
    const CALLS: usize = 60;
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["same_call"])).await;
    run_call(&gates[0], ask("s", "paid", "pay", "{}"), "paid").await;
    let child = ask("s-child", "c1", "look", "{}");
    evaluate(&gates[1], Request { parent: Some(session("s")), ..child }).await;
    backdate(&postgres, "s", "last_at").await;
    let calls = gates.iter().enumerate().map(|(replica, gate)| {
        let gate = Arc::clone(gate);
        async move {
            for n in 0..CALLS {
                let arguments = format!(r#"{{"of":{replica},"n":{n}}}"#);
                run_call(&gate, ask("s", &format!("r{replica}-{n}"), "save", &arguments), "row").await;
            }
        }
    });
    let calls = tokio::spawn(all(calls.collect::<Vec<_>>()));
    // To and fro: each time the replicas' trees are elsewhere than they know.
    let mut moved = 0;
    while !calls.is_finished() {
        moved += retain(&postgres, 90).await.expect("moved").moved;
        backdate(&postgres, "s", "last_at").await;
    }
    calls.await.expect("no panic");
    moved += retain(&postgres, 90).await.expect("moved").moved;
    assert!(moved > 1, "{moved}");
    assert_eq!(postgres.number("select count(*) from call where epoch < '2026-01-01'").await, 0);
    assert_eq!(postgres.number("select count(*) from call where session_id = 's'").await, 2 * CALLS as i64 + 1);
    let store = store(&postgres).await;
    good([gapless(&postgres, "s").await, sums(&postgres, "s").await, fold(&postgres, &store, "s").await]);
    for gate in &gates {
        assert_eq!(
            describe_answer(&evaluate(gate, ask("s", "paid-again", "pay", "{}")).await),
            "REUSE duplicate_call_blocked"
        );
    }
}
