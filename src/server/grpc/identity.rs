//! Identity of a request's caller, as `authentication.rs` resolved it. Without authentication the
//! caller's name is metadata and no field of a message, because with authentication the credential names the caller.

use std::sync::Arc;

use tonic::{Request, Status, service::Interceptor};

use super::{limits::TEXT_BYTES_MAX, status};
use callgate_core::domain::{
    audit::Actor,
    identity::{CredentialId, Identity},
    ids::TenantId,
};
use callgate_proto::BY;

/// The identity of the request's caller.
pub(super) fn of<T>(request: &Request<T>) -> Result<Arc<Identity>, Status> {
    request.extensions().get::<Arc<Identity>>().cloned().ok_or_else(status::unauthenticated_status)
}

/// Lets every request pass as an admin's of this tenant: for holders of the database.
pub(super) fn admin_of(tenant: TenantId) -> impl Interceptor + Clone {
    let admin = Arc::new(Identity { tenant, ..Identity::local() });
    move |mut request: Request<()>| {
        request.extensions_mut().insert(Arc::clone(&admin));
        Ok(request)
    }
}

/// The tenant of this request.
pub(super) fn tenant<T>(request: &Request<T>) -> Result<TenantId, Status> {
    Ok(of(request)?.tenant)
}

/// The name of the request's caller.
pub(super) fn by<T>(request: &Request<T>) -> Result<String, Status> {
    let identity = of(request)?;
    if identity.credential != CredentialId::Local {
        return Ok(identity.name.clone());
    }
    let Some(value) = request.metadata().get(BY) else { return Err(status::caller_unknown("is missing")) };
    let name = value.to_str().map(str::trim).unwrap_or_default();
    match name {
        "" => Err(status::caller_unknown("is empty, or has other characters than those of ASCII")),
        name if name.len() > TEXT_BYTES_MAX => {
            Err(status::caller_unknown(&format!("is longer than {TEXT_BYTES_MAX} bytes")))
        }
        name => Ok(name.to_owned()),
    }
}

/// The request's caller as an actor, as the audit log names it.
pub(super) fn actor<T>(request: &Request<T>) -> Result<Actor, Status> {
    Ok(Actor::of(&*of(request)?, &by(request)?))
}

/// The request's caller as an actor, by the name `otherwise` where none is given.
pub(super) fn actor_or<T>(request: &Request<T>, otherwise: &str) -> Result<Actor, Status> {
    let identity = of(request)?;
    let is_said = request.metadata().contains_key(BY) || identity.credential != CredentialId::Local;
    if is_said { actor(request) } else { Ok(Actor::of(&identity, otherwise)) }
}
