//! What takes long and is cut off in the middle, as a kill does it: another server goes on, and nothing is done twice.

use std::collections::BTreeMap;

use callgate_core::domain::{
    audit::Actor,
    call::Request,
    forgetting::Whom,
    ids::{DEFAULT_TENANT, UserId},
};
use tokio::sync::mpsc;

use super::{
    sealing::rules,
    terms::{in_days, keep, look, strict, trees},
};
use crate::common::{
    gates::{ask, done, evaluate, gate, seal},
    postgres::Postgres,
    until,
};

const TREES: i64 = 24;

/// Begins `work` while somebody holds the last one of a table's rows, and cuts it off once it has `begun` and comes to
/// that row.
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
        done(&first, Request { user: Some(user.clone()), ..asked }, "seen").await;
    }
    let forget = async |gate: std::sync::Arc<callgate_server::gate::Gate>, whom: Whom| {
        let (told, _told) = mpsc::channel(500);
        Box::pin(gate.privacy.forget(DEFAULT_TENANT, &whom, (&Actor::from("officer"), "asked"), &told)).await
    };
    let begun = format!("select {TREES} - count(*) from call_tree");
    cut_off(&postgres, "call_tree", &begun, forget(first, Whom::User(user.clone()))).await;
    let left = trees(&postgres, DEFAULT_TENANT).await.len() as u64;
    assert!(left > 0);
    let second = gate(&postgres, &strict()).await;
    let forgot = forget(second.clone(), Whom::User(user)).await.expect("forgotten");
    assert_eq!((forgot.trees, postgres.dump().await.contains("charlotte")), (left, false));
    assert!(second.privacy.check_audit(DEFAULT_TENANT, Vec::new()).await.expect("readable").problems.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_older_key_has_sealed_is_sealed_anew_by_who_goes_on() {
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
async fn what_is_past_its_term_is_deleted_by_who_goes_on_within_the_hour() {
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &strict()).await;
    for n in 0..TREES {
        done(&first, ask(&format!("s{n}"), "c", "look", "{}"), "seen").await;
    }
    keep(&first, "default", Some(10), Some(20)).await;
    let now = in_days(&first, 30);
    postgres.tamper(&format!("update tenant set clock_seen_at = to_timestamp({} / 1000.0)", now.as_millis())).await;
    let deletes = async move { Box::pin(first.privacy.delete_old((now, now))).await };
    // Words are gone, and trees are not.
    cut_off(&postgres, "call_tree", "select count(*) from tenant where words_gone_before is not null", deletes).await;
    assert_eq!(trees(&postgres, DEFAULT_TENANT).await.len() as i64, TREES);
    let second = gate(&postgres, &strict()).await;
    assert!(look(&postgres, &second, 30).await, "a pass that did not end is begun again");
    assert!(trees(&postgres, DEFAULT_TENANT).await.is_empty());
    assert!(!look(&postgres, &second, 30).await, "once an hour");
}
