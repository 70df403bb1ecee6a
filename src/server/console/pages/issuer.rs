//! `/sign-in/with/{issuer}` and `/sign-in/callback`: sign-in by an issuer of tokens (OpenID Connect, the authorization
//! code with PKCE, RFC 7636). It results in the issuer's ID token, presented with each request from then on like any
//! other: the mapping of `--auth` gives its identity, and the session ends with it.

use askama::Template;
use axum::{
    Router,
    extract::{FromRequestParts, Path, Query, State},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use serde::Deserialize;
use url::{Url, form_urlencoded};

use crate::{
    auth::{
        file::CALLBACK,
        jwt::{Issuer, SignIn, read_claim},
    },
    console::{
        Console,
        fault::PageError,
        session::{self, PendingSignIn, SIGN_IN, Secret, SignInCredential, is_equal_constant_time},
        visitor::{BrowserCredential, ResolvedIdentity, is_here},
    },
};
use callgate_core::domain::time::Timestamp;
use callgate_net::outgoing::{self, HttpRequest};

/// Longest answer of an issuer, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

pub(super) fn router() -> Router<Console> {
    Router::new().route("/sign-in/with/{issuer}", get(leave)).route(CALLBACK, get(finish_sign_in))
}

/// Those by which people sign in, with their places.
pub(super) fn list_issuers(console: &Console) -> Vec<(usize, String)> {
    let issuers = console.identities.issuers().into_iter().enumerate();
    issuers.filter_map(|(at, issuer)| Some((at, issuer.sign_in?.label))).collect()
}

/// Metadata of an issuer (OpenID Connect Discovery 1.0).
#[derive(Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

fn unavailable_error(issuer: &Issuer, why: &dyn std::fmt::Display) -> PageError {
    tracing::warn!(issuer = issuer.issuer, "sign-in by this issuer failed: {why}");
    let message = "the issuer is unavailable; the server's log has the reason. Sign in with a token";
    PageError::new(StatusCode::BAD_GATEWAY, message)
}

async fn endpoints(issuer: &Issuer, way: &SignIn) -> Result<Endpoints, PageError> {
    let url = format!("{}/.well-known/openid-configuration", issuer.issuer.trim_end_matches('/'));
    let answer = HttpRequest::get(&url).authority(way.ca.as_deref()).send(ANSWER_BYTES_MAX).await;
    let answer = answer.map_err(|failed| unavailable_error(issuer, &failed))?;
    if !answer.status.is_success() {
        return Err(unavailable_error(issuer, &format!("{url}: it answered {}", answer.status)));
    }
    let found: Endpoints = serde_json::from_str(&answer.body).map_err(|error| unavailable_error(issuer, &error))?;
    if found.issuer != issuer.issuer {
        return Err(unavailable_error(issuer, &format!("what is there is of {}", found.issuer)));
    }
    for endpoint in [&found.authorization_endpoint, &found.token_endpoint] {
        if !is_for(&url, endpoint) {
            return Err(unavailable_error(
                issuer,
                &format!("{endpoint} is no endpoint of its: it has to be https://, elsewhere"),
            ));
        }
    }
    Ok(found)
}

/// May a host at this URL name that endpoint? A remote host may name no endpoint of this machine, and no user is
/// redirected to a page without TLS.
fn is_for(url: &str, endpoint: &str) -> bool {
    let here = |url: &Url| url.host().is_some_and(|host| outgoing::is_here(&host));
    let (Ok(url), Ok(endpoint)) = (Url::parse(url), Url::parse(endpoint)) else { return false };
    match here(&endpoint) {
        true => here(&url) && matches!(endpoint.scheme(), "http" | "https"),
        false => endpoint.scheme() == "https",
    }
}

fn issuer(console: &Console, place: usize) -> Result<(Issuer, SignIn), PageError> {
    let issuer = console.identities.issuers().into_iter().nth(place);
    let found = issuer.and_then(|issuer| issuer.sign_in.clone().map(|way| (issuer, way)));
    found.ok_or_else(|| PageError::new(StatusCode::NOT_FOUND, "unknown issuer"))
}

#[derive(Deserialize)]
struct SignInStart {
    #[serde(default)]
    next: String,
}

/// Redirects to the issuer. The state to return with is derived from a secret that the browser keeps meanwhile.
async fn leave(
    State(console): State<Console>,
    ReturningBrowser(shown): ReturningBrowser,
    Path(place): Path<usize>,
    Query(way): Query<SignInStart>,
) -> Result<Response, PageError> {
    let (issuer, sign_in) = issuer(&console, place)?;
    may_sign_in(&console, &shown)?;
    let found = endpoints(&issuer, &sign_in).await?;
    let secret = Secret::new(console.identities.store.console_key())?;
    let next = if is_here(&way.next) { way.next.as_str() } else { "/" };
    let now = console.identities.store.now();
    let mut to = Url::parse(&found.authorization_endpoint).map_err(|error| unavailable_error(&issuer, &error))?;
    to.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &issuer.audience)
        .append_pair("redirect_uri", &sign_in.redirect)
        .append_pair("scope", &sign_in.scopes)
        .append_pair("state", &state(&secret, now))
        .append_pair("nonce", &secret.text(b"nonce"))
        .append_pair("code_challenge", &challenge(&secret))
        .append_pair("code_challenge_method", "S256");
    let cookie = secret.of_sign_in(place, now, next).ok_or_else(|| PageError::field("no cookie could be made"))?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(to.as_str())).into_response())
}

