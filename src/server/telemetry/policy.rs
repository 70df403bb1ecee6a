//! Log lines of policy activations: applied, unreadable, behind, and caught up.

use std::time::Duration;

use super::names;
use callgate_core::domain::{ids::TenantId, revision::Revision};

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

/// A revision is active that this build cannot read; `errors` has the causes.
pub fn unreadable(tenant: TenantId, revision: &Revision, errors: &str) {
    tracing::error!(
        { names::TENANT } = tenant.0,
        { names::POLICY_REVISION } = revision.number,
        { names::POLICY_HASH } = revision.hash.as_str(),
        { names::ERROR } = errors,
        "this build cannot read policy revision {}, and keeps the previous one, if any: {errors}",
        revision.number
    );
}

/// The alarm: this replica judges by an older policy than the rest, or cannot know whether it does.
pub fn behind(revisions: u64, unconfirmed: Duration) {
    let unconfirmed_s = unconfirmed.as_secs();
    if revisions > 0 {
        tracing::error!(
            revisions,
            "this replica uses a policy of a tenant that is {revisions} activation(s) older than the active one: this \
             build cannot read the active one"
        );
    } else {
        tracing::error!(
            unconfirmed_s,
            "this replica has not read for {unconfirmed_s} s which policies are active, and may use older ones than \
             other replicas"
        );
    }
}

/// The alarm is over.
pub fn caught_up() {
    tracing::info!("this replica uses the active policy of every tenant again");
}
