//! Contract rules common to all methods: authentication, pages, the server's description, the service config.

use std::collections::{BTreeMap, BTreeSet};

use callgate_core::policy::Policy;
use callgate_proto::v1::{
    self, ApprovalState, HaltScope, approval_service_client::ApprovalServiceClient,
    grant_service_client::GrantServiceClient, policy_service_client::PolicyServiceClient,
    server_service_client::ServerServiceClient, session_service_client::SessionServiceClient,
};
use prost::Message as _;
use prost_types::{FileDescriptorSet, MethodDescriptorProto, method_options::IdempotencyLevel};
use serde_json::Value;
use tonic::{Code, Request};

use crate::{
    common::{
        in_time,
        wire::{Plane, call, evaluate, from, pair, question},
    },
    people,
};

/// Reads a list to its end, two entries a page; gives the names in their order.
macro_rules! pages {
    ($client:expr, $method:ident, $request:expr, $entries:ident, $name:expr) => {{
        let (mut request, mut names) = ($request, Vec::new());
        request.page_size = 2;
        loop {
            let page = in_time("a page", $client.$method(request.clone())).await.expect("a page").into_inner();
            assert!(page.$entries.len() <= 2, "{page:?}");
            names.extend(page.$entries.iter().map($name));
            if page.next_page_token.is_empty() {
                break names;
            }
            assert_eq!(page.$entries.len(), 2, "only the last page is short: {page:?}");
            request.page_token = page.next_page_token;
        }
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_list_is_given_whole_a_page_at_a_time() {
    let plane = people::plane().await;
    let mut client = plane.client().await;
    let mut asked = Vec::new();
    for n in 0..5 {
        asked.push(people::open_request(&mut client, &format!("s{n}"), "c1", &format!(r#"{{"id":{n}}}"#)).await);
    }
    let mut approvals = ApprovalServiceClient::new(plane.channel().await);
    people::resolve(approvals.clone(), people::answer(&asked[1], "eve", true, "")).await.expect("an answer");
    let listed = |state: ApprovalState| v1::ListApprovalsRequest { state: state.into(), ..Default::default() };
    let id = |approval: &v1::Approval| approval.approval_id.clone();
    let all = pages!(approvals, list_approvals, listed(ApprovalState::Unspecified), approvals, id);
    assert_eq!(all.iter().rev().collect::<Vec<_>>(), asked.iter().collect::<Vec<_>>(), "the newest first");
    let open = pages!(approvals, list_approvals, listed(ApprovalState::Pending), approvals, id);
    assert_eq!(open.len(), 4);
    assert_eq!(pages!(approvals, list_approvals, listed(ApprovalState::Approved), approvals, id), [asked[1].clone()]);
    let unknown = v1::ListApprovalsRequest { state: 99, ..Default::default() };
    let refused = approvals.list_approvals(unknown).await.expect_err("no such state");
    assert_eq!(pair(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()));

    let mut sessions = SessionServiceClient::new(plane.channel().await);
    let name = |session: &v1::SessionSummary| session.session_id.clone();
    let heard = pages!(sessions, list_sessions, v1::ListSessionsRequest::default(), sessions, name);
    // The answer was the last activity of s1.
    assert_eq!(heard, ["s1", "s4", "s3", "s2", "s0"]);
    for (scope, name) in [(HaltScope::Tool, "b"), (HaltScope::Tool, "a"), (HaltScope::Agent, "a")] {
        let halt = v1::HaltRequest { scope: scope.into(), name: name.into(), reason: String::new() };
        sessions.halt(from("eve", halt)).await.expect("a halt");
    }
    let name = |halt: &v1::HaltState| format!("{} {}", halt.scope().as_str_name(), halt.name);
    let halts = pages!(sessions, list_halts, v1::ListHaltsRequest::default(), halts, name);
    assert_eq!(halts, ["HALT_SCOPE_AGENT a", "HALT_SCOPE_TOOL a", "HALT_SCOPE_TOOL b"]);

    let mut grants = GrantServiceClient::new(plane.channel().await);
    let mut given = Vec::new();
    for n in 1..=3 {
        let request = v1::CreateGrantRequest {
            session_id: "s0".into(),
            tool_pattern: "create_*".into(),
            ceiling: n,
            ..Default::default()
        };
        let granted = grants.create_grant(from("eve", request)).await.expect("a grant").into_inner();
        given.push(granted.grant.expect("a grant").grant_id);
    }
    let request = v1::ListGrantsRequest { session_id: "s0".into(), ..Default::default() };
    assert_eq!(pages!(grants, list_grants, request, grants, |grant: &v1::Grant| grant.grant_id.clone()), given);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_answers_halts_grants_or_activates_says_who_it_is_in_the_metadata() {
    let plane = people::plane().await;
    let mut client = plane.client().await;
    let approval_id = people::open_request(&mut client, "s", "c1", r#"{"id":1}"#).await;
    let channel = plane.channel().await;
    let mut sessions = SessionServiceClient::new(channel.clone());
    let mut approvals = ApprovalServiceClient::new(channel.clone());
    let (mut grants, mut policies) = (GrantServiceClient::new(channel.clone()), PolicyServiceClient::new(channel));
    let answer = v1::ResolveApprovalRequest { approval_id, approve: true, ..Default::default() };
    let halt = v1::HaltRequest { scope: HaltScope::Tenant.into(), ..Default::default() };
    let refused = [
        approvals.resolve_approval(answer).await.err(),
        approvals.withdraw_approval(v1::WithdrawApprovalRequest::default()).await.err(),
        sessions.halt(halt.clone()).await.err(),
        sessions.resume(v1::ResumeRequest::default()).await.err(),
        sessions.set_phase(v1::SetPhaseRequest::default()).await.err(),
        sessions.settle_outcome(v1::SettleOutcomeRequest::default()).await.err(),
        grants.create_grant(v1::CreateGrantRequest::default()).await.err(),
        grants.revoke_grant(v1::RevokeGrantRequest::default()).await.err(),
        policies.apply_policy(v1::ApplyPolicyRequest { text: "x".into(), ..Default::default() }).await.err(),
        policies.activate_policy(v1::ActivatePolicyRequest::default()).await.err(),
        policies.rollback_policy(v1::RollbackPolicyRequest::default()).await.err(),
        policies.start_policy_rollout(v1::StartPolicyRolloutRequest::default()).await.err(),
        policies.end_policy_rollout(v1::EndPolicyRolloutRequest::default()).await.err(),
        sessions.halt(from(" ", halt.clone())).await.err(),
        sessions.halt(from(&"n".repeat(201), halt.clone())).await.err(),
    ];
    for (i, status) in refused.into_iter().enumerate() {
        let status = status.unwrap_or_else(|| panic!("case {i}: nobody did it"));
        assert_eq!(pair(&status), (Code::Unauthenticated, "CALLER_UNKNOWN".into()), "case {i}: {status:?}");
        assert!(status.message().contains(callgate_proto::BY), "case {i}: {status:?}");
    }
    let mut nobody_we_can_write = Request::new(halt.clone());
    let value = tonic::metadata::MetadataValue::try_from("é".as_bytes()).expect("opaque text");
    nobody_we_can_write.metadata_mut().insert(callgate_proto::BY, value);
    let status = sessions.halt(nobody_we_can_write).await.expect_err("no name");
    assert_eq!(pair(&status), (Code::Unauthenticated, "CALLER_UNKNOWN".into()));
    let halted = sessions.halt(from(" eve ", halt)).await.expect("a halt").into_inner().halt.expect("a halt");
    assert_eq!(halted.by, "eve");
    // An agent reports its own compaction, without a name.
    sessions
        .mark_compacted(v1::MarkCompactedRequest { session_id: "s".into(), summary_tokens: 0 })
        .await
        .expect("it is known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_told_from_eighty_percent_on_or_when_they_are_asked_for() {
    let plane = Plane::start(
        &callgate_core::policy::compile("policy_engine: {budgets: {call_tree: {max_tool_calls: 5}}}")
            .expect("a policy"),
    )
    .await;
    let mut client = plane.client().await;
    let mut told = Vec::new();
    for n in 1..=4 {
        let asked = question("s", call(&format!("c{n}"), "look", &format!(r#"{{"n":{n}}}"#)));
        let budgets = evaluate(&mut client, asked).await.budgets;
        told.push(budgets.iter().map(|left| (left.dimension(), left.used, left.limit)).collect::<Vec<_>>());
    }
    assert_eq!(told[..3], [vec![], vec![], vec![]]);
    assert_eq!(told[3], [(v1::BudgetDimension::ToolCalls, 4, 5)]);
    let asked = question("s", call("c5", "look", r#"{"n":5}"#));
    let all = evaluate(&mut client, v1::EvaluateRequest { include_budgets: true, ..asked }).await.budgets;
    assert!(all.len() > 4, "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allow_has_a_reason_only_where_the_model_is_told_one() {
    let shadow = "policy_engine:
  mode: shadow
  authorization: {tiers: [{name: none, pattern: 'drop', action: deny}, {name: rest, pattern: '*', action: allowlist}]}
";
    let plane = Plane::start(&callgate_core::policy::compile(shadow).expect("a policy")).await;
    let verdict = evaluate(&mut plane.client().await, question("s", call("c1", "drop", "{}"))).await;
    assert_eq!((verdict.decision(), verdict.reason.as_str()), (v1::Decision::Allow, ""), "{verdict:?}");
    assert!(!verdict.enforced, "another decision is on record");
    assert_eq!(verdict.findings[0].reason, "tool_denied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_says_what_it_is_and_what_it_takes() {
    let plane = Plane::start(&Policy::default()).await;
    let mut servers = ServerServiceClient::new(plane.channel().await);
    let told = servers.get_server_info(v1::GetServerInfoRequest {}).await.expect("an answer").into_inner();
    let server = told.server.expect("a server");
    assert_eq!((server.version.as_str(), server.policy_version.as_str()), (env!("CARGO_PKG_VERSION"), "default"));
    assert!(server.enforced);
    let limits = server.limits.expect("limits");
    assert_eq!((limits.json_bytes, limits.batch_calls, limits.page_size, limits.wait_seconds), (1 << 20, 64, 500, 60));
}

fn methods() -> BTreeMap<String, MethodDescriptorProto> {
    let files = FileDescriptorSet::decode(v1::DESCRIPTORS).expect("descriptors").file;
    let services = files.into_iter().flat_map(|file| {
        let package = file.package().to_owned();
        file.service.into_iter().map(move |service| (format!("{package}.{}", service.name()), service))
    });
    let methods =
        services.flat_map(|(name, service)| service.method.into_iter().map(move |method| (name.clone(), method)));
    methods.map(|(service, method)| (format!("{service}/{}", method.name()), method)).collect()
}

/// A client that retries by the published config never does twice what may be done once.
#[test]
fn the_service_config_names_every_method_once_and_retries_only_what_may_be_repeated() {
    let config = include_str!("../../proto/callgate/v1/callgate_grpc_service_config.json");
    let config: Value = serde_json::from_str(config).expect("JSON");
    let (methods, mut named) = (methods(), BTreeSet::new());
    for group in config["methodConfig"].as_array().expect("groups") {
        for name in group["name"].as_array().expect("names") {
            let part = |key: &str| name[key].as_str().expect("a text");
            let name = format!("{}/{}", part("service"), part("method"));
            let method = methods.get(&name).unwrap_or_else(|| panic!("{name}: no such method"));
            let level = method.options.clone().unwrap_or_default().idempotency_level();
            let retried = group.get("retryPolicy").is_some();
            assert!(!retried || level != IdempotencyLevel::IdempotencyUnknown, "{name} is retried");
            assert!(retried || level == IdempotencyLevel::IdempotencyUnknown || method.server_streaming(), "{name}");
            assert!(named.insert(name.clone()), "{name} is named twice");
        }
    }
    assert_eq!(named, methods.into_keys().collect::<BTreeSet<_>>(), "every method of every service");
}