/// Limits the rate of sign-ins by an issuer: requests to it need no identity.
fn may_sign_in(console: &Console, shown: &BrowserCredential) -> Result<(), PageError> {
    let from = shown.peer.as_ref().and_then(|peer| peer.from(&shown.headers));
    let message = "too many sign-ins came from your address: try again in a minute, or sign in with a token";
    console.identities.may_sign_in(from).map_err(|_| PageError::new(StatusCode::TOO_MANY_REQUESTS, message))
}

/// The `state` parameter, derived from the start of the sign-in: a browser that keeps its cookie for longer than it
/// should comes too late.
fn state(secret: &Secret, begun: Timestamp) -> String {
    secret.text(format!("state {}", begun.as_millis()).as_bytes())
}

fn challenge(secret: &Secret) -> String {
    use sha2::Digest as _;
    session::text(&sha2::Sha256::digest(secret.text(b"verifier").as_bytes()))
}

/// Parameters of the issuer's redirect.
#[derive(Deserialize)]
struct IssuerRedirect {
    #[serde(default)]
    code: String,
    #[serde(default)]
    state: String,
    /// The issuer that redirects, where it names itself (RFC 9207).
    iss: Option<String>,
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// A page that redirects by itself: browsers send the cookie of a session on navigation from our own page, and not from
/// the issuer's.
#[derive(Template)]
#[template(path = "signed_in.html")]
struct Page {
    next: String,
}

/// A browser during sign-in by an issuer.
struct ReturningBrowser(BrowserCredential);

impl FromRequestParts<Console> for ReturningBrowser {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, _: &Console) -> Result<Self, PageError> {
        Ok(Self(BrowserCredential::of(parts)))
    }
}

