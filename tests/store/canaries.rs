//! Each check is shown a store whose safety was taken away behind its back, and must complain.

use callgate::{
    domain::{ids::DEFAULT_TENANT, outcome::OutcomeStatus, session_state::Extent},
    gate::{EvaluateAnswer, Gate},
};

use crate::common::{
    books::{fold, gapless, one_open_permit, one_permit, sums},
    gates::{ask, done, evaluate, policy, record, report, said, session, store, success, two_gates},
    postgres::Postgres,
};

const ARGUMENTS: &str = r#"{"invoice":1}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_ledger_a_payment_is_permitted_twice_and_that_is_seen() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&["same_call"])).await;
    let first = evaluate(&one, ask("s1", "c1", "pay", ARGUMENTS)).await;
    let refused = evaluate(&other, ask("s2", "c2", "pay", ARGUMENTS)).await;
    assert_eq!(said(&refused), "WAIT call_in_flight");
    assert_eq!(one_permit(&[first.clone(), refused]), Ok(()));
    assert_eq!(one_open_permit(&postgres).await, Ok(()));

    assert_eq!(postgres.tamper("delete from ledger").await, 1);
    let second = evaluate(&other, ask("s3", "c3", "pay", ARGUMENTS)).await;
    assert_eq!(said(&second), "ALLOW");
    assert!(one_permit(&[first, second]).is_err());
    assert!(one_open_permit(&postgres).await.is_err());
}

/// A permit by one gate, while the other has an older version of the tree in memory.
async fn permit_unseen_by(other: &Gate, one: &Gate, in_session: &str) -> EvaluateAnswer {
    done(one, ask(in_session, "before", "look", "{}"), "row").await;
    let state =
        other.session_state(DEFAULT_TENANT, &session(in_session), Extent { last_calls: 1, ..Extent::default() }).await;
    assert_eq!(state.expect("known").calls.len(), 1, "the other gate has the tree in memory now");
    evaluate(one, ask(in_session, "c1", "work", ARGUMENTS)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_version_check_a_stale_gate_permits_twice_and_that_is_seen() {
    let postgres = Postgres::start().await;
    let [one, other] = two_gates(&postgres, &policy(&["same_call"])).await;
    let first = permit_unseen_by(&other, &one, "checked").await;
    let second = evaluate(&other, ask("checked", "c2", "work", ARGUMENTS)).await;
    assert_eq!(said(&second), "WAIT call_in_flight");
    assert_eq!(one_permit(&[first, second]), Ok(()));
    assert_eq!(gapless(&postgres, "checked").await, Ok(()));

    let first = permit_unseen_by(&other, &one, "unchecked").await;
    // As if the permit had never moved the tree.
    let mine = "where root_id = 'unchecked'";
    assert_eq!(postgres.tamper(&format!("update call_tree set version = version - 1 {mine}")).await, 1);
    assert_eq!(postgres.tamper(&format!("update call set seq = 1000 {mine} and call_id = 'c1'")).await, 1);
    let second = evaluate(&other, ask("unchecked", "c2", "work", ARGUMENTS)).await;
    assert_eq!(said(&second), "ALLOW");
    assert!(one_permit(&[first, second]).is_err());
    assert!(gapless(&postgres, "unchecked").await.is_err());
    assert!(sums(&postgres, "unchecked").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_and_changed_rows_are_seen() {
    let postgres = Postgres::start().await;
    let [one, _] = two_gates(&postgres, &policy(&["same_call"])).await;
    done(&one, ask("s", "c1", "work", "{}"), "row").await;
    evaluate(&one, ask("s", "c2", "save", "{}")).await;
    record(&one, report("s", "c2", OutcomeStatus::Running)).await;
    record(&one, success("s", "c2", "saved")).await;
    let store = store(&postgres).await;
    assert_eq!(gapless(&postgres, "s").await.and(sums(&postgres, "s").await), Ok(()));
    assert_eq!(fold(&postgres, &store, "s").await, Ok(()));

    postgres.tamper("update call_tree set tokens = tokens + 1").await;
    assert!(sums(&postgres, "s").await.is_err() && fold(&postgres, &store, "s").await.is_err());
    postgres.tamper("update call_tree set tokens = tokens - 1").await;
    postgres.tamper("delete from outcome where status = 0").await;
    assert!(gapless(&postgres, "s").await.is_err());
    postgres.tamper("delete from outcome where call_id = 'c2'").await;
    assert!(sums(&postgres, "s").await.is_err() && fold(&postgres, &store, "s").await.is_err());
}
