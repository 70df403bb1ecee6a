//! Search of sessions and calls: filters, pages, and the details of a call.

use callgate_core::domain::identity::Role;
use callgate_proto::v1::{
    self, CallFilter, Decision, HaltScope, OutcomeStatus, SessionStatus, session_service_client::SessionServiceClient,
};
use tonic::{Code, transport::Channel};

use crate::{
    common::wire::{Client, call, caller, evaluate, from, outcome, pair, question, record, success},
    credentials::{bearer, token, who},
    people,
};

type Sessions = SessionServiceClient<Channel>;

fn evaluate_request(session: &str, agent: &str, call_id: &str, tool: &str, arguments: &str) -> v1::EvaluateRequest {
    let caller = v1::Caller { agent_id: agent.into(), ..caller(session) };
    v1::EvaluateRequest { caller: Some(caller), ..question(session, call(call_id, tool, arguments)) }
}

/// `one`: a successful read, a write, a refused write, and a sub-agent's approval request; `two`: a failed read and its
/// retry; `three`: a running read.
async fn fleet(client: &mut Client) {
    evaluate(client, evaluate_request("one", "robot", "c1", "get_order", r#"{"id":"Zürich"}"#)).await;
    record(client, success("one", "c1", r#"{"state":"sent"}"#)).await;
    for n in 2..=3 {
        evaluate(
            client,
            evaluate_request("one", "robot", &format!("c{n}"), "create_order", &format!(r#"{{"n":{n}}}"#)),
        )
        .await;
    }
    let mut below = people::delete("below", "d1", r#"{"id":7}"#);
    below.caller.as_mut().expect("a caller").parent_session_id = "one".into();
    assert_eq!(evaluate(client, below).await.decision(), Decision::Ask);
    evaluate(client, evaluate_request("two", "clerk", "c1", "get_order", r#"{"id":"Bern"}"#)).await;
    let error =
        v1::ToolError { message: "503 Service Unavailable".into(), http_status: Some(503), ..Default::default() };
    let failed = v1::RecordRequest { error: Some(error), ..outcome("two", "c1", OutcomeStatus::Error) };
    record(client, failed).await;
    let retry = evaluate(client, evaluate_request("two", "clerk", "c2", "get_order", r#"{"id":"Bern"}"#)).await;
    assert_eq!(retry.decision(), Decision::Wait, "{retry:?}");
    let mut third = evaluate_request("three", "clerk", "c1", "get_order", r#"{"id":"Basel"}"#);
    third.caller.as_mut().expect("a caller").user_id = "uma".into();
    evaluate(client, third).await;
}

async fn list_sessions(sessions: &mut Sessions, request: v1::ListSessionsRequest) -> Vec<String> {
    let found = sessions.list_sessions(request).await.expect("sessions").into_inner();
    assert_eq!(found.searched_range, Some(v1::SearchedRange::default()), "all was looked through");
    found.sessions.into_iter().map(|session| session.session_id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_found_by_what_happened_in_them() {
    let plane = people::plane().await;
    fleet(&mut plane.client().await).await;
    let mut sessions = Sessions::new(plane.channel().await);
    let like = |calls: CallFilter| v1::ListSessionsRequest { calls: Some(calls), ..Default::default() };
    let cases: Vec<(CallFilter, &[&str])> = vec![
        (CallFilter { agent_id: "clerk".into(), ..Default::default() }, &["three", "two"]),
        (CallFilter { tool: "create_order".into(), ..Default::default() }, &["one"]),
        (CallFilter { tool: "create".into(), ..Default::default() }, &[]),
        (CallFilter { decision: Decision::Ask.into(), ..Default::default() }, &["below"]),
        (CallFilter { reason: "grant_exceeded".into(), ..Default::default() }, &["one"]),
        (CallFilter { rule: "same_call".into(), ..Default::default() }, &["two"]),
        (CallFilter { status: OutcomeStatus::Error.into(), ..Default::default() }, &["two"]),
        (CallFilter { failure: v1::FailureKind::Unavailable.into(), ..Default::default() }, &["two"]),
        (CallFilter { status: OutcomeStatus::Running.into(), ..Default::default() }, &["three", "one"]),
        (CallFilter { text: "ZÜRICH".into(), ..Default::default() }, &["one"]),
        (CallFilter { text: "bel".into(), ..Default::default() }, &["below"]),
        (CallFilter { text: "%".into(), ..Default::default() }, &[]),
        (CallFilter { user_id: "uma".into(), ..Default::default() }, &["three"]),
        (CallFilter { user_id: "um".into(), ..Default::default() }, &[]),
        (CallFilter { refused: true, ..Default::default() }, &["one"]),
        // All of it has to be so of one call.
        (CallFilter { agent_id: "clerk".into(), tool: "create_order".into(), ..Default::default() }, &[]),
        (CallFilter { end_time: Some(prost_types::Timestamp { seconds: 9, nanos: 0 }), ..Default::default() }, &[]),
    ];
    for (filter, wanted) in cases {
        let told = format!("{filter:?}");
        assert_eq!(list_sessions(&mut sessions, like(filter)).await, wanted, "{told}");
    }
    let standing = |standing: SessionStatus| v1::ListSessionsRequest { status: standing.into(), ..Default::default() };
    assert_eq!(list_sessions(&mut sessions, standing(SessionStatus::Held)).await, ["below"]);
    assert_eq!(list_sessions(&mut sessions, standing(SessionStatus::Calling)).await, ["three", "one"]);
    assert_eq!(list_sessions(&mut sessions, standing(SessionStatus::Idle)).await, ["two"]);
    let halt = v1::HaltRequest { scope: HaltScope::Session.into(), name: "one".into(), reason: "a drill".into() };
    sessions.halt(from("eve", halt)).await.expect("a halt");
    assert_eq!(
        list_sessions(&mut sessions, standing(SessionStatus::Halted)).await,
        ["one", "below"],
        "and those below it"
    );
    let halt = v1::HaltRequest { scope: HaltScope::Agent.into(), name: "clerk".into(), reason: String::new() };
    sessions.halt(from("eve", halt)).await.expect("a halt");
    assert_eq!(list_sessions(&mut sessions, standing(SessionStatus::Halted)).await.len(), 4);

    let wrong = like(CallFilter { decision: 77, ..Default::default() });
    let refused = sessions.list_sessions(wrong).await.expect_err("no such decision");
    assert_eq!(pair(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()));
    assert!(refused.message().contains("calls.decision"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_found_by_their_beginning_and_with_trigrams_anywhere() {
    let plane = people::plane().await;
    fleet(&mut plane.client().await).await;
    let mut sessions = Sessions::new(plane.channel().await);
    let all =
        [("CLERK", &["three", "two"][..]), ("um", &["three"]), ("create_", &["one"]), ("create.", &[]), ("%", &[])];
    let within = [("lerk", &["three", "two"][..]), ("MA", &["three"]), ("ate_ord", &["one"]), ("at__ord", &[])];
    for has_trigrams in [false, true] {
        if has_trigrams {
            plane.postgres.tamper("create extension pg_trgm schema public").await;
            // Counted, so that hours without a name are left out. Only these two have calls of the last hour.
            plane
                .postgres
                .tamper("update call set at = at - interval '3 hours' where session_id in ('one', 'below')")
                .await;
            plane
                .postgres
                .tamper(
                    "update call_tree set last_at = last_at - interval '3 hours',
                started_at = started_at - interval '3 hours' where root_id = 'one'",
                )
                .await;
            assert!(plane.gate.store.roll_up().await.expect("counted"));
            let indexed = "select count(*) from pg_indexes where indexname = 'call_name_trigram'";
            assert_eq!(plane.postgres.number(indexed).await, 1);
            assert!(plane.postgres.number("select count(*) from call_name where name = 'create_order'").await == 1);
            // Exact names select counted hours too, and another tenant's names are not read.
            plane.postgres.tamper("insert into call_name values (2, now(), 0, 'robert', 'robert')").await;
            for (filter, wanted) in [
                (CallFilter { tool: "create_order".into(), ..Default::default() }, &["one"][..]),
                (
                    CallFilter { agent_id: "robot".into(), tool: "create_order".into(), ..Default::default() },
                    &["one"][..],
                ),
                (CallFilter { agent_id: "clerk".into(), ..Default::default() }, &["three", "two"][..]),
                (CallFilter { user_id: "uma".into(), ..Default::default() }, &["three"][..]),
            ] {
                let asked = v1::ListSessionsRequest { calls: Some(filter), ..Default::default() };
                assert_eq!(list_sessions(&mut sessions, asked.clone()).await, wanted, "{asked:?}");
            }
        }
        for (no, (name, wanted)) in all.into_iter().chain(within).enumerate() {
            let calls = Some(CallFilter { name: name.into(), ..Default::default() });
            let asked = v1::ListSessionsRequest { calls, ..Default::default() };
            let found = sessions.list_sessions(asked).await.expect("sessions").into_inner();
            let told: Vec<_> = found.sessions.iter().map(|session| session.session_id.as_str()).collect();
            let wanted = if has_trigrams || no < all.len() { wanted } else { &[] };
            assert_eq!(told, wanted, "{name}, {has_trigrams}");
            let searched = found.searched_range.unwrap_or_default();
            assert_eq!(searched, v1::SearchedRange { name_prefix_only: !has_trigrams, ..Default::default() }, "{name}");
        }
        let mut list = async |text: &str, kind: v1::NameKind| {
            let asked = v1::ListNamesRequest { text: text.into(), kind: kind.into(), max_names: 0 };
            let found = sessions.list_names(asked).await.expect("names").into_inner();
            assert_eq!(found.prefix_only, !has_trigrams);
            let mut names: Vec<_> = found.names.into_iter().map(|entry| entry.name).collect();
            names.sort();
            names
        };
        assert_eq!(list("", v1::NameKind::Agent).await, ["clerk", "robot"]);
        assert_eq!(list("", v1::NameKind::User).await, ["uma"]);
        assert_eq!(list("robe", v1::NameKind::Agent).await, [""; 0]);
        assert_eq!(list("UM", v1::NameKind::Unspecified).await, ["uma"]);
        let within = if has_trigrams { &["create_order", "delete_order", "get_order"][..] } else { &[] };
        assert_eq!(list("_order", v1::NameKind::Tool).await, within);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_sorted_by_a_total_page_by_page() {
    let plane = people::plane().await;
    fleet(&mut plane.client().await).await;
    plane
        .postgres
        .tamper("update call_tree set cost_micros = length(root_id), started_at = last_at - calls * interval '1 s'")
        .await;
    let mut sessions = Sessions::new(plane.channel().await);
    for (order, wanted) in [
        (v1::SessionOrder::Latest, ["three", "two", "one", "below"]),
        (v1::SessionOrder::Cost, ["three", "one", "below", "two"]),
        (v1::SessionOrder::Calls, ["one", "below", "three", "two"]),
        (v1::SessionOrder::Duration, ["one", "below", "three", "two"]),
    ] {
        for status in [SessionStatus::Unspecified, SessionStatus::Idle] {
            let (mut names, mut page_token) = (Vec::new(), String::new());
            loop {
                let (order, status, page_size) = (order.into(), status.into(), 1);
                let asked = v1::ListSessionsRequest { order, status, page_size, page_token, calls: None };
                let page = sessions.list_sessions(asked).await.expect("sessions").into_inner();
                names.extend(page.sessions.into_iter().map(|session| session.session_id));
                page_token = page.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            match status {
                SessionStatus::Idle => assert_eq!(names, ["two"], "{order:?}"),
                _ => assert_eq!(names, wanted, "{order:?}"),
            }
        }
    }
    let unknown = v1::ListSessionsRequest { order: 77, ..Default::default() };
    let refused = sessions.list_sessions(unknown).await.expect_err("no such order");
    assert_eq!(pair(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_given_with_the_totals_of_its_call_tree() {
    let plane = people::plane().await;
    fleet(&mut plane.client().await).await;
    let mut sessions = Sessions::new(plane.channel().await);
    let mut get = async |id: &str| sessions.get_session(v1::GetSessionRequest { session_id: id.into() }).await;
    let one = get("one").await.expect("a session").into_inner();
    assert_eq!(one.refused_calls, Some(1));
    let session = one.session.expect("a session");
    assert_eq!((session.session_id.as_str(), session.calls, session.depth), ("one", 2, 0));
    assert_eq!(session.agent_id, "robot");
    let below = get("below").await.expect("a session").into_inner();
    assert_eq!(below.refused_calls, Some(1), "of the call tree");
    let below = below.session.expect("a session");
    assert_eq!((below.session_id.as_str(), below.depth, below.status()), ("below", 1, SessionStatus::Held));
    let unknown = get("on").await.expect_err("no such session");
    assert_eq!(pair(&unknown), (Code::NotFound, "SESSION_UNKNOWN".into()));
}

async fn pages(sessions: &mut Sessions, mut request: v1::ListCallsRequest) -> Vec<String> {
    let mut names = Vec::new();
    request.page_size = 2;
    loop {
        let page = sessions.list_calls(request.clone()).await.expect("a page").into_inner();
        names.extend(page.calls.into_iter().map(|call| format!("{} {}", call.session_id, call.call_id)));
        if page.next_page_token.is_empty() {
            return names;
        }
        request.page_token = page.next_page_token;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_listed_by_their_place_in_the_tree_or_the_newest_first() {
    let plane = people::plane().await;
    fleet(&mut plane.client().await).await;
    let mut sessions = Sessions::new(plane.channel().await);
    let of = |session: &str| v1::ListCallsRequest { session_id: session.into(), ..Default::default() };
    let tree = ["one c1", "one c2", "one c3", "below d1"];
    let in_order = v1::ListCallsRequest { oldest_first: true, ..of("below") };
    assert_eq!(pages(&mut sessions, in_order).await, tree);
    assert_eq!(pages(&mut sessions, of("one")).await, tree.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(
        pages(&mut sessions, v1::ListCallsRequest { exclude_child_sessions: true, ..of("below") }).await,
        ["below d1"]
    );
    let all = pages(&mut sessions, v1::ListCallsRequest::default()).await;
    assert_eq!(all, ["three c1", "two c2", "two c1", "below d1", "one c3", "one c2", "one c1"]);
    let filter = CallFilter { decision: Decision::Deny.into(), ..Default::default() };
    let denied = v1::ListCallsRequest { filter: Some(filter), ..Default::default() };
    assert_eq!(pages(&mut sessions, denied).await, ["one c3"]);

    let unknown = sessions.list_calls(of("nobody")).await.expect_err("nobody has heard of it");
    assert_eq!(pair(&unknown), (Code::NotFound, "SESSION_UNKNOWN".into()));
    let no_tree = v1::ListCallsRequest { oldest_first: true, ..Default::default() };
    let refused = sessions.list_calls(no_tree).await.expect_err("of which tree?");
    assert_eq!(pair(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_given_with_everything_that_is_stored_of_it() {
    let plane = people::plane().await;
    fleet(&mut plane.client().await).await;
    let mut sessions = Sessions::new(plane.channel().await);
    let get = |session: &str, call: &str| v1::GetCallRequest {
        session_id: session.into(),
        call_id: call.into(),
        include_rows: true,
    };
    let look = sessions.get_call(get("one", "c1")).await.expect("a call").into_inner();
    assert_eq!(look.result.as_deref(), Some(r#"{"state":"sent"}"#));
    assert_eq!((look.arguments_json.as_str(), look.tool_result_json.as_str()), (r#"{"id":"Zürich"}"#, ""));
    let entry = look.call.expect("in short");
    assert_eq!((entry.status(), entry.attempt, entry.judgements), (OutcomeStatus::Success, 1, 1));
    let rows: Vec<serde_json::Value> = look.rows.iter().map(|row| serde_json::from_str(row).expect("JSON")).collect();
    let kinds: Vec<&str> = rows.iter().map(|row| row["record"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["call", "outcome"]);

    let refused = sessions.get_call(get("one", "c3")).await.expect("a call").into_inner();
    let told: serde_json::Value = serde_json::from_str(&refused.tool_result_json).expect("what the model was told");
    assert_eq!(told["status"], "grant_exceeded", "{told}");
    assert!(refused.result.is_none() && refused.reports.is_empty());

    let failed = sessions.get_call(get("two", "c1")).await.expect("a call").into_inner();
    assert_eq!(failed.reports.len(), 1);
    assert!(failed.reports[0].advice.as_ref().is_some_and(|advice| advice.retryable), "{failed:?}");
    assert_eq!(failed.error_message, "503 Service Unavailable");

    // Its request was not withdrawn, but answered.
    let held = sessions.get_call(get("below", "d1")).await.expect("a call").into_inner();
    let id = held.call.expect("in short").approval_id;
    let approvals = v1::approval_service_client::ApprovalServiceClient::new(plane.channel().await);
    people::resolve(approvals, people::answer(&id, "eve", true, "go on")).await.expect("an answer");
    let held = sessions.get_call(get("below", "d1")).await.expect("a call").into_inner();
    let [said] = &held.answers[..] else { panic!("{:?}", held.answers) };
    assert_eq!(
        (said.kind.as_str(), said.by.as_str(), said.reason.as_str(), said.approved),
        ("answered", "eve", "go on", true)
    );
    assert_eq!(held.justification, "the user said so");

    let unknown = sessions.get_call(get("one", "d1")).await.expect_err("it is of another session");
    assert_eq!(pair(&unknown), (Code::NotFound, "CALL_UNKNOWN".into()));

    // Rows are for those who may export.
    let (ann, _) = token(&plane.gate, who("ann", &[Role::Approver])).await;
    let refused = sessions.get_call(bearer(&ann, get("one", "c1"))).await.expect_err("an approver");
    assert_eq!(pair(&refused), (Code::PermissionDenied, "ROLE_MISSING".into()));
    let look = sessions.get_call(bearer(&ann, v1::GetCallRequest { include_rows: false, ..get("one", "c1") })).await;
    assert!(look.expect("a call").into_inner().rows.is_empty());
    let (bot, _) = token(&plane.gate, who("bot", &[Role::Agent])).await;
    let refused = sessions.list_calls(bearer(&bot, v1::ListCallsRequest::default())).await.expect_err("an agent");
    assert_eq!(pair(&refused), (Code::PermissionDenied, "ROLE_MISSING".into()));
}
