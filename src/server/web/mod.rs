//! What is asked over HTTP alone, on the port of the calls: how the server is, and what it counts. This room knows who
//! may ask what by its table of routes, and is told who asks.

mod addressed;
mod routes;

pub use addressed::is_addressed_to_here;
pub use routes::{
    CLAUDE_CODE, PAGES, ROUTES, Readiness, RouteAccess, RouteSources, guarded, is_page, operations, router, starting,
};
