//! Cache of credentials on this replica. A token is read once and then, while it is in use, again each second. An older
//! read does not hold, so that a revocation holds everywhere within two seconds. A token that cannot be read is
//! rejected.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lru::LruCache;
use parking_lot::{Mutex, RwLock};
use tokio::{sync::Semaphore, time::timeout};

use super::{Identities, NoAnswer, failures::Failures, jwts::Jwts};
use crate::auth::{certificate, file::Auth, jwt, token};
use callgate_core::domain::{
    identity::{CredentialId, Identity},
    ids::TenantId,
    token::StoredToken,
};
use callgate_net::clock::{Clock, Tick};

/// Longest age of a token's row that is relied on. With the time of a read it stays below two seconds.
const HOLDS: Duration = Duration::from_millis(1_800);
/// A token that is not presented for so long is evicted.
const UNUSED: Duration = Duration::from_secs(60);
/// Tokens that are remembered.
const KNOWN_MAX: usize = 10_000;
/// Limit on concurrent reads of presented tokens, and the longest wait of others.
const LOOKS_MAX: usize = 2;
const LOOK_WAIT: Duration = Duration::from_secs(1);
/// Limit and lifetime of remembered ids without a token.
const MISSING_MAX: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
const MISSING: Duration = Duration::from_secs(10);
const NO_SUCH: &str = "there is no such token";
/// Interval at which the last uses of tokens are stored.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// A credential as a caller presents it.
#[derive(Debug, Clone, Copy)]
pub enum PresentedCredential<'a> {
    /// No credential.
    Nothing,
    /// Something that is none, such as two at once.
    Wrong,
    /// A token.
    Bearer(&'a str),
    /// A certificate that the listener has verified, by the names in it.
    Certificate {
        /// Its DNS names.
        dns: &'a [String],
        /// Its URIs, SPIFFE ids among them.
        uris: &'a [String],
    },
}

/// Reasons to reject a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialRejection {
    /// The credential does not hold; why is for the log.
    #[error("{0}")]
    Unknown(&'static str),
    /// It cannot be checked now.
    #[error("credentials cannot be checked: the database is unavailable")]
    Unchecked,
    /// Too many that came from there did not hold: to be tried again after so long.
    #[error("too many credentials from this address were invalid")]
    TooMany(Duration),
}

/// Cache of credentials on this replica.
#[derive(Debug)]
pub(super) struct Credentials {
    tokens: RwLock<BTreeMap<String, Arc<CachedCredential>>>,
    /// True once a token was made: from then on one is needed, also when the last one has ended.
    any: AtomicBool,
    mapping: RwLock<Option<Arc<Mapping>>>,
    looks: Semaphore,
    /// For addresses from which many did not hold.
    suspected_looks: Semaphore,
    /// Ids of unknown tokens, and when they were read.
    missing: Mutex<LruCache<String, Tick>>,
    noted: Mutex<Option<Tick>>,
    pub(super) failures: Failures,
    pub(super) jwts: Jwts,
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            tokens: RwLock::default(),
            any: AtomicBool::default(),
            mapping: RwLock::default(),
            looks: Semaphore::new(LOOKS_MAX),
            suspected_looks: Semaphore::new(1),
            missing: Mutex::new(LruCache::new(MISSING_MAX)),
            noted: Mutex::default(),
            failures: Failures::default(),
            jwts: Jwts::default(),
        }
    }
}

/// Mapping of other credentials than tokens to identities, with the tenants by name.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) auth: Auth,
    pub(super) tenants: BTreeMap<String, TenantId>,
}

#[derive(Debug)]
struct CachedCredential {
    token: StoredToken,
    seen: Mutex<TokenUse>,
}

/// Last read and last use of a token, and its last caller: most callers keep their address.
#[derive(Debug)]
struct TokenUse {
    read: Tick,
    used: Tick,
    is_noted: bool,
    last: Option<(Option<IpAddr>, Arc<Identity>)>,
}

