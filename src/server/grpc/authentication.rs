//! Middleware: authenticates and authorizes every request of every service. A request goes on with its caller's
//! identity, or is rejected here. Credentials of long requests are checked again while they last.

use std::{future::ready, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode, header};
use tokio::time::sleep;
use tonic::{Code, Status, body::Body, codegen::http as wire};

use super::{
    guard,
    roles::{self, RequiredRole},
    server::Services,
    shortcut::ServiceResponse,
    status,
};
use crate::{
    gate::{CredentialRejection, PresentedCredential},
    web::is_addressed_to_here,
};
use callgate_core::domain::identity::{Identity, Role};
use callgate_net::listener::{Names, Peer};

/// Time after which an invalid credential is rejected, however it was found out.
const SLOW: Duration = Duration::from_millis(300);
/// Error text for a path without a service; people mistype addresses too.
const NOWHERE: &str = "nothing is served under this path";

impl Services {
    /// Forwards a request with its caller's identity, if authorized; rejects it otherwise.
    pub(super) fn authenticate(&self, request: wire::Request<Body>) -> ServiceResponse {
        let allowed = match roles::access(request.uri().path()) {
            Some(RequiredRole::Roles(roles)) => roles,
            Some(RequiredRole::Anybody) => return self.check_tenant(request),
            None => return Box::pin(ready(Ok(answer(Status::unimplemented(NOWHERE), request.headers())))),
        };
        let peer = request.extensions().get::<Arc<Peer>>().map(AsRef::as_ref);
        let (shown, from) =
            (read_credential(request.headers(), peer), peer.and_then(|peer| peer.from(request.headers())));
        // On an address that other machines can reach, a credential is required.
        let is_local = peer.is_some_and(|peer| !peer.is_public);
        if matches!(shown, PresentedCredential::Nothing | PresentedCredential::Certificate { .. })
            && is_local
            && !self.0.identities.wants_credentials()
        {
            if peer.is_some_and(|peer| peer.address.is_some()) && !is_addressed_to_here(&request) {
                return Box::pin(ready(Ok(answer(status::host_name_status(), request.headers()))));
            }
            return self.admit(request, Arc::clone(&self.0.local), allowed);
        }
        match self.0.identities.identity(shown, from) {
            Some(Ok(identity)) => self.admit(request, identity, allowed),
            known => self.look_up_credential(request, known.and_then(Result::err), allowed),
        }
    }

    /// Reads an unknown credential; rejects an invalid one, after a delay.
    fn look_up_credential(
        &self,
        request: wire::Request<Body>,
        known: Option<CredentialRejection>,
        allowed: &'static [Role],
    ) -> ServiceResponse {
        let services = self.clone();
        Box::pin(async move {
            let slow = sleep(SLOW);
            let identities = &services.0.identities;
            let peer = request.extensions().get::<Arc<Peer>>().map(AsRef::as_ref);
            let from = peer.and_then(|peer| peer.from(request.headers()));
            let refused = match (known, read_credential(request.headers(), peer)) {
                (None, PresentedCredential::Bearer(text)) => match identities.looked_up(text, from).await {
                    Ok(identity) => return services.admit(request, identity, allowed).await,
                    Err(refused) => refused,
                },
                (refused, _) => refused.unwrap_or(CredentialRejection::Unknown("no credential was shown")),
            };
            identities.count_refusal(read_credential(request.headers(), peer), refused);
            if let CredentialRejection::Unknown(why) = refused {
                identities.count_rejection(from);
                status::log_rejection(why, from);
                slow.await;
            }
            Ok(answer(status::rejection_status(refused), request.headers()))
        })
    }

    /// Goes on as this identity, if it may.
    fn admit(
        &self,
        mut request: wire::Request<Body>,
        identity: Arc<Identity>,
        allowed: &'static [Role],
    ) -> ServiceResponse {
        if !roles::may(&identity, allowed) {
            self.0.metrics.credential_refused(Some(identity.tenant), "role");
            return Box::pin(ready(Ok(answer(status::role_missing(allowed), request.headers()))));
        }
        let lasts = roles::lasts(request.uri().path());
        request.extensions_mut().insert(Arc::clone(&identity));
        let answer = self.check_tenant(request);
        if lasts { guard::guard_answer(answer, Arc::clone(&self.0.identities), identity) } else { answer }
    }
}

/// The credential of a request. A token takes precedence over a certificate: a proxy has one of its own.
fn read_credential<'a>(headers: &'a HeaderMap, peer: Option<&'a Peer>) -> PresentedCredential<'a> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    match (given.next(), given.next(), peer.and_then(|peer| peer.names.as_ref())) {
        (None, _, Some(Names { dns, uris })) => PresentedCredential::Certificate { dns, uris },
        (None, _, None) => PresentedCredential::Nothing,
        (Some(value), None, _) => {
            let bearer = value.to_str().ok().and_then(|text| text.split_once(' '));
            let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            bearer.map_or(PresentedCredential::Wrong, |(_, token)| PresentedCredential::Bearer(token.trim()))
        }
        (Some(_), Some(_), _) => PresentedCredential::Wrong,
    }
}

/// A rejection in the caller's protocol: a status of gRPC, or one of HTTP.
pub(super) fn answer(status: Status, headers: &HeaderMap) -> wire::Response<Body> {
    let kind = headers.get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    if kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        return status.into_http();
    }
    let code = match status.code() {
        // No method of this path, and no page either.
        Code::Unimplemented => StatusCode::NOT_FOUND,
        code => status::to_http_status(code),
    };
    let mut response = wire::Response::new(Body::new(format!("{}\n", status.message())));
    *response.status_mut() = code;
    response
}
