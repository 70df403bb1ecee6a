//! Console sessions. The browser keeps 192 random bits and their code in a cookie that no script reads. The database
//! keeps the sign-in credential, encrypted under a key derived from them, and their hash. A session thus holds on every
//! replica and can be ended, and a reader of the table can use no credential in it. A cookie with a wrong code was made
//! by no server and is not queried: strangers cost the database nothing.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use hmac::{Hmac, Mac as _};
use http::{HeaderMap, HeaderValue, header};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::visitor::ResolvedIdentity;
use crate::gate::{Identities, NoAnswer};
use callgate_core::domain::{
    audit::{AuditEvent, AuditOperation},
    time::Timestamp,
};

/// A session ends after so long without activity. (OWASP's session management cheat sheet has 15 to 30 minutes for the
/// most valuable data, and an hour or two else; an approver has a page open, and is inactive for long.)
pub(super) const IDLE: Duration = Duration::from_secs(3_600);
/// And after so long in any case: a working day.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 3_600);

/// Longest time for a sign-in by an issuer.
pub(super) const SIGN_IN: Duration = Duration::from_secs(600);
/// Cookie of a sign-in in progress.
const SIGN_IN_COOKIE: &str = "__Host-callgate-sign-in";

/// The prefix holds browsers to `Secure`, to the path `/`, and to this very host.
const COOKIE: &str = "__Host-callgate";
/// Its name in the audit log.
const CONSOLE: &str = "the console";
const SECRET_BYTES: usize = 32;
/// Of these, those that are drawn; the others are their code.
const RANDOM_BYTES: usize = 24;
const NONCE_BYTES: usize = 24;

/// Credential of the sign-in, which is presented with each request since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SignInCredential {
    /// An API token, or an issuer's.
    Bearer(String),
    /// A name, to a server that knows no credentials.
    Name(String),
    /// The certificate of the connection.
    Certificate,
}

/// A sign-in by an issuer in progress, as the browser keeps it.
pub(super) struct PendingSignIn {
    pub(super) secret: Secret,
    /// The issuer's.
    pub(super) place: usize,
    /// Start of the sign-in, as the browser says.
    pub(super) at: Timestamp,
    /// Path to go on with.
    pub(super) next: String,
}

