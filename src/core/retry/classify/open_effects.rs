//! Open effects of failures: whether a failed call may have taken effect.

use std::sync::LazyLock;

use regex::Regex;

use super::{reduce, text};
use crate::domain::failure::{ErrorReport, FailureKind};

/// No connection, so nothing was sent: unresolved names, refused connections, failed handshakes.
static NOT_CONNECTED: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        r"econnrefused|enetunreach|ehostunreach|connection refused|actively refused",
        r"failed to establish a new connection|\bconnecterror\b",
        r"connect ?timeout|und_err_connect_timeout",
        r"enotfound|eai_(again|noname|fail)|getaddrinfo|name or service not known|name resolution",
        r"nodename nor servname|no such host|could not resolve host",
        r"(ssl|tls) handshake|certificate verify failed|certificate has expired|cert_has_expired|self[_ -]signed",
        r"unable_to_verify_leaf_signature|err_tls_cert_altname_invalid",
    ];
    Regex::new(&format!("(?i){}", shapes.join("|"))).expect("the pattern is fixed and tested")
});

/// True when a failure of that kind leaves the effect open: no answer, or an internal error during the call. False
/// where nothing was sent, or the provider refused (4xx).
#[must_use]
pub fn may_have_taken_effect(kind: FailureKind, report: &ErrorReport) -> bool {
    use FailureKind::{Internal, Network, Timeout, Unavailable};
    let refused = |status| matches!(status, 400..=499) && !matches!(status, 408 | 425 | 499);
    if report.http_status.is_some_and(refused) {
        return false;
    }
    match kind {
        Internal | Unavailable => true,
        Timeout | Network => !is_not_connected(report),
        _ => false,
    }
}

/// With an HTTP status the provider's own connection failed.
fn is_not_connected(report: &ErrorReport) -> bool {
    let message = reduce::readable(&report.message);
    let named = [&report.provider_code, &report.error_type].into_iter().flatten();
    report.http_status.is_none()
        && text::status_in(&message).is_none()
        && (NOT_CONNECTED.is_match(&message) || named.into_iter().any(|name| NOT_CONNECTED.is_match(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::classify::classify;

    fn is_open(http_status: Option<u16>, error_type: Option<&str>, message: &str) -> bool {
        let error_type = error_type.map(str::to_owned);
        let report = ErrorReport { http_status, error_type, message: message.to_owned(), ..ErrorReport::default() };
        may_have_taken_effect(classify(&report), &report)
    }

    #[test]
    fn failure_without_an_answer_or_inside_the_tool_leaves_the_effect_open() {
        for (status, error_type, message) in [
            (None, Some("TimeoutError"), ""),
            (None, Some("ReadTimeout"), "HTTPSConnectionPool(host='x', port=443): Read timed out. (read timeout=5)"),
            (None, None, "read ECONNRESET"),
            (None, None, "socket hang up"),
            (Some(500), None, "Internal Server Error"),
            (Some(502), None, "Bad Gateway"),
            (Some(503), None, "Service Unavailable"),
            (Some(504), None, "Gateway Timeout"),
            (Some(408), None, "Request Timeout"),
            // It was the gateway that could not connect; what stands behind may have been asked before.
            (Some(503), None, "upstream connect error, reset reason: connection refused"),
        ] {
            assert!(is_open(status, error_type, message), "{status:?} {error_type:?} {message}");
        }
    }

    #[test]
    fn unsent_or_refused_call_leaves_no_effect_open() {
        for (status, error_type, message) in [
            (None, None, "connect ECONNREFUSED 127.0.0.1:5432"),
            (None, None, "getaddrinfo ENOTFOUND api.example.com"),
            (None, None, "[Errno -2] Name or service not known"),
            (None, Some("ConnectTimeout"), "Connection to x timed out. (connect timeout=5)"),
            (None, Some("ConnectError"), "All connection attempts failed"),
            (None, None, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired"),
            (Some(429), None, "Too Many Requests"),
            (Some(400), None, "Bad Request"),
            (Some(409), None, "Conflict"),
            (None, None, "Error: not enough seats on flight HAT229"),
        ] {
            assert!(!is_open(status, error_type, message), "{status:?} {error_type:?} {message}");
        }
    }
}
