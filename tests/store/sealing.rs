//! Encryption at rest: with keys, no text of arguments or results is in a dump; verdicts and responses are the same;
//! modified, swapped and undecryptable values are reported; and low-entropy values cannot be guessed.

use std::{collections::BTreeMap, sync::Arc};

use callgate_core::{
    domain::{
        audit::Actor,
        audit::AuditFilter,
        call::Request,
        control::{ClearanceScope, ClearanceTerms, Command, EditedArguments, Operation},
        failure::ErrorReport,
        fingerprint::{ArgsDigest, Fingerprint, ResultDigest},
        ids::{DEFAULT_TENANT, ToolName},
        inbox::ApprovalQuery,
        outcome::OutcomeStatus,
        report::OutcomeReport,
        session_state::Extent,
        tenant::Quotas,
    },
    policy::{self, Policy},
};
use callgate_server::gate::{EvaluateError, Gate, NoAnswer, TenantChange};
use callgate_store::DecisionStore as _;

use crate::common::{
    gates::{
        ask, call_id, describe_answer, evaluate, failure, gate, keys, record, report, run_call, seal, session, success,
        try_evaluate,
    },
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  unknown_tools: deny
  authorization:
    tiers:
      - {name: asks, pattern: charge, action: hitl}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas:
    look:
      effect: read
      schema: {type: object, properties: {place: {type: string, maxLength: 40}, n: {type: integer}}}
    move: {effect: write, side_effect_resource: 'bird/{bird}'}
    charge: {effect: write, side_effect_resource: 'nest/{nest}'}
    pay: {once: true}
    unlock: {effect: read, storage: {arguments: hash, results: hash}}
";
pub(crate) const KEY: &[(&str, u8)] = &[("2026-11", 1)];

pub(crate) fn rules() -> Policy {
    policy::compile(POLICY).expect("a good policy")
}

/// Every word of its story, used nowhere else.
pub(crate) const WORDS: [&str; 18] = [
    "wagtail",
    "redstart",
    "bullfinch",
    "siskin",
    "dunnock",
    "fieldfare",
    "whinchat",
    "nuthatch",
    "goldcrest",
    "chiffchaff",
    "brambling",
    "hawfinch",
    "linnet",
    "pipit",
    "ouzel",
    "twite",
    "serin",
    "fulmar",
];

/// A story with words in all that is stored.
pub(crate) async fn story(gate: &Gate) {
    let with_reason = |request: Request| Request { justification: Some("for the wagtail".to_owned()), ..request };
    run_call(gate, with_reason(ask("s", "c1", "look", r#"{"place":"redstart","n":7}"#)), r#"{"id":"bullfinch-7"}"#)
        .await;
    let again = evaluate(gate, ask("s", "c2", "look", r#"{"place":"redstart","n":7}"#)).await;
    assert_eq!(describe_answer(&again), "REUSE duplicate_call_blocked");
    assert!(again.text.is_some_and(|text| format!("{text:?}").contains("bullfinch-7")), "the result is told");
    let wrong = format!(r#"{{"place":"siskin{}"}}"#, "x".repeat(40));
    assert_eq!(describe_answer(&evaluate(gate, ask("s", "c3", "look", &wrong)).await), "DENY validation_error");
    evaluate(gate, ask("s", "c4", "look", r#"{"place":"dunnock"}"#)).await;
    let message = "no fieldfare at line 3\nwhinchat".to_owned();
    let error = ErrorReport { error_type: Some("internal".to_owned()), message, ..ErrorReport::default() };
    record(gate, OutcomeReport { error: Some(error), ..report("s", "c4", OutcomeStatus::Error) }).await;
    evaluate(gate, ask("s", "c5", "move", r#"{"bird":"nuthatch"}"#)).await;
    let note = Some("at the goldcrest".to_owned());
    record(gate, OutcomeReport { progress_note: note, ..report("s", "c5", OutcomeStatus::Running) }).await;
    record(gate, success("s", "c5", r#"{"moved":"chiffchaff","name":"brambling"}"#)).await;
    let asked = evaluate(gate, ask("s", "c6", "charge", r#"{"nest":"hawfinch"}"#)).await;
    let approval_id = asked.verdict.approval.expect("a question").id;
    let clears = Some(ClearanceTerms { scope: ClearanceScope::Resource, ttl_ms: 3_600_000 });
    let command = Command {
        session: session("s"),
        by: Actor::from("eve"),
        reason: Some("the linnet may".to_owned()),
        operation: Operation::Answer { approval_id, approve: true, clears, edited: None },
    };
    gate.decisions.control(DEFAULT_TENANT, &command).await.expect("an answer that is taken");
    run_call(gate, ask("s", "c6", "charge", r#"{"nest":"hawfinch"}"#), "pipit").await;
    run_call(gate, ask("s", "c7", "pay", r#"{"to":"ouzel"}"#), "paid the twite").await;
    assert_eq!(describe_answer(&evaluate(gate, ask("s", "c8", "serin_tool", "{}")).await), "DENY unknown_tool");
    run_call(gate, ask("s", "c9", "unlock", r#"{"pin":"4711"}"#), "0815").await;
    let asked = evaluate(gate, ask("s", "c10", "charge", r#"{"nest":"n2"}"#)).await;
    let approval_id = asked.verdict.approval.expect("a question").id;
    let edited = Some(EditedArguments { digest: ArgsDigest([7; 32]), arguments: Some(r#"{"nest":"fulmar"}"#.into()) });
    let operation = Operation::Answer { approval_id, approve: true, clears: None, edited };
    let command = Command { session: session("s"), by: Actor::from("eve"), reason: None, operation };
    gate.decisions.control(DEFAULT_TENANT, &command).await.expect("an answer that is taken");
    let told = evaluate(gate, ask("s", "c10", "charge", r#"{"nest":"n2"}"#)).await;
    assert_eq!(describe_answer(&told), "DENY approval_edited");
    assert!(told.text.is_some_and(|text| text.json.contains("fulmar")), "the model is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_word_is_in_a_dump_and_all_is_told_as_before() {
    let (plain, sealed) = (Postgres::start().await, Postgres::start().await);
    let gates = [gate(&plain, &rules()).await, gate(&sealed, &rules()).await];
    seal(&gates[1], KEY).await;
    for gate in &gates {
        story(gate).await;
    }
    let (in_the_clear, dump) = (plain.dump().await, sealed.dump().await);
    for word in WORDS {
        assert!(in_the_clear.contains(word), "{word} is told nowhere");
        // The name of a tool that does not exist is a name.
        assert_eq!(dump.contains(word), word == "serin", "{word}");
    }
    assert!(dump.contains("encrypted:1:2026-11:"));

    // A new replica returns and knows the same.
    let cold = [gate(&plain, &rules()).await, gate(&sealed, &rules()).await];
    seal(&cold[1], KEY).await;
    let mut told = Vec::new();
    for gate in &cold {
        told.push(look_back(gate).await);
    }
    assert_eq!(told[0], told[1]);
    assert!(
        told[0].contains("blocked Some(true)") && told[0].contains("linnet") && told[0].contains("hawfinch"),
        "{}",
        told[0]
    );

    for view in sealed.rows("select viewname::text from pg_views where schemaname = 'callgate'").await {
        let view = view.trim_matches(['(', ')']);
        sealed.rows(&format!("select * from callgate.{view}")).await;
    }
    let shown = "select call_id from tool_call where arguments like 'encrypted:1:2026-11:%' and call_id <> 'c2'";
    assert!(sealed.rows(shown).await.len() > 5);
    let rates = "select tool, calls, failed, loops, duplicates, bad_arguments, coercions from tool_quality order by 1";
    assert_eq!(plain.rows(rates).await, sealed.rows(rates).await);
}

/// The story as seen by a new reader, without random parts.
pub(crate) async fn look_back(gate: &Gate) -> String {
    let mut told = Vec::new();
    for (call, tool, arguments) in [
        ("d1", "look", r#"{"place":"redstart","n":7}"#),
        ("d2", "move", r#"{"bird":"nuthatch"}"#),
        ("d3", "charge", r#"{"nest":"hawfinch","more":1}"#),
        ("d4", "charge", r#"{"nest":"crow"}"#),
        ("d6", "look", r#"{"place":"dunnock"}"#),
        ("d7", "unlock", r#"{"pin":"4711"}"#),
        ("d8", "unlock", r#"{"pin":"4712"}"#),
    ] {
        let answer = evaluate(gate, ask("s", call, tool, arguments)).await;
        let text = answer.text.as_ref().map(|text| format!("{text:?}").contains("bullfinch"));
        told.push(format!("{call} {} {text:?}", describe_answer(&answer)));
    }
    // Another tree: `once` goes over all of them.
    let elsewhere = evaluate(gate, ask("t", "d9", "pay", r#"{"to":"ouzel"}"#)).await;
    told.push(format!(
        "{} {:?}",
        describe_answer(&elsewhere),
        elsewhere.text.map(|text| format!("{text:?}").contains("twite"))
    ));
    let questions = gate
        .store
        .questions(DEFAULT_TENANT, &ApprovalQuery { max: 10, ..ApprovalQuery::default() })
        .await
        .expect("readable");
    for question in questions.iter().filter(|question| question.call_id == "c6") {
        let resolution = question.resolution.as_ref().expect("answered");
        told.push(format!(
            "{} {:?} {:?}",
            question.arguments,
            resolution.reason,
            resolution.clears.as_ref().map(|c| &c.0)
        ));
    }
    let audit = gate.store.audit(DEFAULT_TENANT, &AuditFilter::default(), None, 10).await.expect("readable").0;
    let answered = audit.iter().filter(|entry| entry.kind == "answered");
    told.extend(answered.map(|entry| format!("{:?}", entry.words[5].text)));
    assert!(gate.store.check_audit(DEFAULT_TENANT, Vec::new()).await.expect("readable").problems.is_empty());
    let state = gate.decisions.session_state(DEFAULT_TENANT, &session("s"), Extent::default()).await.expect("known");
    told.push(format!("{state:?}").split("shape").next().unwrap_or_default().len().min(1).to_string());
    told.join("\n")
}

/// The tree of `s` as a replica finds it that has not been there.
async fn cold(postgres: &Postgres, ids: &[(&str, u8)]) -> Result<String, EvaluateError> {
    let gate = gate(postgres, &rules()).await;
    seal(&gate, ids).await;
    try_evaluate(&gate, ask("s", "cold", "look", r#"{"place":"anew"}"#)).await.map(|answer| describe_answer(&answer))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_or_moved_value_does_not_decrypt() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &rules()).await;
    seal(&gate, KEY).await;
    for call in ["a", "b"] {
        evaluate(&gate, ask("s", call, "move", &format!(r#"{{"bird":"{call}"}}"#))).await;
        evaluate(&gate, ask("t", call, "move", &format!(r#"{{"bird":"{call}"}}"#))).await;
    }
    assert_eq!(cold(&postgres, KEY).await, Ok("ALLOW".to_owned()));
    let whole = "create table kept as select * from call";
    postgres.tamper(whole).await;
    let back = "update call c set arguments = k.arguments, resource = k.resource from kept k
        where (c.session_id, c.seq) = (k.session_id, k.seq)";
    for (what, sql) in [
        ("changed", "update call set arguments = overlay(arguments placing 'AAAA' from 60) where session_id = 's'"),
        (
            "swapped",
            "update call c set arguments = k.arguments from kept k where c.session_id = 's'
            and k.session_id = 's' and c.call_id <> k.call_id",
        ),
        (
            "of another session",
            "update call c set arguments = k.arguments from kept k where c.session_id = 's'
            and k.session_id = 't' and c.seq = k.seq",
        ),
        ("another column's", "update call c set resource = c.arguments where session_id = 's'"),
    ] {
        assert!(postgres.tamper(sql).await > 0, "{what}");
        let found = cold(&postgres, KEY).await;
        assert!(matches!(found, Err(EvaluateError::NoAnswer(NoAnswer::Fault(_)))), "{what}: {found:?}");
        postgres.tamper(back).await;
        assert_eq!(cold(&postgres, KEY).await, Ok("ALLOW".to_owned()), "{what}, and put right");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_cannot_be_guessed_from_what_is_stored() {
    for is_sealed in [false, true] {
        let postgres = Postgres::start().await;
        let gate = gate(&postgres, &rules()).await;
        if is_sealed {
            seal(&gate, KEY).await;
        }
        run_call(&gate, ask("s", "c", "unlock", r#"{"pin":"4711"}"#), r#"{"pin":"0815"}"#).await;
        run_call(&gate, ask("s", "p", "pay", r#"{"pin":"4711"}"#), "done").await;
        let dump = postgres.dump().await;
        let tools = ["unlock", "pay"].map(|tool| ToolName::parse("tool", tool).expect("a name"));
        let guesses = (0..10_000).flat_map(|pin| {
            let text = format!(r#"{{"pin":"{pin:04}"}}"#);
            let of = |tool: &ToolName| [Fingerprint::of(tool, &text).to_hex(), ArgsDigest::of(tool, &text).to_hex()];
            let mut all: Vec<String> = tools.iter().flat_map(of).collect();
            all.extend([ResultDigest::of_success(&text).to_hex(), callgate_core::domain::digest::of_text(&text)]);
            all
        });
        let found = guesses.filter(|guess| dump.contains(guess.as_str())).count();
        assert_eq!(found > 0, !is_sealed, "{found} hashes were guessed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_rotate_and_a_missing_one_is_told() {
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &rules()).await;
    seal(&first, &[("old", 1)]).await;
    evaluate(&first, ask("s", "a", "move", r#"{"bird":"a"}"#)).await;
    // A running replica takes over a new key, and one with both reads values of each.
    seal(&first, &[("new", 2), ("old", 1)]).await;
    evaluate(&first, ask("s", "b", "move", r#"{"bird":"b"}"#)).await;
    assert_eq!(
        postgres.rows("select call_id, split_part(arguments, ':', 3) from call order by seq").await,
        ["(a,old)", "(b,new)"]
    );
    let second = gate(&postgres, &rules()).await;
    seal(&second, &[("new", 2), ("old", 1)]).await;
    let again = evaluate(&second, ask("s", "c", "move", r#"{"bird":"a"}"#)).await;
    assert_ne!(describe_answer(&again), "ALLOW", "the write is known");
    let lost = cold(&postgres, &[("new", 2)]).await;
    let Err(EvaluateError::NoAnswer(NoAnswer::KeyMissing(told))) = lost else { panic!("{lost:?}") };
    assert_eq!(told, "the key \"old\" of tenant 1 is not on this server, and values are encrypted with it");
    let new_tree = gate(&postgres, &rules()).await;
    seal(&new_tree, &[("new", 2)]).await;
    assert_eq!(
        describe_answer(&evaluate(&new_tree, ask("u", "a", "look", "{}")).await),
        "ALLOW",
        "what needs no old word goes on"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_without_its_keys_is_not_served_and_others_are() {
    let postgres = Postgres::start().await;
    let first = gate(&postgres, &rules()).await;
    let made = first.identities.create_tenant("acme", &Quotas::default(), &Actor::from("eve")).await.expect("made");
    let TenantChange::Done(acme) = made else { panic!("{made:?}") };
    let of_acme = |request: Request| Request { tenant: acme.id, ..request };
    let named = |fingerprint| BTreeMap::from([("acme".to_owned(), keys(KEY, fingerprint))]);
    first.identities.set_tenant_keys(named(7)).await.expect("known");
    try_evaluate(&first, of_acme(ask("s", "a", "look", "{}"))).await.expect("an answer");
    try_evaluate(&first, ask("s", "a", "look", "{}")).await.expect("an answer");
    let stored = "select tenant_id, arguments like 'encrypted:%' from call order by 1";
    assert_eq!(postgres.rows(stored).await, ["(1,f)", "(2,t)"]);
    for (what, named) in [("none", BTreeMap::new()), ("another", named(8))] {
        let second = gate(&postgres, &rules()).await;
        second.identities.set_tenant_keys(named).await.expect("known");
        assert_eq!(second.identities.key_problems().len(), usize::from(what == "another"));
        let answer = try_evaluate(&second, of_acme(ask("s", what, "look", "{}"))).await;
        assert!(matches!(answer, Err(EvaluateError::NoAnswer(NoAnswer::KeyMissing(_)))), "{what}: {answer:?}");
        let late = second.decisions.record(acme.id, success("s", "a", "late"), None).await;
        assert!(late.is_err(), "{what}: nothing of it is stored in the clear");
        try_evaluate(&second, ask("s", what, "look", "{}")).await.expect("an answer");
        assert!(
            second.decisions.expire_leases(second.store.now().plus_ms(9_000_000)).await.is_ok(),
            "others' leases end"
        );
    }
    assert_eq!(postgres.rows("select distinct tenant_id from call where arguments like 'encrypted:%'").await, ["(2)"]);
    assert_eq!(
        first.decisions.record(acme.id, success("s", "a", "late"), None).await.map(|told| told.replayed),
        Ok(false)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_writes_from_before_is_asked_for() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &rules()).await;
    run_call(&gate, ask("s", "a", "pay", r#"{"to":"ouzel"}"#), "done").await;
    let named = |keys| BTreeMap::from([("default".to_owned(), keys)]);
    gate.identities.set_tenant_keys(named(keys(KEY, 1))).await.expect("known");
    assert!(gate.identities.key_problems()[0].contains("could be done twice"), "{:?}", gate.identities.key_problems());
    assert_eq!(
        describe_answer(&evaluate(&gate, ask("t", "b", "pay", r#"{"to":"ouzel"}"#)).await),
        "REUSE duplicate_call_blocked"
    );
    let mut anew = Arc::unwrap_or_clone(keys(KEY, 1));
    anew.anew = true;
    gate.identities.set_tenant_keys(named(Arc::new(anew))).await.expect("known");
    assert_eq!(gate.identities.key_problems(), [""; 0]);
    assert_eq!(
        describe_answer(&evaluate(&gate, ask("t", "c", "pay", r#"{"to":"ouzel"}"#)).await),
        "ALLOW",
        "as it was asked for"
    );
    record(&gate, failure("t", "c", "unavailable")).await;
    // Values stored before are read as they are.
    let store = crate::common::gates::store(&postgres).await;
    let given = store.arguments(DEFAULT_TENANT, &session("s"), &call_id("a")).await.expect("readable");
    assert_eq!(given.as_deref(), Some(r#"{"to":"ouzel"}"#));
}