impl Credentials {
    fn get(&self, id: &str) -> Option<Arc<CachedCredential>> {
        self.tokens.read().get(id).cloned()
    }

    /// The tenant of a token that is cached here.
    pub(super) fn tenant(&self, id: &str) -> Option<TenantId> {
        self.get(id).map(|known| known.token.tenant)
    }

    pub(super) fn forget(&self, id: &str) {
        self.tokens.write().remove(id);
    }

    /// The rejection of a token that does not hold after a read: there is none, or the read was so slow that it is old.
    fn reject_read(&self, id: &str, no_such: CredentialRejection) -> CredentialRejection {
        if self.get(id).is_some() { CredentialRejection::Unchecked } else { no_such }
    }

    /// True for an id that was read a moment ago and is unknown.
    fn is_missing(&self, clock: &Clock, id: &str) -> bool {
        self.missing.lock().get(id).is_some_and(|looked| clock.elapsed_since(*looked) < MISSING)
    }

    pub(super) fn made_one(&self) {
        self.any.store(true, Ordering::Release);
    }

    pub(super) fn mapping(&self) -> Option<Arc<Mapping>> {
        self.mapping.read().clone()
    }
}

impl Identities {
    /// True when a credential is required.
    #[must_use]
    pub fn wants_credentials(&self) -> bool {
        self.credentials.any.load(Ordering::Acquire) || self.credentials.mapping().is_some()
    }

    /// The identity of a credential from the cache; none when it has to be read. `from` is the caller's address.
    #[must_use]
    pub fn identity(
        &self,
        shown: PresentedCredential<'_>,
        from: Option<IpAddr>,
    ) -> Option<Result<Arc<Identity>, CredentialRejection>> {
        match shown {
            PresentedCredential::Nothing => Some(Err(CredentialRejection::Unknown("no credential was shown"))),
            PresentedCredential::Wrong => Some(Err(CredentialRejection::Unknown("what was shown is no credential"))),
            PresentedCredential::Certificate { dns, uris } => Some(self.by_certificate(dns, uris, from)),
            PresentedCredential::Bearer(text) => self.by_token(text, from),
        }
    }

    /// As [`Identities::identity`], for a credential that has to be read.
    ///
    /// # Errors
    /// [`CredentialRejection`].
    pub async fn looked_up(&self, text: &str, from: Option<IpAddr>) -> Result<Arc<Identity>, CredentialRejection> {
        let Some(shown) = token::read(text) else {
            return Err(CredentialRejection::Unknown("no token of callgate's was shown"));
        };
        let failed = self.credentials.failures.wait(&self.server.clock, from);
        // Addresses with many failures take turns with each other, and keep no others waiting. A valid credential is
        // let in all the same: many may share an address.
        let (looks, late) = match failed {
            Some(wait) if self.credentials.is_missing(&self.server.clock, shown.id) => {
                return Err(CredentialRejection::TooMany(wait));
            }
            Some(wait) => (&self.credentials.suspected_looks, CredentialRejection::TooMany(wait)),
            None => (&self.credentials.looks, CredentialRejection::Unchecked),
        };
        let _turn = timeout(LOOK_WAIT, looks.acquire()).await.map_err(|_| late)?;
        // The holder of the turn before may have read it too.
        if let Some(known) = self.by_token(text, from) {
            return known;
        }
        self.read_tokens(Some(shown.id)).await.map_err(|_| CredentialRejection::Unchecked)?;
        if let Some(known) = self.by_token(text, from) {
            return known;
        }
        let no_such = failed.map_or(CredentialRejection::Unknown(NO_SUCH), CredentialRejection::TooMany);
        let rejection = self.credentials.reject_read(shown.id, no_such);
        if rejection != CredentialRejection::Unchecked {
            self.credentials.missing.lock().put(shown.id.to_owned(), self.server.clock.tick());
        }
        Err(rejection)
    }

