//! Stopped parts of a session state: exactly the calls that are refused.

use super::*;
use crate::{
    domain::{
        call::Request,
        ids::{CallId, DEFAULT_TENANT},
        json,
        outcome::OutcomeStatus,
        report::OutcomeReport,
    },
    offline::world::World,
    policy::compile,
};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const DISABLED: &str = "Tools are disabled for this turn: give the final answer.";

fn session() -> SessionId {
    SessionId::parse("session", "s").expect("a good name")
}

/// The state after these calls, which run regardless of `ran_by`'s verdicts.
fn after(policy: &str, ran_by: &str, calls: &[(&str, &str)]) -> SessionState {
    let [policy, ran_by] = [policy, ran_by].map(|text| compile(text).expect("a good policy"));
    let mut world = World::new(DEFAULT_TENANT).with_past();
    for (i, (tool, arguments)) in calls.iter().enumerate() {
        let call_id = CallId::parse("call_id", &format!("c{i}")).expect("a good name");
        let tool = ToolName::parse("tool", tool).expect("a good name");
        let arguments = json::parse(arguments).expect("good arguments");
        let request = Request::new(DEFAULT_TENANT, session(), call_id.clone(), tool, arguments);
        let (verdict, _) = world.evaluate(&ran_by, &ran_by.propose(request), None, NOW).expect("a good question");
        if verdict.permit.is_some() {
            let report = OutcomeReport {
                result: Some("[1]".to_owned()),
                ..OutcomeReport::new(session(), call_id, OutcomeStatus::Success)
            };
            world.record(&ran_by, &report, NOW).expect("a good report");
        }
    }
    world.state(&policy, &session(), Extent::default(), NOW).expect("it asked")
}

fn file(more: &str) -> String {
    format!("policy_engine: {{budgets: {{run: {{max_steps: 1}}}}{more}}}")
}

#[test]
fn a_spent_budget_that_holds_stops_the_run() {
    let state = after(&file(""), &file(""), &[("look", "{}")]);
    assert!(state.is_stopped && state.summary_for_model.starts_with(DISABLED), "{}", state.summary_for_model);
}

#[test]
fn a_spent_budget_in_shadow_stops_nothing() {
    for shadow in [", mode: shadow", ", rules: {budget: {mode: shadow}}", ", rules: {budget: {mode: off}}"] {
        let state = after(&file(shadow), &file(shadow), &[("look", "{}")]);
        assert!(!state.is_stopped, "{shadow}");
        assert!(!state.summary_for_model.contains("disabled"), "{shadow}: {}", state.summary_for_model);
    }
}

#[test]
fn tools_in_shadow_are_left_out_of_what_is_stopped() {
    let shadowed = file(", tool_schemas: {look: {effect: read, mode: shadow}, edit: {effect: write}}");
    let state = after(&shadowed, &shadowed, &[("look", "{}")]);
    assert!(!state.is_stopped, "look is let through");
    let told = "Tools are disabled for this turn, except look: finish with what you have.";
    assert!(state.summary_for_model.starts_with(told), "{}", state.summary_for_model);
}

const LOW: &str = "policy_engine:
  deduplication: {same_results: 9}
  loops: {RULE: {break: 2}}
";

#[test]
fn a_break_of_one_call_or_tool_is_told_as_that_and_stops_no_run() {
    let same = [("look", r#"{"n":1}"#); 3];
    let state = after(&LOW.replace("RULE", "repeat"), &LOW.replace("RULE", "repeat"), &same);
    assert!(!state.is_stopped, "look with other arguments is let through");
    let told = "look is refused for the rest of this turn with {n: 1}; other arguments are not.";
    assert!(state.summary_for_model.contains(told), "{}", state.summary_for_model);
    assert!(!state.summary_for_model.contains("disabled"), "{}", state.summary_for_model);

    let alike = ["x", "y", "z"].map(|by| format!(r#"{{"text":"all the late orders of May in the north, by {by}"}}"#));
    let alike: Vec<(&str, &str)> = alike.iter().map(|arguments| ("look", arguments.as_str())).collect();
    let state = after(&LOW.replace("RULE", "churn"), &LOW.replace("RULE", "churn"), &alike);
    assert!(!state.is_stopped, "other tools are let through");
    let told = "look is disabled for the rest of this turn.";
    assert!(state.summary_for_model.contains(told), "{}", state.summary_for_model);
}

#[test]
fn a_break_of_the_run_is_told_as_long_as_its_rule_holds() {
    let breaker = LOW.replace("RULE", "global_circuit_breaker");
    let round = [("look", r#"{"n":1}"#), ("find", r#"{"n":1}"#), ("look", r#"{"n":2}"#)];
    let calls = [round; 5].concat();
    let state = after(&breaker, &breaker, &calls);
    assert!(state.is_stopped && state.summary_for_model.starts_with(DISABLED), "{}", state.summary_for_model);
    // The same run under a policy that only watches.
    let state = after("policy_engine: {mode: shadow}", &breaker, &calls);
    assert!(!state.is_stopped && !state.summary_for_model.contains("disabled"), "{}", state.summary_for_model);
}
