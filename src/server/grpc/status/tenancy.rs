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
    status(Code::PermissionDenied, "NOT_DEPLOYMENT_ADMIN", message, None)
}

/// A rejected change of a tenant.
pub(in crate::grpc) fn tenant_change_status(why: &TenantChange) -> Status {
    let (code, reason, message) = match why {
        TenantChange::Taken => {
            (Code::AlreadyExists, "TENANT_EXISTS", "a tenant has or had this name, and names are never reused")
        }
        TenantChange::Own => (
            Code::FailedPrecondition,
            "TENANT_IS_DEFAULT",
            "the tenant `default` is the plane's own, from which the others are changed; halt it instead",
        ),
        TenantChange::NotSuspended => {
            (Code::FailedPrecondition, "TENANT_NOT_SUSPENDED", "only a suspended tenant is deleted; suspend it first")
        }
        TenantChange::Unknown | TenantChange::Done(_) => {
            (Code::NotFound, "TENANT_UNKNOWN", "no tenant has this name, or it is deleted")
        }
    };
    status(code, reason, message, None)
}

/// A quota of the tenant is used up. Only the one of calls refills by itself.
pub(in crate::grpc) fn quota_status(quota: Quota) -> Status {
    let info: HashMap<String, String> = [("quota".to_owned(), quota.as_str().to_owned())].into();
    let mut details = ErrorDetails::with_error_info("QUOTA_EXCEEDED", DOMAIN, info);
    let message = match quota {
        Quota::CallsPerSecond => "the tenant exceeds its quota of calls per second; send the request again in a second",
        Quota::Sessions => "the tenant's quota of stored call trees is used up, and this call would begin one",
        Quota::StoredBytes => "the tenant's quota of stored bytes is used up; outcomes are still accepted",
        Quota::ApprovalsOpen => "the tenant's quota of open approval requests is used up, and this call would make one",
    };
    if quota == Quota::CallsPerSecond {
        details.set_retry_info(Some(Duration::from_secs(1)));
    }
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

/// The requested values are encrypted with a key that this server does not have.
pub(in crate::grpc) fn key_missing() -> Status {
    let message = "the tenant's data is encrypted, and this server does not have its key, so it answers no request of \
                   the tenant; the server's log names the key";
    status(Code::FailedPrecondition, "KEY_MISSING", message, None)
}

/// The tenant of a request is not served.
pub(in crate::grpc) fn unserved_tenant_status(state: Option<TenantState>) -> Status {
    let (reason, message) = match state {
        Some(TenantState::Suspended) => {
            ("TENANT_SUSPENDED", "the tenant is suspended: only outcomes of calls permitted before are accepted")
        }
        _ => ("TENANT_UNKNOWN", "the tenant is unknown to this replica: it was deleted, or made a moment ago"),
    };
    status(Code::PermissionDenied, reason, message, None)
}
