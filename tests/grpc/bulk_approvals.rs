//! Lists of approval requests by their calls, and answers to several of them in one act.

use std::collections::BTreeMap;

use callgate_core::{
    domain::{audit::Actor, identity::Role, tenant::Quotas},
    policy,
};
use callgate_proto::v1::{
    self, ApprovalGrouping, ApprovalOrder, ApprovalRisk, ApprovalState, Decision,
    approval_service_client::ApprovalServiceClient, policy_service_client::PolicyServiceClient,
};
use callgate_server::gate::TenantChange;
use tonic::{Code, transport::Channel};

use crate::{
    common::{
        in_time,
        wire::{Client, Plane, call, evaluate, from, pair, question},
    },
    credentials::{bearer, token, who},
};

const POLICY: &str = "policy_engine:
  approvals:
    routes: [{tools: 'transfer_*', required_approvals: 2}, {tools: 'group_*', group: finance}]
  authorization:
    tiers:
      - {name: many, pattern: '*_mail|refund_order|transfer_money', action: hitl, bulk_approve: true}
      - {name: one, pattern: 'drop_*', action: hitl}
  tool_schemas:
    send_mail: {effect: write}
    group_mail: {effect: write}
    weighed_mail: {effect: write, conditions: [{when: 'args.n > 9', then: ask}]}
    limited_mail: {effect: write, conditions: [{when: 'args.n > 9', then: deny}]}
    refund_order: {effect: write, once: true, side_effect_resource: 'order/{id}'}
    transfer_money: {effect: write}
    drop_table: {effect: write, risk_level: HIGH}
";

pub(crate) async fn plane() -> Plane {
    Plane::start(&policy::compile(POLICY).expect("a good policy")).await
}

/// A denial of what does not exist.
pub(crate) fn deny_none() -> v1::ResolveApprovalsRequest {
    let matching = Some(v1::ListApprovalsRequest { session_id: "nobody".into(), ..Default::default() });
    v1::ResolveApprovalsRequest { reason: "no".into(), matching, ..Default::default() }
}

pub(crate) fn get(id: &str) -> v1::GetApprovalRequest {
    v1::GetApprovalRequest { approval_id: id.into() }
}

pub(crate) fn release(id: &str) -> v1::ClaimApprovalRequest {
    v1::ClaimApprovalRequest { approval_id: id.into(), release: true }
}

pub(crate) fn comment(id: &str) -> v1::CommentApprovalRequest {
    v1::CommentApprovalRequest { approval_id: id.into(), text: "seen".into() }
}

/// An approval request of a session and agent of its own.
pub(crate) async fn open_request(client: &mut Client, agent: &str, tool: &str, arguments: &str) -> String {
    let mut asked = question(&format!("s-{tool}-{}", arguments.len()), call("c1", tool, arguments));
    asked.caller.get_or_insert_default().agent_id = agent.into();
    let verdict = evaluate(client, asked).await;
    assert_eq!(verdict.decision(), Decision::Ask, "{verdict:?}");
    verdict.approval_id
}

async fn list(
    approvals: &mut ApprovalServiceClient<Channel>,
    asked: v1::ListApprovalsRequest,
) -> v1::ListApprovalsResponse {
    tokio::time::sleep(callgate_server::gate::LOOK_EVERY).await;
    in_time("a list", approvals.list_approvals(asked)).await.expect("a list").into_inner()
}

pub(crate) fn open() -> v1::ListApprovalsRequest {
    v1::ListApprovalsRequest { state: ApprovalState::Pending.into(), ..Default::default() }
}

fn selection(approval: &v1::Approval) -> v1::ApprovalSelection {
    v1::ApprovalSelection { approval_id: approval.approval_id.clone(), args_digest: approval.args_digest.clone() }
}

fn approve(approvals: Vec<v1::ApprovalSelection>) -> v1::ResolveApprovalsRequest {
    v1::ResolveApprovalsRequest { approve: true, approvals, ..Default::default() }
}

