//! The routes, each with its roles.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::is_addressed_to_here;
use crate::telemetry::Scrape;
use callgate_core::domain::{
    identity::{Identity, Role},
    ids::DEFAULT_TENANT,
};

/// A route, with its roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteAccess {
    /// Its path.
    pub path: &'static str,
    /// One of these roles, or an admin; none is anybody, with or without a credential.
    pub roles: Option<&'static [Role]>,
}

const HEALTH: &str = "/healthz";
const READY: &str = "/readyz";
const METRICS: &str = "/metrics";
/// The hooks of Claude Code, which the module `grpc` answers.
pub const CLAUDE_CODE: &str = "/hooks/claude-code";

/// The buttons of Slack messages, which the module `notifications` answers.
pub const SLACK_ACTIONS: &str = "/notifications/slack";

/// All routes. Others are not served.
pub const ROUTES: [RouteAccess; 5] = [
    // Health checks have no credential, and learn nothing else.
    RouteAccess { path: HEALTH, roles: None },
    RouteAccess { path: READY, roles: None },
    RouteAccess { path: METRICS, roles: Some(&[Role::Operator, Role::Analyst]) },
    RouteAccess { path: CLAUDE_CODE, roles: Some(&[Role::Agent]) },
    // Slack signs its requests, and has no credential.
    RouteAccess { path: SLACK_ACTIONS, roles: None },
];

/// The first segments of the paths of pages; all below one is of the same page. Pages need no role here: the console
/// authenticates by itself, since browsers present no credential but its own cookie.
pub const PAGES: [&str; 17] = [
    "",
    "approvals",
    "assets",
    "audit",
    "calls",
    "charts",
    "costs",
    "events",
    "learning",
    "notifications",
    "policy",
    "sessions",
    "sign-in",
    "sign-out",
    "tenants",
    "tokens",
    "tools",
];

/// True for the path of a page.
#[must_use]
pub fn is_page(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|path| path.is_empty() || !path.starts_with('/') && PAGES.contains(&first(path)))
}

fn first(path: &str) -> &str {
    path.split_once('/').map_or(path, |(first, _)| first)
}

/// Sources of the routes.
#[derive(Debug, Clone)]
pub struct RouteSources {
    /// The metrics; none where they are not collected.
    pub scrape: Option<Scrape>,
    /// Readiness of this server.
    pub readiness: watch::Receiver<Readiness>,
}

/// Readiness for calls, with the reason against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// They are.
    Ready,
    /// It is not checked yet.
    Starting,
    /// Nothing can be stored now.
    Unstored,
    /// The server ends.
    Ending,
}

impl Readiness {
    /// Response text, for any caller.
    const fn as_text(self) -> &'static str {
        match self {
            Self::Ready => "ready\n",
            Self::Starting => "not ready: the server starts\n",
            Self::Unstored => "not ready: the database does not store; the log of this replica says why\n",
            Self::Ending => "not ready: the server ends\n",
        }
    }
}

/// Router of the routes.
pub fn router(sources: RouteSources) -> Router {
    Router::new().route(METRICS, get(metrics)).with_state(sources.clone()).merge(starting(sources))
}

/// Routes for health and readiness; the caller of this function adds the others.
pub fn starting(sources: RouteSources) -> Router {
    Router::new()
        .route(HEALTH, get(async || text(StatusCode::OK, "ok\n".to_owned())))
        .route(READY, get(ready))
        .with_state(sources)
}

/// The same for monitoring, on a listener of its own that requires no credential of callgate's, so that it needs no
/// database: with a token for `/metrics`, where one is given.
pub fn operations(sources: RouteSources, token: Option<Arc<str>>, is_open: bool) -> Router {
    let figures = move |State(sources): State<RouteSources>, request: Request| {
        let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| value.strip_prefix("Bearer "));
        let digest = |token: &str| Sha256::digest(token.as_bytes());
        // Digests, so that the time reveals nothing of the token.
        let is_let_in = token.as_deref().is_none_or(|token| shown.is_some_and(|shown| digest(shown) == digest(token)));
        let is_foreign = token.is_none() && !is_open && !is_addressed_to_here(&request);
        async move {
            match is_let_in {
                _ if is_foreign => text(StatusCode::FORBIDDEN, "ask by an address or as localhost\n".to_owned()),
                true => figures(&sources),
                false => text(StatusCode::UNAUTHORIZED, "show the token of --ops-token-file\n".to_owned()),
            }
        }
    };
    Router::new().route(METRICS, get(figures)).with_state(sources.clone()).merge(starting(sources))
}

/// Readiness probe: a load balancer sends calls elsewhere meanwhile.
async fn ready(State(sources): State<RouteSources>) -> Response {
    let readiness = *sources.readiness.borrow();
    let code = match readiness {
        Readiness::Ready => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(code, readiness.as_text().to_owned())
}

/// Metrics of this replica, of all its tenants. They are therefore for callers of the tenant `default`.
async fn metrics(State(sources): State<RouteSources>, request: Request) -> Response {
    let identity = request.extensions().get::<Arc<Identity>>();
    if identity.is_none_or(|identity| identity.tenant != DEFAULT_TENANT) {
        let message = "these figures are of the whole plane: they are for those of the tenant `default`\n";
        return text(StatusCode::FORBIDDEN, message.to_owned());
    }
    figures(&sources)
}

fn figures(sources: &RouteSources) -> Response {
    let Some(scrape) = &sources.scrape else {
        return text(StatusCode::NOT_FOUND, "nothing is counted here\n".to_owned());
    };
    match scrape.text() {
        Ok(figures) => {
            let kind = [(header::CONTENT_TYPE, Scrape::CONTENT_TYPE)];
            (kind, guard_headers(), figures).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "the metrics could not be encoded");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be encoded: see the log\n".to_owned())
        }
    }
}

fn text(code: StatusCode, text: String) -> Response {
    (code, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], guard_headers(), text).into_response()
}

/// No response is cached on the way, or taken for another type.
#[must_use]
pub fn guard_headers() -> [(HeaderName, HeaderValue); 2] {
    [(header::CACHE_CONTROL, "no-store"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")]
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
}