    /// Notes that a credential from there did not hold.
    pub fn count_rejection(&self, from: Option<IpAddr>) {
        self.credentials.failures.count_failure(&self.server.clock, from);
    }

    /// Counts a new sign-in by an issuer from this address: the caller is unknown, and the issuer is asked.
    ///
    /// # Errors
    /// [`CredentialRejection::TooMany`].
    pub fn may_sign_in(&self, from: Option<IpAddr>) -> Result<(), CredentialRejection> {
        let wait = self.credentials.failures.wait(&self.server.clock, from);
        self.count_rejection(from);
        wait.map_or(Ok(()), |wait| Err(CredentialRejection::TooMany(wait)))
    }

    /// Does the credential still hold, of which this identity came?
    ///
    /// # Errors
    /// [`CredentialRejection`].
    pub async fn still(&self, identity: &Identity) -> Result<(), CredentialRejection> {
        match &identity.credential {
            CredentialId::Local if self.wants_credentials() => {
                Err(CredentialRejection::Unknown("credentials are needed by now"))
            }
            CredentialId::Token(id) => {
                if self.find_cached_token(id).is_none() {
                    self.read_tokens(Some(id)).await.map_err(|_| CredentialRejection::Unchecked)?;
                }
                let known = self
                    .find_cached_token(id)
                    .ok_or_else(|| self.credentials.reject_read(id, CredentialRejection::Unknown(NO_SUCH)))?;
                known
                    .token
                    .rejection_reason(self.store.now())
                    .map_or(Ok(()), |why| Err(CredentialRejection::Unknown(why)))
            }
            CredentialId::Jwt(_) if identity.until.is_none_or(|until| until <= self.store.now()) => {
                Err(CredentialRejection::Unknown("the JWT has expired"))
            }
            CredentialId::Local | CredentialId::Certificate(_) | CredentialId::Jwt(_) | CredentialId::Slack(_) => {
                Ok(())
            }
        }
    }

    /// The identity of a certificate.
    fn by_certificate(
        &self,
        dns: &[String],
        uris: &[String],
        from: Option<IpAddr>,
    ) -> Result<Arc<Identity>, CredentialRejection> {
        let mapping = self.credentials.mapping().ok_or(CredentialRejection::Unknown("no certificate is mapped"))?;
        let Mapping { auth, tenants } = &*mapping;
        let (is, by) = certificate::map_certificate(&auth.certificates, dns, uris)
            .ok_or(CredentialRejection::Unknown("no name in the certificate is mapped"))?;
        let tenant =
            tenants.get(&is.tenant).ok_or(CredentialRejection::Unknown("the certificate's tenant does not exist"))?;
        Ok(Arc::new(is.identity(*tenant, CredentialId::Certificate(by), log_rejection(from))))
    }

    fn by_token(&self, text: &str, from: Option<IpAddr>) -> Option<Result<Arc<Identity>, CredentialRejection>> {
        let shown = match token::read(text) {
            Some(shown) => shown,
            None if jwt::is_one(text) => return Some(self.by_jwt(text, from)),
            None => return Some(Err(CredentialRejection::Unknown("no token of callgate's was shown"))),
        };
        let known = self.find_cached_token(shown.id)?;
        if !token::is_same(&known.token.digest, &shown.digest) {
            return Some(Err(CredentialRejection::Unknown("the token's secret is wrong")));
        }
        if let Some(why) = known.token.rejection_reason(self.store.now()) {
            return Some(Err(CredentialRejection::Unknown(why)));
        }
        let mut seen = known.seen.lock();
        seen.is_noted = false;
        if let Some((last, identity)) = &seen.last
            && *last == from
        {
            return Some(Ok(Arc::clone(identity)));
        }
        let identity = Arc::new(known.token.identity(log_rejection(from)));
        seen.last = Some((from, Arc::clone(&identity)));
        drop(seen);
        Some(Ok(identity))
    }

