//! Forms with CSRF protection: only our own forms change anything.

use axum::{
    Form,
    extract::{FromRequest, Request},
};
use http::{HeaderMap, header};
use serde::{Deserialize, de::DeserializeOwned};

use super::{Console, fault::PageError, visitor::Visitor};

/// A form of ours, with its sender.
pub(super) struct FormPost<T> {
    pub(super) visitor: Visitor,
    pub(super) form: T,
}

/// The field, and the header of htmx, that carry the CSRF token.
pub(super) const CSRF_HEADER: &str = "callgate-csrf";

#[derive(Deserialize)]
struct GuardedForm<T> {
    #[serde(default)]
    csrf: String,
    #[serde(flatten)]
    form: T,
}

impl<T: DeserializeOwned> FromRequest<Console> for FormPost<T> {
    type Rejection = PageError;

    async fn from_request(request: Request, console: &Console) -> Result<Self, PageError> {
        let (mut parts, body) = request.into_parts();
        from_here(&parts.headers)?;
        let visitor =
            <Visitor as axum::extract::FromRequestParts<Console>>::from_request_parts(&mut parts, console).await?;
        let header = parts.headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let form = Form::<GuardedForm<T>>::from_request(Request::from_parts(parts, body), console).await;
        let Form(GuardedForm { csrf, form }) = form.map_err(|wrong| PageError::field(wrong.body_text()))?;
        if !visitor.secret.is_csrf(&header.unwrap_or(csrf)) {
            return Err(PageError::new(
                http::StatusCode::FORBIDDEN,
                "the form is not of your session, so nothing was changed; reload the page and send it again",
            ));
        }
        Ok(Self { visitor, form })
    }
}

/// Rejects cross-site requests. Cookies are not sent with such requests either; a sign-in comes without one.
pub(super) fn from_here(headers: &HeaderMap) -> Result<(), PageError> {
    let refused = || {
        Err(PageError::new(http::StatusCode::FORBIDDEN, "the request comes from another site, so nothing was changed"))
    };
    // Every current browser sends it; without it the origin decides.
    if let Some(site) = headers.get("sec-fetch-site") {
        return if site == "same-origin" || site == "none" { Ok(()) } else { refused() };
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    if origin.is_some() && origin == host { Ok(()) } else { refused() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_what_comes_from_a_page_of_ours_is_taken() {
        let host = ("host", "plane.example:7600");
        for good in [
            vec![host, ("sec-fetch-site", "same-origin")],
            vec![host, ("origin", "https://plane.example:7600")],
            // No browser.
            vec![host],
        ] {
            assert!(from_here(&headers(&good)).is_ok(), "{good:?}");
        }
        for bad in [
            vec![host, ("sec-fetch-site", "cross-site"), ("origin", "https://plane.example:7600")],
            vec![host, ("sec-fetch-site", "same-site")],
            vec![host, ("origin", "https://evil.example")],
            vec![host, ("origin", "null")],
            vec![("origin", "https://evil.example")],
        ] {
            assert!(from_here(&headers(&bad)).is_err(), "{bad:?}");
        }
    }
}
