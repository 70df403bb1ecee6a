//! Peer: the other end of a connection, as known from the connection itself.

use std::net::IpAddr;

use http::HeaderMap;
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Peer of a connection, in the extensions of each of its requests, as `Arc<Peer>`.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Source address; none over a Unix socket.
    pub address: Option<IpAddr>,
    /// True if other machines can connect to the listener: a credential is then required.
    pub is_public: bool,
    /// True for a proxy, which names its client.
    pub is_proxy: bool,
    /// Names in its verified certificate; none without one.
    pub names: Option<Names>,
    /// True once its connection is in shutdown: long requests should end.
    pub is_leaving: watch::Sender<bool>,
}

/// Subject alternative names of a verified client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// DNS names.
    pub dns: Vec<String>,
    /// URIs, SPIFFE ids among them.
    pub uris: Vec<String>,
}

impl Names {
    /// The names in a certificate; none if unreadable.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Self::default() };
        let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
        Self { dns: owned(&mut certificate.valid_dns_names()), uris: owned(&mut certificate.valid_uri_names()) }
    }
}

impl Peer {
    /// The address of the client: behind a proxy, the last one in `x-forwarded-for`; earlier ones may be forged.
    #[must_use]
    pub fn from(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let forwarded = || {
            let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
            last.rsplit(',').next()?.trim().parse().ok()
        };
        if self.is_proxy { forwarded().or(self.address) } else { self.address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_is_believed_whom_it_asks_for() {
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", "192.0.2.1".parse().unwrap());
        headers.append("x-forwarded-for", "198.51.100.7, 203.0.113.9".parse().unwrap());
        let address = Some("127.0.0.1".parse().unwrap());
        let direct = Peer { address, ..Peer::default() };
        assert_eq!(direct.from(&headers), address);
        let proxy = Peer { is_proxy: true, ..direct };
        assert_eq!(proxy.from(&headers), Some("203.0.113.9".parse().unwrap()), "what the proxy itself has added");
        assert_eq!(proxy.from(&HeaderMap::new()), address);
        headers.append("x-forwarded-for", "unknown".parse().unwrap());
        assert_eq!(proxy.from(&headers), address);
    }
}
