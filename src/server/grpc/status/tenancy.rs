//! Statuses of tenancy: a tenant that is not served, an exceeded quota, and a rejected change of a tenant.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{DOMAIN, status};
use crate::gate::TenantChange;
use callgate_core::domain::tenant::{Quota, TenantState};

/// Only administrators of the deployment change tenants.
pub(in crate::grpc) fn not_of_the_plane() -> Status {
    let message = "tenants are made and changed by admins of the tenant `default` alone, which is the plane's own";
    status(Code::PermissionDenied, "NOT_OF_THE_PLANE", message, None)
}

/// A rejected change of a tenant.
pub(in crate::grpc) fn tenant_change_status(why: &TenantChange) -> Status {
    let (code, reason, message) = match why {
        TenantChange::Taken => (
            Code::AlreadyExists,
            "TENANT_EXISTS",
            "there is a tenant of that name, or there was one: names are never used again",
        ),
        TenantChange::Own => (
            Code::FailedPrecondition,
            "TENANT_IS_THE_PLANES",
            "the tenant `default` is the plane's own, from which the others are changed; halt it instead",
        ),
        TenantChange::NotSuspended => {
            (Code::FailedPrecondition, "TENANT_IS_SERVED", "only a suspended tenant is deleted; suspend it first")
        }
        TenantChange::Unknown | TenantChange::Done(_) => {
            (Code::NotFound, "TENANT_UNKNOWN", "there is no tenant of that name, or it is deleted")
        }
    };
    status(code, reason, message, None)
}

/// The tenant uses as much as it may. Only calls come back by themselves.
pub(in crate::grpc) fn quota_status(quota: Quota) -> Status {
    let info: HashMap<String, String> = [("quota".to_owned(), quota.as_str().to_owned())].into();
    let mut details = ErrorDetails::with_error_info("QUOTA_EXCEEDED", DOMAIN, info);
    let message = match quota {
        Quota::CallsPerSecond => {
            "the tenant asks for more calls in a second than its quota; send the request again then"
        }
        Quota::Sessions => "the tenant has as many call trees stored as its quota, and this call would begin one",
        Quota::StoredBytes => "the tenant has stored as many bytes as its quota; reports are taken all the same",
        Quota::ApprovalsOpen => "the tenant has as many questions open as its quota, and this call would ask one",
    };
    if quota == Quota::CallsPerSecond {
        details.set_retry_info(Some(Duration::from_secs(1)));
    }
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

/// The requested values are encrypted with a key that is not here.
pub(in crate::grpc) fn key_missing() -> Status {
    let message = "what the tenant stores is encrypted, and a key of it is not on this server: nothing is judged or \
                   told without it; the server's log names the key";
    status(Code::FailedPrecondition, "KEY_MISSING", message, None)
}

/// The tenant of a request is not served.
pub(in crate::grpc) fn unserved_tenant_status(state: Option<TenantState>) -> Status {
    let (reason, message) = match state {
        Some(TenantState::Suspended) => (
            "TENANT_SUSPENDED",
            "the tenant is suspended: only reports on calls that were let through before are taken",
        ),
        _ => ("TENANT_UNKNOWN", "the tenant is not known to this replica: it was deleted, or made a moment ago"),
    };
    status(Code::PermissionDenied, reason, message, None)
}
