//! Approval requests, answers and halts, as known to a replica that starts much later.

use std::sync::Arc;

use callgate_core::{
    domain::{
        control::{Command, Operation},
        halt::HaltTarget,
        ids::DEFAULT_TENANT,
    },
    rules::Mode,
};
use callgate_server::gate::{EvaluateAnswer, Gate};

use crate::common::{
    all,
    gates::{ask, evaluate, gate, policy, record, session, success, two_gates},
    postgres::Postgres,
};

const POLICY: &str = "policy_engine:
  authorization: {tiers: [{name: asks, pattern: reset, action: hitl}, {name: rest, pattern: '*', action: allowlist}]}
  tool_schemas: {look: {effect: read}}
";

/// Requests a reset; returns the approval request, if any.
async fn reset(gate: &Gate, call: &str, device: u32) -> (EvaluateAnswer, Option<String>) {
    let answer = evaluate(gate, ask("s", call, "reset", &format!(r#"{{"device":{device}}}"#))).await;
    let asked = answer.verdict.approval.as_ref().map(|approval| approval.id.clone());
    (answer, asked)
}

async fn resolve(gate: &Gate, approval_id: Option<String>, approve: bool) {
    let approval_id = approval_id.expect("a question");
    let operation = Operation::Answer { approval_id, approve, clears: None, edited: None };
    let command = Command { session: session("s"), by: "eve".into(), reason: None, operation };
    gate.decisions.control(DEFAULT_TENANT, &command).await.expect("an answer that is taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_gate_knows_questions_that_were_asked_long_ago() {
    let postgres = Postgres::start().await;
    let mut policy = callgate_core::policy::compile(POLICY).expect("a good policy");
    ["growth", "budget"].into_iter().for_each(|rule| policy.rules.set_mode(rule, Mode::Off));
    let old = gate(&postgres, &policy).await;
    let (_, open) = reset(&old, "open", 1).await;
    let (_, approved) = reset(&old, "approved", 2).await;
    resolve(&old, approved, true).await;
    let (_, used) = reset(&old, "used", 3).await;
    resolve(&old, used.clone(), true).await;
    assert!(reset(&old, "uses", 3).await.0.verdict.permit.is_some(), "it was approved");
    record(&old, success("s", "uses", "done")).await;
    // Judged again while something else stands against it: the row tells the question as it was asked.
    old.decisions.halt(DEFAULT_TENANT, &HaltTarget::Session(session("s")), "eve", "a drill").await.expect("a halt");
    assert!(reset(&old, "approved", 2).await.0.verdict.permit.is_none(), "it is halted");
    old.decisions.resume(DEFAULT_TENANT, &HaltTarget::Session(session("s")), "eve", "").await.expect("a resume");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_halt_beside_a_resume_of_the_same_name_is_no_outage() {
    let postgres = Postgres::start().await;
    let gates = two_gates(&postgres, &policy(&["halted"])).await;
    let hand = |n: usize| {
        let gate = Arc::clone(&gates[n % 2]);
        async move {
            for _ in 0..100 {
                if n < 2 {
                    gate.decisions.halt(DEFAULT_TENANT, &HaltTarget::Tenant, "eve", "a drill").await.expect("a halt");
                } else {
                    gate.decisions.resume(DEFAULT_TENANT, &HaltTarget::Tenant, "eve", "").await.expect("a resume");
                }
            }
        }
    };
    all((0..4).map(hand)).await;
}
