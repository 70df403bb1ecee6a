//! API tokens as they are stored: everything but the token.

use super::{
    identity::{CredentialId, Identity, MappedIdentity},
    ids::TenantId,
    time::Timestamp,
};

/// SHA-256 of a whole token.
pub type Digest = [u8; 32];

/// A stored token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredToken {
    /// Public id.
    pub id: String,
    /// Tenant.
    pub tenant: TenantId,
    /// Mapped identity. Its tenant is given by `tenant`.
    pub is: MappedIdentity,
    /// Digest of the token.
    pub digest: Digest,
    /// Creation time.
    pub created_at: Timestamp,
    /// Creator.
    pub created_by: String,
    /// Expiry; none for unlimited.
    pub expires_at: Option<Timestamp>,
    /// Last use, within some seconds.
    pub used_at: Option<Timestamp>,
    /// Time of the revocation.
    pub revoked_at: Option<Timestamp>,
}

impl StoredToken {
    /// The reason of its rejection; none while valid.
    #[must_use]
    pub fn rejection_reason(&self, now: Timestamp) -> Option<&'static str> {
        if self.revoked_at.is_some() {
            return Some("the token was revoked");
        }
        self.expires_at.is_some_and(|at| at <= now).then_some("the token has expired")
    }

    /// The identity of its holder.
    #[must_use]
    pub fn identity(&self, from: Option<String>) -> Identity {
        self.is.identity(self.tenant, CredentialId::Token(self.id.clone()), from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_valid_until_it_expires_or_is_revoked() {
        let at = |ms| Timestamp::from_millis(ms);
        let token = StoredToken {
            id: "t".into(),
            tenant: TenantId(7),
            is: MappedIdentity::default(),
            digest: [0; 32],
            created_at: at(0),
            created_by: "eve".into(),
            expires_at: Some(at(10)),
            used_at: None,
            revoked_at: None,
        };
        assert_eq!((token.rejection_reason(at(9)), token.identity(None).tenant), (None, TenantId(7)));
        assert!(token.rejection_reason(at(10)).is_some());
        assert!(StoredToken { revoked_at: Some(at(1)), ..token.clone() }.rejection_reason(at(2)).is_some());
        assert_eq!(StoredToken { expires_at: None, ..token }.rejection_reason(at(1 << 40)), None);
    }
}
