//! Malformed fields: each is named, and nothing is stored.

use callgate_proto::{
    time::duration,
    v1::{self, OutcomeStatus},
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::common::{
    gates::policy,
    in_time,
    wire::{Client, Plane, call, caller, evaluate, outcome, pair, question, record, success},
};

const MEBI: usize = 1 << 20;

/// A request that has to be refused.
enum BadMessage {
    Evaluate(v1::EvaluateRequest),
    Batch(v1::BatchEvaluateRequest),
    Record(Box<v1::RecordRequest>),
    State(v1::GetSessionStateRequest),
}

async fn find_refusal(client: &mut Client, bad: BadMessage) -> Option<Status> {
    match bad {
        BadMessage::Evaluate(request) => client.evaluate(request).await.err(),
        BadMessage::Batch(request) => client.batch_evaluate(request).await.err(),
        BadMessage::Record(request) => client.record(*request).await.err(),
        BadMessage::State(request) => client.get_session_state(request).await.err(),
    }
}

fn bad_evaluate(change: impl FnOnce(&mut v1::Caller, &mut v1::ToolCall)) -> BadMessage {
    let (mut caller, mut call) = (caller("s"), call("new", "look", "{}"));
    change(&mut caller, &mut call);
    BadMessage::Evaluate(v1::EvaluateRequest { caller: Some(caller), call: Some(call), ..Default::default() })
}

fn with_arguments(text: &str) -> BadMessage {
    bad_evaluate(|_, call| call.arguments_json = text.to_owned())
}

fn batch(ids: impl IntoIterator<Item = String>) -> BadMessage {
    let calls = ids.into_iter().map(|id| call(&id, "look", "{}")).collect();
    BadMessage::Batch(v1::BatchEvaluateRequest { caller: Some(caller("s")), calls, ..Default::default() })
}

/// A report on the one call that is open, and so would be stored if it were sound.
fn bad_report(status: OutcomeStatus, change: impl FnOnce(&mut v1::RecordRequest)) -> BadMessage {
    let mut request = outcome("s", "open", status);
    change(&mut request);
    BadMessage::Record(Box::new(request))
}

fn bad_error_report(change: impl FnOnce(&mut v1::ToolError)) -> BadMessage {
    let mut error = v1::ToolError { message: "broken".into(), ..Default::default() };
    change(&mut error);
    bad_report(OutcomeStatus::Error, |request| request.error = Some(error))
}

/// Levels of objects and arrays, one within the other.
fn nested_json(levels: usize) -> String {
    format!(r#"{{"a":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
}

/// An object of exactly that many bytes.
fn object_of_size(bytes: usize) -> String {
    format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8))
}

fn bad_outcomes() -> Vec<(&'static str, BadMessage)> {
    let unstarted = |status| bad_report(status, |request| request.not_started = true);
    vec![("not_started", unstarted(OutcomeStatus::Success)), ("not_started", unstarted(OutcomeStatus::Unknown))]
}

fn bad_names() -> Vec<(&'static str, BadMessage)> {
    let long = || "n".repeat(201);
    vec![
        (
            "caller",
            BadMessage::Evaluate(v1::EvaluateRequest { caller: None, ..question("s", call("new", "look", "{}")) }),
        ),
        ("call", BadMessage::Evaluate(v1::EvaluateRequest { call: None, ..question("s", call("new", "look", "{}")) })),
        ("caller.session_id", bad_evaluate(|caller, _| caller.session_id.clear())),
        ("caller.session_id", bad_evaluate(|caller, _| caller.session_id = long())),
        ("caller.session_id", bad_evaluate(|caller, _| caller.session_id = "a\0b".into())),
        ("caller.session_id", bad_evaluate(|caller, _| caller.session_id = "é".repeat(101))),
        ("caller.parent_session_id", bad_evaluate(|caller, _| caller.parent_session_id = long())),
        ("caller.parent_session_id", bad_evaluate(|caller, _| caller.parent_session_id = "s".into())),
        ("caller.run_id", bad_evaluate(|caller, _| caller.run_id = long())),
        ("caller.agent_id", bad_evaluate(|caller, _| caller.agent_id = "a\nb".into())),
        ("caller.user_id", bad_evaluate(|caller, _| caller.user_id = long())),
        ("caller.host", bad_evaluate(|caller, _| caller.host = "a\nb".into())),
        (
            "usage.model",
            bad_report(OutcomeStatus::Running, |request| {
                request.usage = Some(v1::Usage { model: "m".repeat(201), ..Default::default() });
            }),
        ),
        ("call.call_id", bad_evaluate(|_, call| call.call_id.clear())),
        ("call.call_id", bad_evaluate(|_, call| call.call_id = long())),
        ("call.tool", bad_evaluate(|_, call| call.tool.clear())),
        ("call.tool", bad_evaluate(|_, call| call.tool = long())),
        ("call.justification", bad_evaluate(|_, call| call.justification = "j".repeat(2_001))),
        ("call.justification_parameter", bad_evaluate(|_, call| call.justification_parameter = "a\nb".into())),
        ("call.repeat_parameter", bad_evaluate(|_, call| call.repeat_parameter = long())),
        ("call.cost_estimate_micros", bad_evaluate(|_, call| call.cost_estimate_micros = Some(u64::MAX))),
        ("calls", batch([])),
        ("calls", batch((0..65).map(|n| format!("new{n}")))),
        ("calls[1].call_id", batch(["new".to_owned(), "new".to_owned()])),
        ("calls[2].call_id", batch(["new1".to_owned(), "new2".to_owned(), String::new()])),
        (
            "session_id",
            BadMessage::State(v1::GetSessionStateRequest {
                session_id: String::new(),
                last_calls: 0,
                summary_tokens: 0,
            }),
        ),
        (
            "last_calls",
            BadMessage::State(v1::GetSessionStateRequest { session_id: "s".into(), last_calls: 65, summary_tokens: 0 }),
        ),
        (
            "summary_tokens",
            BadMessage::State(v1::GetSessionStateRequest {
                session_id: "s".into(),
                last_calls: 0,
                summary_tokens: 299,
            }),
        ),
        (
            "summary_tokens",
            BadMessage::State(v1::GetSessionStateRequest {
                session_id: "s".into(),
                last_calls: 0,
                summary_tokens: 8001,
            }),
        ),
    ]
}

