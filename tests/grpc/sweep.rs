//! Tenant isolation: every method, called by one tenant's admin with names of another, finds and changes nothing.

use std::collections::BTreeSet;

use callgate_core::domain::{
    audit::Actor,
    identity::{MappedIdentity, Role},
    ids::DEFAULT_TENANT,
};
use callgate_proto::v1::{
    self, FailureKind, HaltScope, approval_service_client::ApprovalServiceClient,
    audit_service_client::AuditServiceClient, fleet_service_client::FleetServiceClient,
    gate_service_client::GateServiceClient, grant_service_client::GrantServiceClient,
    policy_service_client::PolicyServiceClient, privacy_service_client::PrivacyServiceClient,
    profile_service_client::ProfileServiceClient, server_service_client::ServerServiceClient,
    session_service_client::SessionServiceClient, tenant_service_client::TenantServiceClient,
    token_service_client::TokenServiceClient,
};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming, transport::Channel};

use crate::{
    common::{
        in_time,
        wire::{Plane, call, from, outcome, question, success},
    },
    credentials::bearer,
    people, tool_descriptions,
};

/// A word that is in everything the other tenant has stored, and in nothing that is asked.
const SECRET: &str = "of-the-other-tenant";

struct Ids {
    approval: String,
    grant: String,
    policy: String,
    token: String,
}

type StatusResult = Result<String, Status>;

async fn whole<T: std::fmt::Debug>(answer: Result<Response<T>, Status>) -> StatusResult {
    answer.map(|answer| format!("{:?}", answer.into_inner()))
}

/// All messages of a stream until its end, or within a moment.
async fn read_stream<T: std::fmt::Debug>(answer: Result<Response<Streaming<T>>, Status>) -> StatusResult {
    let mut stream = answer?.into_inner();
    let mut all = String::new();
    while let Ok(Some(next)) = tokio::time::timeout(std::time::Duration::from_millis(700), stream.next()).await {
        all += &format!("{:?}", next?);
    }
    Ok(all)
}

fn methods() -> BTreeSet<String> {
    let files = FileDescriptorSet::decode(v1::DESCRIPTORS).expect("descriptors").file;
    let services = files.into_iter().filter(|file| file.package() == "callgate.v1").flat_map(|file| file.service);
    let names = services.flat_map(|service| {
        let of = service.name().to_owned();
        service.method.into_iter().map(move |method| format!("{of}/{}", method.name()))
    });
    names.collect()
}

/// Everything that the tenant has stored, as one text. When it was counted, and used last, moves by itself.
async fn dump_tenant(plane: &Plane) -> String {
    let tables =
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
        where c.relnamespace = 'callgate'::regnamespace and not c.relispartition and c.relkind in ('r', 'p')
          and c.relname not in ('token', 'tool_health') order by 1";
    let mut all = String::new();
    for table in plane.postgres.rows(tables).await {
        let table = table.trim_matches(['(', ')']);
        let rows = format!("select t::text from {table} t where tenant_id = 1 order by 1");
        all += &format!("{table}: {}\n", plane.postgres.rows(&rows).await.join("\n"));
    }
    let tokens = "select token_id, revoked_at is null from token where tenant_id = 1 order by 1";
    all + &plane.postgres.rows(tokens).await.join("\n")
}

