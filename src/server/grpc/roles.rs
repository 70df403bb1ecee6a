//! Required roles by method, as one table. A method that is not in it is not served.

use std::{collections::BTreeSet, sync::LazyLock};

use crate::{
    telemetry::names::OTHER,
    web::{self, ROUTES},
};
use callgate_core::domain::identity::{
    Identity,
    Role::{self, Agent, Analyst, Approver, Operator},
};

/// Access to a method or route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredRole {
    /// No credential: for health checks, which learn nothing else.
    Anybody,
    /// One of these roles, or an admin.
    Roles(&'static [Role]),
}

/// Everybody with a credential.
const ALL: &[Role] = &Role::ALL;
/// Admins alone.
const ADMIN: &[Role] = &[];
/// Roles of people who supervise agents.
const PEOPLE: &[Role] = &[Approver, Operator, Analyst];

type Methods = &'static [(&'static str, &'static [Role])];

/// By service, the busiest first; a method has its line in the service's own order.
const CALLGATE: &[(&str, Methods)] = &[
    (
        "GateService",
        &[
            ("Evaluate", &[Agent]),
            ("Record", &[Agent]),
            ("BatchEvaluate", &[Agent]),
            ("DescribeTools", ALL),
            ("ReportTools", &[Agent]),
            ("Connect", &[Agent]),
            ("GetSessionState", ALL),
        ],
    ),
    (
        "ApprovalService",
        &[
            ("ListApprovals", PEOPLE),
            ("GetApproval", PEOPLE),
            ("ResolveApproval", &[Approver]),
            ("ResolveApprovals", &[Approver]),
            ("ClaimApproval", &[Approver]),
            ("CommentApproval", &[Approver, Operator]),
            // Withdraws the agent's own request; an approver denies it instead.
            ("WithdrawApproval", &[Agent]),
            ("WatchApprovals", PEOPLE),
        ],
    ),
    (
        "SessionService",
        &[
            ("Halt", &[Operator]),
            ("Resume", &[Operator]),
            ("ListHalts", PEOPLE),
            ("SetPhase", &[Agent, Operator]),
            ("MarkCompacted", &[Agent, Operator]),
            ("SettleOutcome", &[Operator]),
            ("RaiseBudget", &[Operator]),
            ("GetSession", PEOPLE),
            ("ListSessions", PEOPLE),
            ("ListNames", PEOPLE),
            ("ListCalls", PEOPLE),
            ("GetCall", PEOPLE),
            ("ExplainCall", PEOPLE),
            ("ExportCalls", &[Operator, Analyst]),
            ("WatchSession", PEOPLE),
        ],
    ),
    ("GrantService", &[("CreateGrant", &[Operator]), ("RevokeGrant", &[Operator]), ("ListGrants", PEOPLE)]),
    (
        "PolicyService",
        &[
            ("ApplyPolicy", ADMIN),
            ("GetPolicy", PEOPLE),
            ("ListPolicies", PEOPLE),
            ("ActivatePolicy", ADMIN),
            ("RollbackPolicy", ADMIN),
            ("StartPolicyRollout", ADMIN),
            ("GetPolicyRollout", PEOPLE),
            ("EndPolicyRollout", ADMIN),
            ("CheckPolicy", PEOPLE),
            // It reads the same data as ExportCalls.
            ("BacktestPolicy", &[Operator, Analyst]),
        ],
    ),
    (
        "ProfileService",
        &[
            ("ListRetryProfiles", PEOPLE),
            ("GetRetryProfile", PEOPLE),
            ("GetRetryHistory", PEOPLE),
            ("GetToolQuality", PEOPLE),
            ("RebuildRetryProfiles", ADMIN),
        ],
    ),
    (
        "FleetService",
        &[
            ("GetFleet", PEOPLE),
            ("GetUsage", PEOPLE),
            ("ListNotificationDestinations", PEOPLE),
            ("TestNotificationDestination", &[Operator]),
            ("ListToolDescriptions", PEOPLE),
            ("ResolveToolDescription", &[Operator]),
        ],
    ),
    ("AuditService", &[("ListAuditEntries", &[Analyst]), ("VerifyAudit", &[Analyst])]),
    ("PrivacyService", &[("Forget", ADMIN), ("ExportSubject", ADMIN), ("Reencrypt", ADMIN)]),
    // Admins of the tenant `default`, which the service checks itself.
    (
        "TenantService",
        &[
            ("CreateTenant", ADMIN),
            ("ListTenants", ADMIN),
            ("SetTenantQuotas", ADMIN),
            ("SetTenantRetention", ADMIN),
            ("SuspendTenant", ADMIN),
            ("ResumeTenant", ADMIN),
            ("DeleteTenant", ADMIN),
        ],
    ),
    ("ServerService", &[("GetServerInfo", ALL), ("GetCaller", ALL)]),
    ("TokenService", &[("CreateToken", ADMIN), ("ListTokens", ADMIN), ("RevokeToken", ADMIN), ("RotateToken", ADMIN)]),
];

/// Services that are not ours: each with all of its methods.
const OTHERS: &[(&str, RequiredRole)] = &[
    ("envoy.service.auth.v3.Authorization", RequiredRole::Roles(&[Agent])),
    ("grpc.health.v1.Health", RequiredRole::Anybody),
    ("grpc.reflection.v1.ServerReflection", RequiredRole::Roles(ALL)),
    ("grpc.reflection.v1alpha.ServerReflection", RequiredRole::Roles(ALL)),
];