    /// A token that was read a moment ago, and is in use.
    fn find_cached_token(&self, id: &str) -> Option<Arc<CachedCredential>> {
        let known = self.credentials.get(id)?;
        let mut seen = known.seen.lock();
        seen.used = self.server.clock.tick();
        let is_fresh = self.server.clock.elapsed_since(seen.read) < HOLDS;
        drop(seen);
        is_fresh.then_some(known)
    }

    /// Reads the credentials in use, as every replica does each second, and stores their last uses.
    ///
    /// # Errors
    /// [`NoAnswer`]: the former reads hold for a moment, and are rejected then.
    pub async fn read_credentials(&self) -> Result<(), NoAnswer> {
        self.read_tokens(None).await?;
        if let Some(mapping) = self.credentials.mapping() {
            self.map(mapping.auth.clone()).await?;
        }
        self.note_use().await
    }

    /// Knows callers by this from now on.
    ///
    /// # Errors
    /// [`NoAnswer`]: nothing has changed.
    pub async fn map(&self, auth: Auth) -> Result<(), NoAnswer> {
        let names: Vec<String> = auth.tenants().into_iter().map(str::to_owned).collect();
        let tenants = self.store.find_tenants(&names).await?;
        *self.credentials.mapping.write() = Some(Arc::new(Mapping { auth, tenants }));
        Ok(())
    }

    async fn read_tokens(&self, also: Option<&str>) -> Result<(), NoAnswer> {
        let started = self.server.clock.tick();
        let mut ids: Vec<String> = {
            let mut known = self.credentials.tokens.write();
            known.retain(|_, known| self.server.clock.elapsed_since(known.seen.lock().used) < UNUSED);
            known.keys().cloned().collect()
        };
        // One that is cached and too old is read like any other, and once.
        ids.extend(also.filter(|also| !ids.iter().any(|id| id == also)).map(str::to_owned));
        let (read, any) = self.store.tokens_by_id(&ids).await?;
        self.credentials.any.fetch_or(any, Ordering::AcqRel);
        let mut read: BTreeMap<String, StoredToken> = read.into_iter().map(|token| (token.id.clone(), token)).collect();
        let mut known = self.credentials.tokens.write();
        for id in ids {
            match (read.remove(&id), known.get(&id)) {
                (None, _) => drop(known.remove(&id)),
                (Some(token), Some(before)) if is_as_before(&token, &before.token) => {
                    // A later read may have ended before this one.
                    let seen = &mut before.seen.lock().read;
                    *seen = started.max(*seen);
                }
                (Some(token), _) => {
                    let seen = Mutex::new(TokenUse { read: started, used: started, is_noted: true, last: None });
                    known.insert(id, Arc::new(CachedCredential { token, seen }));
                }
            }
        }
        while known.len() > KNOWN_MAX {
            known.pop_first();
        }
        Ok(())
    }

    /// Stores which tokens were used since it was stored last.
    async fn note_use(&self) -> Result<(), NoAnswer> {
        {
            let mut noted = self.credentials.noted.lock();
            if noted.is_some_and(|noted| self.server.clock.elapsed_since(noted) < NOTE_EVERY) {
                return Ok(());
            }
            *noted = Some(self.server.clock.tick());
        }
        let used: Vec<String> = {
            let known = self.credentials.tokens.read();
            let is_new = |known: &CachedCredential| !std::mem::replace(&mut known.seen.lock().is_noted, true);
            known.iter().filter(|(_, known)| is_new(known)).map(|(id, _)| id.clone()).collect()
        };
        if used.is_empty() { Ok(()) } else { Ok(self.store.touch_tokens(&used).await?) }
    }
}

/// But for when it was used, which changes all the time.
fn is_as_before(token: &StoredToken, before: &StoredToken) -> bool {
    StoredToken { used_at: before.used_at, ..token.clone() } == *before
}

fn log_rejection(from: Option<IpAddr>) -> Option<String> {
    from.map(|from| from.to_canonical().to_string())
}
