//! The audit: what people did, in a chain that tells when somebody has changed it, and that holds without what was
//! erased.

use callgate::{
    domain::{
        audit::{Actor, Anchor, Checked, Event, Kind},
        halt::Halted,
        identity::Credential,
        ids::DEFAULT_TENANT,
    },
    gate::{Apply, Author, Gate},
    store::{Store, audit},
};

use crate::common::{
    all,
    gates::{gate, policy, session, store, two_gates},
    postgres::Postgres,
};

fn max() -> Actor {
    Actor {
        name: "max".to_owned(),
        credential: Credential::Token("cg_1".to_owned()),
        from: Some("192.0.2.7".to_owned()),
    }
}

/// Halts and resumes a session, and activates a policy: four entries.
async fn work(gate: &Gate) {
    let what = Halted::Session(session("s"));
    gate.halt(DEFAULT_TENANT, &what, max(), "customer Doe complained").await.expect("a halt");
    gate.halt(DEFAULT_TENANT, &what, "eve", "the same again").await.expect("the halt that holds");
    gate.resume(DEFAULT_TENANT, &what, max(), "solved").await.expect("a resume");
    gate.resume(DEFAULT_TENANT, &what, "eve", "solved again").await.expect("nothing to resume");
    let author = Author { by: &max(), note: "first", expected: None };
    for _ in 0..2 {
        let applied = gate.apply_policy(DEFAULT_TENANT, "policy_engine: {}\n", &author, Apply::Activate);
        Box::pin(applied).await.expect("applied");
    }
}

