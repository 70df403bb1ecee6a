//! Admission of HTTP requests: local programs only, and plain JSON in UTF-8. A web page whose domain resolves to this
//! machine is no loopback origin, and other encodings could hide a call from the proxy.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use url::Url;

use callgate_net::outgoing::is_here;

/// Status and reason of a rejection.
pub(super) type Refusal = (StatusCode, String);

/// Hop-by-hop headers.
const HOPS: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

fn refused<T>(code: StatusCode, text: &str) -> Result<T, Refusal> {
    Err((code, format!("callgate mcp-proxy: {text}\n")))
}

/// Checks that a request is a local program's. Returns the proxy's origin as its client names it.
pub(super) fn check_local(request: &Parts) -> Result<String, Refusal> {
    let authority = request.uri.authority().map(|authority| authority.as_str());
    let host = authority.or_else(|| request.headers.get(header::HOST)?.to_str().ok());
    let Some(own) = host.map(|host| format!("http://{host}")).filter(|own| is_local(own)) else {
        return refused(
            StatusCode::FORBIDDEN,
            "it accepts only names of this machine, such as 127.0.0.1 and localhost",
        );
    };
    let mut origins = request.headers.get_all(header::ORIGIN).iter();
    if !origins.all(|origin| origin.to_str().is_ok_and(is_local)) {
        return refused(StatusCode::FORBIDDEN, "it rejects pages from origins other than this machine");
    }
    Ok(own)
}

/// Checks a request for the server's address.
pub(super) fn enter(request: &Parts, server: &Url) -> Result<(), Refusal> {
    if request.uri.path() != server.path() {
        let text = format!("only {} is behind it, the path of --url", server.path());
        return refused(StatusCode::NOT_FOUND, &text);
    }
    match request.method {
        Method::POST => {}
        Method::GET | Method::DELETE | Method::OPTIONS if has_no_body(&request.headers) => return Ok(()),
        Method::GET | Method::DELETE | Method::OPTIONS => {
            return refused(StatusCode::BAD_REQUEST, "only a POST may have a body");
        }
        _ => return refused(StatusCode::METHOD_NOT_ALLOWED, "MCP has no such method"),
    }
    if !is_plain(&request.headers) {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is unreadable: send JSON in UTF-8");
    }
    Ok(())
}

fn is_local(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.host().is_some_and(|host| is_here(&host)))
}

fn has_no_body(headers: &HeaderMap) -> bool {
    let is_none = headers.get_all(header::CONTENT_LENGTH).iter().all(|length| length == "0");
    is_none && !headers.contains_key(header::TRANSFER_ENCODING)
}

/// True without compression and other character encodings.
#[must_use]
pub fn is_plain(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
        && types.all(|kind| {
            let kind = kind.to_str().unwrap_or("charset=?").to_ascii_lowercase();
            let charset = |at: usize| kind[at + 7..].trim_start_matches([' ', '=', '"', '\'']).starts_with("utf-8");
            kind.match_indices("charset").all(|(at, _)| charset(at))
        })
}

/// Request headers for the server: without hop-by-hop headers, and asking for no compression, because any coding may be
/// sent where none is named.
pub(super) fn forward_headers(headers: &HeaderMap) -> HeaderMap {
    let mut kept = without_hops(headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        kept.remove(name);
    }
    kept.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    kept
}

/// Headers without hop-by-hop ones.
pub(super) fn without_hops(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse::<HeaderName>().ok());
    for name in named.chain(HOPS).chain([HeaderName::from_static("keep-alive")]) {
        kept.remove(name);
    }
    kept
}

/// True if the client accepts this content type.
#[must_use]
pub fn takes(headers: &HeaderMap, kind: &str) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    accepted.peek().is_none() || accepted.any(|value| value.contains(kind) || value.contains("*/*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enters(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<(), StatusCode> {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let server = Url::parse("https://example.com/mcp?key=k").expect("a URL");
        check_local(&parts).and_then(|_| enter(&parts, &server)).map_err(|(status, _)| status)
    }

    #[test]
    fn programs_of_this_machine_may_ask_and_pages_of_others_may_not() {
        for host in ["127.0.0.1:7610", "localhost", "[::1]:1", "LOCALHOST:7610"] {
            assert_eq!(enters("POST", "/mcp", &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example:7610", "127.0.0.1.evil.example", "example.com", "", "localhost@evil.example"] {
            assert_eq!(enters("POST", "/mcp", &[("host", host)]), Err(StatusCode::FORBIDDEN), "{host}");
        }
        for (origin, is_let_in) in [
            ("http://localhost:6274", true),
            ("http://127.0.0.1", true),
            ("https://evil.example", false),
            ("http://localhost.evil.example", false),
            ("null", false),
        ] {
            let headers = [("host", "localhost"), ("origin", origin)];
            assert_eq!(enters("POST", "/mcp", &headers).is_ok(), is_let_in, "{origin}");
            assert_eq!(enters("GET", "/mcp", &headers).is_ok(), is_let_in, "{origin}");
        }
        assert_eq!(enters("POST", "/mcp", &[]), Err(StatusCode::FORBIDDEN));
    }

    #[test]
    fn request_that_could_hide_a_call_is_rejected() {
        let enters = |method, path, name, value| enters(method, path, &[("host", "localhost"), (name, value)]);
        for kind in ["application/json", "application/json; charset=utf-8", "application/json;charset=\"UTF-8\""] {
            assert_eq!(enters("POST", "/mcp?a=b", "content-type", kind), Ok(()), "{kind}");
        }
        for (name, value, status) in [
            ("content-type", "application/json; charset=utf-16le", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ("content-type", "application/json; charset=utf-8; CHARSET = 'utf-7'", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ("content-encoding", "gzip", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ] {
            assert_eq!(enters("POST", "/mcp", name, value), Err(status), "{value}");
        }
        assert_eq!(enters("POST", "/other", "accept", "*/*"), Err(StatusCode::NOT_FOUND));
        assert_eq!(enters("PUT", "/mcp", "accept", "*/*"), Err(StatusCode::METHOD_NOT_ALLOWED));
        assert_eq!(enters("GET", "/mcp", "content-length", "7"), Err(StatusCode::BAD_REQUEST));
        assert_eq!(enters("DELETE", "/mcp", "transfer-encoding", "chunked"), Err(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn headers_pass_but_those_of_a_connection() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("accept-encoding", "gzip"),
            ("host", "localhost"),
            ("authorization", "Bearer t"),
            ("mcp-session-id", "s"),
        ] {
            headers.insert(HeaderName::from_static(name), value.parse().expect("a value"));
        }
        let forwarded = forward_headers(&headers);
        let mut kept: Vec<&str> = forwarded.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["accept-encoding", "authorization", "mcp-session-id"]);
        assert_eq!(forwarded["accept-encoding"], "identity");
    }
}
