//! Middleware: rejects requests of a tenant that is not served. It runs after authentication and before every method;
//! methods that take long ask the gate again.

use std::{future::ready, sync::Arc};

use tonic::{body::Body, codegen::http};

use super::{
    server::Services,
    shortcut::{OURS, ServiceResponse},
    status,
};
use callgate_core::domain::identity::Identity;

/// Methods that check by themselves: a report ends a call that was let through before its tenant was suspended.
const BY_THEMSELVES: [&str; 2] = ["GateService/Record", "GateService/Connect"];

impl Services {
    /// Forwards a request of a tenant that is served. Health and reflection concern no tenant.
    pub(super) fn check_tenant(&self, request: http::Request<Body>) -> ServiceResponse {
        let is_checked = request.uri().path().strip_prefix(OURS).is_some_and(|method| !BY_THEMSELVES.contains(&method));
        if is_checked
            && let Some(identity) = request.extensions().get::<Arc<Identity>>()
            && let Err(not_served) = self.0.server.admits(identity.tenant)
        {
            return Box::pin(ready(Ok(status::gate(not_served).into_http())));
        }
        self.route(request)
    }
}