async fn checked(store: &Store, anchors: &[&Anchor]) -> Checked {
    let anchors = anchors.iter().map(|anchor| (*anchor).clone()).collect();
    store.check_audit(DEFAULT_TENANT, anchors).await.expect("checked")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_did_is_told_with_who_from_where_what_and_why_and_nothing_else_is() {
    let postgres = Postgres::start().await;
    work(&*gate(&postgres, &policy(&[])).await).await;
    let told = "select number, kind, who, credential, origin, session_id, what, why from audit_log order by number";
    assert_eq!(
        postgres.rows(told).await,
        [
            r#"(1,halted,max,"token cg_1",192.0.2.7,s,"session s","customer Doe complained")"#,
            r#"(2,resumed,max,"token cg_1",192.0.2.7,s,"session s",solved)"#,
            r#"(3,policy_stored,max,"token cg_1",192.0.2.7,,"policy fa962871876491f6",first)"#,
            r#"(4,policy_activated,max,"token cg_1",192.0.2.7,,"policy fa962871876491f6 as revision 1",first)"#,
        ]
    );
    let checked = checked(&store(&postgres).await, &[]).await;
    assert_eq!((checked.problems, checked.erased), (Vec::new(), 0));
    assert_eq!(checked.last.map(|last| last.number), Some(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_audit_holds() {
    let postgres = Postgres::start().await;
    let checked = checked(&store(&postgres).await, &[]).await;
    assert_eq!(checked, Checked { last: None, erased: 0, problems: Vec::new() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_two_replicas_at_once_have_no_gap() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&[])).await;
    let people = (0..6).map(|n| {
        let gate = gates[n % 2].clone();
        async move {
            for round in 0..20 {
                let what = Halted::Session(session(&format!("s{n}-{round}")));
                gate.halt(DEFAULT_TENANT, &what, max(), "a drill").await.expect("a halt");
            }
        }
    });
    all(people).await;
    let checked = checked(&store(&postgres).await, &[]).await;
    assert_eq!((checked.problems, checked.last.map(|last| last.number)), (Vec::new(), Some(120)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_forgotten_leaves_no_word_and_the_chain_holds() {
    let postgres = Postgres::start().await;
    work(&*gate(&postgres, &policy(&[])).await).await;
    let store = store(&postgres).await;
    let anchor = checked(&store, &[]).await.last.expect("entries");
    let mut conn = postgres.connect().await;
    let event = Event::new(Kind::Forgotten, "ada".into(), "a session").because("they asked for it");
    let by = audit::append(&mut conn, DEFAULT_TENANT, &event).await.expect("an entry");
    let erased = audit::erase(&mut conn, DEFAULT_TENANT, &["s"], &["FIRST"], by).await.expect("erased");
    assert_eq!(erased, 4);
    let told = "select number, who, session_id, what, why, erased_by from audit_log order by number";
    assert_eq!(
        postgres.rows(told).await,
        [
            "(1,max,,,,5)",
            "(2,max,,,,5)",
            r#"(3,max,,"policy fa962871876491f6",,5)"#,
            r#"(4,max,,"policy fa962871876491f6 as revision 1",,5)"#,
            r#"(5,ada,,"a session","they asked for it",)"#,
        ]
    );
    assert_eq!(postgres.rows("select from audit where salts[6] is not null and number < 5").await, [""; 0]);
    let after = checked(&store, &[&anchor]).await;
    assert_eq!((after.problems, after.erased), (Vec::new(), 8));
}

/// What is told of an audit of four entries after each of these was done to it.
async fn tampered(sql: &[&str]) -> (Checked, Vec<String>) {
    let postgres = Postgres::start().await;
    work(&*gate(&postgres, &policy(&[])).await).await;
    let store = store(&postgres).await;
    let before = checked(&store, &[]).await;
    for sql in sql {
        assert!(postgres.tamper(sql).await > 0, "{sql}");
    }
    let anchor = before.last.clone().expect("entries");
    (checked(&store, &[]).await, checked(&store, &[&anchor]).await.problems)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_entry_is_found() {
    for (sql, told) in [
        ("update audit set words[6] = 'no reason' where number = 2", "entry 2 was changed: `why`"),
        ("update audit set words[1] = 'eve' where number = 2", "entry 2 was changed: `who`"),
        ("update audit set kind = 'halted' where number = 2", "entry 2 was changed: its hash"),
        ("update audit set at = at - interval '1 microsecond' where number = 2", "entry 2 was changed: its hash"),
        ("update audit set words[6] = null where number = 2", "entry 2 was changed: `why`"),
        ("update audit set words[6] = null, salts[6] = null where number = 2", "no entry tells of forgetting it"),
        (
            "update audit set words[6] = null, salts[6] = null, erased_by = 3 where number = 2",
            "entry 3 does not tell of forgetting",
        ),
        ("update audit set words[6] = null, salts[6] = null, marks[6] = null where number = 2", "its hash is another"),
    ] {
        let (checked, _) = tampered(&[sql]).await;
        assert!(checked.problems.concat().contains(told), "{sql}: {:?}", checked.problems);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_entry_is_found() {
    for (sql, told) in [
        ("delete from audit where number = 1", "entry 1 is missing"),
        ("delete from audit where number in (2, 3)", "entries 2 to 3 are missing"),
        ("delete from audit where number = 4", "the newest entries are missing: 4 were written, 3 are there"),
    ] {
        let (checked, _) = tampered(&[sql]).await;
        assert!(checked.problems.concat().contains(told), "{sql}: {:?}", checked.problems);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_was_cut_off_with_its_head_is_found_by_an_anchor_alone() {
    let cut = [
        "delete from audit where number = 4",
        "update audit_head set number = 3, hash = (select hash from audit where number = 3)",
    ];
    let (unaided, anchored) = tampered(&cut).await;
    assert_eq!(unaided.problems, Vec::<String>::new(), "nobody who sees only the table can know");
    assert_eq!(anchored, ["entry 4 is missing, and an anchor was taken of it: the end was cut off"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_was_written_anew_is_found_by_an_anchor_alone() {
    let anew = [
        "delete from audit where number = 4",
        "update audit_head set number = 3, hash = (select hash from audit where number = 3)",
        "select audit_append(1, 'policy_activated', array['eve', 'local', null, null, 'policy', null])",
    ];
    let (unaided, anchored) = tampered(&anew).await;
    assert_eq!(unaided.problems, Vec::<String>::new());
    assert_eq!(anchored, ["entry 4 is not the one that the anchor was taken of"]);
}