/// Error reason by tool, empty for answered requests.
async fn causes(
    approvals: &mut ApprovalServiceClient<Channel>,
    request: tonic::Request<v1::ResolveApprovalsRequest>,
) -> BTreeMap<String, String> {
    let tools = request.get_ref().approvals.iter().map(|one| one.approval_id.clone()).collect::<Vec<_>>();
    let done = in_time("answers", approvals.resolve_approvals(request)).await.expect("answers").into_inner();
    assert_eq!(done.results.iter().map(|one| one.approval_id.clone()).collect::<Vec<_>>(), tools);
    done.results.into_iter().map(|one| (one.approval_id, one.error_reason)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_approval_refuses_each_request_for_its_one_cause_and_audits_the_others() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let mut expected = BTreeMap::new();
    for (tool, arguments, cause) in [
        ("send_mail", r#"{"to":"a"}"#, ""),
        ("send_mail", r#"{"to":"ab","amount":5}"#, ""),
        ("send_mail", r#"{"to":"changed"}"#, "ARGUMENTS_CHANGED"),
        ("refund_order", r#"{"id":7}"#, ""),
        ("refund_order", r#"{"id":8,"amount":5}"#, "BULK_ONCE_AMOUNT"),
        ("refund_order", r#"{"id":9,"betrag":[500]}"#, "BULK_ONCE_AMOUNT"),
        ("refund_order", r#"{"id":10,"betrag":"500.00"}"#, "BULK_ONCE_AMOUNT"),
        ("refund_order", r#"{"id":11,"amount":{"value":"100.00","currency":"EUR"}}"#, "BULK_ONCE_AMOUNT"),
        ("transfer_money", r#"{"to":"b"}"#, "BULK_TWO_PEOPLE"),
        ("drop_table", r#"{"id":1}"#, "BULK_NOT_PERMITTED"),
        ("weighed_mail", r#"{"n":1}"#, "BULK_NOT_PERMITTED"),
        ("limited_mail", r#"{"n":1}"#, ""),
        ("limited_mail", r#"{"n":"many"}"#, "BULK_NOT_PERMITTED"),
        ("group_mail", r#"{"to":"c"}"#, "NOT_IN_GROUP"),
    ] {
        expected.insert(open_request(&mut client, "desk", tool, arguments).await, cause);
    }
    let listed = list(&mut approvals, open()).await.approvals;
    for one in &listed {
        let cause = expected[&one.approval_id];
        let shown = if cause.starts_with("BULK") { cause } else { "" };
        assert_eq!(one.bulk_refusal, shown, "{one:?}");
    }
    let mut picked: Vec<_> = listed.iter().map(selection).collect();
    let changed = picked.iter_mut().find(|one| expected[&one.approval_id] == "ARGUMENTS_CHANGED").expect("one");
    changed.args_digest = "0".repeat(64);

    let (eve, _) = token(&plane.gate, who("eve", &[Role::Approver])).await;
    let found = causes(&mut approvals, bearer(&eve, approve(picked.clone()))).await;
    let expected: BTreeMap<String, String> = expected.into_iter().map(|(id, why)| (id, why.to_owned())).collect();
    assert_eq!(found, expected);
    let answered = expected.values().filter(|cause| cause.is_empty()).count() as i64;
    let entries = "select count(*) from audit where kind = 'answered'";
    assert_eq!(plane.postgres.number(entries).await, answered, "one entry each");
    assert_eq!(plane.postgres.number("select count(*) from session_event where kind = 'answered'").await, answered);
    assert_eq!(plane.postgres.number("select count(*) from session_event where kind = 'seconded'").await, 0);
    // The same act again changes nothing.
    assert_eq!(causes(&mut approvals, bearer(&eve, approve(picked.clone()))).await, expected);
    assert_eq!(plane.postgres.number(entries).await, answered);

    let root = Actor::from("root");
    let TenantChange::Done(acme) =
        plane.gate.identities.create_tenant("acme", &Quotas::default(), &root).await.expect("an answer")
    else {
        panic!("there was no such tenant")
    };
    let hank = who("hank", &[Role::Admin]);
    let (stranger, _) = plane.gate.identities.create_token(acme.id, hank, None, &root).await.expect("a token");
    let found = causes(&mut approvals, bearer(&stranger, approve(picked.clone()))).await;
    assert!(found.values().all(|cause| cause == "APPROVAL_UNKNOWN"), "{found:?}");
    let (agent, _) = token(&plane.gate, who("desk", &[Role::Agent])).await;
    let refused = approvals.resolve_approvals(bearer(&agent, approve(picked))).await.expect_err("no approver");
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_approval_after_a_first_of_two_approvals_gives_its_cause() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "desk", "transfer_money", r#"{"to":"b"}"#).await;
    let single = v1::ResolveApprovalRequest { approval_id: id.clone(), approve: true, ..Default::default() };
    let seconded = approvals.resolve_approval(from("eve", single)).await.expect("an answer").into_inner();
    let seconded = seconded.approval.expect("a request");
    assert_eq!((seconded.state(), seconded.approved_by.len()), (ApprovalState::Pending, 1));
    let seen = selection(&seconded);
    let forged = v1::ApprovalSelection { args_digest: "0".repeat(64), ..seen.clone() };
    for (picked, cause) in [(seen, "BULK_TWO_PEOPLE"), (forged, "ARGUMENTS_CHANGED")] {
        assert_eq!(causes(&mut approvals, from("eve", approve(vec![picked]))).await[&id], cause);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_approval_is_shown_by_the_policy_that_judges_it() {
    let plane = plane().await;
    let text = "policy_engine: {authorization: {tiers: [{name: all, pattern: '*', action: hitl}]}}\n";
    let mut policies = PolicyServiceClient::new(plane.channel().await);
    let stored = v1::ApplyPolicyRequest { text: text.into(), mode: v1::ApplyMode::Store.into(), ..Default::default() };
    let hash = policies.apply_policy(from("olga", stored)).await.expect("stored").into_inner().hash;
    let rollout = v1::StartPolicyRolloutRequest { hash, share_basis_points: 10_000, ..Default::default() };
    policies.start_policy_rollout(from("olga", rollout)).await.expect("started");
    // It takes new call trees once every replica knows it.
    plane.gate.store.skip(10_000);
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "desk", "send_mail", r#"{"to":"a"}"#).await;
    let listed = list(&mut approvals, open()).await.approvals.remove(0);
    let done = causes(&mut approvals, from("eve", approve(vec![selection(&listed)]))).await;
    assert_eq!((listed.bulk_refusal.as_str(), done[&id].as_str()), ("BULK_NOT_PERMITTED", "BULK_NOT_PERMITTED"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_approval_takes_at_most_50_requests_that_were_seen() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let id = open_request(&mut client, "desk", "send_mail", r#"{"to":"a"}"#).await;
    let listed = list(&mut approvals, open()).await.approvals;
    let seen = selection(&listed[0]);
    let no_digest = v1::ApprovalSelection { approval_id: id.clone(), ..Default::default() };
    for (wrong, field) in [
        (approve(vec![seen.clone(); 51]), "approvals"),
        (approve(vec![]), "approvals"),
        (approve(vec![no_digest]), "args_digest"),
        (v1::ResolveApprovalsRequest { matching: Some(open()), ..approve(vec![]) }, "matching"),
        (
            v1::ResolveApprovalsRequest { matching: Some(open()), approve: false, ..approve(vec![seen.clone()]) },
            "matching",
        ),
    ] {
        let refused = approvals.resolve_approvals(from("eve", wrong)).await.expect_err(field);
        assert_eq!(pair(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()), "{refused:?}");
        assert!(refused.message().contains(field), "{refused:?}");
    }
    assert_eq!(plane.postgres.number("select count(*) from session_event where kind = 'answered'").await, 0);
    // The requester is no approver, in bulk as elsewhere.
    let own = causes(&mut approvals, from("desk", approve(vec![seen.clone()]))).await;
    assert_eq!(own[&id], "SELF_APPROVAL");
    let fifty = causes(&mut approvals, from("eve", approve(vec![seen; 50]))).await;
    assert_eq!(fifty[&id], "");
    assert_eq!(plane.postgres.number("select count(*) from audit where kind = 'answered'").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_denial_takes_the_requests_of_its_filter_that_were_there_before() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let denied = open_request(&mut client, "crawler", "transfer_money", r#"{"amount":70}"#).await;
    let cheap = open_request(&mut client, "crawler", "transfer_money", r#"{"amount":7}"#).await;
    let other = open_request(&mut client, "desk", "transfer_money", r#"{"amount":700}"#).await;
    let before = list(&mut approvals, open()).await.approvals[0].create_time;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let later = open_request(&mut client, "crawler", "transfer_money", r#"{"amount":7000}"#).await;
    tokio::time::sleep(callgate_server::gate::LOOK_EVERY).await;
    let filter = v1::ApprovalFilter { agent_id: "crawler".into(), min_amount: Some(10.0), ..Default::default() };
    let request = v1::ResolveApprovalsRequest {
        reason: "the crawler is halted".into(),
        matching: Some(v1::ListApprovalsRequest { filter: Some(filter), ..open() }),
        create_time_max: before,
        ..Default::default()
    };
    let done = approvals.resolve_approvals(from("eve", request)).await.expect("answers").into_inner();
    let told: Vec<_> = done.results.iter().map(|one| (&one.approval_id, one.state(), &*one.tool)).collect();
    assert_eq!(told, [(&denied, ApprovalState::Denied, "transfer_money")]);
    assert_eq!(done.remaining_size, 0);
    let open: Vec<String> =
        list(&mut approvals, open()).await.approvals.into_iter().map(|one| one.approval_id).collect();
    assert_eq!(open, [later, other, cheap]);
    assert_eq!(plane.postgres.number("select count(*) from audit where kind = 'answered'").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvals_are_filtered_sorted_and_grouped_by_their_calls() {
    let plane = plane().await;
    let (mut client, mut approvals) = (plane.client().await, ApprovalServiceClient::new(plane.channel().await));
    let mut ids = Vec::new();
    for (agent, tool, arguments) in [
        ("desk", "send_mail", r#"{"to":"a"}"#),
        ("desk", "transfer_money", r#"{"amount":70}"#),
        ("crawler", "transfer_money", r#"{"amount":7000}"#),
        ("crawler", "drop_table", r#"{"id":1,"cost":8}"#),
    ] {
        ids.push(open_request(&mut client, agent, tool, arguments).await);
    }
    let found = async |approvals: &mut ApprovalServiceClient<Channel>, asked| {
        let found = list(approvals, asked).await.approvals;
        found.iter().map(|one| ids.iter().position(|id| *id == one.approval_id).expect("known")).collect::<Vec<_>>()
    };
    let ordered = |order: ApprovalOrder| v1::ListApprovalsRequest { order: order.into(), ..open() };
    assert_eq!(found(&mut approvals, ordered(ApprovalOrder::Amount)).await, [2, 1, 3, 0]);
    assert_eq!(found(&mut approvals, ordered(ApprovalOrder::Expiry)).await, [0, 1, 2, 3]);
    // Each page begins where the last one ended.
    let mut asked = v1::ListApprovalsRequest { page_size: 3, ..ordered(ApprovalOrder::Amount) };
    asked.page_token = list(&mut approvals, asked.clone()).await.next_page_token;
    assert_eq!(found(&mut approvals, asked).await, [0]);
    let filter = v1::ApprovalFilter::default;
    for (filter, expected) in [
        (v1::ApprovalFilter { tool: "transfer_money".into(), ..filter() }, vec![2, 1]),
        (v1::ApprovalFilter { agent_id: "desk".into(), ..filter() }, vec![1, 0]),
        (v1::ApprovalFilter { rule: "tier".into(), max_amount: Some(70.0), ..filter() }, vec![3, 1]),
        (v1::ApprovalFilter { rule: "same_call".into(), ..filter() }, vec![]),
    ] {
        for state in [ApprovalState::Pending, ApprovalState::Unspecified] {
            let asked = v1::ListApprovalsRequest { filter: Some(filter.clone()), state: state.into(), ..open() };
            assert_eq!(found(&mut approvals, asked).await, expected, "{filter:?}");
        }
    }
    for (grouping, expected) in [
        (ApprovalGrouping::Tool, vec![("transfer_money", 2), ("drop_table", 1), ("send_mail", 1)]),
        (ApprovalGrouping::Agent, vec![("crawler", 2), ("desk", 2)]),
        (ApprovalGrouping::Rule, vec![("tier", 4)]),
        (
            ApprovalGrouping::Amount,
            vec![("1 to below 10", 1), ("10 to below 100", 1), ("1000 to below 10000", 1), ("", 1)],
        ),
    ] {
        let asked = v1::ListApprovalsRequest { group_by: grouping.into(), ..open() };
        let groups = list(&mut approvals, asked).await.groups;
        let told: Vec<_> = groups.iter().map(|group| (&*group.name, group.count)).collect();
        assert_eq!(told, expected, "{grouping:?}");
        for group in &groups {
            let Some(filter) = &group.filter else { continue };
            let asked = v1::ListApprovalsRequest { filter: Some(filter.clone()), ..open() };
            assert_eq!(list(&mut approvals, asked).await.approvals.len(), group.count as usize, "{group:?}");
        }
    }
    let closed = v1::ListApprovalsRequest { state: ApprovalState::Denied.into(), ..ordered(ApprovalOrder::Amount) };
    let refused = approvals.list_approvals(closed).await.expect_err("only open ones");
    assert_eq!(refused.code(), Code::InvalidArgument);
    let first = list(&mut approvals, ordered(ApprovalOrder::Risk)).await.approvals.remove(0);
    assert_eq!((first.risk(), first.rule.as_str()), (ApprovalRisk::High, "tier"));
}
