//! Error responses of the console: a page of their own, or in place of the requested part.

use askama::Template as _;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use tonic::{Code, Status};
use url::form_urlencoded::byte_serialize;

use super::{filters, visitor};
use crate::{gate::NoAnswer, grpc::to_http_status};

/// Errors of the console.
#[derive(Debug)]
pub(super) enum PageError {
    /// They have to sign in first, and come back to this page then.
    SignIn { next: String, is_fragment: bool, is_unsent: bool },
    /// An error of the services.
    Told { code: StatusCode, message: String, is_unauthenticated: bool },
}

impl PageError {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self::Told { code, message: message.into(), is_unauthenticated: false }
    }

    /// An invalid field of a form.
    pub(super) fn field(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn sign_in(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        Self::SignIn {
            next: visitor::next(method, uri, headers),
            is_fragment: headers.contains_key("hx-request"),
            is_unsent: method != Method::GET,
        }
    }

    pub(super) fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::Told { is_unauthenticated: true, .. })
    }

    /// HTTP status of a page that shows the error in place.
    pub(super) fn code(&self) -> StatusCode {
        match self {
            Self::SignIn { .. } => StatusCode::UNAUTHORIZED,
            Self::Told { code, .. } => *code,
        }
    }

    /// The message, for a form that shows it next to its fields.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::SignIn { .. } => "sign in first",
            Self::Told { message, .. } => message,
        }
    }
}

impl From<Status> for PageError {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::FailedPrecondition => StatusCode::CONFLICT,
            Code::DeadlineExceeded | Code::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            code => to_http_status(code),
        };
        let is_unauthenticated = status.code() == Code::Unauthenticated;
        Self::Told { code, message: status.message().to_owned(), is_unauthenticated }
    }
}

impl From<NoAnswer> for PageError {
    fn from(none: NoAnswer) -> Self {
        // Strangers can make it happen often.
        tracing::debug!(error = %none, "a session of the console could not be read");
        let why = match none {
            NoAnswer::Overloaded(_) | NoAnswer::Crowded(_) => "the server is overloaded",
            _ => "the database does not respond",
        };
        let message = format!("your session cannot be read: {why}; try again in a moment");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl From<askama::Error> for PageError {
    fn from(error: askama::Error) -> Self {
        tracing::error!(%error, "a page could not be rendered");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be rendered; the server's log has the reason")
    }
}

/// The error page.
#[derive(askama::Template)]
#[template(path = "fault.html")]
struct Page<'a> {
    code: u16,
    reason: &'a str,
    message: &'a str,
}

/// Leads the whole page elsewhere, where htmx asked for a part of it.
const HX_REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        match self {
            Self::SignIn { next, is_fragment, is_unsent } => {
                let next: String = byte_serialize(next.as_bytes()).collect();
                let to = format!("/sign-in?next={next}{}", if is_unsent { "&unsent=yes" } else { "" });
                let to = HeaderValue::from_str(&to).unwrap_or(HeaderValue::from_static("/sign-in"));
                match is_fragment {
                    true => (StatusCode::UNAUTHORIZED, [(HX_REDIRECT, to)]).into_response(),
                    false => (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response(),
                }
            }
            Self::Told { code, message, .. } => {
                let page = Page { code: code.as_u16(), reason: reason(code), message: &message };
                page.render()
                    .map_or_else(|_| (code, message.clone()).into_response(), |html| (code, Html(html)).into_response())
            }
        }
    }
}

/// Title of the error page.
fn reason(code: StatusCode) -> &'static str {
    match code.as_u16() {
        400 => "Invalid request",
        401 => "Not signed in",
        403 => "Access denied",
        404 => "Not found",
        409 => "Conflict",
        429 => "Too many requests",
        503 => "Service unavailable",
        _ => "Request failed",
    }
}