/// Secret of a console session, which the browser keeps.
pub(super) struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    /// A new one, with a code by the servers' key.
    pub(super) fn new(key: &[u8]) -> Result<Self, NoAnswer> {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        let no_random = |error| NoAnswer::Fault(format!("no random bytes: {error}"));
        getrandom::fill(&mut secret[..RANDOM_BYTES]).map_err(no_random)?;
        let code = mac(key, &secret[..RANDOM_BYTES]);
        secret[RANDOM_BYTES..].copy_from_slice(&code[..SECRET_BYTES - RANDOM_BYTES]);
        Ok(Self(secret))
    }

    /// The one that a browser shows, if a server has made it.
    pub(super) fn from_headers(headers: &HeaderMap, key: &[u8]) -> Option<Self> {
        Self::read(cookie(headers, COOKIE)?, key)
    }

    fn read(text: &str, key: &[u8]) -> Option<Self> {
        let read = Zeroizing::new(BASE64.decode(text).ok()?);
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        secret.copy_from_slice(<&[u8; SECRET_BYTES]>::try_from(&read[..]).ok()?);
        let (random, code) = secret.split_at(RANDOM_BYTES);
        bool::from(mac(key, random)[..code.len()].ct_eq(code)).then_some(Self(secret))
    }

    fn id(&self) -> [u8; 32] {
        self.derive_key(b"id")
    }

    /// CSRF token of this session's forms, so that no other site's form is taken for one of ours.
    pub(super) fn csrf(&self) -> String {
        self.text(b"csrf")
    }

    /// Is this the CSRF token of the session?
    pub(super) fn is_csrf(&self, given: &str) -> bool {
        is_equal_constant_time(&self.csrf(), given)
    }

    /// A text that only a holder of this secret can derive.
    pub(super) fn text(&self, label: &[u8]) -> String {
        text(&self.derive_key(label))
    }

    /// The cookie header of a sign-in in progress: secret, place of the issuer, start, and path to go on with. An
    /// issuer's page leads back, so it is sent on navigation from other sites.
    pub(super) fn of_sign_in(&self, place: usize, at: Timestamp, next: &str) -> Option<HeaderValue> {
        let value = format!("{}.{place}.{}.{}", text(&self.0[..]), at.as_millis(), text(next.as_bytes()));
        let how = format!("Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={}", SIGN_IN.as_secs());
        let mut value = HeaderValue::from_str(&format!("{SIGN_IN_COOKIE}={value}; {how}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The header by which a browser forgets that.
    pub(super) fn no_sign_in() -> Option<HeaderValue> {
        let how = "Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0";
        HeaderValue::from_str(&format!("{SIGN_IN_COOKIE}=; {how}")).ok()
    }

    /// Reads the sign-in in progress from its cookie.
    pub(super) fn read_sign_in(headers: &HeaderMap, key: &[u8]) -> Option<PendingSignIn> {
        let [secret, place, at, next]: [&str; 4] =
            cookie(headers, SIGN_IN_COOKIE)?.split('.').collect::<Vec<_>>().try_into().ok()?;
        let next = String::from_utf8(BASE64.decode(next).ok()?).ok()?;
        let at = Timestamp::from_millis(at.parse().ok()?);
        Some(PendingSignIn { secret: Self::read(secret, key)?, place: place.parse().ok()?, at, next })
    }

    fn derive_key(&self, label: &[u8]) -> [u8; 32] {
        mac(&self.0[..], label)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&self.derive_key(b"credential")).into())
    }

    fn seal(&self, showed: &SignInCredential) -> Option<Vec<u8>> {
        let text = Zeroizing::new(serde_json::to_vec(showed).ok()?);
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).ok()?;
        let payload = Payload { msg: &text, aad: &self.id() };
        let sealed = self.cipher().encrypt(&XNonce::from(nonce), payload).ok()?;
        Some([&nonce[..], &sealed].concat())
    }

    fn open(&self, sealed: &[u8]) -> Option<SignInCredential> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: &self.id() };
        let text = Zeroizing::new(self.cipher().decrypt(&XNonce::from(*nonce), payload).ok()?);
        serde_json::from_slice(&text).ok()
    }

    /// The cookie header of a secret, until the browser is closed; without a secret, the one that deletes the cookie.
    pub(super) fn cookie(secret: Option<&Self>) -> Option<HeaderValue> {
        let (value, age) = secret.map_or((String::new(), "; Max-Age=0"), |secret| (BASE64.encode(&secret.0[..]), ""));
        let mut value =
            HeaderValue::from_str(&format!("{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{age}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    mac.update(text);
    mac.finalize().into_bytes().into()
}

fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Are they the same, compared in constant time?
pub(super) fn is_equal_constant_time(own: &str, given: &str) -> bool {
    bool::from(own.as_bytes().ct_eq(given.as_bytes()))
}

/// Bytes as cookies and URLs take them.
pub(super) fn text(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Begins a session for an authenticated credential.
pub(super) async fn begin(
    identities: &Identities,
    showed: &SignInCredential,
    known: &ResolvedIdentity,
) -> Result<Secret, NoAnswer> {
    let secret = Secret::new(identities.store.console_key())?;
    let sealed = secret.seal(showed).ok_or_else(|| NoAnswer::Fault("a session could not be encrypted".to_owned()))?;
    let (tenant, by) = known.actor();
    let event = AuditEvent::new(AuditOperation::SignedIn, by, CONSOLE);
    identities.store.put_console_session((&secret.id(), &sealed, LASTS), tenant, &event).await?;
    Ok(secret)
}

/// The credential of the session with this secret; none once it has ended. `is_active` for an action of the user, as
/// opposed to a page that refreshes itself.
pub(super) async fn find(
    identities: &Identities,
    secret: &Secret,
    is_active: bool,
) -> Result<Option<SignInCredential>, NoAnswer> {
    let (store, id) = (&identities.operators, secret.id());
    let found = store.console_session(&id, IDLE).await?;
    if is_active && found.as_ref().is_some_and(|found| found.is_quiet) {
        store.touch_console_session(&id).await?;
    }
    Ok(found.and_then(|found| secret.open(&found.sealed)))
}

/// Signs them out, on every replica.
pub(super) async fn end(identities: &Identities, secret: &Secret, known: &ResolvedIdentity) -> Result<(), NoAnswer> {
    let (tenant, by) = known.actor();
    let event = AuditEvent::new(AuditOperation::SignedOut, by, CONSOLE);
    Ok(identities.store.end_console_session(&secret.id(), tenant, &event).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"of all servers";

    fn to_cookie_headers(value: &HeaderValue) -> HeaderMap {
        let text = value.to_str().unwrap();
        let (pair, _) = text.split_once(';').unwrap();
        HeaderMap::from_iter([(header::COOKIE, format!("other=1; {pair}; more=2").parse().unwrap())])
    }

    #[test]
    fn cookie_is_opened_by_the_secret_of_its_session_alone() {
        let (one, other) = (Secret::new(KEY).unwrap(), Secret::new(KEY).unwrap());
        let showed = SignInCredential::Bearer("cg_admin_x".to_owned());
        let sealed = one.seal(&showed).unwrap();
        assert!(!sealed.windows(8).any(|part| part == b"cg_admin"), "in the clear");
        assert_eq!(one.open(&sealed), Some(showed));
        assert_eq!(other.open(&sealed), None);
        let mut changed = sealed;
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(one.open(&changed), None);
        assert_eq!(one.open(b"short"), None);
    }

    #[test]
    fn a_browser_shows_what_it_keeps_and_scripts_and_other_sites_do_not_have_it() {
        let secret = Secret::new(KEY).unwrap();
        let cookie = Secret::cookie(Some(&secret)).unwrap();
        let text = cookie.to_str().unwrap();
        for word in ["; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert_eq!(Secret::from_headers(&to_cookie_headers(&cookie), KEY).unwrap().id(), secret.id());
        assert!(!text.contains(&BASE64.encode(secret.id())), "what is stored is no way in");
        let gone = Secret::cookie(None).unwrap();
        assert!(
            gone.to_str().unwrap().contains("Max-Age=0")
                && Secret::from_headers(&to_cookie_headers(&gone), KEY).is_none()
        );
    }

    #[test]
    fn a_cookie_that_no_server_has_made_is_none() {
        let cookie = Secret::cookie(Some(&Secret::new(KEY).unwrap())).unwrap();
        assert!(Secret::from_headers(&to_cookie_headers(&cookie), b"of others").is_none());
        let drawn = Secret(Zeroizing::new([7; SECRET_BYTES]));
        assert!(Secret::from_headers(&to_cookie_headers(&Secret::cookie(Some(&drawn)).unwrap()), KEY).is_none());
    }

    #[test]
    fn a_form_of_another_session_is_none_of_ours() {
        let (one, other) = (Secret::new(KEY).unwrap(), Secret::new(KEY).unwrap());
        assert!(one.is_csrf(&one.csrf()));
        assert!(!one.is_csrf(&other.csrf()) && !one.is_csrf(""));
    }
}
