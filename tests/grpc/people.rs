//! Operators and approvers: answers, grants, phases and the kill switch, over gRPC on real Postgres.

use std::time::Duration;

use callgate_core::policy;
use callgate_proto::{
    time::duration,
    v1::{
        self, ApprovalState, Decision, HaltScope, approval_service_client::ApprovalServiceClient,
        grant_service_client::GrantServiceClient, session_service_client::SessionServiceClient,
    },
};
use tonic::{Code, Request, transport::Channel};

use crate::common::{
    all, in_time,
    wire::{Client, Plane, call, caller, evaluate, from, outcome, pair, question, record, success},
};

pub(crate) const POLICY: &str = "policy_engine:
  authorization:
    tiers:
      - {name: looks, pattern: 'get_*', action: allowlist}
      - {name: writes, pattern: 'create_*', action: per_conversation_grant, ceiling: 1}
      - {name: drops, pattern: 'delete_*', action: hitl, require_reason: true}
  phases: [{name: LOOK, tools: 'get_*|delete_*|create_*', next: [ACT]}, {name: ACT, tools: '*'}]
  tool_schemas:
    get_order: {effect: read, side_effect_resource: 'order/{id}'}
    delete_order: {effect: write, side_effect_resource: 'order/{id}', canonical_fields: [id]}
    create_order: {effect: write}
    move_order: {effect: write, risk_level: LOW}
  validation: {coercion: repair}
  idempotency: {header: X-Key}
";

pub(crate) async fn plane() -> Plane {
    Plane::start(&policy::compile(POLICY).expect("a good policy")).await
}

pub(crate) fn delete(session: &str, call_id: &str, arguments: &str) -> v1::EvaluateRequest {
    let call = v1::ToolCall { justification: "the user said so".into(), ..call(call_id, "delete_order", arguments) };
    let caller = v1::Caller { agent_id: "robot".into(), ..caller(session) };
    v1::EvaluateRequest { caller: Some(caller), ..question(session, call) }
}

pub(crate) async fn open_request(client: &mut Client, session: &str, call_id: &str, arguments: &str) -> String {
    let verdict = evaluate(client, delete(session, call_id, arguments)).await;
    assert_eq!(verdict.decision(), Decision::Ask, "{verdict:?}");
    assert!(verdict.approval_expire_time.is_some());
    verdict.approval_id
}

pub(crate) fn answer(id: &str, by: &str, approve: bool, reason: &str) -> Request<v1::ResolveApprovalRequest> {
    from(
        by,
        v1::ResolveApprovalRequest { approval_id: id.into(), approve, reason: reason.into(), ..Default::default() },
    )
}

