//! Who is at the other end of a connection, as far as the connection itself tells.

use std::net::IpAddr;

use http::HeaderMap;
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The other end of a connection. In the extensions of each of its requests, as `Arc<Peer>`.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// The address that it connects from; none over a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether other machines can get here: nobody is let in on such a way without a credential.
    pub is_public: bool,
    /// Whether it is a proxy, which tells in whose name it asks.
    pub is_proxy: bool,
    /// The names in its certificate, which an authority of ours has signed. None has none, or showed none.
    pub names: Option<Names>,
    /// True once its connection is being ended in order: what would last longer says so, and ends.
    pub is_leaving: watch::Sender<bool>,
}

/// What a verified client certificate says of its holder (its subject alternative names).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// DNS names.
    pub dns: Vec<String>,
    /// URIs, SPIFFE ids among them.
    pub uris: Vec<String>,
}

impl Names {
    /// The names in a certificate, none where it cannot be read.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Self::default() };
        let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
        Self { dns: owned(&mut certificate.valid_dns_names()), uris: owned(&mut certificate.valid_uri_names()) }
    }
}

impl Peer {
    /// The address of whoever asks: of the client that a proxy asks for, as the proxy itself tells it (the last one in
    /// `x-forwarded-for`; what stands before it may be invented).
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
