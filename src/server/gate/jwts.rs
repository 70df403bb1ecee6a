//! Cache of issuers' tokens on this replica: their issuers' keys, and the callers of a moment ago, since a signature
//! costs as much to check as a whole call.

use std::{net::IpAddr, num::NonZeroUsize, sync::Arc, time::Duration};

use lru::LruCache;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use super::{Identities, credentials::CredentialRejection};
use crate::auth::jwt::{self, Issuer, Keys};
use callgate_core::domain::{
    identity::{CredentialId, Identity},
    ids::TenantId,
    token::Digest,
};
use callgate_net::clock::Tick;

/// Tokens that are remembered.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// Interval of verifications for addresses with many failures.
const SUSPECTED_EVERY: Duration = Duration::from_millis(5);
/// Time for which an issuer's keys hold while they cannot be read again.
const KEYS_HOLD: Duration = Duration::from_secs(24 * 3_600);

/// Last caller of a token: address and identity.
type LastCaller = (Option<IpAddr>, Arc<Identity>);

/// Keys, and when they were read.
type Read = (Arc<Keys>, Tick);

/// Cache of issuers' tokens and keys.
#[derive(Debug)]
pub(super) struct Jwts {
    known: Mutex<LruCache<Digest, LastCaller>>,
    /// By the place of their issuer.
    keys: Mutex<Vec<Option<Read>>>,
    wanted: Notify,
    /// Last verification for an address with many failures.
    suspected: Mutex<Option<Tick>>,
}

impl Default for Jwts {
    fn default() -> Self {
        Self {
            known: Mutex::new(LruCache::new(KNOWN_MAX)),
            keys: Mutex::default(),
            wanted: Notify::new(),
            suspected: Mutex::default(),
        }
    }
}

impl Jwts {
    /// The tenant of a token of a moment ago.
    pub(super) fn tenant(&self, digest: &Digest) -> Option<TenantId> {
        self.known.lock().peek(digest).map(|(_, identity)| identity.tenant)
    }
}

impl Identities {
    /// Issuers, in the order by which [`Identities::set_keys`] takes their keys.
    #[must_use]
    pub fn issuers(&self) -> Vec<Issuer> {
        self.credentials.mapping().map(|mapping| mapping.auth.issuers.clone()).unwrap_or_default()
    }

    /// These are an issuer's keys from now on. Tokens signed by others do not hold any more.
    pub fn set_keys(&self, issuer: usize, keys: Keys) {
        let jwts = &self.credentials.jwts;
        let mut all = jwts.keys.lock();
        if all.len() <= issuer {
            all.resize(issuer + 1, None);
        }
        let is_new = all[issuer].as_ref().is_none_or(|(before, _)| **before != keys);
        all[issuer] = Some((Arc::new(keys), self.server.clock.tick()));
        drop(all);
        if is_new {
            jwts.known.lock().clear();
        }
    }

    /// Done once a token with an unknown key is presented: its issuer may have new ones.
    pub async fn wait_for_unknown_key(&self) {
        self.credentials.jwts.wanted.notified().await;
    }

    pub(super) fn by_jwt(&self, text: &str, from: Option<IpAddr>) -> Result<Arc<Identity>, CredentialRejection> {
        let jwts = &self.credentials.jwts;
        let digest: Digest = Sha256::digest(text.as_bytes()).into();
        let now = self.store.now();
        if let Some((last, identity)) = jwts.known.lock().get(&digest)
            && *last == from
        {
            let holds = identity.until.is_some_and(|until| now < until);
            return if holds {
                Ok(Arc::clone(identity))
            } else {
                Err(CredentialRejection::Unknown("the JWT has expired"))
            };
        }
        // Verification costs processor time: it is rare for addresses with many failures.
        if let Some(wait) = self.credentials.failures.wait(&self.server.clock, from) {
            let mut suspected = jwts.suspected.lock();
            if suspected.is_some_and(|last| self.server.clock.elapsed_since(last) < SUSPECTED_EVERY) {
                return Err(CredentialRejection::TooMany(wait));
            }
            *suspected = Some(self.server.clock.tick());
        }
        let mapping = self.credentials.mapping().ok_or(CredentialRejection::Unknown("no issuer is known"))?;
        let place = jwt::issuer(&mapping.auth.issuers, text)
            .ok_or(CredentialRejection::Unknown("the JWT's issuer is not known"))?;
        let keys = jwts.keys.lock().get(place).cloned().flatten();
        let keys = keys
            .filter(|(_, read)| self.server.clock.elapsed_since(*read) < KEYS_HOLD)
            .ok_or(CredentialRejection::Unchecked)?
            .0;
        if keys.lacks(text) {
            jwts.wanted.notify_waiters();
        }
        let known =
            jwt::verify(&mapping.auth.issuers[place], &keys, text, now).map_err(CredentialRejection::Unknown)?;
        let tenant = mapping
            .tenants
            .get(&known.is.tenant)
            .ok_or(CredentialRejection::Unknown("the JWT's tenant does not exist"))?;
        let credential = CredentialId::Jwt(format!("{} {}", mapping.auth.issuers[place].issuer, known.subject));
        let from_text = from.map(|from| from.to_canonical().to_string());
        let identity = Identity { until: Some(known.until), ..known.is.identity(*tenant, credential, from_text) };
        let identity = Arc::new(identity);
        jwts.known.lock().put(digest, (from, Arc::clone(&identity)));
        Ok(identity)
    }
}