/// Access to the method or route at this path; none for an unknown one.
pub(super) fn access(path: &str) -> Option<RequiredRole> {
    let own = path.strip_prefix("/callgate.v1.").and_then(|own| own.split_once('/'));
    let Some((service, method)) = own else { return role_of_route(path) };
    let (_, methods) = CALLGATE.iter().find(|(name, _)| *name == service)?;
    methods.iter().find(|(name, _)| *name == method).map(|(_, roles)| RequiredRole::Roles(roles))
}

/// The method at a path as telemetry names it; none for routes, probes and reflection.
pub(super) fn method(path: &str) -> Option<&'static str> {
    static METHODS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let of = |(service, methods): &(&str, Methods)| {
            let names = methods.iter().map(|(method, _)| format!("callgate.v1.{service}/{method}"));
            names.collect::<Vec<_>>()
        };
        CALLGATE.iter().flat_map(of).collect()
    });
    let known = path.strip_prefix('/').and_then(|path| METHODS.get(path));
    known.map(String::as_str).or_else(|| access(path).is_none().then_some(OTHER))
}

/// The same for routes, pages and other services.
fn role_of_route(path: &str) -> Option<RequiredRole> {
    if let Some(route) = ROUTES.iter().find(|route| route.path == path) {
        return Some(route.roles.map_or(RequiredRole::Anybody, RequiredRole::Roles));
    }
    if web::is_page(path) {
        return Some(RequiredRole::Anybody);
    }
    let (service, _) = path.strip_prefix('/')?.split_once('/')?;
    OTHERS.iter().find(|(name, _)| *name == service).map(|(_, access)| *access)
}

/// Calls whose answers may take as long as their callers like.
const LONG: [&str; 8] = [
    "/callgate.v1.GateService/Connect",
    "/callgate.v1.ApprovalService/WatchApprovals",
    "/callgate.v1.PrivacyService/Forget",
    "/callgate.v1.PrivacyService/ExportSubject",
    "/callgate.v1.PrivacyService/Reencrypt",
    "/callgate.v1.SessionService/ExportCalls",
    "/callgate.v1.SessionService/WatchSession",
    "/callgate.v1.PolicyService/BacktestPolicy",
];

/// True for a call whose answer may outlast a credential.
pub(super) fn lasts(path: &str) -> bool {
    LONG.contains(&path)
}

/// May they?
pub(super) fn may(identity: &Identity, roles: &[Role]) -> bool {
    identity.is_one_of(roles) || identity.is_one_of(&[Role::Admin])
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// Every call that the server knows, by its path, and whether its answer is a stream.
    fn calls() -> Vec<(String, bool)> {
        let foreign = [
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let sets = [foreign.as_slice(), &[callgate_proto::v1::DESCRIPTORS]].concat();
        let files = sets.into_iter().flat_map(|set| FileDescriptorSet::decode(set).expect("descriptors").file);
        let services = files.flat_map(|file| {
            let package = file.package().to_owned();
            file.service.into_iter().map(move |service| (package.clone(), service))
        });
        let paths = services.flat_map(|(package, service)| {
            let name = service.name().to_owned();
            let path = move |method: prost_types::MethodDescriptorProto| {
                (format!("/{package}.{name}/{}", method.name()), method.server_streaming())
            };
            service.method.into_iter().map(path).collect::<Vec<_>>()
        });
        paths.collect()
    }

    fn paths() -> Vec<String> {
        calls().into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn every_stream_is_known_to_last() {
        for (path, is_stream) in calls().into_iter().filter(|(path, _)| path.starts_with("/callgate.")) {
            assert_eq!(lasts(&path), is_stream, "{path}");
        }
    }

    #[test]
    fn every_call_is_in_the_table_and_the_table_names_no_other() {
        let known = paths();
        assert!(known.len() > 30, "{known:?}");
        for path in &known {
            assert!(access(path).is_some(), "{path} is not in the table");
        }
        for (service, methods) in CALLGATE {
            for (method, _) in *methods {
                let path = format!("/callgate.v1.{service}/{method}");
                assert!(known.contains(&path), "{path} is in the table, and there is no such call");
            }
        }
    }

    #[test]
    fn every_route_is_in_a_table_and_only_health_and_slack_need_no_role() {
        for route in ROUTES {
            let is_open = ["/healthz", "/readyz", "/notifications/slack"].contains(&route.path);
            assert_eq!(access(route.path) == Some(RequiredRole::Anybody), is_open, "{}", route.path);
            assert!(access(route.path).is_some());
        }
    }

    #[test]
    fn method_outside_the_table_has_no_role() {
        for path in [
            "/metrics/",
            "/Metrics",
            "//metrics",
            "/healthz/x",
            "",
            "//sessions",
            "/Sessions",
            "/callgate.v1.GateService",
            "/callgate.v1.GateService/",
            "/callgate.v1.GateService/evaluate",
            "/callgate.v2.GateService/Evaluate",
            "/x/grpc.health.v1.Health",
            "//callgate.v1.GateService/Evaluate",
        ] {
            assert_eq!(access(path), None, "{path:?}");
        }
    }

    #[test]
    fn only_health_asks_for_no_credential_and_an_admin_may_all() {
        let open: Vec<String> =
            paths().into_iter().filter(|path| access(path) == Some(RequiredRole::Anybody)).collect();
        assert!(open.iter().all(|path| path.starts_with("/grpc.health.v1.Health/")), "{open:?}");
        let of = |roles: &[Role]| Identity { roles: roles.to_vec(), ..Identity::local() };
        assert!(may(&of(&[Role::Admin]), ADMIN) && !may(&of(&[Agent, Operator, Approver, Analyst]), ADMIN));
        assert!(may(&of(&[Agent]), &[Agent]) && !may(&of(&[Agent]), PEOPLE) && !may(&of(&[]), ALL));
    }
}
