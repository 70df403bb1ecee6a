//! API tokens: creation, list, revocation, rotation.

use super::{Identities, NoAnswer};
use crate::auth::token::{self, RANDOM_BYTES};
use callgate_core::domain::{
    audit::Actor, identity::MappedIdentity, ids::TenantId, time::Timestamp, token::StoredToken,
};

/// Errors of operations on tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The tenant has no such token.
    #[error("there is no such token")]
    Unknown,
    /// It has ended: nothing replaces it.
    #[error("{0}")]
    Ended(&'static str),
    /// It was not done, or the result is unknown.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

impl Identities {
    /// Creates a token that holds for so long, or for ever; returns its text, which is shown once, and its stored form.
    ///
    /// # Errors
    /// [`NoAnswer`]: none was made.
    pub async fn create_token(
        &self,
        tenant: TenantId,
        is: MappedIdentity,
        ttl_ms: Option<u64>,
        by: &Actor,
    ) -> Result<(String, StoredToken), NoAnswer> {
        let (text, token) = mint_token(tenant, is, ttl_ms, self.store.now(), by)?;
        self.store.put_token(&token, None, by).await?;
        self.credentials.made_one();
        Ok((text, token))
    }

    /// Revokes a token: here at once, on every replica within two seconds.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn revoke_token(&self, tenant: TenantId, id: &str, by: &Actor) -> Result<StoredToken, TokenError> {
        let ended = self.store.revoke_token(tenant, id, by).await.map_err(NoAnswer::from)?;
        self.credentials.forget(id);
        ended.ok_or(TokenError::Unknown)
    }

    /// Creates a token to replace this one, which ends after `overlap_ms`: both hold until then. The new one holds for
    /// `ttl_ms`, or for ever.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn rotate_token(
        &self,
        tenant: TenantId,
        id: &str,
        (ttl_ms, overlap_ms): (Option<u64>, u64),
        by: &Actor,
    ) -> Result<(String, StoredToken), TokenError> {
        let (known, _) = self.store.tokens_by_id(&[id.to_owned()]).await.map_err(NoAnswer::from)?;
        let old = known.into_iter().find(|token| token.tenant == tenant).ok_or(TokenError::Unknown)?;
        let now: Timestamp = self.store.now();
        if let Some(why) = old.rejection_reason(now) {
            return Err(TokenError::Ended(why));
        }
        let (text, new) = mint_token(tenant, old.is, ttl_ms, now, by)?;
        let end = Some((id, now.plus_ms(overlap_ms)));
        self.store.put_token(&new, end, by).await.map_err(NoAnswer::from)?;
        self.credentials.forget(id);
        Ok((text, new))
    }
}

fn mint_token(
    tenant: TenantId,
    is: MappedIdentity,
    ttl_ms: Option<u64>,
    now: Timestamp,
    by: &Actor,
) -> Result<(String, StoredToken), NoAnswer> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| NoAnswer::Fault(format!("no random bytes: {error}")))?;
    let minted = token::mint(&is.roles, &random);
    let token = StoredToken {
        id: minted.id,
        tenant,
        is: MappedIdentity { tenant: String::new(), ..is },
        digest: minted.digest,
        created_at: now,
        created_by: by.name.clone(),
        expires_at: ttl_ms.map(|ttl| now.plus_ms(ttl)),
        used_at: None,
        revoked_at: None,
    };
    Ok((minted.text, token))
}
