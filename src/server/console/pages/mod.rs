//! The pages, one a file. A new one is its file, its template, and its line in [`LINKS`] where it has a link.

mod approval;
mod approvals;
mod audit;
mod backtest;
mod budget_use;
mod bulk;
mod call;
mod charts;
mod costs;
mod difference;
mod edit;
mod history;
mod issuer;
mod learning;
mod notifications;
mod now;
mod policy;
mod policy_change;
mod raise;
mod retries;
mod rollout;
mod session;
mod session_search;
mod sessions;
mod sign_in;
mod tenants;
mod timeline;
mod tokens;
mod tool_descriptions;
mod tools;
mod trace;
mod unhealthy_tools;

use axum::Router;

use super::{Console, frame::NavigationLink};
use callgate_proto::v1::Role;

/// Roles of people who supervise agents.
const PEOPLE: &[Role] = &[Role::Approver, Role::Operator, Role::Analyst];

/// Links of the navigation, in this order.
pub(super) const LINKS: [NavigationLink; 11] = [
    NavigationLink { path: now::PATH, text: "Overview", key: 'o', roles: now::ROLES },
    NavigationLink { path: approvals::PATH, text: "Approvals", key: 'a', roles: PEOPLE },
    NavigationLink { path: sessions::PATH, text: "Sessions", key: 's', roles: PEOPLE },
    NavigationLink { path: learning::PATH, text: "Retries", key: 'r', roles: PEOPLE },
    NavigationLink { path: tools::PATH, text: "Tools", key: 'l', roles: PEOPLE },
    NavigationLink { path: costs::PATH, text: "Costs", key: 'c', roles: PEOPLE },
    NavigationLink { path: policy::PATH, text: "Policy", key: 'p', roles: PEOPLE },
    NavigationLink { path: notifications::PATH, text: "Notifications", key: 'i', roles: notifications::ROLES },
    NavigationLink { path: audit::PATH, text: "Audit log", key: 'u', roles: &[Role::Analyst] },
    NavigationLink { path: tenants::PATH, text: "Tenants", key: 'n', roles: &[Role::Admin] },
    NavigationLink { path: tokens::PATH, text: "Tokens", key: 't', roles: &[Role::Admin] },
];

pub(super) fn router() -> Router<Console> {
    Router::new()
        .merge(now::router())
        .merge(charts::router())
        .merge(costs::router())
        .merge(notifications::router())
        .merge(tenants::router())
        .merge(approvals::router())
        .merge(bulk::router())
        .merge(approval::router())
        .merge(sessions::router())
        .merge(session::router())
        .merge(call::router())
        .merge(audit::router())
        .merge(sign_in::router())
        .merge(issuer::router())
        .merge(tokens::router())
        .merge(learning::router())
        .merge(tools::router())
        .merge(tool_descriptions::router())
        .merge(policy::router())
        .merge(policy_change::router())
        .merge(rollout::router())
        .merge(difference::router())
        .merge(backtest::router())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_has_a_key_of_its_own_and_is_let_through_by_the_table_of_routes() {
        let mut keys: Vec<char> = LINKS.iter().map(|link| link.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), LINKS.len(), "two links have one key");
        for link in LINKS {
            assert!(crate::web::is_page(link.path), "{}", link.path);
        }
    }
}
