//! `/sign-in` and `/sign-out`.

use askama::Template;
use axum::{
    Form, Router,
    extract::{FromRequestParts, Query, State},
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode, header, request::Parts};
use serde::Deserialize;

use super::issuer;
use crate::console::{
    Console,
    fault::PageError,
    filters,
    form::{FormPost, from_here},
    session::{self, Secret, SignInCredential},
    visitor::{BrowserCredential, ResolvedIdentity, Visitor, is_here},
};
use callgate_proto::v1::CredentialKind;

pub(super) fn router() -> Router<Console> {
    Router::new().route("/sign-in", get(show).post(sign_in)).route("/sign-out", post(sign_out))
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct Page<'a> {
    next: &'a str,
    message: Option<&'a str>,
    wants_credentials: bool,
    /// Name by the certificate of this connection, if it has one that is mapped.
    certificate: Option<&'a str>,
    /// Issuers for sign-in, with their places.
    issuers: Vec<(usize, String)>,
}

#[derive(Deserialize)]
struct SignInQuery {
    #[serde(default)]
    next: String,
    /// A form was sent after the end of the session.
    #[serde(default)]
    unsent: String,
    /// A signed-in user wants to sign in as another one.
    #[serde(default)]
    anew: String,
}

impl SignInQuery {
    fn next(&self) -> &str {
        if is_here(&self.next) { &self.next } else { "/" }
    }
}

/// A browser's request before sign-in.
struct AnonymousBrowser(BrowserCredential);

impl FromRequestParts<Console> for AnonymousBrowser {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, _: &Console) -> Result<Self, PageError> {
        let shown = BrowserCredential::of(parts);
        is_by_its_name(&shown)?;
        Ok(Self(shown))
    }
}

/// Guard against DNS rebinding. Where no credential is needed, a foreign page whose name resolves to this machine could
/// sign itself in: so the request has to name this machine by a name of its own.
fn is_by_its_name(shown: &BrowserCredential) -> Result<(), PageError> {
    let is_open = shown.peer.as_ref().is_some_and(|peer| !peer.is_public && peer.address.is_some());
    if !is_open || names_this_machine(&shown.headers) {
        return Ok(());
    }
    let message = "this server accepts only local requests: open it as localhost or 127.0.0.1";
    Err(PageError::new(StatusCode::FORBIDDEN, message))
}

fn names_this_machine(headers: &HeaderMap) -> bool {
    // HTTP/2 has the authority in its place; the listener makes a host of it.
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return true };
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    matches!(name.map_or(host, |(name, _)| name), "localhost" | "127.0.0.1" | "[::1]")
}

async fn show(
    State(console): State<Console>,
    visitor: Option<Visitor>,
    AnonymousBrowser(shown): AnonymousBrowser,
    Query(way): Query<SignInQuery>,
) -> Result<Response, PageError> {
    if visitor.is_some() && way.anew.is_empty() {
        return Ok(Redirect::to(way.next()).into_response());
    }
    let unsent = "You were signed out, so the form was not accepted. Sign in, and send it again.";
    let told = (!way.unsent.is_empty()).then(|| PageError::new(StatusCode::OK, unsent));
    page(&console, &shown, &way, told.as_ref()).await
}

async fn page(
    console: &Console,
    shown: &BrowserCredential,
    way: &SignInQuery,
    fault: Option<&PageError>,
) -> Result<Response, PageError> {
    let named = match shown.peer.as_ref().is_some_and(|peer| peer.names.is_some()) {
        true => ResolvedIdentity::by(&shown.calls(console, &SignInCredential::Certificate)?).await.ok(),
        false => None,
    };
    let named = named
        .map(|known| known.caller)
        .filter(|caller| caller.credential() == CredentialKind::Certificate)
        .map(|caller| caller.name);
    let wants_credentials =
        console.identities.wants_credentials() || shown.peer.as_ref().is_none_or(|peer| peer.is_public);
    let (message, certificate) = (fault.map(PageError::message), named.as_deref());
    let html =
        Page { next: way.next(), message, wants_credentials, certificate, issuers: issuer::list_issuers(console) }
            .render()?;
    let code = fault.map_or(StatusCode::OK, PageError::code);
    Ok((code, Html(html)).into_response())
}

#[derive(Deserialize)]
struct Credential {
    #[serde(default)]
    token: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    certificate: String,
    #[serde(flatten)]
    way: SignInQuery,
}

async fn sign_in(
    State(console): State<Console>,
    before: Result<Option<Visitor>, PageError>,
    AnonymousBrowser(shown): AnonymousBrowser,
    Form(credential): Form<Credential>,
) -> Result<Response, PageError> {
    from_here(&shown.headers)?;
    let Credential { token, name, certificate, way } = credential;
    let showed = match (token.trim(), name.trim()) {
        _ if certificate == "yes" => SignInCredential::Certificate,
        ("", name) => SignInCredential::Name(name.to_owned()),
        (token, _) => SignInCredential::Bearer(token.to_owned()),
    };
    let known = match shown.calls(&console, &showed) {
        Ok(calls) => ResolvedIdentity::by(&calls).await,
        Err(fault) => Err(fault),
    };
    let fits = |kind| match showed {
        SignInCredential::Bearer(_) => matches!(kind, CredentialKind::Token | CredentialKind::Jwt),
        SignInCredential::Name(_) => kind == CredentialKind::None,
        SignInCredential::Certificate => kind == CredentialKind::Certificate,
    };
    let known = match known {
        Ok(known) if fits(known.caller.credential()) => known,
        Ok(_) => return page(&console, &shown, &way, Some(&PageError::field("sign in with a token"))).await,
        Err(fault) => {
            let from = shown.peer.as_ref().and_then(|peer| peer.address).map(tracing::field::display);
            tracing::info!(from, "a sign-in to the console was refused: {}", fault.message());
            let unknown = "Credential rejected: mistyped, expired or revoked? The server's log has the reason.";
            let unknown = fault.is_unauthenticated().then(|| PageError::new(fault.code(), unknown));
            return page(&console, &shown, &way, Some(&unknown.unwrap_or(fault))).await;
        }
    };
    let secret = session::begin(&console.identities, &showed, &known).await?;
    // The browser drops the cookie of the session before, so that session ends too.
    if let Ok(Some(before)) = before
        && let Err(error) = session::end(&console.identities, &before.secret, &before.known).await
    {
        tracing::warn!(%error, "the console session before a new sign-in goes on until it expires");
    }
    leave(Some(&secret), way.next())
}

async fn sign_out(
    State(console): State<Console>,
    FormPost { visitor, .. }: FormPost<EmptyForm>,
) -> Result<Response, PageError> {
    session::end(&console.identities, &visitor.secret, &visitor.known).await?;
    leave(None, "/sign-in")
}

#[derive(Deserialize)]
struct EmptyForm {}

/// Goes on to a page, with another cookie.
fn leave(secret: Option<&Secret>, to: &str) -> Result<Response, PageError> {
    let cookie = Secret::cookie(secret).ok_or_else(|| PageError::field("no cookie could be made"))?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(to)).into_response())
}
