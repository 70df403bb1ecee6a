//! Export and erasure of encrypted values: exported texts are plain, or name the needed key; and a name inside an
//! encrypted audit reason is erased like a plain one.

use std::collections::BTreeMap;

use callgate_core::domain::{
    audit::Actor,
    audit::AuditFilter,
    call::Request,
    control::{Command, Operation},
    forgetting::ErasureSubject,
    ids::{DEFAULT_TENANT, UserId},
};
use callgate_server::gate::{Gate, NoAnswer, PrivacyError};
use tokio::sync::mpsc;

use crate::{
    common::{
        gates::{ask, evaluate, gate, gate_on, keys, run_call, seal, session, store},
        postgres::Postgres,
    },
    sealing::{KEY, WORDS, rules, story},
};

pub(crate) async fn export_rows(gate: &Gate) -> Vec<String> {
    let (rows, mut taken) = mpsc::channel(1_000);
    let whom = ErasureSubject::Session(session("s"));
    Box::pin(gate.privacy.export(DEFAULT_TENANT, &whom, (&Actor::from("officer"), "asked"), &rows))
        .await
        .expect("rows");
    drop(rows);
    let mut all = Vec::new();
    while let Some(row) = taken.recv().await {
        all.push(row.json);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_are_given_out_as_they_were_said_or_their_key_is_named() {
    let (plain, sealed) = (Postgres::start().await, Postgres::start().await);
    let gates = [gate(&plain, &rules()).await, gate(&sealed, &rules()).await];
    seal(&gates[1], KEY).await;
    for gate in &gates {
        story(gate).await;
    }
    let (in_the_clear, opened) = (export_rows(&gates[0]).await, export_rows(&gates[1]).await);
    assert_eq!(in_the_clear.len(), opened.len());
    assert!(opened.iter().all(|row| !row.contains("encrypted:") && !row.contains("missing_keys")), "{opened:?}");
    for word in WORDS {
        let rows = |rows: &[String]| rows.iter().filter(|row| row.contains(word)).count();
        assert!(rows(&opened) > 0 && rows(&opened) == rows(&in_the_clear), "{word}: {opened:?}");
    }

    // On the database alone, with its keys, without any, with another, and with those of another tenant.
    for (what, named, is_open) in [
        ("its keys", BTreeMap::from([("default".to_owned(), keys(KEY, 0xF1))]), true),
        ("no key", BTreeMap::new(), false),
        ("a newer key", BTreeMap::from([("default".to_owned(), keys(&[("new", 2)], 0xF1))]), false),
        ("others' keys", BTreeMap::from([("acme".to_owned(), keys(KEY, 0xF1))]), false),
    ] {
        let direct = gate_on(store(&sealed).await, &rules());
        direct.identities.open_with(DEFAULT_TENANT, named).await.expect("known");
        let rows = export_rows(&direct).await;
        let told = rows.iter().filter(|row| row.contains(r#""missing_keys":["2026-11"]"#)).count();
        assert_eq!((told == 0, rows.concat().contains("linnet")), (is_open, is_open), "{what}: {rows:?}");
        let shown = rows.iter().filter(|row| row.contains("encrypted:1:2026-11:")).count();
        assert_eq!(told, shown, "{what}: each row with a sealed text says so");
    }
    let direct = gate_on(store(&sealed).await, &rules());
    let other = BTreeMap::from([("default".to_owned(), keys(KEY, 0xF2))]);
    assert!(matches!(direct.identities.open_with(DEFAULT_TENANT, other).await, Err(NoAnswer::KeyMissing(_))));
}

/// An approval request in a session, answered with that reason.
pub(crate) async fn answer_request(gate: &Gate, named: &str, reason: &str) {
    let asked = evaluate(gate, ask(named, "q", "charge", r#"{"nest":"n"}"#)).await;
    let approval_id = asked.verdict.approval.expect("a question").id;
    let command = Command {
        session: session(named),
        by: Actor::from("eve"),
        reason: Some(reason.to_owned()),
        operation: Operation::Answer { approval_id, approve: false, clears: None, edited: None },
    };
    gate.decisions.control(DEFAULT_TENANT, &command).await.expect("an answer that is taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_in_a_sealed_reason_is_forgotten() {
    let person = || UserId::parse("user", "Account-4711").expect("a name");
    let mut left = Vec::new();
    for is_sealed in [false, true] {
        let postgres = Postgres::start().await;
        let gate = gate(&postgres, &rules()).await;
        if is_sealed {
            seal(&gate, KEY).await;
        }
        run_call(&gate, Request { user: Some(person()), ..ask("t", "c", "look", "{}") }, "seen").await;
        answer_request(&gate, "one", "as account-4711 wanted").await;
        answer_request(&gate, "two", "as nobody wanted").await;
        answer_request(&gate, "of-account-4711", "all is well").await;
        let (told, _told) = mpsc::channel(500);
        let whom = ErasureSubject::User(person());
        let by = Actor::from("officer");
        if is_sealed {
            // Without any key the contents are unknown, so nothing of the tree is erased.
            let direct = gate_on(store(&postgres).await, &rules());
            direct.identities.open_with(DEFAULT_TENANT, BTreeMap::new()).await.expect("known");
            let (unheard, _unheard) = mpsc::channel(500);
            let refused = Box::pin(direct.privacy.forget(DEFAULT_TENANT, &whom, (&by, "asked"), &unheard)).await;
            assert!(matches!(refused, Err(PrivacyError::NoAnswer(NoAnswer::KeyMissing(_)))), "{refused:?}");
            assert_eq!(postgres.rows("select count(*) from call where session_id = 't'").await, ["(1)"]);
        }
        Box::pin(gate.privacy.forget(DEFAULT_TENANT, &whom, (&by, "asked"), &told)).await.expect("forgotten");
        let entries = gate.store.audit(DEFAULT_TENANT, &AuditFilter::default(), None, 20).await.expect("readable").0;
        let answered = entries.iter().filter(|entry| entry.kind == "answered" || entry.kind == "denied");
        let words =
            |entry: &callgate_core::domain::audit::ChainEntry| [3, 5].map(|word: usize| entry.words[word].text.clone());
        left.push(answered.map(words).collect::<Vec<_>>());
        assert!(gate.store.check_audit(DEFAULT_TENANT, Vec::new()).await.expect("readable").problems.is_empty());
    }
    let text = |text: &str| Some(text.to_owned());
    // Newest first. An encrypted reason is bound to its session, and erased with its name.
    assert_eq!(left[0], [[None, text("all is well")], [text("two"), text("as nobody wanted")], [text("one"), None]]);
    assert_eq!(left[1], [[None, None], [text("two"), text("as nobody wanted")], [text("one"), None]]);
}
