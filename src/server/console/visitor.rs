//! The signed-in user behind a page request.

use std::sync::Arc;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::{HeaderMap, HeaderValue, Method, Uri, header, request::Parts};

use super::{
    Console,
    fault::PageError,
    frame::NavigationLink,
    live,
    session::{self, Secret, SignInCredential},
};
use crate::grpc::Insider;
use callgate_core::domain::{
    audit::Actor, identity::Identity, ids::TenantId, tenant::DEFAULT_TENANT_NAME, time::Timestamp,
};
use callgate_net::listener::Peer;
use callgate_proto::v1::{CallerIdentity, GetCallerRequest, Role, server_service_client::ServerServiceClient};

/// Header of requests by pages that refresh themselves: they are no activity of the user.
pub(super) const LIVE: &str = "callgate-live";

/// A signed-in user.
pub(super) struct Visitor {
    /// Their identity, by their credential.
    pub(super) known: ResolvedIdentity,
    /// CSRF token of their forms.
    pub(super) csrf: String,
    /// The services with their credential, as a channel of generated clients.
    pub(super) calls: Insider,
    pub(super) secret: Secret,
    /// Time of the request.
    pub(super) now: Timestamp,
    /// Where their pages link a trace to.
    pub(super) trace_url: Option<Arc<str>>,
}

impl Visitor {
    /// May they, by one of these roles?
    pub(super) fn is_one_of(&self, roles: &[Role]) -> bool {
        let has = |role: &Role| self.known.caller.roles().any(|one| one == *role);
        has(&Role::Admin) || roles.iter().any(has)
    }

    /// May they open the page of a link? Tenants are listed for those of `default`.
    pub(super) fn may_open(&self, link: &NavigationLink) -> bool {
        let is_own = link.path != "/tenants" || matches!(self.known.caller.tenant.as_str(), "" | DEFAULT_TENANT_NAME);
        is_own && self.is_one_of(link.roles)
    }
}

/// The parts of a browser's request that identify its caller.
pub(super) struct BrowserCredential {
    pub(super) peer: Option<Arc<Peer>>,
    pub(super) headers: HeaderMap,
}

impl BrowserCredential {
    pub(super) fn of(parts: &Parts) -> Self {
        Self { peer: parts.extensions.get::<Arc<Peer>>().cloned(), headers: parts.headers.clone() }
    }

    /// The services, called with this credential.
    pub(super) fn calls(&self, console: &Console, showed: &SignInCredential) -> Result<Insider, PageError> {
        let asked_by = |bearer| console.inside.asked_by(self.peer.clone(), &self.headers, bearer);
        let no_text = || PageError::field("the token or name has invalid characters");
        Ok(match showed {
            SignInCredential::Bearer(token) => {
                let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| no_text())?;
                bearer.set_sensitive(true);
                asked_by(Some(bearer))
            }
            SignInCredential::Name(name) => {
                asked_by(None).with_name(HeaderValue::from_str(name).map_err(|_| no_text())?)
            }
            SignInCredential::Certificate => asked_by(None),
        })
    }
}

/// Identity of a caller, as the server resolves it.
pub(super) struct ResolvedIdentity {
    pub(super) caller: CallerIdentity,
    identity: Arc<Identity>,
}

impl ResolvedIdentity {
    /// Asks the server for the caller's identity.
    pub(super) async fn by(calls: &Insider) -> Result<Self, PageError> {
        let response = ServerServiceClient::new(calls.clone()).get_caller(GetCallerRequest {}).await?;
        let identity = response.extensions().get().cloned();
        let identity = identity.ok_or_else(|| PageError::field("the server returned no identity"))?;
        Ok(Self { caller: response.into_inner().caller.unwrap_or_default(), identity })
    }

    /// As the audit of their tenant names them.
    pub(super) fn actor(&self) -> (TenantId, Actor) {
        (self.identity.tenant, Actor::of(&self.identity, &self.caller.name))
    }
}

impl FromRequestParts<Console> for Visitor {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, PageError> {
        let visitor = <Self as OptionalFromRequestParts<Console>>::from_request_parts(parts, console).await?;
        visitor.ok_or_else(|| PageError::sign_in(&parts.method, &parts.uri, &parts.headers))
    }
}

impl OptionalFromRequestParts<Console> for Visitor {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Option<Self>, PageError> {
        let Some(secret) = Secret::from_headers(&parts.headers, console.identities.store.console_key()) else {
            return Ok(None);
        };
        // A stream that stays open, and reconnects by itself, is no activity of the user.
        let is_active = !parts.headers.contains_key(LIVE) && parts.uri.path() != live::PATH;
        let Some(showed) = session::find(&console.identities, &secret, is_active).await? else { return Ok(None) };
        let shown = BrowserCredential::of(parts);
        // The name alone counts only while the server has no credentials, and the request names a host of its own.
        let calls = shown.calls(console, &showed)?;
        match ResolvedIdentity::by(&calls).await {
            Ok(known) => {
                let (now, trace_url) = (console.identities.store.now(), console.trace_url.clone());
                Ok(Some(Self { known, csrf: secret.csrf(), calls, secret, now, trace_url }))
            }
            // Their credential does not hold any more.
            Err(fault) if fault.is_unauthenticated() => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// The page to come back to after the sign-in.
pub(super) fn next(method: &Method, uri: &Uri, headers: &HeaderMap) -> String {
    // Neither a fragment nor a form's target is a page: htmx sends the page of the one, browsers that of the other.
    let of_page = |header: &str| headers.get(header)?.to_str().ok()?.parse::<Uri>().ok();
    let uri = match headers.contains_key("hx-request") {
        true => of_page("hx-current-url"),
        false if method == Method::GET => Some(uri.clone()),
        false => of_page(header::REFERER.as_str()),
    };
    uri.and_then(|uri| uri.path_and_query().map(ToString::to_string)).unwrap_or_else(|| "/".to_owned())
}

/// Is this the path of a page here? A link to the sign-in redirects to no other site.
pub(super) fn is_here(path: &str) -> bool {
    let mut chars = path.chars();
    chars.next() == Some('/')
        && !matches!(chars.next(), Some('/' | '\\'))
        && !path.chars().any(|char| char.is_control() || char == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_to_another_site_is_refused() {
        for path in ["/", "/approvals", "/sessions/x?tool=a%2Fb", "/a//b"] {
            assert!(is_here(path), "{path}");
        }
        for path in
            ["", "//evil.example", "/\\evil.example", "https://evil.example/", "javascript:alert(1)", "/\n/x", "/a\\b"]
        {
            assert!(!is_here(path), "{path}");
        }
    }
}
