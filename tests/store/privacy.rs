//! Redaction: no secret is in a dump of the database, and calls are distinguished by the original values.

use callgate_core::{
    domain::{
        audit::Actor,
        call::Request,
        control::{Command, Operation},
        failure::ErrorReport,
        halt::HaltTarget,
        ids::DEFAULT_TENANT,
        inbox::ApprovalQuery,
        json::Json,
        outcome::OutcomeStatus,
        report::OutcomeReport,
    },
    policy,
};
use callgate_server::gate::Gate;
use proptest::{
    prelude::Strategy,
    prop_oneof,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::common::{
    gates::{agent, ask, describe_answer, evaluate, gate, record, report, run_call, session, success},
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  rules: {growth: {mode: off}}
  authorization:
    tiers:
      - {name: asks, pattern: charge, action: hitl}
      - {name: rest, pattern: '*', action: allowlist}
  storage: {redact: [maiden_name]}
  tool_schemas:
    login: {effect: write, side_effect_resource: 'account/{password}', second_change: allow}
    look:
      effect: read
      schema: {type: object, properties: {password: {type: string, maxLength: 3}}}
    charge: {once: true}
    plain: {effect: read, storage: {arguments: raw, results: raw}}
";

/// Forms that are secrets wherever they stand.
fn form() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Z][a-z][0-9][A-Za-z0-9]{33}".prop_map(|drawn| format!("ghp_{drawn}")),
        "[A-Z][a-z][0-9][A-Za-z0-9]{21}".prop_map(|drawn| format!("sk_live_{drawn}")),
        "[A-Z][a-z][0-9][A-Za-z0-9]{17}".prop_map(|drawn| format!("eyJ{drawn}.{drawn}.{drawn}")),
        "AKIA[A-Z]{8}[0-9][A-Z0-9]{7}",
    ]
}

fn quote_text(text: &str) -> String {
    Json::String(text.to_owned()).canonical()
}

/// A secret that is a number.
fn numeric_secret(n: usize) -> usize {
    90_417_700 + n
}

