//! Audit log: a hash chain that detects changes, and verifies without erased texts.

use callgate_core::{
    domain::{
        audit::{Actor, Anchor, AuditEvent, AuditOperation, ChainVerification},
        control::{Command, Operation},
        halt::HaltTarget,
        identity::CredentialId,
        ids::DEFAULT_TENANT,
        outcome::OutcomeStatus,
        pattern::Pattern,
        report::{Operator, OutcomeReport},
    },
    policy::Policy,
};
use callgate_server::gate::{Apply, Author, Gate};
use callgate_store::{Store, audit};

use crate::common::{
    all,
    gates::{ask, evaluate, gate, policy, record, report, run_call, session, store, two_gates},
    postgres::Postgres,
};

fn max() -> Actor {
    Actor {
        name: "max".to_owned(),
        credential: CredentialId::Token("cg_1".to_owned()),
        from: Some("192.0.2.7".to_owned()),
        groups: Vec::new(),
    }
}

/// Halts and resumes a session, and activates a policy: four entries.
async fn work(gate: &Gate) {
    let what = HaltTarget::Session(session("s"));
    gate.decisions.halt(DEFAULT_TENANT, &what, max(), "customer Doe complained").await.expect("a halt");
    gate.decisions.halt(DEFAULT_TENANT, &what, "eve", "the same again").await.expect("the halt that holds");
    gate.decisions.resume(DEFAULT_TENANT, &what, max(), "solved").await.expect("a resume");
    gate.decisions.resume(DEFAULT_TENANT, &what, "eve", "solved again").await.expect("nothing to resume");
    let author = Author { by: &max(), note: "first", expected: None };
    for _ in 0..2 {
        let applied = gate.policies.apply_policy(DEFAULT_TENANT, "policy_engine: {}\n", &author, Apply::Activate);
        Box::pin(applied).await.expect("applied");
    }
}

/// A policy in which a person is asked about each reset.
fn asking() -> Policy {
    let text = "policy_engine: {authorization: {tiers: [{name: asks, pattern: reset, action: hitl},
      {name: rest, pattern: '*', action: allowlist}]}, tool_schemas: {look: {effect: read}, save: {effect: write}},
      phases: [{name: EARLY, tools: '*'}]}";
    callgate_core::policy::compile(text).expect("a good policy")
}

