//! Approval waits and idempotent answers, over gRPC on real Postgres.

use std::time::Duration;

use callgate_core::policy;
use callgate_proto::{
    time::duration,
    v1::{self, ApprovalState, Decision, approval_service_client::ApprovalServiceClient},
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::{
    common::{
        in_time, until,
        wire::{Client, Plane, call, evaluate, from, pair, question, record, success},
    },
    people::{POLICY, answer, delete, open_request, plane, resolve},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_answer_by_the_same_person_may_be_sent_again() {
    let plane = plane().await;
    let (mut client, approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "s", "c1", r#"{"id":1}"#).await;
    let first = resolve(approvals.clone(), answer(&id, "eve", true, "seen")).await.expect("the first answer");
    assert_eq!((first.state(), first.resolved_by.as_str()), (ApprovalState::Approved, "eve"));
    // A retry of a client whose answer was stored and whose response was lost.
    let again = resolve(approvals.clone(), answer(&id, "eve", true, "seen")).await.expect("the same answer");
    assert_eq!(again, first);
    let answered = || Err((Code::FailedPrecondition, "APPROVAL_ANSWERED".to_owned()));
    assert_eq!(resolve(approvals.clone(), answer(&id, "eve", false, "no")).await, answered());
    assert_eq!(resolve(approvals.clone(), answer(&id, "adam", true, "seen")).await, answered());
    assert_eq!(evaluate(&mut client, delete("s", "c1", r#"{"id":1}"#)).await.decision(), Decision::Allow);
    // Also once the approval is used up.
    assert_eq!(resolve(approvals, answer(&id, "eve", true, "seen")).await.expect("the same answer"), first);
    assert_eq!(plane.postgres.number("select count(*) from session_event where kind = 'answered'").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_wait_the_database_is_looked_at_once() {
    const WAITING: usize = 40;
    let plane = plane().await;
    let mut client = plane.client().await;
    let waiting: Vec<_> = (0..WAITING)
        .map(|n| {
            let mut client = client.clone();
            let arguments = format!(r#"{{"id":{n}}}"#);
            let request =
                v1::EvaluateRequest { max_wait: Some(duration(60_000)), ..delete(&format!("s{n}"), "c1", &arguments) };
            tokio::spawn(async move { evaluate(&mut client, request).await })
        })
        .collect();
    let asked = "select count(*) from call where approval_id is not null";
    until("all to wait", async || plane.postgres.number(asked).await == WAITING as i64).await;
    // A backend publishes its statistics a second later, or ten seconds later when idle.
    let statements = "select xact_commit from pg_stat_database where datname = current_database()";
    let before = plane.postgres.number(statements).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let done = plane.postgres.number(statements).await - before;
    // Some forty polls, those of the health service, and late statistics; separate polls by each waiter would be a
    // thousand.
    assert!(done < 500, "{done} statements while {WAITING} wait");
    let approvals = ApprovalServiceClient::new(plane.channel().await);
    let page = v1::ListApprovalsRequest { page_size: 100, ..v1::ListApprovalsRequest::default() };
    let list = approvals.clone().list_approvals(page).await.expect("questions");
    for question in list.into_inner().approvals {
        resolve(approvals.clone(), answer(&question.approval_id, "eve", true, "")).await.expect("an answer");
    }
    for told in waiting {
        assert_eq!(in_time("a verdict", told).await.expect("no panic").decision(), Decision::Allow);
    }
    assert_eq!(evaluate(&mut client, delete("s0", "c1", r#"{"id":0}"#)).await.decision(), Decision::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_yes_can_hold_for_one_thing_until_a_time() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let approvals = ApprovalServiceClient::new(plane.channel().await);
    let id = open_request(&mut client, "s", "c1", r#"{"id":1}"#).await;
    let yes = |approve, scope: v1::ApprovalScope, ttl| {
        let ttl = Some(duration(ttl));
        let approval_id = id.clone();
        let scope = scope.into();
        from(
            "eve",
            v1::ResolveApprovalRequest {
                approval_id,
                approve,
                scope,
                ttl,
                reason: "seen".into(),
                ..Default::default()
            },
        )
    };
    for bad in [
        yes(true, v1::ApprovalScope::Call, 60_000),
        yes(false, v1::ApprovalScope::Resource, 60_000),
        yes(true, v1::ApprovalScope::Resource, 32 * 86_400_000),
    ] {
        let refused = resolve(approvals.clone(), bad).await;
        assert_eq!(refused, Err((Code::InvalidArgument, "INVALID_FIELD".to_owned())));
    }
    let told = resolve(approvals, yes(true, v1::ApprovalScope::Resource, 3_600_000)).await.expect("an answer");
    assert_eq!((told.scope(), told.resource.as_str()), (v1::ApprovalScope::Resource, "order/1"));
    assert!(told.scope_expire_time.is_some());
    assert_eq!(evaluate(&mut client, delete("s", "c1", r#"{"id":1}"#)).await.decision(), Decision::Allow);
    record(&mut client, success("s", "c1", "gone")).await;
    // Another replica knows nothing but the rows.
    let mut other =
        Client::new(plane.postgres_gate(&callgate_core::policy::compile(POLICY).expect("a good policy")).await);
    let again = evaluate(&mut other, delete("s", "c2", r#"{"id":2}"#)).await;
    assert_eq!(again.decision(), Decision::Ask, "another order: {again:?}");
    let mut listed = ApprovalServiceClient::new(plane.channel().await);
    let shown = listed.get_approval(v1::GetApprovalRequest { approval_id: id.clone() }).await.expect("a question");
    assert_eq!(shown.into_inner().approval, Some(told));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_is_withdrawn_by_its_requester_until_it_is_answered() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let approvals = ApprovalServiceClient::new(plane.channel().await);
    let refused = |code, reason: &str| Err((code, reason.to_owned()));
    let delete_1 = |call_id: &str| delete("s", call_id, r#"{"id":1}"#);
    let id = open_request(&mut client, "s", "c1", r#"{"id":1}"#).await;
    let mut watched = approvals.clone().watch_approvals(v1::WatchApprovalsRequest::default()).await.expect("a watch");
    let state = async |watched: &mut tonic::Streaming<v1::WatchApprovalsResponse>| {
        let told = in_time("a question", watched.message()).await.expect("a message").expect("a question");
        told.approval.expect("a question").state()
    };
    assert_eq!(state(watched.get_mut()).await, ApprovalState::Pending);
    // A person who does not want it denies it.
    assert_eq!(withdraw(approvals.clone(), "eve", &id).await, refused(Code::PermissionDenied, "NOT_THE_REQUESTER"));
    assert_eq!(withdraw(approvals.clone(), "s", "apr_0").await, refused(Code::NotFound, "APPROVAL_UNKNOWN"));
    let request = v1::EvaluateRequest { max_wait: Some(duration(30_000)), ..delete_1("c1") };
    let mut waiter = client.clone();
    let waiting = tokio::spawn(async move { evaluate(&mut waiter, request).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let gone = withdraw(approvals.clone(), "Robot", &id).await.expect("a withdrawal");
    assert_eq!((gone.state(), gone.resolved_by.as_str()), (ApprovalState::Withdrawn, "Robot"));
    assert_eq!(gone.scope(), v1::ApprovalScope::Unspecified);
    assert!(gone.resolve_time.is_some());
    assert_eq!(state(watched.get_mut()).await, ApprovalState::Withdrawn);
    // The waiting request returns the answer, and a new one needs no approval.
    let told = in_time("a verdict", waiting).await.expect("no panic");
    assert_eq!((told.decision(), told.reason.as_str()), (Decision::Deny, "approval_withdrawn"), "{told:?}");
    assert_eq!(withdraw(approvals.clone(), "s", &id).await.as_ref(), Ok(&gone), "it may be sent again");
    let late = answer(&id, "eve", true, "seen");
    assert_eq!(resolve(approvals.clone(), late).await, refused(Code::FailedPrecondition, "APPROVAL_WITHDRAWN"));
    let page = |state: ApprovalState| v1::ListApprovalsRequest { state: state.into(), ..Default::default() };
    let listed =
        async |state| approvals.clone().list_approvals(page(state)).await.expect("a list").into_inner().approvals;
    assert_eq!(listed(ApprovalState::Withdrawn).await, std::slice::from_ref(&gone));
    assert_eq!(listed(ApprovalState::Pending).await, []);
    assert_eq!(listed(ApprovalState::Denied).await, []);

    // Another replica, from the rows alone, agrees; the same call under another id is a new one.
    let mut other =
        Client::new(plane.postgres_gate(&callgate_core::policy::compile(POLICY).expect("a good policy")).await);
    assert_eq!(evaluate(&mut other, delete_1("c1")).await.reason, "approval_withdrawn");
    let next = open_request(&mut other, "s", "c2", r#"{"id":1}"#).await;
    assert_ne!(next, id);
    resolve(approvals.clone(), answer(&next, "eve", true, "seen")).await.expect("an answer");
    assert_eq!(withdraw(approvals, "s", &next).await, refused(Code::FailedPrecondition, "APPROVAL_ANSWERED"));
    assert_eq!(evaluate(&mut client, delete_1("c2")).await.decision(), Decision::Allow);
    let kinds = "select count(*) from session_event where kind = 'withdrawn' and actor = 'Robot'";
    assert_eq!(plane.postgres.number(kinds).await, 1);
    let told = "select count(*) from approvals where status = 'withdrawn' and answered_by = 'Robot'";
    assert_eq!(plane.postgres.number(told).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withdrawal_and_answer_at_once_have_one_winner() {
    let plane = plane().await;
    let mut client = plane.client().await;
    let approvals = ApprovalServiceClient::new(plane.channel().await);
    for n in 0..10 {
        let (session, arguments) = (format!("s{n}"), format!(r#"{{"id":{n}}}"#));
        let id = open_request(&mut client, &session, "c1", &arguments).await;
        let (answered, withdrawn) = tokio::join!(
            resolve(approvals.clone(), answer(&id, "eve", true, "seen")),
            withdraw(approvals.clone(), &session, &id)
        );
        let verdict = evaluate(&mut client, delete(&session, "c1", &arguments)).await;
        let lost = |lost: Result<v1::Approval, (Code, String)>| lost.expect_err("one is first").1;
        if answered.is_ok() {
            assert_eq!((lost(withdrawn).as_str(), verdict.decision()), ("APPROVAL_ANSWERED", Decision::Allow));
        } else {
            assert!(withdrawn.is_ok(), "one is first");
            assert_eq!(
                (lost(answered).as_str(), verdict.reason.as_str()),
                ("APPROVAL_WITHDRAWN", "approval_withdrawn")
            );
        }
    }
    assert_eq!(plane.postgres.number("select count(*) from session_event").await, 10);
}

async fn withdraw(
    mut approvals: ApprovalServiceClient<tonic::transport::Channel>,
    by: &str,
    id: &str,
) -> Result<v1::Approval, (Code, String)> {
    let request = v1::WithdrawApprovalRequest { approval_id: id.into(), reason: "not needed".into() };
    let withdrawn = in_time("a withdrawal", approvals.withdraw_approval(from(by, request))).await;
    withdrawn.map(|withdrawn| withdrawn.into_inner().approval.expect("a question")).map_err(|status| pair(&status))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_for_two_tells_whom_it_is_for_and_who_has_said_yes() {
    let routes =
        "approvals: {routes: [{tools: 'delete_*', group: finance, required_approvals: 2, escalate_after_ms: 10min,
      escalate_to: heads}]}";
    let text = POLICY.replacen("policy_engine:\n", &format!("policy_engine:\n  {routes}\n"), 1);
    let plane = Plane::start(&policy::compile(&text).expect("a good policy")).await;
    let mut client = plane.client().await;
    let mut approvals = ApprovalServiceClient::new(plane.channel().await);
    let watch = v1::WatchApprovalsRequest::default();
    let mut watched = approvals.watch_approvals(watch).await.expect("a watch").into_inner();
    let id = open_request(&mut client, "s", "c1", r#"{"id":1}"#).await;
    let mut told = async || {
        let told = in_time("the question", watched.message()).await.expect("a message").expect("a question");
        told.approval.expect("a question")
    };
    let open = told().await;
    assert_eq!((open.group.as_str(), open.escalate_group.as_str(), open.required_approvals), ("finance", "heads", 2));
    let (asked, late) = (open.create_time.expect("asked"), open.escalate_time.expect("a time"));
    assert_eq!(late.seconds - asked.seconds, 600);
    assert!(open.reasons.concat().contains("the approval of two people of the group finance"), "{:?}", open.reasons);
    for _ in 0..2 {
        let first = approvals.resolve_approval(answer(&id, "eve", true, "")).await.expect("a yes").into_inner();
        let first = first.approval.expect("the question");
        assert_eq!((first.state(), first.approved_by), (ApprovalState::Pending, vec!["eve".to_owned()]));
    }
    assert_eq!(told().await.approved_by, ["eve"]);
    let second = approvals.resolve_approval(answer(&id, "max", true, "")).await.expect("a yes").into_inner();
    let second = second.approval.expect("the question");
    assert_eq!((second.state(), second.resolved_by.as_str()), (ApprovalState::Approved, "max"));
    assert_eq!(told().await.state(), ApprovalState::Approved);
    assert_eq!(evaluate(&mut client, delete("s", "c1", r#"{"id":1}"#)).await.decision(), Decision::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hosts_user_answers_only_where_the_policy_lets_them() {
    let by_host = POLICY.replace("require_reason: true}", "require_reason: true, approver: host}");
    let routed = format!("{by_host}  approvals: {{routes: [{{group: ops}}]}}\n");
    for (text, may) in [(POLICY.to_owned(), false), (by_host, true), (routed, false)] {
        let plane = Plane::start(&policy::compile(&text).expect("a good policy")).await;
        let mut client = plane.client().await;
        let asked = delete("s", "c1", r#"{"id":1}"#);
        let verdict = evaluate(&mut client, asked.clone()).await;
        assert_eq!((verdict.decision(), verdict.host_may_approve), (Decision::Ask, may));
        let ran = v1::RecordRequest {
            caller: asked.caller,
            observed_call: asked.call,
            host_approved: true,
            ..success("s", "c1", "gone")
        };
        if may {
            assert!(!record(&mut client, ran.clone()).await.replayed);
            // As after an error that leaves open whether it was stored.
            assert!(record(&mut client, ran).await.replayed);
        } else {
            let refused = client.record(ran).await.expect_err("nobody was asked");
            assert_eq!(pair(&refused), (Code::FailedPrecondition, "CALL_NOT_PERMITTED".to_owned()));
        }
        let wanted = v1::GetApprovalRequest { approval_id: verdict.approval_id };
        let question =
            ApprovalServiceClient::new(plane.channel().await).get_approval(wanted).await.expect("a question");
        let question = question.into_inner().approval.expect("a question");
        let (state, by) = if may { (ApprovalState::Approved, "host user") } else { (ApprovalState::Pending, "") };
        assert_eq!((question.state(), question.resolved_by.as_str()), (state, by));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_shown_what_its_members_may_answer() {
    let text = "policy_engine:
  authorization: {tiers: [{name: all, pattern: '*', action: hitl}]}
  approvals:
    routes:
      - {tools: 'wire_*', group: finance, escalate_after_ms: 1ms, escalate_to: managers}
      - {tools: 'drop_*', group: operations}
";
    let plane = Plane::start(&policy::compile(text).expect("a good policy")).await;
    let mut client = plane.client().await;
    for (n, tool) in ["wire_money", "drop_table", "rename", "drop_index"].into_iter().enumerate() {
        let asked = evaluate(&mut client, question(&format!("s{n}"), call("c", tool, "{}"))).await;
        assert_eq!(asked.decision(), Decision::Ask);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let approvals = ApprovalServiceClient::new(plane.channel().await);
    for (group, tools) in [
        ("", vec!["drop_index", "rename", "drop_table", "wire_money"]),
        ("finance", vec!["rename", "wire_money"]),
        ("managers", vec!["rename", "wire_money"]),
        ("operations", vec!["drop_index", "rename", "drop_table"]),
        ("nobody", vec!["rename"]),
    ] {
        for page_size in [1, 2, 100] {
            let (mut shown, mut page_token) = (Vec::new(), String::new());
            loop {
                let page =
                    v1::ListApprovalsRequest { group: group.into(), page_size, page_token, ..Default::default() };
                let page = approvals.clone().list_approvals(page).await.expect("questions").into_inner();
                assert!(page.approvals.len() <= page_size as usize);
                shown.extend(page.approvals.into_iter().map(|question| question.tool));
                page_token = page.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            assert_eq!(shown, tools, "{group}, {page_size} at a time");
        }
    }
    for group in ["x".repeat(257), "a\0".to_owned()] {
        let bad = v1::ListApprovalsRequest { group, ..Default::default() };
        let refused = approvals.clone().list_approvals(bad).await.expect_err("no group");
        assert_eq!(pair(&refused), (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
        assert_eq!(refused.get_details_bad_request().expect("a field").field_violations[0].field, "group");
    }
}
