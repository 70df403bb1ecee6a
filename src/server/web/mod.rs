//! HTTP routes outside the services, on the port of the calls: health and metrics. This module authorizes by its table
//! of routes, and is given the caller's identity.

mod addressed;
mod routes;

pub use addressed::is_addressed_to_here;
pub use routes::{
    CLAUDE_CODE, PAGES, ROUTES, Readiness, RouteAccess, RouteSources, SLACK_ACTIONS, guard_headers, is_page,
    operations, router, starting,
};
