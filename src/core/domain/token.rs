//! API tokens as they are stored: everything but the token.

use super::{
    identity::{Credential, Identity, Mapped},
    ids::TenantId,
    time::Timestamp,
};

/// SHA-256 of a whole token.
pub type Digest = [u8; 32];

/// A stored token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Its public name.
    pub id: String,
    /// Whose.
    pub tenant: TenantId,
    /// Who shows it, and what they may do. Its tenant is told by `tenant`.
    pub is: Mapped,
    /// What it is known by.
    pub digest: Digest,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: String,
    /// From when on it is refused; none for never.
    pub expires_at: Option<Timestamp>,
    /// When it was shown last, to some seconds.
    pub used_at: Option<Timestamp>,
    /// Since when it is refused.
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    /// Why it is refused; none for one that holds.
    #[must_use]
    pub fn refused(&self, now: Timestamp) -> Option<&'static str> {
        if self.revoked_at.is_some() {
            return Some("the token was revoked");
        }
        self.expires_at.is_some_and(|at| at <= now).then_some("the token has expired")
    }

    /// Who shows it.
    #[must_use]
    pub fn identity(&self, from: Option<String>) -> Identity {
        self.is.identity(self.tenant, Credential::Token(self.id.clone()), from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_until_the_instant_that_it_expires_or_is_revoked() {
        let at = |ms| Timestamp::from_millis(ms);
        let token = Token {
            id: "t".into(),
            tenant: TenantId(7),
            is: Mapped::default(),
            digest: [0; 32],
            created_at: at(0),
            created_by: "eve".into(),
            expires_at: Some(at(10)),
            used_at: None,
            revoked_at: None,
        };
        assert_eq!((token.refused(at(9)), token.identity(None).tenant), (None, TenantId(7)));
        assert!(token.refused(at(10)).is_some());
        assert!(Token { revoked_at: Some(at(1)), ..token.clone() }.refused(at(2)).is_some());
        assert_eq!(Token { expires_at: None, ..token }.refused(at(1 << 40)), None);
    }
}
