//! What people were asked and said, known to a replica that starts long afterwards.

use callgate::{
    domain::ids::DEFAULT_TENANT,
    engine::{Command, Operation},
    gate::{EvaluateAnswer, Gate},
    rules::Mode,
};

use crate::common::{
    gates::{ask, evaluate, gate, record, session, success},
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  authorization: {tiers: [{name: asks, pattern: reset, action: hitl}, {name: rest, pattern: '*', action: allowlist}]}
  tool_schemas: {look: {effect: read}}
";

/// Asks for a reset; what a person is asked, when one is.
async fn reset(gate: &Gate, call: &str, device: u32) -> (EvaluateAnswer, Option<String>) {
    let answer = evaluate(gate, ask("s", call, "reset", &format!(r#"{{"device":{device}}}"#))).await;
    let asked = answer.verdict.approval.as_ref().map(|approval| approval.id.clone());
    (answer, asked)
}

async fn resolve(gate: &Gate, approval_id: Option<String>, approve: bool) {
    let approval_id = approval_id.expect("a question");
    let operation = Operation::Answer { approval_id, approve };
    let command = Command { session: session("s"), by: "eve".to_owned(), reason: None, operation };
    gate.control(DEFAULT_TENANT, &command).await.expect("an answer that is taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_gate_knows_questions_that_were_asked_long_ago() {
    let postgres = Postgres::start().await;
    let mut policy = callgate::policy::compile(POLICY).expect("a good policy");
    ["growth", "budget"].into_iter().for_each(|rule| policy.rules.set_mode(rule, Mode::Off));
    let old = gate(&postgres, &policy).await;
    let (_, open) = reset(&old, "open", 1).await;
    let (_, approved) = reset(&old, "approved", 2).await;
    resolve(&old, approved, true).await;
    let (_, used) = reset(&old, "used", 3).await;
    resolve(&old, used.clone(), true).await;
    assert!(reset(&old, "uses", 3).await.0.verdict.permit.is_some(), "it was approved");
    record(&old, success("s", "uses", "done")).await;
    for n in 0..200 {
        let call = format!("look-{n}");
        let looked = evaluate(&old, ask("s", &call, "look", &format!(r#"{{"n":{n}}}"#))).await;
        assert!(looked.verdict.permit.is_some(), "{looked:?}");
        record(&old, success("s", &call, &format!("result {n}"))).await;
    }
    let new = gate(&postgres, &policy).await;
    let (_, still_open) = reset(&new, "again", 1).await;
    assert!(still_open.is_some() && still_open == open, "the question is the same");
    assert!(reset(&new, "runs", 2).await.0.verdict.permit.is_some(), "the approval was not used yet");
    let (asked_again, another) = reset(&new, "once more", 3).await;
    assert!(asked_again.verdict.permit.is_none() && another != used, "the approval was used up: {asked_again:?}");
}
