//! Tokens of issuers (JWT, as OIDC and Kubernetes give them): signature, claims, and the identity by the mapping of the
//! server's configuration. Only signatures with public keys are known, so that no key of this server can make one.

use std::{collections::BTreeMap, path::PathBuf};

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, Header, Validation,
    dangerous::insecure_decode_claims,
    decode, decode_header,
    jwk::{Jwk, JwkSet, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use serde_json::{Map, Value, value::RawValue};

use super::provider;
use callgate_core::domain::{identity::MappedIdentity, json, pattern::Pattern, time::Timestamp};

/// The longest that is read.
pub const BYTES_MAX: usize = 16 << 10;
/// Allowed skew of issuers' clocks, in seconds: for `nbf` alone, since an expired token stays expired.
const AHEAD_S: i64 = 30;
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Source of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySetSource {
    /// A file, such as one that a sidecar keeps.
    File(PathBuf),
    /// A URL, with the settings to read it.
    Url {
        /// `https://…`.
        url: String,
        /// The authority of its certificate, where that is none of the public ones.
        ca: Option<PathBuf>,
        /// A file with a token to be shown, as the API server of Kubernetes wants it.
        bearer: Option<PathBuf>,
    },
}

/// An issuer that is believed.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// Its name, as its tokens claim it.
    pub issuer: String,
    /// The required audience of its tokens: this server.
    pub audience: String,
    /// Its keys.
    pub keys: KeySetSource,
    /// Mapping of its tokens to identities.
    pub rules: Vec<ClaimRule>,
    /// Sign-in to the console by this issuer; none without one.
    pub sign_in: Option<SignIn>,
}

/// Sign-in by an issuer (OpenID Connect, the authorization code with PKCE).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    /// Text of the button.
    pub label: String,
    /// Redirect URL: `https://HOST/sign-in/callback`, as it is registered at the issuer.
    pub redirect: String,
    /// Requested scopes, `openid` among them.
    pub scopes: String,
    /// A file with the secret of this client; none for one that has none.
    pub secret: Option<PathBuf>,
    /// The authority of the issuer's certificate, where that is none of the public ones.
    pub ca: Option<PathBuf>,
}

/// One line of an issuer's mapping.
#[derive(Debug, Clone)]
pub struct ClaimRule {
    /// The claims that a token must have: a path (`kubernetes.io/namespace`), and a pattern of its value.
    pub claims: BTreeMap<String, Pattern>,
    /// The mapped identity; an empty name is the token's `sub`.
    pub is: MappedIdentity,
}

/// An issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys(JwkSet);

impl Keys {
    /// Reads a key set (RFC 7517).
    ///
    /// # Errors
    /// The fault of the text.
    pub fn read(text: &str) -> Result<Self, String> {
        let keys: JwkSet = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if keys.keys.is_empty() { Err("it has no key".to_owned()) } else { Ok(Self(keys)) }
    }

