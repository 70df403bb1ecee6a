//! policy: the one log line of a policy that became active, and of one that cannot.

use super::names;
use crate::domain::{ids::TenantId, revision::Revision};

/// A revision judges from now on.
pub fn active(tenant: TenantId, revision: &Revision) {
    tracing::info!(
        { names::TENANT } = tenant.0,
        { names::POLICY_REVISION } = revision.number,
        { names::POLICY_HASH } = revision.hash.as_str(),
        { names::POLICY_BY } = revision.by.as_str(),
        { names::POLICY_NOTE } = revision.note.as_str(),
        "policy revision {} became active, by {}",
        revision.number,
        revision.by
    );
}

/// A revision is active that this build cannot read; `errors` says why.
pub fn unreadable(tenant: TenantId, revision: &Revision, errors: &str) {
    tracing::error!(
        { names::TENANT } = tenant.0,
        { names::POLICY_REVISION } = revision.number,
        { names::POLICY_HASH } = revision.hash.as_str(),
        { names::ERROR } = errors,
        "this build cannot read policy revision {}, and goes on with the one before, if there was one: {errors}",
        revision.number
    );
}
