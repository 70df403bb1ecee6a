//! Error responses of the console: a page of their own, or in place of the requested part.

use askama::Template as _;
use axum::{
    Extension,
    extract::{OptionalFromRequestParts, Request, State},
    middleware::Next,
    response::{Html, IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use tonic::{Code, Status};
use url::form_urlencoded::byte_serialize;

use super::{
    Console, filters,
    frame::Frame,
    headers,
    visitor::{self, Visitor},
};
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

/// An error, as the extension of its response: a signed-in user gets it as a page of the console.
#[derive(Debug, Clone)]
struct FaultNotice {
    code: StatusCode,
    message: String,
}

/// The error page of a stranger.
#[derive(askama::Template)]
#[template(path = "fault.html", blocks = ["fault"])]
struct Page {
    code: u16,
    reason: &'static str,
    message: String,
    remedy: &'static str,
}

impl Page {
    fn of(notice: &FaultNotice) -> Self {
        let FaultNotice { code, message } = notice;
        Self { code: code.as_u16(), reason: reason(*code), message: message.clone(), remedy: remedy(*code) }
    }
}

/// The same within the console.
#[derive(askama::Template)]
#[template(path = "fault_page.html")]
struct FramedPage {
    frame: Frame,
    /// As HTML.
    fault: String,
}

/// Middleware: renders errors as pages of the console, with its navigation. A part of a page has no frame.
pub(super) async fn frame_errors(State(console): State<Console>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let mut asked = parts.clone();
    let response = headers::render_error_page(next.run(Request::from_parts(parts, body)).await).await;
    let Some(notice) = response.extensions().get::<FaultNotice>() else { return response };
    if asked.headers.contains_key("hx-request") {
        return response;
    }
    let visitor = <Visitor as OptionalFromRequestParts<Console>>::from_request_parts(&mut asked, &console).await;
    let Ok(Some(visitor)) = visitor else { return response };
    let page = Page::of(notice);
    let frame = Frame::new(&visitor, "", page.reason);
    let html = page.as_fault().render().and_then(|fault| FramedPage { frame, fault }.render());
    html.map_or(response, |html| (notice_code(page.code), Html(html)).into_response())
}

fn notice_code(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
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
                let notice = FaultNotice { code, message };
                match Page::of(&notice).render() {
                    Ok(html) => (code, Extension(notice), Html(html)).into_response(),
                    Err(_) => (code, notice.message).into_response(),
                }
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

/// The next step of the user, by the cause.
fn remedy(code: StatusCode) -> &'static str {
    match code.as_u16() {
        400 => "Go back, correct the value that the message names, and try again.",
        401 => "Sign in first.",
        403 => "Sign in with a credential that has the right, or ask an administrator for it.",
        404 => {
            "Check the address, or search under Sessions. Calls are deleted at the end of their retention period, and \
             on request."
        }
        409 => "Something changed meanwhile. Reload the page, and try again.",
        429 => "Wait a moment, and reload the page.",
        503 => "Reload the page in a moment. If this lasts, run callgate doctor: it says what to repair.",
        _ => "Reload the page. If this lasts, the log of the server has the reason.",
    }
}
