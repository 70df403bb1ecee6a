//! Reports of what operators have to keep in order: refused credentials, tokens near their end, audit logs.

use std::sync::Arc;

use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};

use super::{
    Gate, Identities, Insight, NoAnswer, Privacy,
    credentials::{CredentialRejection, PresentedCredential},
};
use crate::{
    auth::token,
    telemetry::metrics::{Lifetime, Reading},
};
use callgate_core::domain::{
    audit::{Anchor, ChainVerification},
    ids::TenantId,
    tenant::TenantState,
    time::Timestamp,
};

/// Of each tenant the token in use that expires next, by creation and expiry, as read last.
pub(super) type TokenEnds = RwLock<Vec<(TenantId, (Timestamp, Timestamp))>>;

impl Identities {
    /// Counts a refused credential, by its tenant where that is known here.
    pub fn count_refusal(&self, shown: PresentedCredential<'_>, refused: CredentialRejection) {
        let cause = match refused {
            CredentialRejection::Unknown(_) => "unknown",
            CredentialRejection::Unchecked => "unchecked",
            CredentialRejection::TooMany(_) => "too_many",
        };
        let tenant = match shown {
            PresentedCredential::Bearer(text) => match token::read(text) {
                Some(shown) => self.credentials.tenant(shown.id),
                None => self.credentials.jwts.tenant(&Sha256::digest(text.as_bytes()).into()),
            },
            PresentedCredential::Nothing | PresentedCredential::Wrong | PresentedCredential::Certificate { .. } => None,
        };
        self.server.metrics.credential_refused(tenant, cause);
    }

    /// Records the tenants without keys on this replica.
    pub fn tell_locked(&self) {
        let keyring = self.store.keyring();
        let tenants = self.server.tenants();
        let served = tenants.iter().filter(|tenant| tenant.state != TenantState::Deleted);
        let locked = served.filter(|tenant| keyring.is_locked(tenant.id)).count();
        self.server.metrics.locked(locked as u64);
    }
}

/// A lifetime at a time: seconds left, and the elapsed share.
#[must_use]
pub fn lifetime(owner: Lifetime, (from, until): (Timestamp, Timestamp), now: Timestamp) -> Reading {
    let seconds = |from: Timestamp, to: Timestamp| (to.as_millis() - from.as_millis()) as f64 / 1_000.0;
    // A lifetime of no time has passed.
    let all = seconds(from, until).max(f64::MIN_POSITIVE);
    Reading::Left(owner, seconds(now, until), seconds(from, now) / all)
}

impl Gate {
    /// Computes the lifetimes of tokens at each collection of metrics.
    pub fn compute_lifetimes(&self) {
        let (insight, store) = (Arc::clone(&self.insight), Arc::clone(&self.store));
        self.server.metrics.compute(move || {
            let (ends, now) = (insight.token_ends.read(), store.now());
            let of =
                |(tenant, span): &(TenantId, (Timestamp, Timestamp))| lifetime(Lifetime::Token(*tenant), *span, now);
            ends.iter().map(of).collect()
        });
    }
}

impl Insight {
    /// Reads the tokens that expire next.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read: the former ones stand.
    pub(super) async fn read_token_ends(&self) -> Result<(), NoAnswer> {
        *self.token_ends.write() = self.store.token_ends().await?;
        Ok(())
    }
}

impl Privacy {
    /// Verifies a tenant's audit log, and records the result.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn verify_audit(&self, tenant: TenantId, anchors: Vec<Anchor>) -> Result<ChainVerification, NoAnswer> {
        let found = self.operators.check_audit(tenant, anchors).await?;
        self.server.metrics.audited(tenant, !found.problems.is_empty());
        Ok(found)
    }

    /// Verifies the audit logs of all tenants, and logs the changed ones.
    ///
    /// # Errors
    /// [`NoAnswer`] when one cannot be read.
    pub async fn verify_audits(&self) -> Result<(), NoAnswer> {
        for tenant in self.server.tenants().into_iter().filter(|tenant| tenant.state != TenantState::Deleted) {
            let found = self.verify_audit(tenant.id, Vec::new()).await?;
            if let Some(problem) = found.problems.first() {
                tracing::error!(tenant = tenant.name, "the audit log was changed: {problem}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_passes_with_the_clock() {
        let at = Timestamp::from_millis;
        let told = |now| match lifetime(Lifetime::Certificate("server"), (at(1_000), at(11_000)), at(now)) {
            Reading::Left(_, left, used) => (left, used),
            Reading::Backup(_) => unreachable!("it is a lifetime"),
        };
        assert_eq!([told(1_000), told(6_000), told(12_000)], [(10.0, 0.0), (5.0, 0.5), (-1.0, 1.1)]);
    }
}
