//! Restart of a replica: state and next verdicts are the same.

use std::sync::Arc;

use callgate_core::{
    domain::{
        budget::{BudgetLimits, BudgetScope, Budgets, Dimension, Usage},
        call::Request,
        control::{Command, Operation},
        finding::Decision,
        ids::{DEFAULT_TENANT, ToolName},
        outcome::OutcomeStatus,
        report::OutcomeReport,
        session_state::{Extent, SessionState},
    },
    policy::Policy,
    rules::Mode,
};
use callgate_server::gate::{EvaluateAnswer, Gate};
use callgate_store::DecisionStore as _;

use crate::common::{
    gates::{agent, ask, evaluate, failure, gate, policy, record, report, run, run_call, session, store, success},
    invariants::{gapless, good, sums},
    postgres::Postgres,
};

const SESSIONS: [&str; 3] = ["root", "child", "grandchild"];
const TOOLS: [&str; 5] = ["pay", "save", "put", "look", "work"];
const ARGUMENTS: u64 = 6;

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// All rules but the one on speed, and daily limits that are counted.
fn rules() -> Policy {
    let mut policy = policy(&["same_call", "repeat", "poll", "cycle", "global_circuit_breaker", "refused", "budget"]);
    policy.rules.get_mut::<Budgets>().agent =
        BudgetLimits::new([(Dimension::ToolCalls, 100_000), (Dimension::Cost, 1_000_000_000)]);
    policy
}

