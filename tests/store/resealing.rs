//! Key rotation: values of older keys and plain ones are re-encrypted with the newest; all responses stay the same; and
//! the needed keys are reported.

use std::{collections::BTreeMap, sync::Arc};

use callgate_core::domain::{
    audit::Actor,
    audit::AuditFilter,
    call::Request,
    forgetting::ErasureSubject,
    ids::{DEFAULT_TENANT, UserId},
};
use callgate_server::gate::{Gate, PrivacyError, ResealProgress};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    common::{
        citus,
        gates::{ask, describe_answer, evaluate, gate, keys, run_call, seal},
        postgres::Postgres,
    },
    sealed_people::{answer_request, export_rows},
    sealing::{WORDS, look_back, rules, story},
};

const BOTH: &[(&str, u8)] = &[("new", 2), ("old", 1)];
const NEW: &[(&str, u8)] = &[("new", 2)];
const OLD: &[(&str, u8)] = &[("old", 1)];

async fn reseal(gate: &Gate) -> ResealProgress {
    let (told, _told) = mpsc::channel(500);
    Box::pin(gate.privacy.reseal(DEFAULT_TENANT, &Actor::from("officer"), &told)).await.expect("sealed anew")
}

async fn uses(gate: &Gate) -> BTreeMap<String, u64> {
    let (told, _told) = mpsc::channel(500);
    Box::pin(gate.privacy.key_uses(DEFAULT_TENANT, &told)).await.expect("counted").uses
}

/// Keeps a column of the audit, to put it back.
async fn keep(postgres: &Postgres, column: &str) {
    postgres.tamper(&format!("create table public.kept as select number, {column} from audit")).await;
    if citus::is_wanted() {
        postgres.tamper("select create_reference_table('public.kept')").await;
    }
}

/// The tables, but for the words that the chain of the audit is made of.
async fn dump(postgres: &Postgres) -> String {
    keep(postgres, "words").await;
    postgres.tamper("update audit set words[6] = null").await;
    let dump = postgres.dump().await;
    postgres.tamper("update audit a set words = k.words from public.kept k where k.number = a.number").await;
    postgres.tamper("drop table public.kept").await;
    dump
}

/// The export, without its actor.
async fn export_values(gate: &Gate) -> Vec<Value> {
    let rows = export_rows(gate).await.into_iter().map(|row| serde_json::from_str::<Value>(&row).expect("a row"));
    rows.filter(|row| row["entry"] != "exported").collect()
}

