//! Log lines of policy activations: applied, unreadable, behind, and caught up.

use std::time::Duration;

use super::names;
use callgate_core::domain::{ids::TenantId, revision::Revision, rollout::Rollout};

/// Logs the activation of a revision.
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

/// Logs a step of a rollout, and whether this build can read its policy.
pub fn rolls_out(tenant: TenantId, rollout: &Rollout, is_readable: bool) {
    let Rollout { hash, part, state, by, note, .. } = rollout;
    tracing::info!(
        { names::TENANT } = tenant.0,
        { names::POLICY_HASH } = hash.as_str(),
        { names::POLICY_BY } = by.as_str(),
        { names::POLICY_NOTE } = note.as_str(),
        "a policy's rollout to {part} is {}, by {by}",
        state.as_str()
    );
    if !is_readable {
        tracing::error!(
            { names::POLICY_HASH } = hash.as_str(),
            "this build cannot read that policy, and refuses its part"
        );
    }
}

/// Logs an active revision that this build cannot read; `errors` has the causes.
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

/// Logs that the policy of this replica is or may be older than the active one.
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

/// Logs the end of that state.
pub fn caught_up() {
    tracing::info!("this replica uses the active policy of every tenant again");
}
