//! What is forgotten leaves no word in any table, and no replica answers from it.

use callgate::{
    domain::{
        audit::Actor,
        call::Request,
        control::{Command, Operation},
        failure::ErrorReport,
        forgetting::{Forgot, Whom},
        halt::Halted,
        ids::{DEFAULT_TENANT, UserId},
        outcome::OutcomeStatus,
        pattern::Pattern,
        report::{Operator, Report},
    },
    gate::{Gate, PrivacyError},
    policy,
};
use tokio::sync::mpsc;

use crate::common::{
    gates::{agent, ask, done, evaluate, record, report, said, session, success, two_gates},
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  rules: {growth: {mode: off}}
  phases: [{name: START, tools: '*', next: [MIDDLE]}, {name: MIDDLE, tools: '*'}]
  authorization:
    tiers:
      - {name: asks, pattern: 'reset*', action: hitl}
      - {name: limited, pattern: 'few*', action: allowlist, rate_limit: 100/min, per: agent}
      - {name: rest, pattern: '*', action: allowlist}
  tool_schemas:
    look: {effect: read}
    pay: {once: true}
    save: {effect: write}
";

fn user(name: &str) -> Option<UserId> {
    Some(UserId::parse("user", name).expect("a good name"))
}

async fn forget(gate: &Gate, whom: &Whom, why: &str) -> Result<Forgot, PrivacyError> {
    let (told, _told) = mpsc::channel(500);
    Box::pin(gate.forget(DEFAULT_TENANT, whom, (&Actor::from("officer"), why), &told)).await
}

/// Everything that can be said in a call tree and of it, with a word that is nowhere else.
async fn work(gate: &Gate, other: &Gate, word: &str, of: impl Fn(Request) -> Request) {
    let named = |what: &str| format!("{what}-{word}");
    let (root, child) = (named("root"), named("child"));
    let asked = |session: &str, call: &str, tool: &str| {
        let arguments = format!(r#"{{"of":"{word}"}}"#);
        let justification = Some(named("because"));
        of(Request { justification, ..ask(session, &format!("{call}-{word}"), tool, &arguments) })
    };
    // What is done once in the tenant is asked for by others too.
    let pay = of(ask(&root, &named("pay"), "pay", r#"{"bill":7}"#));
    if evaluate(gate, pay).await.verdict.permit.is_some() {
        record(gate, success(&root, &named("pay"), &format!("paid for {word}"))).await;
    }
    done(gate, asked(&root, "look", "look"), &format!("seen by {word}")).await;
    evaluate(gate, asked(&root, "save", "save")).await;
    let running =
        Report { progress_note: Some(named("half way")), ..report(&root, &named("save"), OutcomeStatus::Running) };
    record(gate, running).await;
    let error = ErrorReport { message: named("broken"), ..ErrorReport::default() };
    record(gate, Report { error: Some(error), ..report(&root, &named("save"), OutcomeStatus::Error) }).await;
    let below = Request { parent: Some(session(&root)), ..asked(&child, "lost", "few") };
    evaluate(other, below).await;
    record(other, report(&child, &named("lost"), OutcomeStatus::Unknown)).await;
    let by = Some(Operator { by: Actor::from("eve"), reason: Some(named("found")) });
    record(
        other,
        Report { by, result: Some(named("settled")), ..report(&child, &named("lost"), OutcomeStatus::Success) },
    )
    .await;
    let reset = asked(&root, "reset", "reset");
    let approval_id = evaluate(gate, reset).await.verdict.approval.expect("a question").id;
    for (operation, by) in [
        (Operation::Answer { approval_id, approve: true, clears: None }, "eve"),
        (Operation::SetPhase { phase: "MIDDLE".to_owned(), plan: None }, "eve"),
        (
            Operation::Grant {
                id: named("grant"),
                tools: Pattern::parse("tools", &named("few")).expect("a pattern"),
                ceiling: 3,
                ttl_ms: 60_000,
            },
            "eve",
        ),
        (Operation::MarkCompacted, root.as_str()),
    ] {
        let reason = Some(named("comment"));
        let command = Command { session: session(&root), by: Actor::from(by), reason, operation };
        gate.control(DEFAULT_TENANT, &command).await.expect("done");
    }
    let batch = ["one", "two"].map(|call| asked(&root, call, "look")).into_iter();
    let batch = batch.enumerate().map(|(n, request)| {
        let arguments = callgate::domain::json::parse(&format!(r#"{{"n":{n},"of":"{word}"}}"#)).expect("JSON");
        Request { arguments, ..request }
    });
    Box::pin(gate.evaluate(batch.collect())).await.expect("answers");
    for what in [Halted::Session(session(&child)), Halted::Session(session(&root))] {
        gate.halt(DEFAULT_TENANT, &what, "eve", &named("stopped")).await.expect("a halt");
        gate.resume(DEFAULT_TENANT, &what, "eve", &named("go on")).await.expect("resumed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forgotten_leaves_no_word_in_any_table_and_the_audit_holds() {
    let postgres = Postgres::start().await;
    let [gate, other] = two_gates(&postgres, &policy::compile(POLICY).expect("a good policy")).await;
    let as_is = |agent_id: &'static str, user_id: &'static str| {
        move |request: Request| Request { agent: agent(agent_id), user: user(user_id), ..request }
    };
    work(&gate, &other, "ottilie", as_is("desk", "number-1")).await;
    work(&gate, &other, "eduard", as_is("agent-luciane", "number-2")).await;
    work(&gate, &other, "mittler", as_is("desk", "user-charlotte")).await;
    done(&gate, as_is("desk", "number-3")(ask("stays", "c1", "look", "{}")), "this stays").await;
    // Somebody else was told of a payment of theirs.
    let told = evaluate(&other, ask("stays", "c2", "pay", r#"{"bill":7}"#)).await;
    assert_eq!(said(&told), "REUSE duplicate_call_blocked");
    let what = Halted::Agent(agent("agent-luciane").expect("a name"));
    gate.halt(DEFAULT_TENANT, &what, "eve", "as user-charlotte says").await.expect("a halt");
    for (whom, words) in [
        (Whom::Session(session("child-ottilie")), ["ottilie", "ottilie"]),
        (Whom::Agent(agent("agent-luciane").expect("a name")), ["eduard", "luciane"]),
        (Whom::User(user("user-charlotte").expect("a name")), ["mittler", "charlotte"]),
    ] {
        for word in words {
            assert!(postgres.dump().await.contains(word), "{word} was there");
        }
        let forgot = forget(&gate, &whom, "they asked for it").await.expect("forgotten");
        assert_eq!((forgot.trees, forgot.sessions), (1, 2), "{whom:?}");
        let dump = postgres.dump().await;
        for word in words {
            assert_eq!(dump.lines().find(|line| line.contains(word)), None);
        }
        assert_eq!(forget(&gate, &whom, "again").await, Err(PrivacyError::Unknown));
    }
    let checked = gate.check_audit(DEFAULT_TENANT, Vec::new()).await.expect("checked");
    assert!(checked.problems.is_empty(), "{checked:?}");
    let told = postgres.number("select count(*) from audit_log where kind = 'forgotten' and who = 'officer'").await;
    assert!(told >= 3, "{told}");
    // A payment is known to have been made, and by nobody.
    let pay = Request { user: user("number-9"), ..ask("root-ottilie", "again", "pay", r#"{"bill":7}"#) };
    let again = evaluate(&gate, pay).await;
    assert_eq!(said(&again), "REUSE duplicate_call_blocked");
    let text = again.text.expect("a text").json;
    assert!(!text.contains("pay-ottilie") && !text.contains("paid for"), "{text}");
    assert!(postgres.dump().await.contains("this stays"));
}