async fn is_whole(gate: &Gate) -> bool {
    gate.store.check_audit(DEFAULT_TENANT, Vec::new()).await.expect("readable").problems.is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn re_encryption_makes_the_older_key_needless() {
    let (plain, postgres) = (Postgres::start().await, Postgres::start().await);
    let beside = gate(&plain, &rules()).await;
    story(&beside).await;
    let first = gate(&postgres, &rules()).await;
    seal(&first, OLD).await;
    story(&first).await;
    seal(&first, BOTH).await;
    evaluate(&first, ask("u", "a", "move", r#"{"bird":"a"}"#)).await;
    let before = export_values(&first).await;
    let needed = uses(&first).await;
    assert!(needed["old"] > 10 && needed["new"] == 1 && needed.len() == 2, "{needed:?}");

    let done = reseal(&first).await;
    assert_eq!((done.rows, done.percent), (needed["old"], 100));
    assert_eq!(done.uses, BTreeMap::from([("new".to_owned(), needed["old"] + 1)]));
    assert_eq!(done.here, ["new", "old"]);
    assert!(!dump(&postgres).await.contains("encrypted:1:old:"));
    assert_eq!(export_values(&first).await, before);
    assert!(is_whole(&first).await);

    // The old key is removed without effect.
    let last = gate(&postgres, &rules()).await;
    seal(&last, NEW).await;
    assert_eq!(export_values(&last).await, before);
    let cold = gate(&plain, &rules()).await;
    assert_eq!(look_back(&last).await, look_back(&cold).await);
    let entries = last.store.audit(DEFAULT_TENANT, &AuditFilter::default(), None, 20).await.expect("readable").0;
    let rotated: Vec<_> = entries.iter().filter(|entry| entry.kind == "key_rotated").collect();
    assert_eq!(rotated.len(), 2, "its beginning and its end");
    assert!(rotated.iter().all(|entry| entry.words[0].text.as_deref() == Some("officer")));
    // A second run has nothing to do.
    assert_eq!(reseal(&last).await.rows, 0);
    assert_eq!(
        last.store.audit(DEFAULT_TENANT, &AuditFilter::default(), None, 20).await.expect("readable").0.len(),
        entries.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_values_are_encrypted() {
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &rules()).await;
    story(&first).await;
    let before = export_values(&first).await;
    let (unheard, _unheard) = mpsc::channel(500);
    let refused = Box::pin(first.privacy.reseal(DEFAULT_TENANT, &Actor::from("officer"), &unheard)).await;
    assert_eq!(refused, Err(PrivacyError::WithoutKeys));
    let mut anew = Arc::unwrap_or_clone(keys(NEW, 0xF1));
    anew.anew = true;
    first.identities.set_tenant_keys([("default".to_owned(), Arc::new(anew))].into()).await.expect("known");
    assert_eq!(first.identities.key_problems(), [""; 0]);
    let needed = uses(&first).await;
    assert!(needed[""] > 10 && needed.len() == 1, "{needed:?}");
    assert_eq!(reseal(&first).await.uses, BTreeMap::from([("new".to_owned(), needed[""])]));
    assert_eq!(export_values(&first).await, before);
    let dump = dump(&postgres).await;
    for word in WORDS {
        // The name of a tool that does not exist is a name.
        assert_eq!(dump.contains(word), word == "serin", "{word}");
    }
    let cold = gate(&postgres, &rules()).await;
    seal(&cold, NEW).await;
    assert_eq!(export_values(&cold).await, before);
    assert_eq!(describe_answer(&evaluate(&cold, ask("s", "z", "look", r#"{"place":"anew"}"#)).await), "ALLOW");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecryptable_value_stays_and_an_interrupted_run_continues() {
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &rules()).await;
    seal(&first, &[("lost", 3)]).await;
    run_call(&first, ask("s", "a", "move", r#"{"bird":"a"}"#), "moved").await;
    seal(&first, OLD).await;
    for tree in 0..40 {
        evaluate(&first, ask(&format!("t{tree}"), "a", "move", r#"{"bird":"a"}"#)).await;
    }
    postgres
        .tamper("update call set arguments = overlay(arguments placing 'AAAA' from 60) where session_id = 't7'")
        .await;
    seal(&first, BOTH).await;
    assert_eq!(uses(&first).await, [("lost".to_owned(), 2), ("old".to_owned(), 40)].into());
    // The caller is cancelled.
    let (told, heard) = mpsc::channel(1);
    drop(heard);
    let stopped =
        Box::pin(first.privacy.reseal(DEFAULT_TENANT, &Actor::from("officer"), &told)).await.expect("stopped");
    assert!(stopped.percent < 100, "{stopped:?}");
    // Two at once: the second one waits, and finds nothing to do.
    let second = gate(&postgres, &rules()).await;
    seal(&second, BOTH).await;
    let (one, two) = tokio::join!(reseal(&first), reseal(&second));
    assert_eq!(one.rows.min(two.rows), 0);
    for done in [one, two] {
        assert_eq!(done.uses, [("lost".to_owned(), 2), ("new".to_owned(), 40), ("old".to_owned(), 1)].into());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_in_a_reason_that_was_sealed_anew_is_forgotten() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &rules()).await;
    seal(&gate, OLD).await;
    let person = UserId::parse("user", "Account-4711").expect("a name");
    run_call(&gate, Request { user: Some(person.clone()), ..ask("t", "c", "look", "{}") }, "seen").await;
    answer_request(&gate, "one", "as account-4711 wanted").await;
    answer_request(&gate, "two", "as nobody wanted").await;
    seal(&gate, BOTH).await;
    reseal(&gate).await;
    assert_eq!(postgres.rows("select count(resealed) from audit").await, ["(2)"]);
    seal(&gate, NEW).await;
    // Bound to its entry: put elsewhere it does not open, though the chain does not hold it.
    let swapped = "update audit a set resealed = b.resealed from audit b where b.resealed is not null
        and a.resealed is not null and a.number <> b.number";
    keep(&postgres, "resealed").await;
    assert_eq!(postgres.tamper(swapped).await, 2);
    assert!(gate.store.audit(DEFAULT_TENANT, &AuditFilter::default(), None, 20).await.is_err());
    postgres.tamper("update audit a set resealed = k.resealed from public.kept k where k.number = a.number").await;

    let (told, _told) = mpsc::channel(500);
    let whom = ErasureSubject::User(person);
    Box::pin(gate.privacy.forget(DEFAULT_TENANT, &whom, (&Actor::from("officer"), "asked"), &told))
        .await
        .expect("forgotten");
    let left = "select words[6] is null, resealed is null from audit where kind = 'answered' order by number";
    assert_eq!(postgres.rows(left).await, ["(t,t)", "(f,f)"]);
    let entries = gate.store.audit(DEFAULT_TENANT, &AuditFilter::default(), None, 20).await.expect("readable").0;
    let reasons: Vec<_> = entries.iter().filter_map(|entry| entry.words[5].text.as_deref()).collect();
    assert_eq!(reasons, ["asked", "as nobody wanted"]);
    assert!(is_whole(&gate).await);
}