    fn find(&self, kid: Option<&str>) -> Option<&Jwk> {
        match (kid, self.0.keys.as_slice()) {
            (Some(kid), _) => self.0.find(kid),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// The key of this header, where its issuer has published it for such signatures.
    fn verifying(&self, header: &Header) -> Option<DecodingKey> {
        let key = self.find(header.kid.as_deref())?;
        let of = &key.common;
        let is_for_signatures = matches!(of.public_key_use, None | Some(PublicKeyUse::Signature))
            && of.key_operations.as_ref().is_none_or(|may| may.contains(&KeyOperations::Verify));
        let is_for_this_one = of.key_algorithm.is_none_or(|alg| alg == KeyAlgorithm::from(header.alg));
        let key = DecodingKey::from_jwk(key).ok().filter(|key| key.family() != AlgorithmFamily::Hmac);
        key.filter(|_| is_for_signatures && is_for_this_one)
    }

    /// True when there is none of this token's: its issuer may have changed them.
    #[must_use]
    pub fn lacks(&self, token: &str) -> bool {
        decode_header(token).is_ok_and(|header| self.find(header.kid.as_deref()).is_none())
    }
}

/// Identity by a token, with its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The mapped identity.
    pub is: MappedIdentity,
    /// Its `sub`.
    pub subject: String,
    /// Its `exp`.
    pub until: Timestamp,
}

/// Could it be a token of an issuer?
#[must_use]
pub fn is_one(text: &str) -> bool {
    text.len() <= BYTES_MAX && text.split('.').count() == 3 && decode_header(text).is_ok()
}

/// Index of the issuer that a token names, without verification.
#[must_use]
pub fn issuer(issuers: &[Issuer], token: &str) -> Option<usize> {
    let claims: Map<String, Value> = insecure_decode_claims(token).ok()?;
    let named = claims.get("iss")?.as_str()?;
    issuers.iter().position(|issuer| issuer.issuer == named)
}

/// Text of a token's claim of this name, if it is one. The signature is not verified.
#[must_use]
pub fn read_claim(token: &str, name: &str) -> Option<String> {
    let claims: Map<String, Value> = insecure_decode_claims(token).ok()?;
    claims.get(name)?.as_str().map(str::to_owned)
}

/// Checks a token of this issuer.
///
/// # Errors
/// The reason why it does not hold, for the log.
pub fn verify(issuer: &Issuer, keys: &Keys, token: &str, now: Timestamp) -> Result<VerifiedToken, &'static str> {
    provider::install();
    let header = decode_header(token).map_err(|_| "the JWT has no header that can be read")?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err("the JWT is signed in a way that is not accepted");
    }
    // None is understood here (RFC 7515, 4.1.11).
    if header.crit.is_some() {
        return Err("the JWT has an extension that has to be understood");
    }
    let key = keys.verifying(&header).ok_or("the JWT's key is none of its issuer's for such a signature")?;
    // Times are checked below, by the database's clock; so are all other claims.
    let mut signature = Validation::new(header.alg);
    signature.required_spec_claims.clear();
    (signature.validate_exp, signature.validate_nbf, signature.validate_aud) = (false, false, false);
    let claims: Box<RawValue> = decode(token, &key, &signature).map_err(|_| "the JWT's signature is wrong")?.claims;
    // Readers differ in which of two claims of one name they take.
    json::parse(claims.get()).map_err(|_| "the JWT's claims are no JSON that has each name once")?;
    let claims: Map<String, Value> =
        serde_json::from_str(claims.get()).map_err(|_| "the JWT's claims are no object")?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(&issuer.issuer) {
        return Err("the JWT is of another issuer");
    }
    let is_for_us = match claims.get("aud") {
        Some(Value::String(one)) => *one == issuer.audience,
        Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(&issuer.audience)),
        _ => false,
    };
    if !is_for_us {
        return Err("the JWT is for another audience");
    }
    let seconds = now.as_millis().div_euclid(1_000);
    let until = claims.get("exp").and_then(seconds_of).ok_or("the JWT does not say when it expires")?;
    if until <= seconds {
        return Err("the JWT has expired");
    }
    match claims.get("nbf").map(seconds_of) {
        Some(None) => return Err("the JWT's nbf is no time"),
        Some(Some(from)) if from > seconds.saturating_add(AHEAD_S) => return Err("the JWT does not hold yet"),
        _ => {}
    }
    let subject = text("sub").filter(|subject| !subject.is_empty()).ok_or("the JWT has no subject")?;
    let fits = |rule: &&ClaimRule| rule.claims.iter().all(|(path, wanted)| claims_at(&claims, path, wanted));
    let rule = issuer.rules.iter().find(fits).ok_or("no line of the mapping fits the JWT's claims")?;
    let until = Timestamp::from_millis(until.saturating_mul(1_000));
    Ok(VerifiedToken { is: rule.is.clone().with_default_name(subject), subject: subject.to_owned(), until })
}

/// A time of RFC 7519, in whole seconds.
fn seconds_of(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds.floor() as i64))
}

/// True when the value at this path, or one of several there, fits.
fn claims_at(claims: &Map<String, Value>, path: &str, wanted: &Pattern) -> bool {
    let fits = |value: &Value| match value {
        Value::String(text) => wanted.matches(text),
        Value::Bool(_) | Value::Number(_) => wanted.matches(&value.to_string()),
        _ => false,
    };
    let mut parts = path.split('/');
    let first = parts.next().and_then(|name| claims.get(name));
    // A name may have a slash itself, as `example.org/team` has.
    let found = claims.get(path).or_else(|| parts.try_fold(first?, |value, name| value.get(name)));
    match found {
        Some(Value::Array(several)) => several.iter().any(fits),
        Some(value) => fits(value),
        None => false,
    }
}