fn request(in_session: &str, call: &str, tool: &str, n: u64, stretch: u64) -> Request {
    let parent = SESSIONS.iter().position(|name| *name == in_session).and_then(|at| at.checked_sub(1));
    Request {
        parent: parent.map(|at| session(SESSIONS[at])),
        run: run(&format!("run-{stretch}")),
        agent: agent("robot"),
        ..ask(in_session, call, tool, &format!(r#"{{"n":{n}}}"#))
    }
}

/// Outcomes of permitted calls: mostly successes, every kind of failure, and some open calls.
fn outcomes(dice: &mut Dice, in_session: &str, call: &str) -> Vec<OutcomeReport> {
    let usage = Usage { cost_micros: dice.roll(900), output_tokens: dice.roll(90), ..Usage::default() };
    let told = match dice.roll(20) {
        0..11 => vec![success(in_session, call, &format!("result {}", dice.roll(5)))],
        11 => vec![failure(in_session, call, "timeout")],
        12 => vec![failure(in_session, call, "permission")],
        13 => vec![failure(in_session, call, "rate_limited")],
        14 => vec![report(in_session, call, OutcomeStatus::Cancelled)],
        15 => vec![report(in_session, call, OutcomeStatus::Unknown)],
        16 => vec![report(in_session, call, OutcomeStatus::Unknown), success(in_session, call, "late")],
        17 => vec![report(in_session, call, OutcomeStatus::Running), success(in_session, call, "at last")],
        18 => vec![report(in_session, call, OutcomeStatus::Running)],
        _ => vec![],
    };
    told.into_iter().map(|told| OutcomeReport { usage, ..told }).collect()
}

/// Makes `calls` calls, each in one of the sessions, and reports on most permitted ones.
async fn live(gate: &Gate, dice: &mut Dice, first: u64, calls: u64) {
    for n in first..first + calls {
        // Parents come first; then two thirds in the root, far beyond a gate's memory.
        let in_session = SESSIONS[if n < 3 { n } else { dice.roll(9).saturating_sub(6) } as usize];
        let tool = TOOLS[dice.roll(5) as usize];
        let call = format!("c{n}");
        let usage = Usage { input_tokens: dice.roll(500), cost_micros: dice.roll(200), ..Usage::default() };
        let question = request(in_session, &call, tool, dice.roll(ARGUMENTS), n / 40);
        let question = Request { usage, cost_estimate_micros: Some(dice.roll(400)), ..question };
        if evaluate(gate, question).await.verdict.decision != Decision::Allow {
            continue;
        }
        for told in outcomes(dice, in_session, &call) {
            record(gate, told).await;
        }
    }
}

/// A state without its read time, and data unknown to other gates.
async fn state(gate: &Gate, in_session: &str) -> SessionState {
    let mut state = gate
        .decisions
        .session_state(DEFAULT_TENANT, &session(in_session), Extent { last_calls: 64, ..Extent::default() })
        .await
        .expect("a known session");
    state.at = Default::default();
    state.summary_for_model.clear();
    state.left.retain(|left| left.dimension != Dimension::Elapsed);
    for told in &mut state.calls {
        told.call.permit.iter_mut().for_each(|permit| permit.ledger_revision = 0);
    }
    state
}

fn verdict(answer: &EvaluateAnswer) -> Vec<String> {
    let findings = answer.verdict.findings.iter().map(|finding| {
        let (decision, reason) = (finding.decision.as_str(), finding.reason.as_str());
        format!("{} {decision} {reason} {:?} {:?}", finding.rule, finding.level, finding.count)
    });
    findings.chain([answer.verdict.decision.as_str().to_owned()]).collect()
}

/// Compares both gates' verdicts on every possible call.
async fn compare_verdicts(warm: &Gate, cold: &Gate, stretch: u64) {
    for in_session in SESSIONS {
        for tool in TOOLS {
            for n in 0..ARGUMENTS {
                let question = || request(in_session, "next", tool, n, stretch);
                let both = async || {
                    let (warm, cold) =
                        (warm.decisions.dry_run(question()).await, cold.decisions.dry_run(question()).await);
                    (verdict(&warm.expect("a verdict")), verdict(&cold.expect("a verdict")))
                };
                let (mut warm, mut cold) = both().await;
                if warm != cold {
                    // A wait may have been over between the two; then it is now for both.
                    (warm, cold) = both().await;
                }
                assert_eq!(warm, cold, "{in_session} {tool} {n}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_gate_knows_what_the_old_one_knew() {
    let postgres = Postgres::start().await;
    let mut dice = Dice(7);
    let mut warm: Arc<Gate> = gate(&postgres, &rules()).await;
    let mut lived = 0;
    for calls in [30, 60, 170] {
        live(&warm, &mut dice, lived, calls).await;
        lived += calls;
        let cold = gate(&postgres, &rules()).await;
        for gate in [&warm, &cold] {
            gate.decisions.share_health().await.expect("shared");
        }
        for in_session in SESSIONS {
            let (known, read) = (state(&warm, in_session).await, state(&cold, in_session).await);
            let ids =
                |state: &SessionState| state.calls.iter().map(|told| told.call.call_id.clone()).collect::<Vec<_>>();
            assert_eq!(ids(&known), ids(&read), "{in_session} after {lived} calls");
            for (known, read) in known.calls.iter().zip(&read.calls) {
                assert_eq!(known, read, "{in_session} after {lived} calls");
            }
            assert_eq!(known, read, "{in_session} after {lived} calls");
        }
        // In the current run, and in a new one.
        compare_verdicts(&warm, &cold, (lived - 1) / 40).await;
        compare_verdicts(&warm, &cold, lived).await;
        good([gapless(&postgres, "root").await, sums(&postgres, "root").await]);
        // The old one goes without a word; the new one carries on.
        warm = cold;
    }
    let in_root = postgres.number("select count(*) from call where session_id = 'root'").await;
    assert!(in_root > 96, "only {in_root} calls in one session: that does not reach beyond what is read back");
    let waited = postgres.number("select count(*) from call where waited").await;
    assert!(waited > 0, "no call was asked for again, under another call_id, while it waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_run_stays_broken() {
    let postgres = Postgres::start().await;
    let policy = policy(&["global_circuit_breaker"]);
    let warm = gate(&postgres, &policy).await;
    let tool = |n: u64| if n.is_multiple_of(2) { "work" } else { "toil" };
    let question = |n: u64, stretch: u64| request("root", &format!("c{n}"), tool(n), n, stretch);
    for n in 0..30 {
        evaluate(&warm, question(n, 1)).await;
        record(&warm, failure("root", &format!("c{n}"), "permission")).await;
    }
    let broken = vec!["global_circuit_breaker DENY circuit_break Some(Break) Some(30)".to_owned(), "DENY".to_owned()];
    for n in 30..140 {
        assert_eq!(verdict(&evaluate(&warm, question(n, 1)).await), broken, "call {n}");
    }
    drop(warm);
    let cold = gate(&postgres, &policy).await;
    assert!(state(&cold, "root").await.is_stopped);
    assert_eq!(verdict(&evaluate(&cold, question(140, 1)).await), broken);
    assert_eq!(verdict(&evaluate(&cold, question(141, 2)).await), ["ALLOW"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_catches_up_is_the_tree_that_is_stored() {
    let postgres = Postgres::start().await;
    let policy = "policy_engine:
  phases: [{name: ACT, tools: '*', next: [REST]}, {name: REST, tools: '*', next: [ACT]}]
  authorization: {tiers: [{name: reads, pattern: look, action: allowlist, rate_limit: 100/min}]}
  tool_schemas:
    pay: {once: true}
    save: {effect: write}
    look: {effect: read}
";
    let mut policy = callgate_core::policy::compile(policy).expect("a good policy");
    policy.rules.set_mode("growth", Mode::Off);
    let gate = gate(&postgres, &policy).await;
    let store = store(&postgres).await;
    let mut dice = Dice(9);
    let tree = async || store.tree(DEFAULT_TENANT, &session("root"), None).await.expect("readable").expect("a tree");
    let mut first = 0;
    // Fewer calls than a session remembers: beyond that a cold tree may know more.
    for (round, calls) in [6, 1, 9, 0, 14].into_iter().enumerate() {
        live(&gate, &mut dice, first, calls.max(u64::from(first == 0))).await;
        first += calls;
        let known = tree().await;
        // Results of planned calls are kept, with their calls.
        let plan = Some(
            ["look", "work", "look", "save"].map(|tool| ToolName::parse("tool", tool).expect("a good name")).to_vec(),
        );
        let raise = |scope, extra| Operation::RaiseBudget { scope, dimension: Dimension::Steps, extra };
        for operation in [
            Operation::SetPhase { phase: ["ACT", "REST"][round % 2].to_owned(), plan },
            Operation::MarkCompacted,
            raise(BudgetScope::Run, 1_000 + round as u64),
            raise(BudgetScope::CallTree, 2_000 * (round as u64 % 2)),
        ] {
            let command = Command { session: session("root"), by: "eve".into(), reason: None, operation };
            gate.decisions.control(DEFAULT_TENANT, &command).await.expect("stored");
        }
        let kept = ask("root", &format!("kept {round}"), "look", &format!(r#"{{"round":{round}}}"#));
        run_call(&gate, kept, r#"{"ok":true}"#).await;
        live(&gate, &mut dice, first, 7).await;
        first += 7;
        let caught_up = store.catch_up(known.clone()).await.expect("readable").expect("few events");
        assert_eq!(caught_up, tree().await);
        assert!(caught_up.version > known.version);
        assert!(caught_up.kept.iter().any(|kept| kept.result.is_some()), "answers were kept");
        assert!(caught_up.uses != known.uses, "a tier was used");
    }
    let known = tree().await;
    postgres.tamper("update call_tree set version = version + 1").await;
    assert_eq!(store.catch_up(known).await.expect("readable"), None, "an event is missing");
}
