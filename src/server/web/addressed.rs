//! The check of the `Host` header where no credential is required.

use std::net::IpAddr;

use http::{header, uri::Authority};

/// True where a request names an address or `localhost` as its server, or nothing. A page whose name resolves to this
/// machine (DNS rebinding) sends that name.
pub fn is_addressed_to_here<B>(request: &http::Request<B>) -> bool {
    let authority = match request.uri().authority() {
        Some(authority) => Some(authority.clone()),
        None => match request.headers().get(header::HOST) {
            Some(host) => match Authority::try_from(host.as_bytes()) {
                Ok(authority) => Some(authority),
                Err(_) => return false,
            },
            None => None,
        },
    };
    authority.is_none_or(|authority| {
        let name = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_somebody_elses_is_told_from_this_machine() {
        let asks = |host: &str| {
            let request = http::Request::builder().uri("/metrics");
            let request = if host.is_empty() { request } else { request.header(header::HOST, host) };
            is_addressed_to_here(&request.body(()).expect("a request"))
        };
        for host in ["", "127.0.0.1:7600", "[::1]:7600", "localhost", "LOCALHOST:7600", "a.localhost:1", "192.0.2.1"] {
            assert!(asks(host), "{host}");
        }
        for host in
            ["evil.example", "evil.example:7600", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "@"]
        {
            assert!(!asks(host), "{host}");
        }
        let request =
            http::Request::builder().uri("http://evil.example:7600/metrics").header(header::HOST, "localhost");
        assert!(!is_addressed_to_here(&request.body(()).expect("a request")), "HTTP/2 names it there");
    }
}