pub(crate) async fn resolve(
    mut approvals: ApprovalServiceClient<Channel>,
    request: Request<v1::ResolveApprovalRequest>,
) -> Result<v1::Approval, (Code, String)> {
    let resolved = in_time("an answer", approvals.resolve_approval(request)).await;
    resolved.map(|resolved| resolved.into_inner().approval.expect("a question")).map_err(|status| pair(&status))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_answered_once_and_good_for_one_call() {
    let plane = plane().await;
    let (mut client, approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "s", "c1", r#"{"id":1,"note":"a"}"#).await;
    let refused = |code, reason: &str| Err((code, reason.to_owned()));
    assert_eq!(
        resolve(approvals.clone(), answer(&id, "robot", true, "")).await,
        refused(Code::PermissionDenied, "SELF_APPROVAL")
    );
    assert_eq!(
        resolve(approvals.clone(), answer(&id, "Robot", true, "")).await,
        refused(Code::PermissionDenied, "SELF_APPROVAL"),
        "in another case it is the same"
    );
    assert_eq!(
        resolve(approvals.clone(), answer(&id, "s", true, "")).await,
        refused(Code::PermissionDenied, "SELF_APPROVAL")
    );
    assert_eq!(
        resolve(approvals.clone(), answer("apr_0", "eve", true, "")).await,
        refused(Code::NotFound, "APPROVAL_UNKNOWN")
    );
    assert_eq!(
        resolve(approvals.clone(), answer(&id, "eve", false, "")).await,
        refused(Code::InvalidArgument, "REASON_MISSING")
    );

    // Of ten concurrent answers one wins, and the others get it.
    let answers = (0..10).map(|n| resolve(approvals.clone(), answer(&id, &format!("p{n}"), n % 2 == 0, "seen")));
    let answers = all(answers).await;
    let first: Vec<&v1::Approval> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    let [first] = first[..] else { panic!("{answers:?}") };
    let late = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(late.into_iter().all(|(code, reason)| *code == Code::FailedPrecondition && reason == "APPROVAL_ANSWERED"));
    assert_eq!((first.tool.as_str(), first.agent_id.as_str()), ("delete_order", "robot"));
    assert_eq!(plane.postgres.number("select count(*) from session_event where kind = 'answered'").await, 1);
    let late = approvals.clone().resolve_approval(answer(&id, "late", true, "")).await.expect_err("it is answered");
    let what = if first.state() == ApprovalState::Approved { "approved" } else { "denied" };
    assert_eq!(late.message(), format!("{} {what} it before; the first answer stays", first.resolved_by));

    let again = evaluate(&mut client, delete("s", "c1", r#"{"id":1,"note":"a"}"#)).await;
    if first.state() == ApprovalState::Approved {
        assert_eq!(again.decision(), Decision::Allow, "{again:?}");
        assert_eq!(again.permit.expect("a permit").idempotency_header, "X-Key");
        record(&mut client, success("s", "c1", "gone")).await;
    } else {
        assert_eq!((again.decision(), again.reason.as_str()), (Decision::Deny, "approval_denied"));
        assert!(again.tool_result_json.contains("seen"), "the model is told why: {}", again.tool_result_json);
    }
    // Other arguments, by their digest, need another request, although their fingerprint is the same.
    let other = open_request(&mut client, "s2", "c1", r#"{"id":1,"note":"b"}"#).await;
    assert_ne!(other, id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_call_is_answered_with_the_approval() {
    let plane = plane().await;
    let approvals = ApprovalServiceClient::new(plane.channel().await);
    let mut watched = approvals.clone().watch_approvals(v1::WatchApprovalsRequest::default()).await.expect("a watch");
    let mut client = plane.client().await;
    let request = v1::EvaluateRequest { max_wait: Some(duration(30_000)), ..delete("s", "c1", r#"{"id":1}"#) };
    let asked = tokio::spawn(async move { evaluate(&mut client, request).await });
    let told = in_time("a question", watched.get_mut().message()).await.expect("a message").expect("a question");
    let question = told.approval.expect("a question");
    assert_eq!((question.state(), question.tool.as_str()), (ApprovalState::Pending, "delete_order"));
    assert_eq!(question.justification, "the user said so");
    resolve(approvals, answer(&question.approval_id, "eve", true, "")).await.expect("the first answer");
    let verdict = in_time("the verdict", asked).await.expect("no panic");
    assert_eq!(verdict.decision(), Decision::Allow, "{verdict:?}");
    let told = in_time("the answer", watched.get_mut().message()).await.expect("a message").expect("a question");
    let question = told.approval.expect("a question");
    assert_eq!((question.state(), question.resolved_by.as_str()), (ApprovalState::Approved, "eve"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_gives_what_it_says_and_survives_a_cold_tree() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let mut grants = GrantServiceClient::new(plane.channel().await);
    let create = |n: usize| question("s", call(&format!("c{n}"), "create_order", &format!(r#"{{"n":{n}}}"#)));
    assert_eq!(evaluate(&mut client, create(1)).await.decision(), Decision::Allow);
    assert_eq!(evaluate(&mut client, create(2)).await.reason, "grant_exceeded");
    let request = v1::CreateGrantRequest {
        session_id: "s".into(),
        tool_pattern: "create_*".into(),
        ceiling: 2,
        ..v1::CreateGrantRequest::default()
    };
    let bad = v1::CreateGrantRequest { ceiling: 0, ..request.clone() };
    assert_eq!(
        pair(&grants.create_grant(from("eve", bad)).await.expect_err("no calls")),
        (Code::InvalidArgument, "INVALID_FIELD".into())
    );
    let granted =
        grants.create_grant(from("eve", request)).await.expect("a grant").into_inner().grant.expect("a grant");
    assert_eq!(evaluate(&mut client, create(3)).await.decision(), Decision::Allow);
    // Another replica knows nothing but the rows.
    let other = plane.postgres_gate(&policy::compile(POLICY).expect("a good policy")).await;
    let mut other = Client::new(other);
    assert_eq!(evaluate(&mut other, create(4)).await.decision(), Decision::Allow);
    assert_eq!(evaluate(&mut other, create(5)).await.reason, "grant_exceeded");
    let list = v1::ListGrantsRequest { session_id: "s".into(), ..v1::ListGrantsRequest::default() };
    let list = grants.list_grants(list).await.expect("grants").into_inner();
    let used: Vec<(u64, u64)> = list.grants.iter().map(|grant| (grant.used, grant.ceiling)).collect();
    assert_eq!((used, &list.grants[0].grant_id, list.grants[0].by.as_str()), (vec![(2, 2)], &granted.grant_id, "eve"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kill_switch_stops_a_session_and_tells_who_watches() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let look = |n: usize| question("s", call(&format!("c{n}"), "get_order", &format!(r#"{{"id":{n}}}"#)));
    assert_eq!(evaluate(&mut client, look(1)).await.decision(), Decision::Allow);
    let mut watched =
        sessions.watch_session(v1::WatchSessionRequest { session_id: "s".into() }).await.expect("a watch");
    let first = in_time("a state", watched.get_mut().message()).await.expect("a message").expect("a state");
    assert_eq!(first.halt, None);
    let halt = v1::HaltRequest { name: "s".into(), reason: "a drill".into(), scope: HaltScope::Session.into() };
    sessions.halt(from("eve", halt.clone())).await.expect("a halt");
    sessions.halt(from("ada", halt)).await.expect("the same halt");
    let stopped = evaluate(&mut client, look(2)).await;
    assert_eq!((stopped.decision(), stopped.reason.as_str()), (Decision::Stop, "session_halted"));
    assert!(stopped.tools_disabled && stopped.tool_result_json.contains("a drill"));
    let told = in_time("the halt", async {
        loop {
            let state = watched.get_mut().message().await.expect("a message").expect("a state");
            if let Some(halt) = state.halt {
                return halt;
            }
        }
    });
    assert_eq!(told.await.reason, "a drill");
    let resume = v1::ResumeRequest { name: "s".into(), scope: HaltScope::Session.into(), ..Default::default() };
    assert!(sessions.resume(from("eve", resume.clone())).await.expect("a resume").into_inner().was_halted);
    assert!(!sessions.resume(from("eve", resume)).await.expect("a resume").into_inner().was_halted);
    assert_eq!(evaluate(&mut client, look(3)).await.decision(), Decision::Allow);
    assert_eq!(plane.postgres.number("select count(*) from halt where resumed_at is not null").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn phases_are_set_before_the_first_call_and_a_compaction_tells_what_was_done() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let of = |session: &str, phase: &str| {
        let (session_id, phase) = (session.to_owned(), phase.to_owned());
        from("eve", v1::SetPhaseRequest { session_id, phase, ..v1::SetPhaseRequest::default() })
    };
    let phase = |phase: &str| of("s", phase);
    let moved = question("s", call("c1", "move_order", "{}"));
    assert_eq!(evaluate(&mut client, moved).await.reason, "phase_forbids");
    let unknown = sessions.set_phase(phase("ACTT")).await.expect_err("no such phase");
    assert_eq!(pair(&unknown), (Code::FailedPrecondition, "PHASE_FORBIDDEN".into()));
    sessions.set_phase(phase("ACT")).await.expect("a phase");
    let moved = question("s", call("c2", "move_order", "{}"));
    assert_eq!(evaluate(&mut client, moved).await.decision(), Decision::Allow);
    record(&mut client, success("s", "c2", "moved")).await;
    let back = sessions.set_phase(phase("LOOK")).await.expect_err("ACT leads nowhere");
    assert!(back.message().contains("nowhere"), "{back:?}");
    let compacted = v1::MarkCompactedRequest { session_id: "s".into(), summary_tokens: 0 };
    let state = sessions.mark_compacted(compacted).await.expect("known").into_inner().state.expect("a state");
    assert!(state.summary_for_model.contains("move_order"), "{}", state.summary_for_model);
    // The phase of a session can be set before its first call.
    sessions.set_phase(of("early", "ACT")).await.expect("a phase");
    let moved = question("early", call("c1", "move_order", r#"{"n":2}"#));
    assert_eq!(evaluate(&mut client, moved).await.decision(), Decision::Allow);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let listed = sessions.list_sessions(v1::ListSessionsRequest::default()).await.expect("sessions").into_inner();
    assert_eq!(listed.sessions.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_calls_are_found_by_their_id_in_every_session_or_in_one_call_tree() {
    let plane = plane().await;
    let (mut client, sessions) = (plane.client().await, SessionServiceClient::new(plane.channel().await));
    for (session, id) in [("s", "c1"), ("s", "c2"), ("t", "c1")] {
        evaluate(&mut client, question(session, call(id, "get_order", &format!(r#"{{"id":"{id}"}}"#)))).await;
    }
    let found = async |session: &str, id: &str| {
        let wanted = v1::ExportCallsRequest {
            session_id: session.into(),
            call_id: id.into(),
            ..v1::ExportCallsRequest::default()
        };
        let mut calls = sessions.clone().export_calls(wanted).await.expect("calls").into_inner();
        let mut names = Vec::new();
        while let Some(call) = in_time("a call", calls.message()).await.expect("a message") {
            names.push(format!("{} {}", call.session_id, call.call_id));
        }
        names
    };
    assert_eq!(found("", "c1").await, ["s c1", "t c1"]);
    assert_eq!(found("s", "c1").await, ["s c1"]);
    assert_eq!(found("s", "").await, ["s c1", "s c2"]);
    assert!(found("t", "c2").await.is_empty());
    let none = v1::ExportCallsRequest::default();
    let long = v1::ExportCallsRequest { call_id: "c".repeat(1_000), ..none.clone() };
    let since = |seconds, nanos| v1::ExportCallsRequest {
        start_time: Some(prost_types::Timestamp { seconds, nanos }),
        ..none.clone()
    };
    let times = [(i64::MIN, 0), (-1, 999_999_999), (253_402_300_800, 0), (i64::MAX, 0), (1, -1)];
    let times = times.map(|(seconds, nanos)| since(seconds, nanos));
    for request in times.into_iter().chain([long]) {
        let refused = sessions.clone().export_calls(request).await.expect_err("no such id or time can be");
        assert_eq!(pair(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()));
    }
    sessions.clone().export_calls(since(253_402_300_799, 999_999_999)).await.expect("nothing, for now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_a_grant_nor_a_compaction_begins_a_session() {
    let plane = plane().await;
    let rows = plane.row_count().await;
    let compacted = v1::MarkCompactedRequest { session_id: "nowhere".into(), summary_tokens: 0 };
    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let refused = sessions.mark_compacted(compacted).await.expect_err("nobody has heard of it");
    assert_eq!(pair(&refused), (Code::NotFound, "SESSION_UNKNOWN".into()));
    let request = v1::CreateGrantRequest {
        session_id: "nowhere".into(),
        tool_pattern: "create_*".into(),
        ceiling: 2,
        ..v1::CreateGrantRequest::default()
    };
    let mut grants = GrantServiceClient::new(plane.channel().await);
    let refused = grants.create_grant(from("eve", request)).await.expect_err("nobody has heard of it");
    assert_eq!(pair(&refused), (Code::NotFound, "SESSION_UNKNOWN".into()));
    assert_eq!(plane.row_count().await, rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_each_open_question_once_however_many_there_are() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let first = open_request(&mut client, "s", "c1", r#"{"id":1}"#).await;
    // As many as two pages hold, and one more; what they ask does not matter here.
    let rows = plane.postgres.rows(
        "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
         where attrelid = 'call'::regclass and attnum > 0 and not attisdropped
           and attname not in ('seq', 'call_id', 'approval_id', 'at')",
    );
    let row = rows.await.remove(0);
    let columns = row.trim_matches(['(', ')', '"']);
    plane
        .postgres
        .tamper(&format!(
            "insert into call (seq, call_id, approval_id, at, {columns})
             select 1000 + n, 'n' || n, 'apr_n' || n, c.at + n * interval '1 millisecond', {columns}
             from call c, generate_series(1, 1000) n"
        ))
        .await;
    let mut approvals = ApprovalServiceClient::new(plane.channel().await);
    let mut watched = approvals.watch_approvals(v1::WatchApprovalsRequest::default()).await.expect("a watch");
    let mut told = std::collections::BTreeMap::new();
    while told.len() < 1_001 {
        let message = in_time("a question", watched.get_mut().message()).await.expect("a message").expect("a question");
        *told.entry(message.approval.expect("a question").approval_id).or_insert(0) += 1;
    }
    assert!(told.contains_key(&first));
    let again = tokio::time::timeout(Duration::from_secs(3), watched.get_mut().message()).await;
    assert!(again.is_err(), "{again:?} was told before");
    assert!(told.values().all(|times| *times == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_called_off_may_have_happened() {
    let plane = plane().await;
    let mut client = plane.client().await;
    for (call_id, tool, stored) in
        [("c1", "get_order", v1::OutcomeStatus::Cancelled), ("c2", "create_order", v1::OutcomeStatus::Unknown)]
    {
        assert_eq!(evaluate(&mut client, question("s", call(call_id, tool, "{}"))).await.decision(), Decision::Allow);
        let told = record(&mut client, outcome("s", call_id, v1::OutcomeStatus::Cancelled)).await;
        assert_eq!(told.status(), stored, "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_has_room_for_what_callers_and_proxies_add() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let request = |call_id: &str, bytes: usize| {
        let mut request = tonic::Request::new(question("s", call(call_id, "get_order", "{}")));
        request.metadata_mut().insert("baggage", "b".repeat(bytes).parse().expect("ASCII"));
        request
    };
    let (fits, too_large) = (request("c1", 48 << 10), request("c2", 80 << 10));
    client.evaluate(fits).await.expect("a verdict");
    let refused = client.evaluate(too_large).await.expect_err("too large");
    assert_eq!(refused.code(), Code::Unknown, "{refused:?}");
}
