//! Killed long operations: another server continues, and nothing is done twice.

use std::collections::BTreeMap;

use callgate_core::domain::{
    audit::Actor,
    call::Request,
    forgetting::ErasureSubject,
    ids::{DEFAULT_TENANT, UserId},
};
use tokio::sync::mpsc;

use super::{
    sealing::rules,
    text_retention::{in_days, keep, run_retention, strict, trees},
};
use crate::common::{
    gates::{ask, evaluate, gate, run_call, seal},
    postgres::Postgres,
    until,
};

const TREES: i64 = 24;

/// Starts `work` while the last of a table's rows is locked, and kills it once it has `begun` and reached that row.
async fn cut_off<T: Send + 'static>(
    postgres: &Postgres,
    table: &str,
    begun: &str,
    work: impl Future<Output = T> + Send + 'static,
) {
    let mut lock = postgres.connect().await;
    let held = format!("begin; select from callgate.{table} order by shard desc, root_id limit 1 for update");
    sqlx::raw_sql(sqlx::AssertSqlSafe(held)).execute(&mut lock).await.expect("held");
    let work = tokio::spawn(work);
    until("the middle", async || postgres.number(begun).await > 0).await;
    assert!(!work.is_finished());
    work.abort();
    assert!(work.await.is_err_and(|ended| ended.is_cancelled()));
    sqlx::raw_sql("rollback").execute(&mut lock).await.expect("given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_forgotten_by_who_goes_on() {
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &strict()).await;
    let user = UserId::parse("user", "charlotte").expect("a name");
    for n in 0..TREES {
        let asked = ask(&format!("s{n}"), "c", "look", "{}");
        run_call(&first, Request { user: Some(user.clone()), ..asked }, "seen").await;
    }
    let forget = async |gate: std::sync::Arc<callgate_server::gate::Gate>, whom: ErasureSubject| {
        let (told, _told) = mpsc::channel(500);
        Box::pin(gate.privacy.forget(DEFAULT_TENANT, &whom, (&Actor::from("officer"), "asked"), &told)).await
    };
    let begun = format!("select {TREES} - count(*) from call_tree");
    cut_off(&postgres, "call_tree", &begun, forget(first, ErasureSubject::User(user.clone()))).await;
    let left = trees(&postgres, DEFAULT_TENANT).await.len() as u64;
    assert!(left > 0);
    let second = gate(&postgres, &strict()).await;
    let forgot = forget(second.clone(), ErasureSubject::User(user)).await.expect("forgotten");
    assert_eq!((forgot.trees, postgres.dump().await.contains("charlotte")), (left, false));
    assert!(second.store.check_audit(DEFAULT_TENANT, Vec::new()).await.expect("readable").problems.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn re_encryption_is_continued_after_a_kill() {
    const BOTH: &[(&str, u8)] = &[("new", 2), ("old", 1)];
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &rules()).await;
    seal(&first, &[("old", 1)]).await;
    for n in 0..TREES {
        evaluate(&first, ask(&format!("s{n}"), "c", "move", r#"{"bird":"a"}"#)).await;
    }
    seal(&first, BOTH).await;
    let reseal = async |gate: std::sync::Arc<callgate_server::gate::Gate>| {
        let (told, _told) = mpsc::channel(500);
        Box::pin(gate.privacy.reseal(DEFAULT_TENANT, &Actor::from("officer"), &told)).await.expect("sealed anew")
    };
    let sealed = "select count(*) from call where arguments like 'encrypted:1:new:%'";
    cut_off(&postgres, "call", sealed, reseal(first)).await;
    let before = u64::try_from(postgres.number(sealed).await).expect("some");
    let second = gate(&postgres, &rules()).await;
    seal(&second, BOTH).await;
    let done = reseal(second).await;
    let all = TREES as u64;
    assert_eq!((done.rows, done.uses), (all - before, BTreeMap::from([("new".to_owned(), all)])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_is_continued_after_a_kill_within_the_hour() {
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &strict()).await;
    for n in 0..TREES {
        run_call(&first, ask(&format!("s{n}"), "c", "look", "{}"), "seen").await;
    }
    keep(&first, "default", Some(10), Some(20)).await;
    let now = in_days(&first, 30);
    postgres.tamper(&format!("update tenant set clock_seen_at = to_timestamp({} / 1000.0)", now.as_millis())).await;
    let deletes = async move { Box::pin(first.privacy.delete_old((now, now))).await };
    // Words are gone, and trees are not.
    cut_off(&postgres, "call_tree", "select count(*) from tenant where words_gone_before is not null", deletes).await;
    assert_eq!(trees(&postgres, DEFAULT_TENANT).await.len() as i64, TREES);
    let second = gate(&postgres, &strict()).await;
    assert!(run_retention(&postgres, &second, 30).await, "a pass that did not end is begun again");
    assert!(trees(&postgres, DEFAULT_TENANT).await.is_empty());
    assert!(!run_retention(&postgres, &second, 30).await, "once an hour");
}