/// Malformed arguments of a model.
fn unreadable() -> Vec<String> {
    vec![
        "{".to_owned(),
        "{}{}".to_owned(),
        "{'a':1}".to_owned(),
        r#"{"a":01}"#.to_owned(),
        r#"{"a":NaN}"#.to_owned(),
        r#"{"a":1,"a":1}"#.to_owned(),
        r#"{"a":{"b":1,"\u0062":2}}"#.to_owned(),
        "{\"a\":\"x\0y\"}".to_owned(),
        r#"{"a":"x\u0000y"}"#.to_owned(),
        r#"{"a\u0000":1}"#.to_owned(),
        r#"{"a":"\ud800"}"#.to_owned(),
        r#"{"a":"\udc00\ud800"}"#.to_owned(),
        nested_json(65),
        format!(r#"{{"a":{}"#, "[".repeat(100_000)),
        "[]".to_owned(),
        "null".to_owned(),
        r#""text""#.to_owned(),
        "7".to_owned(),
    ]
}

fn bad_reports() -> Vec<(&'static str, BadMessage)> {
    use OutcomeStatus::{Error, Running, Success, Unspecified};
    let observed = call("new", "look", &object_of_size(MEBI + 1));
    vec![
        ("caller", bad_report(Success, |request| request.caller = None)),
        ("call_id", bad_report(Success, |request| request.call_id.clear())),
        ("status", bad_report(Unspecified, |_| {})),
        ("status", bad_report(Success, |request| request.status = 99)),
        ("status", bad_report(Success, |request| request.status = -1)),
        ("result", bad_report(Success, |request| request.result = Some("r".repeat(MEBI + 1)))),
        ("result", bad_report(Running, |request| request.result = Some("half".into()))),
        ("call.witness", bad_evaluate(|_, call| call.witness = "w".repeat(257))),
        ("witness_after", bad_report(Success, |request| request.witness_after = "w".repeat(257))),
        ("result_digest", bad_report(Success, |request| request.result_digest = "d".repeat(201))),
        ("result_bytes", bad_report(Success, |request| request.result_bytes = Some(u64::MAX))),
        ("total_matches", bad_report(Success, |request| request.total_matches = Some(u64::MAX))),
        ("progress", bad_report(Running, |request| request.progress = "p".repeat(2_001))),
        ("duration", bad_report(Success, |request| request.duration = Some(duration(u64::MAX)))),
        (
            "usage.input_tokens",
            bad_report(Success, |request| {
                request.usage = Some(v1::Usage { input_tokens: u64::MAX, ..Default::default() });
            }),
        ),
        ("error", bad_report(Error, |_| {})),
        ("error", bad_report(Success, |request| request.error = Some(v1::ToolError::default()))),
        ("error.http_status", bad_error_report(|error| error.http_status = Some(99))),
        ("error.http_status", bad_error_report(|error| error.http_status = Some(600))),
        ("error.grpc_status", bad_error_report(|error| error.grpc_status = Some(0))),
        ("error.grpc_status", bad_error_report(|error| error.grpc_status = Some(17))),
        ("error.message", bad_error_report(|error| error.message = "m".repeat((64 << 10) + 1))),
        ("error.type", bad_error_report(|error| error.r#type = "t".repeat(201))),
        ("error.provider_code", bad_error_report(|error| error.provider_code = "c".repeat(201))),
        (
            "error.retry_after",
            bad_error_report(|error| error.retry_after = Some(prost_types::Duration { seconds: -1, nanos: 0 })),
        ),
        (
            "max_wait",
            BadMessage::Evaluate(v1::EvaluateRequest {
                max_wait: Some(duration(60_001)),
                ..question("s", call("new", "look", "{}"))
            }),
        ),
        ("observed_call.arguments_json", bad_report(Success, |request| request.observed_call = Some(observed))),
        ("call.arguments_json", with_arguments(&object_of_size(MEBI + 1))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_fields_are_named_and_nothing_is_stored() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    evaluate(&mut client, question("s", call("open", "work", "{}"))).await;
    let rows = plane.row_count().await;
    let cases = bad_names().into_iter().chain(bad_reports()).chain(bad_outcomes());
    for (i, (field, bad)) in cases.enumerate() {
        let status = in_time("an answer", Box::pin(find_refusal(&mut client, bad))).await;
        let status = status.unwrap_or_else(|| panic!("case {i}: a bad {field} was accepted"));
        assert_eq!(pair(&status), (Code::InvalidArgument, "INVALID_FIELD".to_owned()), "case {i}: {status:?}");
        let request = status.get_details_bad_request().expect("a BadRequest");
        let fields: Vec<_> = request.field_violations.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, [field], "case {i}: {status:?}");
        let description = &request.field_violations[0].description;
        assert!(!description.is_empty() && description.len() < 300, "case {i}: {description}");
        assert_eq!(status.message(), format!("{field} {description}"));
        assert_eq!(status.get_details_error_info().expect("an ErrorInfo").metadata["field"], field);
    }
    assert_eq!(plane.row_count().await, rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_at_its_limit_is_stored_whole() {
    let plane = Plane::start(&policy(&["same_call"])).await;
    let mut client = plane.client().await;
    let name = |c: &str| c.repeat(200 / c.len());
    for (n, arguments) in [nested_json(64), object_of_size(MEBI), String::new()].iter().enumerate() {
        let caller = v1::Caller {
            phase: String::new(),
            session_id: name("é"),
            parent_session_id: name("p"),
            run_id: name("r"),
            agent_id: name("\u{1F916}"),
            user_id: name("u"),
            host: name("h"),
        };
        let call = v1::ToolCall {
            justification: "j".repeat(2_000),
            ..call(&format!("{n}{}", "c".repeat(199)), &name("t"), arguments)
        };
        let request = v1::EvaluateRequest {
            caller: Some(caller.clone()),
            call: Some(call.clone()),
            usage: Some(v1::Usage { model: name("m"), ..Default::default() }),
            ..Default::default()
        };
        assert!(evaluate(&mut client, request).await.permit.is_some());
        let result = "\"\\\u{7f}é\n".repeat(MEBI / 6);
        let recorded = record(&mut client, success(&caller.session_id, &call.call_id, &result)).await;
        let text: serde_json::Value = serde_json::from_str(&recorded.tool_result_json).expect("JSON");
        assert_eq!(text["results"], result.as_str());
    }
    assert_eq!(plane.postgres.number("select max(length(arguments)) from call").await, MEBI as i64);
    assert_eq!(plane.postgres.number("select min(length(user_id)) from call").await, 200);
    assert_eq!(plane.postgres.number("select min(length(host)) from callgate.tool_call").await, 200);
    assert_eq!(plane.postgres.number("select min(length(model)) from callgate.calls").await, 200);
    assert_eq!(plane.postgres.number("select count(distinct result) from outcome").await, 1);
}

/// The model's mistakes are verdicts with a text for it, rows and steps; what no row can hold is stored as its symbol.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_arguments_are_reported_to_the_model_and_stored() {
    let plane = Plane::start(&policy(&["schema"])).await;
    let mut client = plane.client().await;
    for (i, text) in unreadable().iter().enumerate() {
        let verdict = evaluate(&mut client, question("s", call(&format!("m{i}"), "look", text))).await;
        assert_eq!(verdict.decision(), v1::Decision::Deny, "{text}");
        assert_eq!(verdict.reason, "validation_error", "{text}");
        let told: serde_json::Value = serde_json::from_str(&verdict.tool_result_json).expect("JSON");
        assert_eq!(told["errors"][0]["field"], "arguments", "{told}");
        assert!(verdict.is_error && verdict.tool_result_json.len() < 600, "{told}");
    }
    let stored = "select count(*) from call where decision = 4 and jsonb_typeof(arguments::jsonb) = 'string'";
    assert_eq!(plane.postgres.number(stored).await, unreadable().len() as i64);
    let (good, bad) = (call("good", "look", "{}"), call("bad", "look", "[]"));
    let calls = vec![good, bad];
    let batch = v1::BatchEvaluateRequest { caller: Some(caller("s")), calls, ..Default::default() };
    let verdicts = client.batch_evaluate(batch).await.expect("an answer").into_inner().verdicts;
    assert_eq!(
        verdicts.iter().map(v1::Verdict::decision).collect::<Vec<_>>(),
        [v1::Decision::Allow, v1::Decision::Deny]
    );
    let mut report = outcome("s", "good", OutcomeStatus::Success);
    report.result = Some("a\0b".to_owned());
    client.record(report).await.expect("stored");
    assert_eq!(plane.postgres.number("select count(*) from outcome where result = 'a\u{2400}b'").await, 1);
}
