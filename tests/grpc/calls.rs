//! Responses of the four methods.

use callgate_core::domain::budget::{BudgetLimits, Budgets, Dimension};
use callgate_proto::{
    time::duration,
    v1::{self, BudgetDimension, BudgetScope, CallState, Decision, FailureKind, OutcomeStatus},
};
use serde_json::Value;
use tonic::Request;

use crate::common::{
    gates::policy,
    in_time,
    wire::{Client, Plane, call, caller, evaluate, outcome, question, record, success},
};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

async fn state(client: &mut Client, session: &str) -> v1::SessionState {
    let request = v1::GetSessionStateRequest { session_id: session.to_owned(), last_calls: 0, summary_tokens: 0 };
    let answer = in_time("a state", client.get_session_state(request)).await.expect("a state");
    answer.into_inner().state.expect("a state")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_asked_for_reported_on_and_read_back() {
    let plane = Plane::start(&policy(&["same_call", "budget"])).await;
    let mut client = plane.client().await;
    let asked = v1::EvaluateRequest {
        caller: Some(v1::Caller { run_id: "turn-1".into(), agent_id: "robot".into(), ..caller("s") }),
        usage: Some(v1::Usage { input_tokens: 1_000, cost_micros: 300, ..v1::Usage::default() }),
        ..question("s", call("c1", "look", r#"{"order": 9007199254740993}"#))
    };
    let verdict = evaluate(&mut client, asked.clone()).await;
    assert_eq!((verdict.decision(), verdict.call_id.as_str()), (Decision::Allow, "c1"));
    assert!(verdict.enforced && !verdict.replayed && !verdict.tools_disabled && verdict.tool_result_json.is_empty());
    assert_eq!((verdict.fingerprint.len(), verdict.policy_version.as_str()), (64, "default"));
    let permit = verdict.permit.expect("a permit");
    assert_eq!((permit.attempt, permit.idempotency_key.len()), (1, 32));
    assert!(verdict.budgets.is_empty(), "no limit is near: {:?}", verdict.budgets);
    let with_budgets = v1::EvaluateRequest { include_budgets: true, ..asked.clone() };
    let verdict = evaluate(&mut client, with_budgets).await;
    let tokens = verdict.budgets.iter().find(|left| left.dimension() == BudgetDimension::Tokens).expect("a limit");
    assert_eq!((tokens.scope(), tokens.used), (BudgetScope::CallTree, 1_000));

    let again = evaluate(&mut client, asked).await;
    assert!(again.replayed && again.permit.as_ref() == Some(&permit), "{again:?}");

    let told = v1::RecordRequest {
        total_matches: Some(2),
        is_complete: Some(true),
        usage: Some(v1::Usage { cost_micros: 50, ..v1::Usage::default() }),
        duration: Some(duration(12)),
        ..success("s", "c1", r#"{"id":9007199254740993}"#)
    };
    let recorded = record(&mut client, told.clone()).await;
    assert_eq!((recorded.status(), recorded.failure()), (OutcomeStatus::Success, FailureKind::Unspecified));
    assert!(!recorded.is_error && !recorded.replayed && recorded.advice.is_none());
    assert!(recorded.tool_result_json.contains(r#""results":{"id":9007199254740993}"#), "{recorded:?}");
    assert!(recorded.tool_result_json.contains(r#""query_summary":{"order":9007199254740993}"#), "{recorded:?}");
    let text = json(&recorded.tool_result_json);
    assert_eq!(
        (&text["status"], &text["total_matches"], &text["is_complete"]),
        (&"success".into(), &2.into(), &true.into())
    );
    assert!(record(&mut client, told).await.replayed);

    let state = state(&mut client, "s").await;
    assert_eq!((state.root_session_id.as_str(), state.run_id.as_str()), ("s", "turn-1"));
    assert!(!state.is_stopped && state.loops.is_empty() && state.parent_session_id.is_empty());
    let [call] = &state.calls[..] else { panic!("{:?}", state.calls) };
    assert_eq!((call.call_id.as_str(), call.state(), call.decision()), ("c1", CallState::Succeeded, Decision::Allow));
    assert!(
        state
            .summary_for_model
            .contains("  - {order: 9007199254740993}: {id: 9007199254740993} (2 matches in all, complete)"),
        "{}",
        state.summary_for_model
    );
    let cost = state.budgets.iter().find(|left| left.dimension() == BudgetDimension::CostMicros).expect("a limit");
    assert_eq!(cost.used, 350);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_one_turn_see_each_other() {
    let plane = Plane::start(&policy(&["same_call", "growth"])).await;
    let mut client = plane.client().await;
    let mut calls = vec![call("a", "work", "{}"), call("b", "work", " {} "), call("c", "pay", "{}")];
    calls.extend((0..21).map(|n| call(&format!("more{n}"), "look", &format!(r#"{{"n":{n}}}"#))));
    let usage = Some(v1::Usage { output_tokens: 7, ..v1::Usage::default() });
    let request = v1::BatchEvaluateRequest { caller: Some(caller("s")), calls, usage, ..Default::default() };
    let response = in_time("answers", client.batch_evaluate(request.clone())).await.expect("answers");
    let verdicts = response.into_inner().verdicts;
    let ids: Vec<&str> = verdicts.iter().map(|verdict| verdict.call_id.as_str()).collect();
    assert_eq!(ids, request.calls.iter().map(|call| call.call_id.as_str()).collect::<Vec<_>>());
    assert_eq!((verdicts[0].decision(), verdicts[1].decision()), (Decision::Allow, Decision::Wait));
    assert_eq!(verdicts[1].reason, "call_in_flight");
    assert!(verdicts[2..].iter().all(|verdict| verdict.decision() == Decision::Allow), "one turn is no runaway");
    assert_eq!(plane.postgres.rows("select count(distinct batch), count(*) from call").await, ["(1,24)"]);
    assert_eq!(plane.postgres.number("select tokens from call_tree").await, 7);

    let again = in_time("answers", client.batch_evaluate(request)).await.expect("answers").into_inner().verdicts;
    for (first, again) in verdicts.iter().zip(&again) {
        assert_eq!((first.decision, &first.permit), (again.decision, &again.permit));
        assert_eq!(again.replayed, again.decision() == Decision::Allow);
    }
    assert_eq!(plane.postgres.number("select tokens from call_tree").await, 7, "booked once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_stores_nothing_and_permits_nothing() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    let dry = |call| v1::EvaluateRequest { dry_run: true, ..question("s", call) };
    let verdict = evaluate(&mut client, dry(call("c1", "pay", "{}"))).await;
    assert_eq!((verdict.decision(), verdict.permit), (Decision::Allow, None));
    assert_eq!(plane.row_count().await, 0);
    evaluate(&mut client, question("s", call("c1", "pay", "{}"))).await;
    let rows = plane.row_count().await;
    let verdict = evaluate(&mut client, dry(call("c2", "pay", "{}"))).await;
    assert_eq!((verdict.decision(), verdict.reason.as_str()), (Decision::Wait, "call_in_flight"));
    let verdict = evaluate(&mut client, dry(call("c1", "pay", "{}"))).await;
    assert_eq!((verdict.decision(), verdict.permit), (Decision::Allow, None));
    assert_eq!(plane.row_count().await, rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_trace_is_taken_up_and_never_refused() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    let traces = ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-not-a-trace", ""];
    for (n, trace) in traces.into_iter().enumerate() {
        let mut request = Request::new(question("s", call(&format!("c{n}"), "work", &format!(r#"{{"n":{n}}}"#))));
        request.metadata_mut().insert("traceparent", trace.parse().expect("a header"));
        request.metadata_mut().insert("tracestate", "vendor=1".parse().expect("a header"));
        let response = in_time("an answer", client.evaluate(request)).await.expect("an answer");
        assert_eq!(response.into_inner().verdict.expect("a verdict").decision(), Decision::Allow);
        let mut request = Request::new(success("s", &format!("c{n}"), "ok"));
        request.metadata_mut().insert("traceparent", trace.parse().expect("a header"));
        in_time("an answer", client.record(request)).await.expect("an answer");
    }
}

/// A refusal's text, with checks common to all.
fn refusal(verdict: &v1::Verdict, decision: Decision, status: &str, rule: &str) -> Value {
    assert_eq!((verdict.decision(), verdict.reason.as_str()), (decision, status), "{verdict:?}");
    assert_eq!(verdict.permit, None);
    let text = json(&verdict.tool_result_json);
    assert_eq!((&text["status"], &text["reason"]), (&status.into(), &rule.into()), "{text}");
    assert_eq!(text["retryable"], Value::Bool(decision == Decision::Wait), "{text}");
    let message = text["message"].as_str().expect("a message");
    assert!(!message.is_empty() && !message.contains('\n'), "{message}");
    let is_error = matches!(decision, Decision::Wait | Decision::Deny | Decision::Stop);
    assert_eq!(verdict.is_error, is_error, "{verdict:?}");
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_carries_a_text_for_the_model() {
    let mut policy = policy(&["same_call", "budget"]);
    // One of the eight calls repeats one that was told to wait.
    policy.rules.get_mut::<Budgets>().run = BudgetLimits::new([(Dimension::Steps, 7)]);
    let plane = Plane::start(&policy).await;
    let mut client = plane.client().await;
    let mut ask = async |id: &str, tool: &str, arguments: &str| {
        evaluate(&mut client, question("s", call(id, tool, arguments))).await
    };
    let mut other = plane.client().await;
    ask("c1", "pay", r#"{"sum":9007199254740993}"#).await;
    let wait =
        refusal(&ask("c2", "pay", r#"{"sum":9007199254740993}"#).await, Decision::Wait, "call_in_flight", "same_call");
    assert!(wait["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{wait}");

    record(&mut other, success("s", "c1", r#"{"id":9007199254740993,"of":-0.10}"#)).await;
    let reuse = ask("c3", "pay", r#"{"sum":9007199254740993}"#).await;
    refusal(&reuse, Decision::Reuse, "duplicate_call_blocked", "same_call");
    assert!(reuse.tool_result_json.ends_with(r#","previous_result":{"id":9007199254740993,"of":-0.10}}"#), "{reuse:?}");

    ask("c4", "work", "{}").await;
    let error = v1::ToolError { message: "403 Forbidden".into(), http_status: Some(403), ..v1::ToolError::default() };
    let told = v1::RecordRequest { error: Some(error), ..outcome("s", "c4", OutcomeStatus::Error) };
    let recorded = record(&mut other, told).await;
    assert_eq!((recorded.failure(), recorded.is_error), (FailureKind::Permission, true));
    assert_eq!(json(&recorded.tool_result_json)["retryable"], false);
    refusal(&ask("c5", "work", "{}").await, Decision::Deny, "not_retryable", "same_call");

    let repeat = v1::ToolCall { repeat_intended: true, ..call("c6", "pay", r#"{"sum":9007199254740993}"#) };
    let verdict = evaluate(&mut other, question("s", repeat)).await;
    let asks = refusal(&verdict, Decision::Ask, "approval_required", "same_call");
    assert!(!verdict.approval_id.is_empty() && verdict.approval_expire_time.is_some(), "{verdict:?}");
    assert_eq!(asks["approval_id"], verdict.approval_id.as_str());

    ask("c7", "look", r#"{"n":1}"#).await;
    assert!(ask("c8", "look", r#"{"n":2}"#).await.tools_disabled, "it spends the last step");
    let verdict = ask("c9", "look", r#"{"n":3}"#).await;
    let stop = refusal(&verdict, Decision::Stop, "step_budget_exceeded", "budget");
    assert!(verdict.tools_disabled && stop["tools_disabled"] == true, "{verdict:?}");
}