async fn finish_sign_in(
    State(console): State<Console>,
    ReturningBrowser(shown): ReturningBrowser,
    Query(back): Query<IssuerRedirect>,
) -> Result<Response, PageError> {
    let again =
        || PageError::new(StatusCode::BAD_REQUEST, "sign-in begun in another browser, or too long ago; sign in again");
    let PendingSignIn { secret, place, at, next } =
        Secret::read_sign_in(&shown.headers, console.identities.store.console_key()).ok_or_else(again)?;
    let since = console.identities.store.now().as_millis().abs_diff(at.as_millis());
    if !is_equal_constant_time(&state(&secret, at), &back.state) || u128::from(since) > SIGN_IN.as_millis() {
        return Err(again());
    }
    let (issuer, way) = issuer(&console, place)?;
    // A redirect by another issuer is not presented to this one.
    if back.iss.is_some_and(|iss| iss != issuer.issuer) {
        return Err(again());
    }
    if !back.error.is_empty() {
        let message = format!("the issuer refused: {} {}", back.error, back.error_description);
        return Err(PageError::new(StatusCode::UNAUTHORIZED, message.trim()));
    }
    may_sign_in(&console, &shown)?;
    let token = redeem_code(&issuer, &way, &secret, &back.code).await?;
    let is_ours =
        read_claim(&token, "nonce").is_some_and(|nonce| is_equal_constant_time(&secret.text(b"nonce"), &nonce));
    if !is_ours || read_claim(&token, "iss").as_deref() != Some(&issuer.issuer) {
        return Err(again());
    }
    let showed = SignInCredential::Bearer(token);
    let known = ResolvedIdentity::by(&shown.calls(&console, &showed)?).await?;
    let session = session::begin(&console.identities, &showed, &known).await?;
    let mut headers = HeaderMap::new();
    for cookie in [Secret::cookie(Some(&session)), Secret::no_sign_in()].into_iter().flatten() {
        headers.append(header::SET_COOKIE, cookie);
    }
    let next = if is_here(&next) { next } else { "/".to_owned() };
    Ok((headers, Html(Page { next }.render()?)).into_response())
}

/// The ID token for a code.
async fn redeem_code(issuer: &Issuer, way: &SignIn, secret: &Secret, code: &str) -> Result<String, PageError> {
    let found = endpoints(issuer, way).await?;
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "authorization_code")
        .append_pair("code", code)
        .append_pair("redirect_uri", &way.redirect)
        .append_pair("client_id", &issuer.audience)
        .append_pair("code_verifier", &secret.text(b"verifier"))
        .finish();
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    let mut ask = HttpRequest::post(&found.token_endpoint, kind, form).authority(way.ca.as_deref());
    if let Some(path) = &way.secret {
        let read = tokio::fs::read_to_string(path).await;
        let given = read.map_err(|error| unavailable_error(issuer, &format!("{}: {error}", path.display())))?;
        // RFC 6749, 2.3.1: each part in the form of a form.
        let part = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let basic = BASE64.encode(format!("{}:{}", part(&issuer.audience), part(given.trim())));
        let mut value =
            HeaderValue::from_str(&format!("Basic {basic}")).map_err(|error| unavailable_error(issuer, &error))?;
        value.set_sensitive(true);
        ask = ask.header(header::AUTHORIZATION, value);
    }
    let answer = ask.send(ANSWER_BYTES_MAX).await.map_err(|failed| unavailable_error(issuer, &failed))?;
    if !answer.status.is_success() {
        return Err(unavailable_error(
            issuer,
            &format!("it gives no token for a code: {} {}", answer.status, answer.body),
        ));
    }
    let tokens: Tokens = serde_json::from_str(&answer.body).map_err(|error| unavailable_error(issuer, &error))?;
    Ok(tokens.id_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_names_neither_this_machine_nor_a_page_in_the_clear() {
        const AWAY: &str = "https://id.example/.well-known/openid-configuration";
        for endpoint in ["https://id.example/token", "https://login.other.example:8443/token?a=b"] {
            assert!(is_for(AWAY, endpoint), "{endpoint}");
        }
        for endpoint in [
            "http://id.example/token",
            "http://127.0.0.1:7600/token",
            "https://127.0.0.1/token",
            "https://localhost:8200/v1/sys/seal",
            "http://[::1]/token",
            "javascript:alert(1)",
            "data:text/html,x",
            "//id.example/token",
            "/token",
            "",
        ] {
            assert!(!is_for(AWAY, endpoint), "{endpoint}");
        }
        let here = "http://127.0.0.1:9000/.well-known/openid-configuration";
        assert!(is_for(here, "http://127.0.0.1:9000/token") && is_for(here, "https://id.example/token"));
        assert!(!is_for(here, "http://id.example/token"));
    }
}