async fn verify_log(store: &Store, anchors: &[&Anchor]) -> ChainVerification {
    let anchors = anchors.iter().map(|anchor| (*anchor).clone()).collect();
    store.check_audit(DEFAULT_TENANT, anchors).await.expect("checked")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_hold_actor_address_action_and_reason_of_people_alone() {
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
    let checked = verify_log(&store(&postgres).await, &[]).await;
    assert_eq!((checked.problems, checked.erased), (Vec::new(), 0));
    assert_eq!(checked.last.map(|last| last.number), Some(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_audit_holds() {
    let postgres = Postgres::start().await;
    let checked = verify_log(&store(&postgres).await, &[]).await;
    assert_eq!(checked, ChainVerification { last: None, erased: 0, problems: Vec::new() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_two_replicas_at_once_have_no_gap() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&[])).await;
    let people = (0..6).map(|n| {
        let gate = gates[n % 2].clone();
        async move {
            for round in 0..20 {
                let what = HaltTarget::Session(session(&format!("s{n}-{round}")));
                gate.decisions.halt(DEFAULT_TENANT, &what, max(), "a drill").await.expect("a halt");
            }
        }
    });
    all(people).await;
    let checked = verify_log(&store(&postgres).await, &[]).await;
    assert_eq!((checked.problems, checked.last.map(|last| last.number)), (Vec::new(), Some(120)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_names_leave_no_text_and_the_chain_is_valid() {
    let postgres = Postgres::start().await;
    work(&*gate(&postgres, &policy(&[])).await).await;
    let store = store(&postgres).await;
    let anchor = verify_log(&store, &[]).await.last.expect("entries");
    let mut conn = postgres.connect().await;
    let event = AuditEvent::new(AuditOperation::Forgotten, "ada".into(), "a session").because("they asked for it");
    let erased = audit::erase(&mut conn, DEFAULT_TENANT, &event, &["s"], &["FIRST"]).await.expect("erased");
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
    let after = verify_log(&store, &[&anchor]).await;
    assert_eq!((after.problems, after.erased), (Vec::new(), 8));
}

/// Operations on call trees in exactly one of both places.
const TOLD_ONCE: &str = "select kind, session_id from (
    select kind, session_id, actor as who, reason as why from session_event
      where actor is not null and kind <> 'compacted'
    union all select kind, session_id, who, why from audit_log where session_id is not null) k
  group by kind, session_id, who, why having count(*) <> 2";

fn does(operation: Operation, by: &str) -> Command {
    Command { session: session("s"), by: by.into(), reason: Some(format!("{by} says so")), operation }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entry_of_an_action_is_written_in_its_transaction() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &asking()).await;
    let asked = evaluate(&gate, ask("s", "c1", "reset", "{}")).await.verdict.approval.expect("a question").id;
    let answer = Operation::Answer { approval_id: asked.clone(), approve: true, clears: None, edited: None };
    let grant = Operation::Grant {
        id: "grn_1".to_owned(),
        tools: Pattern::parse("tools", "save*").expect("a pattern"),
        ceiling: 3,
        ttl_ms: 60_000,
    };
    let operations = [
        answer,
        Operation::SetPhase { phase: "EARLY".to_owned(), plan: None },
        grant,
        Operation::Revoke { id: "grn_1".to_owned() },
        Operation::MarkCompacted,
    ];
    for operation in operations {
        gate.decisions.control(DEFAULT_TENANT, &Command { by: max(), ..does(operation, "max") }).await.expect("done");
    }
    evaluate(&gate, ask("s", "c2", "save", "{}")).await;
    record(&gate, report("s", "c2", OutcomeStatus::Unknown)).await;
    let by = Some(Operator { by: max(), reason: Some("it is there".to_owned()) });
    record(&gate, OutcomeReport { by, ..report("s", "c2", OutcomeStatus::Success) }).await;
    let taken_back = evaluate(&gate, ask("s", "c3", "reset", r#"{"n":3}"#)).await.verdict.approval.expect("asked").id;
    let operation = Operation::Withdraw { approval_id: taken_back.clone() };
    gate.decisions.control(DEFAULT_TENANT, &does(operation, "s")).await.expect("withdrawn");
    let told = "select kind, who, credential, origin, session_id, regexp_replace(what, ', until .*', ''), why
        from audit_log order by number";
    let by_max = r#"max,"token cg_1",192.0.2.7,s"#;
    let expected = [
        format!(r#"(answered,{by_max},"approved {asked}: call c1","max says so")"#),
        format!(r#"(phase_set,{by_max},"phase EARLY","max says so")"#),
        format!(r#"(granted,{by_max},"grn_1: 3 calls of save*","max says so")"#),
        format!(r#"(revoked,{by_max},grn_1,"max says so")"#),
        format!(r#"(outcome_settled,{by_max},"call c2: success","it is there")"#),
        format!(r#"(withdrawn,s,local,,s,"{taken_back}: call c3","s says so")"#),
    ];
    assert_eq!(postgres.rows(told).await, expected);
    assert_eq!(verify_log(&store(&postgres).await, &[]).await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_answers_at_once_have_one_entry() {
    const QUESTIONS: usize = 12;
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &asking()).await;
    for n in 0..QUESTIONS {
        let request = ask("s", &format!("c{n}"), "reset", &format!(r#"{{"n":{n}}}"#));
        let approval_id = evaluate(&gates[n % 2], request).await.verdict.approval.expect("a question").id;
        let answers = [("eve", true), ("max", false)].into_iter().zip(gates.clone()).map(|((by, approve), gate)| {
            let operation = Operation::Answer { approval_id: approval_id.clone(), approve, clears: None, edited: None };
            async move { gate.decisions.control(DEFAULT_TENANT, &does(operation, by)).await.is_ok() }
        });
        let taken = all(answers).await.into_iter().filter(|taken| *taken).count();
        assert_eq!(taken, 1, "question {n}");
    }
    let told = postgres.number("select count(*) from audit_log where kind = 'answered'").await;
    assert_eq!(told, i64::try_from(QUESTIONS).expect("few"));
    assert_eq!(
        postgres.rows("select distinct count(*) from session_event group by detail ->> 'approval_id'").await,
        ["(1)"]
    );
    let checked = verify_log(&store(&postgres).await, &[]).await;
    assert_eq!(checked.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_cannot_be_told_is_not_stored_and_its_session_goes_on() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &asking()).await;
    let asked = evaluate(&gate, ask("s", "c1", "reset", "{}")).await.verdict.approval.expect("a question").id;
    postgres.tamper("alter table audit add constraint full_up check (number < 0) not valid").await;
    let operation = Operation::Answer { approval_id: asked, approve: true, clears: None, edited: None };
    let refused = gate.decisions.control(DEFAULT_TENANT, &does(operation.clone(), "eve")).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(postgres.rows("select from session_event").await, [""; 0], "nothing is there that nobody was told");
    run_call(&gate, ask("s", "c2", "look", "{}"), "a row").await;
    postgres.tamper("alter table audit drop constraint full_up").await;
    gate.decisions.control(DEFAULT_TENANT, &does(operation, "eve")).await.expect("an answer");
    assert_eq!(postgres.rows(TOLD_ONCE).await, [""; 0]);
}

/// Verification of an audit log of four entries after each tampering.
async fn tamper_and_verify(sql: &[&str]) -> (ChainVerification, Vec<String>) {
    let postgres = Postgres::start().await;
    work(&*gate(&postgres, &policy(&[])).await).await;
    let store = store(&postgres).await;
    let before = verify_log(&store, &[]).await;
    for sql in sql {
        assert!(postgres.tamper(sql).await > 0, "{sql}");
    }
    let anchor = before.last.clone().expect("entries");
    (verify_log(&store, &[]).await, verify_log(&store, &[&anchor]).await.problems)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_entry_is_found() {
    for (sql, told) in [
        ("update audit set words[6] = 'no reason' where number = 2", "entry 2 was changed: `why`"),
        ("update audit set words[1] = 'eve' where number = 2", "entry 2 was changed: `who`"),
        ("update audit set kind = 'halted' where number = 2", "entry 2 was changed: its hash"),
        ("update audit set at = '2001-01-01' where number = 2", "entry 2 was changed: its hash"),
        ("update audit set words[6] = null where number = 2", "entry 2 was changed: `why`"),
        ("update audit set words[6] = null, salts[6] = null where number = 2", "no entry tells of forgetting it"),
        (
            "update audit set words[6] = null, salts[6] = null, erased_by = 3 where number = 2",
            "entry 3 does not tell of forgetting",
        ),
        ("update audit set words[6] = null, salts[6] = null, marks[6] = null where number = 2", "its hash is another"),
    ] {
        let (checked, _) = tamper_and_verify(&[sql]).await;
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
        let (checked, _) = tamper_and_verify(&[sql]).await;
        assert!(checked.problems.concat().contains(told), "{sql}: {:?}", checked.problems);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_was_cut_off_with_its_head_is_found_by_an_anchor_alone() {
    let cut = [
        "delete from audit where number = 4",
        "update audit_head set number = 3, hash = (select hash from audit where number = 3)",
    ];
    let (unaided, anchored) = tamper_and_verify(&cut).await;
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
    let (unaided, anchored) = tamper_and_verify(&anew).await;
    assert_eq!(unaided.problems, Vec::<String>::new());
    assert_eq!(anchored, ["entry 4 is not the one that the anchor was taken of"]);
}
