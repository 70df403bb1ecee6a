//! What is old is dropped as whole months, beside servers that serve.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use callgate::{domain::call::Request, store::retain};

use crate::common::{
    books::{gapless, good, sums},
    gates::{ask, done, evaluate, gate, policy, said, session},
    postgres::Postgres,
};

/// Puts trees into a month of long ago, as if they had been born then.
async fn backdate(postgres: &Postgres, roots: &str, last_at: &str) {
    for table in ["call", "outcome"] {
        let partition = format!(
            "create table if not exists {table}_2025_01 partition of {table} for values from ('2025-01-01') to \
             ('2025-02-01')"
        );
        postgres.tamper(&partition).await;
        postgres.tamper(&format!("update {table} set epoch = '2025-01-15' where root_id like '{roots}'")).await;
    }
    let tree = format!("epoch = '2025-01-15', last_at = {last_at}");
    postgres.tamper(&format!("update call_tree set {tree} where root_id like '{roots}'")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn months_that_nobody_lives_in_are_dropped_under_load() {
    let postgres = Postgres::start().await;
    let policy = policy(&["same_call"]);
    let gate = gate(&postgres, &policy).await;
    for root in ["old-1", "old-2", "lives"] {
        done(&gate, ask(root, "c1", "save", &format!(r#"{{"of":"{root}"}}"#)), "saved").await;
        let child = ask(&format!("{root}-child"), "c1", "look", "{}");
        evaluate(&gate, Request { parent: Some(session(root)), ..child }).await;
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
                done(&gate, ask(&format!("young-{}", n % 8), &format!("c{n}"), "look", &arguments), "row").await;
            }
        }
    });
    let first = retain(postgres.options.clone(), 90).await.expect("dropped");
    assert_eq!((first.trees, first.dropped.len(), first.lived_in), (2, 0, vec!["2025-01-01".to_owned()]));
    let left = "select count(*) from session where root_id like 'old-%' or session_id like 'old-%'";
    assert_eq!(postgres.number(left).await, 0);
    backdate(&postgres, "lives", "'2025-01-20'").await;
    let second = retain(postgres.options.clone(), 90).await.expect("dropped");
    assert_eq!((second.trees, second.dropped), (1, vec!["call_2025_01".to_owned(), "outcome_2025_01".to_owned()]));
    assert_eq!(retain(postgres.options.clone(), 90).await.expect("nothing"), callgate::store::Retained::default());
    is_over.store(true, Ordering::Relaxed);
    stream.await.expect("no panic");

    assert_eq!(postgres.number("select count(*) from ledger").await, 3, "what was done once is still known");
    assert_eq!(postgres.number("select count(*) from call where epoch < '2025-02-01'").await, 0);
    // Whoever comes back begins anew, also where a replica still had the tree in memory.
    let again = evaluate(&gate, ask("old-1", "c2", "look", "{}")).await;
    assert_eq!(said(&again), "ALLOW");
    for root in ["old-1", "young-1"] {
        good([gapless(&postgres, root).await, sums(&postgres, root).await]);
    }
}
