//! Origins of pages in browsers: listed ones are allowed, others are rejected, by whatever name they found the server.
//! A page that has a name of its own resolve to this machine is of no listed origin, and of no loopback.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};
use url::{Host, Url};

/// Time for which a browser may cache a preflight response.
const REMEMBERED: Duration = Duration::from_secs(2 * 60 * 60);
/// Request headers that a page may send.
const SENT: [HeaderName; 7] = [
    header::CONTENT_TYPE,
    header::AUTHORIZATION,
    HeaderName::from_static("callgate-by"),
    HeaderName::from_static("connect-protocol-version"),
    HeaderName::from_static("connect-timeout-ms"),
    HeaderName::from_static("grpc-timeout"),
    HeaderName::from_static("x-user-agent"),
];
/// Response headers that a page may read.
const READ: [HeaderName; 4] = [
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
    header::RETRY_AFTER,
];

/// The origins of pages that may ask.
#[derive(Debug, Clone)]
pub(super) struct Origins {
    listed: Vec<HeaderValue>,
    /// The CORS layer for listed origins.
    pub(super) layer: CorsLayer,
}

impl Origins {
    pub(super) fn new(listed: &[HeaderValue]) -> Self {
        let layer = CorsLayer::new()
            .allow_origin(AllowOrigin::list(listed.iter().cloned()))
            .allow_methods([Method::POST])
            .allow_headers(SENT)
            .expose_headers(READ)
            .max_age(REMEMBERED);
        Self { listed: listed.to_vec(), layer }
    }

    /// Origin of the requesting page; none without a page.
    pub(super) fn asks(&self, headers: &HeaderMap) -> Option<Page> {
        let origin = headers.get(header::ORIGIN)?;
        if self.listed.contains(origin) {
            return Some(Page::Listed);
        }
        let url = origin.to_str().ok().and_then(|text| Url::parse(text).ok());
        let is_local = match url.as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        Some(if is_local { Page::Local } else { Page::Foreign })
    }
}

/// Origin of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Listed,
    /// This machine, and not listed: it is answered, and its browser decides what it may read.
    Local,
    Foreign,
}