/// Sessions, an approval request, a grant, a halt, a policy and a token, all with the secret word.
async fn furnish(plane: &Plane) -> Ids {
    let (mut client, channel) = (plane.client().await, plane.channel().await);
    let arguments = format!(r#"{{"id":"{SECRET}"}}"#);
    client.evaluate(question("s", call("c1", "get_order", &arguments))).await.expect("an answer");
    client.record(success("s", "c1", SECRET)).await.expect("an answer");
    client.evaluate(question("s", call("c2", "get_order", &arguments))).await.expect("an answer");
    client.report_tools(tool_descriptions::report(&[("read", SECRET)])).await.expect("an answer");
    let approval = people::open_request(&mut client, "s", "c3", &arguments).await;
    let grant = v1::CreateGrantRequest {
        session_id: "s".into(),
        tool_pattern: format!("create_{SECRET}"),
        ceiling: 5,
        reason: SECRET.into(),
        ..Default::default()
    };
    let grant = GrantServiceClient::new(channel.clone()).create_grant(from("eve", grant)).await.expect("a grant");
    let halt = v1::HaltRequest { scope: HaltScope::Tool.into(), name: "drop".into(), reason: SECRET.into() };
    SessionServiceClient::new(channel.clone()).halt(from("eve", halt)).await.expect("a halt");
    let mut policies = PolicyServiceClient::new(channel);
    let mut hashes = Vec::new();
    for n in 0..2 {
        let text = format!("# {n} {SECRET}\n{}", people::POLICY);
        let apply = v1::ApplyPolicyRequest { text, note: SECRET.into(), ..Default::default() };
        hashes.push(policies.apply_policy(from("eve", apply)).await.expect("a policy").into_inner().hash);
    }
    let policy = hashes.swap_remove(0);
    let start = v1::StartPolicyRolloutRequest { hash: policy.clone(), note: SECRET.into(), ..Default::default() };
    policies.start_policy_rollout(from("eve", start)).await.expect("a rollout");
    let is = MappedIdentity { name: SECRET.into(), roles: vec![Role::Admin], ..MappedIdentity::default() };
    let (_, token) =
        plane.gate.identities.create_token(DEFAULT_TENANT, is, None, &Actor::from("root")).await.expect("a token");
    Ids { approval, grant: grant.into_inner().grant.expect("a grant").grant_id, policy, token: token.id }
}

struct Sweep {
    plane: Plane,
    channel: Channel,
    token: String,
    ids: Ids,
    before: String,
    swept: BTreeSet<String>,
}

impl Sweep {
    async fn new() -> Self {
        let plane = people::plane().await;
        let ids = furnish(&plane).await;
        let made = plane
            .gate
            .identities
            .create_tenant("acme", &Default::default(), &Actor::from("root"))
            .await
            .expect("an answer");
        let callgate_server::gate::TenantChange::Done(acme) = made else { panic!("{made:?}") };
        let is = MappedIdentity {
            name: "mallory".into(),
            roles: Role::ALL.to_vec(),
            any_session: true,
            ..MappedIdentity::default()
        };
        let (token, _) =
            plane.gate.identities.create_token(acme.id, is, None, &Actor::from("root")).await.expect("a token");
        let before = dump_tenant(&plane).await;
        assert!(before.matches(SECRET).count() > 10, "{before}");
        let channel = plane.channel().await;
        Self { plane, channel, token: token.to_string(), ids, before, swept: BTreeSet::new() }
    }

    fn by<T>(&self, message: T) -> Request<T> {
        Request::from_parts(bearer(&self.token, ()).into_parts().0, Default::default(), message)
    }

    async fn hold(&mut self, name: &str, told: StatusResult) {
        let text = told.as_ref().map_or_else(|status| format!("{status:?}"), Clone::clone);
        assert!(!text.contains(SECRET), "{name} tells of another tenant: {text}");
        assert_ne!(told.map_err(|status| status.code()).err(), Some(tonic::Code::Unauthenticated), "{name}: {text}");
        assert_eq!(dump_tenant(&self.plane).await, self.before, "{name} changed what another tenant has stored");
        assert!(self.swept.insert(name.to_owned()), "{name} has two lines");
    }
}

macro_rules! sweep {
    ($sweep:ident, $client:ident; $($name:literal $call:ident $told:ident $request:expr;)+) => {$(
        let answer = in_time($name, $client.$call($sweep.by($request))).await;
        let told = $told(answer).await;
        $sweep.hold($name, told).await;
    )+};
}

fn snake_case(name: &str) -> String {
    name.to_owned()
}

fn connecting() -> impl Stream<Item = v1::ConnectRequest> {
    let asked = v1::GetSessionStateRequest { session_id: snake_case("s"), ..Default::default() };
    let request = Some(v1::tagged_request::Request::GetSessionState(asked));
    let requests = vec![v1::TaggedRequest { tag: 1, request, ..Default::default() }];
    tokio_stream::once(v1::ConnectRequest { requests })
}

async fn gates(sweep: &mut Sweep) {
    let mut client = GateServiceClient::new(sweep.channel.clone());
    let batch = v1::BatchEvaluateRequest {
        caller: Some(crate::common::wire::caller("s")),
        calls: vec![call("c5", "get_order", "{}")],
        ..Default::default()
    };
    sweep! { sweep, client;
        "GateService/GetSessionState" get_session_state whole
            v1::GetSessionStateRequest { session_id: snake_case("s"), ..Default::default() };
        "GateService/Record" record whole outcome("s", "c2", v1::OutcomeStatus::Error);
        "GateService/DescribeTools" describe_tools whole v1::DescribeToolsRequest { tools: vec![snake_case("drop")] };
        "GateService/ReportTools" report_tools whole tool_descriptions::report(&[("read", "b")]);
        "GateService/Connect" connect read_stream connecting();
        "GateService/Evaluate" evaluate whole question("s", call("c1", "get_order", r#"{"id":"x"}"#));
        "GateService/BatchEvaluate" batch_evaluate whole batch;
    }
}

async fn approvals(sweep: &mut Sweep) {
    let mut client = ApprovalServiceClient::new(sweep.channel.clone());
    sweep! { sweep, client;
        "ApprovalService/ListApprovals" list_approvals whole v1::ListApprovalsRequest::default();
        "ApprovalService/GetApproval" get_approval whole crate::bulk_approvals::get(&sweep.ids.approval);
        "ApprovalService/ResolveApproval" resolve_approval whole
            v1::ResolveApprovalRequest { approval_id: sweep.ids.approval.clone(), approve: true, ..Default::default() };
        "ApprovalService/ResolveApprovals" resolve_approvals whole crate::bulk_approvals::deny_none();
        "ApprovalService/ClaimApproval" claim_approval whole crate::bulk_approvals::release(&sweep.ids.approval);
        "ApprovalService/CommentApproval" comment_approval whole crate::bulk_approvals::comment(&sweep.ids.approval);
        "ApprovalService/WithdrawApproval" withdraw_approval whole
            v1::WithdrawApprovalRequest { approval_id: sweep.ids.approval.clone(), ..Default::default() };
        "ApprovalService/WatchApprovals" watch_approvals read_stream v1::WatchApprovalsRequest::default();
    }
}

async fn sessions(sweep: &mut Sweep) {
    let mut client = SessionServiceClient::new(sweep.channel.clone());
    let halt = v1::HaltRequest { scope: HaltScope::Session.into(), name: snake_case("s"), reason: String::new() };
    let resume = v1::ResumeRequest { scope: HaltScope::Tool.into(), name: snake_case("drop"), reason: String::new() };
    let settle = v1::SettleOutcomeRequest {
        session_id: snake_case("s"),
        call_id: snake_case("c2"),
        status: v1::OutcomeStatus::Success.into(),
        ..Default::default()
    };
    sweep! { sweep, client;
        "SessionService/Halt" halt whole halt;
        "SessionService/Resume" resume whole resume;
        "SessionService/ListHalts" list_halts whole v1::ListHaltsRequest::default();
        "SessionService/SetPhase" set_phase whole
            v1::SetPhaseRequest { session_id: snake_case("s"), phase: snake_case("ACT"), ..Default::default() };
        "SessionService/SettleOutcome" settle_outcome whole settle;
        "SessionService/RaiseBudget" raise_budget whole v1::RaiseBudgetRequest {
            session_id: snake_case("s"),
            scope: v1::BudgetScope::CallTree.into(),
            dimension: v1::BudgetDimension::Steps.into(),
            extra: 10,
            ..Default::default()
        };
        "SessionService/MarkCompacted" mark_compacted whole
            v1::MarkCompactedRequest { session_id: snake_case("s"), summary_tokens: 0 };
        "SessionService/GetSession" get_session whole v1::GetSessionRequest { session_id: snake_case("s") };
        "SessionService/ListSessions" list_sessions whole v1::ListSessionsRequest::default();
        "SessionService/ListNames" list_names whole v1::ListNamesRequest::default();
        "SessionService/ListCalls" list_calls whole v1::ListCallsRequest::default();
        "SessionService/GetCall" get_call whole
            v1::GetCallRequest { session_id: snake_case("s"), call_id: snake_case("c2"), include_rows: true };
        "SessionService/ExplainCall" explain_call whole
            v1::ExplainCallRequest { session_id: snake_case("s"), call_id: snake_case("c2") };
        "SessionService/ExportCalls" export_calls read_stream
            v1::ExportCallsRequest { session_id: snake_case("s"), ..Default::default() };
        "SessionService/WatchSession" watch_session read_stream v1::WatchSessionRequest { session_id: snake_case("s") };
    }
}

async fn grants(sweep: &mut Sweep) {
    let mut client = GrantServiceClient::new(sweep.channel.clone());
    let grant = v1::CreateGrantRequest {
        session_id: snake_case("s"),
        tool_pattern: snake_case("*"),
        ceiling: 9,
        ..Default::default()
    };
    sweep! { sweep, client;
        "GrantService/CreateGrant" create_grant whole grant;
        "GrantService/RevokeGrant" revoke_grant whole
            v1::RevokeGrantRequest {
                session_id: snake_case("s"),
                grant_id: sweep.ids.grant.clone(),
                ..Default::default()
            };
        "GrantService/ListGrants" list_grants whole
            v1::ListGrantsRequest { session_id: snake_case("s"), ..Default::default() };
    }
}

async fn policys(sweep: &mut Sweep) {
    let mut client = PolicyServiceClient::new(sweep.channel.clone());
    let own = v1::ApplyPolicyRequest { text: snake_case("policy_engine: {}"), ..Default::default() };
    let start = v1::StartPolicyRolloutRequest { hash: sweep.ids.policy.clone(), ..Default::default() };
    let end = v1::EndPolicyRolloutRequest { end: v1::PolicyRolloutEnd::Abort.into(), ..Default::default() };
    sweep! { sweep, client;
        "PolicyService/GetPolicy" get_policy whole v1::GetPolicyRequest { hash: sweep.ids.policy.clone() };
        "PolicyService/ListPolicies" list_policies whole v1::ListPoliciesRequest::default();
        "PolicyService/ActivatePolicy" activate_policy whole
            v1::ActivatePolicyRequest { hash: sweep.ids.policy.clone(), ..Default::default() };
        "PolicyService/RollbackPolicy" rollback_policy whole v1::RollbackPolicyRequest::default();
        "PolicyService/StartPolicyRollout" start_policy_rollout whole start;
        "PolicyService/GetPolicyRollout" get_policy_rollout whole v1::GetPolicyRolloutRequest::default();
        "PolicyService/EndPolicyRollout" end_policy_rollout whole end;
        "PolicyService/ApplyPolicy" apply_policy whole own;
        "PolicyService/CheckPolicy" check_policy whole v1::CheckPolicyRequest { text: snake_case("policy_engine: {}") };
        "PolicyService/BacktestPolicy" backtest_policy read_stream v1::BacktestPolicyRequest {
            policy: Some(v1::backtest_policy_request::Policy::Text(snake_case("policy_engine: {}"))),
            ..Default::default()
        };
    }
}

async fn profiles(sweep: &mut Sweep) {
    let mut client = ProfileServiceClient::new(sweep.channel.clone());
    let profile = v1::GetRetryProfileRequest {
        tool: snake_case("get_order"),
        failure: FailureKind::Timeout.into(),
        ..Default::default()
    };
    sweep! { sweep, client;
        "ProfileService/ListRetryProfiles" list_retry_profiles whole v1::ListRetryProfilesRequest::default();
        "ProfileService/GetRetryProfile" get_retry_profile whole profile;
        "ProfileService/GetRetryHistory" get_retry_history whole v1::GetRetryHistoryRequest::default();
        "ProfileService/GetToolQuality" get_tool_quality whole v1::GetToolQualityRequest::default();
        "ProfileService/RebuildRetryProfiles" rebuild_retry_profiles whole v1::RebuildRetryProfilesRequest::default();
    }
}

async fn privacy(sweep: &mut Sweep) {
    let mut client = PrivacyServiceClient::new(sweep.channel.clone());
    let subject = Some(v1::Subject { subject: Some(v1::subject::Subject::SessionId(snake_case("s"))) });
    sweep! { sweep, client;
        "PrivacyService/ExportSubject" export_subject read_stream
            v1::ExportSubjectRequest { subject: subject.clone(), ..Default::default() };
        "PrivacyService/Forget" forget read_stream v1::ForgetRequest { subject, ..Default::default() };
        "PrivacyService/Reencrypt" reencrypt read_stream v1::ReencryptRequest::default();
    }
    let mut client = AuditServiceClient::new(sweep.channel.clone());
    sweep! { sweep, client;
        "AuditService/ListAuditEntries" list_audit_entries whole v1::ListAuditEntriesRequest::default();
        "AuditService/VerifyAudit" verify_audit whole v1::VerifyAuditRequest::default();
    }
    let mut client = FleetServiceClient::new(sweep.channel.clone());
    sweep! { sweep, client;
        "FleetService/GetFleet" get_fleet whole v1::GetFleetRequest::default();
        "FleetService/GetUsage" get_usage whole v1::GetUsageRequest::default();
        "FleetService/ListNotificationDestinations" list_notification_destinations whole Default::default();
        "FleetService/TestNotificationDestination" test_notification_destination whole
            v1::TestNotificationDestinationRequest { name: "none".into() };
        "FleetService/ListToolDescriptions" list_tool_descriptions whole Default::default();
        "FleetService/ResolveToolDescription" resolve_tool_description whole tool_descriptions::answer(SECRET, true);
    }
}

async fn tenants(sweep: &mut Sweep) {
    let mut client = TenantServiceClient::new(sweep.channel.clone());
    sweep! { sweep, client;
        "TenantService/CreateTenant" create_tenant whole
            v1::CreateTenantRequest { name: snake_case("mine"), quotas: None };
        "TenantService/ListTenants" list_tenants whole v1::ListTenantsRequest::default();
        "TenantService/SetTenantQuotas" set_tenant_quotas whole
            v1::SetTenantQuotasRequest { name: snake_case("default"), quotas: None };
        "TenantService/SetTenantRetention" set_tenant_retention whole
            v1::SetTenantRetentionRequest { name: snake_case("default"), retention: None };
        "TenantService/SuspendTenant" suspend_tenant whole
            v1::SuspendTenantRequest { name: snake_case("default"), ..Default::default() };
        "TenantService/ResumeTenant" resume_tenant whole
            v1::ResumeTenantRequest { name: snake_case("default"), ..Default::default() };
        "TenantService/DeleteTenant" delete_tenant whole
            v1::DeleteTenantRequest { name: snake_case("default"), ..Default::default() };
    }
}

async fn servers_and_tokens(sweep: &mut Sweep) {
    let mut client = ServerServiceClient::new(sweep.channel.clone());
    sweep! { sweep, client;
        "ServerService/GetServerInfo" get_server_info whole v1::GetServerInfoRequest {};
        "ServerService/GetCaller" get_caller whole v1::GetCallerRequest {};
    }
    let mut client = TokenServiceClient::new(sweep.channel.clone());
    sweep! { sweep, client;
        "TokenService/ListTokens" list_tokens whole v1::ListTokensRequest::default();
        "TokenService/RevokeToken" revoke_token whole v1::RevokeTokenRequest { token_id: sweep.ids.token.clone() };
        "TokenService/RotateToken" rotate_token whole
            v1::RotateTokenRequest { token_id: sweep.ids.token.clone(), ..Default::default() };
        "TokenService/CreateToken" create_token whole
            v1::CreateTokenRequest {
                name: snake_case("own"),
                roles: vec![v1::Role::Agent.into()],
                ..Default::default()
            };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_method_tells_or_changes_anything_of_another_tenant() {
    let mut sweep = Sweep::new().await;
    Box::pin(gates(&mut sweep)).await;
    Box::pin(approvals(&mut sweep)).await;
    Box::pin(sessions(&mut sweep)).await;
    Box::pin(grants(&mut sweep)).await;
    Box::pin(policys(&mut sweep)).await;
    Box::pin(profiles(&mut sweep)).await;
    Box::pin(privacy(&mut sweep)).await;
    Box::pin(tenants(&mut sweep)).await;
    Box::pin(servers_and_tokens(&mut sweep)).await;
    assert_eq!(sweep.swept, methods(), "a method without a line, or a line without a method");
}
