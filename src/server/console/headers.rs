//! Security headers of every response: no foreign resources, only scripts of our own, no framing by other pages, no
//! caching.

use axum::{
    body::to_bytes,
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::fault::PageError;

/// <https://developer.mozilla.org/docs/Web/HTTP/CSP>. No `unsafe-inline`, no `unsafe-eval`.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; \
    base-uri 'none'";

const ALWAYS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

pub(super) async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.extend(ALWAYS);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Longest text of ours or the framework's about an address or a form that cannot be read.
const WORDS_MAX: usize = 2_000;

/// Converts the framework's plain-text errors to pages.
pub(super) async fn render_error_page(response: Response) -> Response {
    let is_text = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/plain; charset=utf-8");
    let is_bare = is_text || response.status() == StatusCode::METHOD_NOT_ALLOWED;
    if !response.status().is_client_error() || !is_bare {
        return response;
    }
    let code = response.status();
    let text = to_bytes(response.into_body(), WORDS_MAX).await.unwrap_or_default();
    let why = String::from_utf8_lossy(&text);
    let message = if why.is_empty() { "the request is not supported here".to_owned() } else { why.into_owned() };
    PageError::new(code, message).into_response()
}