/// Calls of all kinds, with a secret that has a name and one that is known by its form.
async fn calls_with(gate: &Gate, n: usize, named: &str, formed: &str) {
    let (s, call) = (format!("s{}", n % 5), |kind: &str| format!("{kind}{n}"));
    let login = format!(
        r#"{{"password":{},"deep":[{{"note":{}}}],"maiden_name":{}}}"#,
        quote_text(named),
        quote_text(&format!("use {formed} please")),
        quote_text(&format!("{named}x"))
    );
    let request = Request {
        justification: Some(format!("They said: --password {formed} and {named}")),
        agent: agent("bot"),
        ..ask(&s, &call("login"), "login", &login)
    };
    assert_eq!(describe_answer(&evaluate(gate, request).await), "ALLOW");
    let running = OutcomeReport {
        progress_note: Some(format!("with {formed}")),
        ..report(&s, &call("login"), OutcomeStatus::Running)
    };
    record(gate, running).await;
    let answer = format!(
        r#"{{"id":"u{n}","token":{},"echo":"it was {formed}","map":{{{}:1}},"maiden_name":{}}}"#,
        quote_text(named),
        quote_text(formed),
        numeric_secret(n)
    );
    record(gate, success(&s, &call("login"), &answer)).await;
    let wrong =
        evaluate(gate, ask(&s, &call("wrong"), "look", &format!(r#"{{"password":{}}}"#, quote_text(named)))).await;
    assert_eq!(describe_answer(&wrong), "DENY validation_error");
    evaluate(gate, ask(&s, &call("bad"), "look", &format!(r#"{{"at":{n}}}"#))).await;
    let error = ErrorReport {
        error_type: Some("auth".to_owned()),
        message: format!("{{\"authorization\": {}, \"because\": \"{formed} is stale\"}}", quote_text(named)),
        ..ErrorReport::default()
    };
    record(gate, OutcomeReport { error: Some(error), ..report(&s, &call("bad"), OutcomeStatus::Error) }).await;
    run_call(gate, ask(&s, &call("text"), "look", &format!(r#"{{"n":{n}}}"#)), &format!("API_KEY='{formed}'\nok"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_a_dump_of_the_database() {
    let postgres = Postgres::start().await;
    let gate = gate(&postgres, &policy::compile(POLICY).expect("a good policy")).await;
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut dice = TestRunner::new_with_rng(Config::default(), rng);
    let mut draw = |strategy: &dyn Fn() -> proptest::strategy::BoxedStrategy<String>| {
        strategy().new_tree(&mut dice).expect("a value").current()
    };
    let mut secrets = Vec::new();
    for n in 0..40 {
        let named = draw(&|| "[a-zA-Z0-9 \"\\\\é]{8,30}".prop_map(|drawn| format!("Qz{drawn}")).boxed());
        let formed = draw(&|| form().boxed());
        calls_with(&gate, n, &named, &formed).await;
        secrets.extend([named, formed, numeric_secret(n).to_string()]);
    }
    let asked = evaluate(&gate, ask("s0", "pay", "charge", r#"{"card":"4111 1111 1111 1111"}"#)).await;
    let approval_id = asked.verdict.approval.expect("a question").id;
    let command = Command {
        session: session("s0"),
        by: Actor::from("eve"),
        reason: Some("I know 4111-1111-1111-1111".to_owned()),
        operation: Operation::Answer { approval_id, approve: true, clears: None, edited: None },
    };
    gate.decisions.control(DEFAULT_TENANT, &command).await.expect("an answer that is taken");
    gate.decisions
        .halt(DEFAULT_TENANT, &HaltTarget::Session(session("s4")), "eve", "leaked 4111111111111111")
        .await
        .expect("a halt");
    secrets.extend(["4111 1111 1111 1111", "4111-1111-1111-1111", "4111111111111111"].map(str::to_owned));

    let dump = postgres.dump().await;
    assert!(dump.contains("[redacted]") && dump.contains("u39"), "what is no secret is there");
    for secret in &secrets {
        let escaped = quote_text(secret);
        let escaped = &escaped[1..escaped.len() - 1];
        // A row as text doubles quotes and backslashes.
        let doubled = escaped.replace('\\', "\\\\").replace('"', "\"\"");
        for form in [secret.as_str(), escaped, &doubled] {
            assert!(!dump.contains(form), "{form} is in the database");
        }
    }

    // Fields with storage mode `raw` are kept.
    run_call(&gate, ask("s0", "raw", "plain", r#"{"password":"sesame street"}"#), "token=ab12cd34ef").await;
    let dump = postgres.dump().await;
    assert!(dump.contains("sesame street") && dump.contains("ab12cd34ef"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_told_apart_by_the_true_value() {
    let postgres = Postgres::start().await;
    let policy = policy::compile(POLICY).expect("a good policy");
    let warm = gate(&postgres, &policy).await;
    let login = |call: &str, password: &str| ask("s", call, "login", &format!(r#"{{"password":"{password}"}}"#));
    run_call(&warm, login("c1", "sesame-1"), r#"{"id":7,"session":{"token":"abc-123-xyz"}}"#).await;
    let cold = gate(&postgres, &policy).await;
    for (gate, n) in [(&warm, 1), (&cold, 2)] {
        assert_eq!(
            describe_answer(&evaluate(gate, login(&format!("other{n}"), &format!("sesame-2{n}"))).await),
            "ALLOW"
        );
        let again = evaluate(gate, login(&format!("again{n}"), "sesame-1")).await;
        assert_eq!(describe_answer(&again), "REUSE duplicate_call_blocked");
        let text = again.text.expect("a text").json;
        let missing = r#""redacted_fields":["session.token"]"#;
        let told = "Secrets are not stored: session.token is missing there.";
        assert!(text.contains(missing) && text.contains(told) && !text.contains("abc-123"), "{text}");
    }
    let charge = |call: &str, card: &str| ask("s", call, "charge", &format!(r#"{{"card":"{card}"}}"#));
    let asked = evaluate(&warm, charge("pay1", "4111111111111111")).await;
    let approval_id = asked.verdict.approval.expect("a question").id;
    let question = warm.store.questions(DEFAULT_TENANT, &ApprovalQuery { max: 9, ..ApprovalQuery::default() }).await;
    assert!(!format!("{question:?}").contains("4111"), "{question:?}");
    let operation = Operation::Answer { approval_id, approve: true, clears: None, edited: None };
    let command = Command { session: session("s"), by: Actor::from("eve"), reason: None, operation };
    warm.decisions.control(DEFAULT_TENANT, &command).await.expect("an answer that is taken");
    assert_eq!(describe_answer(&evaluate(&warm, charge("pay2", "5555555555554444")).await), "ASK approval_required");
    assert_eq!(describe_answer(&evaluate(&warm, charge("pay1", "4111111111111111")).await), "ALLOW");
}
