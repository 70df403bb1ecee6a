//! HTTP client: HTTP/1 over TCP or TLS, with pooled connections. Proxies and redirects are not followed.

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{
            HttpConnector,
            dns::{GaiResolver, Name},
        },
    },
    rt::{TokioExecutor, TokioTimer},
};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// HTTP client; `R` resolves names.
pub type HttpClient<R = GaiResolver> = Client<HttpsConnector<HttpConnector<R>>, Full<Bytes>>;

/// Timeout of a connection.
const CONNECTED: Duration = Duration::from_secs(10);

/// A client with an idle timeout of `kept`.
pub fn client<R>(resolver: R, tls: ClientConfig, kept: Duration) -> HttpClient<R>
where
    HttpsConnector<HttpConnector<R>>: hyper_util::client::legacy::connect::Connect + Clone,
    R: tower::Service<Name>,
{
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECTED));
    let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(kept)
        .pool_max_idle_per_host(if kept.is_zero() { 0 } else { usize::MAX })
        .build(connector.wrap_connector(tcp))
}

/// Trusted authorities, and the own identity, in PEM.
#[derive(Debug, Default)]
pub struct Trust<'a> {
    /// Authorities; default: the public ones.
    pub authorities: Option<&'a [u8]>,
    /// True to add the public ones.
    pub public: bool,
    /// Own certificate and key.
    pub identity: Option<(&'a [u8], &'a [u8])>,
}

impl Trust<'_> {
    /// The TLS configuration.
    ///
    /// # Errors
    /// The unusable text, and why.
    pub fn config(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        if self.public || self.authorities.is_none() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        for authority in CertificateDer::pem_slice_iter(self.authorities.unwrap_or_default()) {
            let authority = authority.map_err(|error| format!("the authorities cannot be read: {error}"))?;
            roots.add(authority).map_err(|error| format!("the authorities cannot be read: {error}"))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let Some((certificate, key)) = self.identity else { return Ok(config.with_no_client_auth()) };
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("the certificate that is shown cannot be read: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(key);
        let key = key.map_err(|error| format!("the key of the certificate that is shown cannot be read: {error}"))?;
        config.with_client_auth_cert(chain, key).map_err(|error| format!("the certificate that is shown: {error}"))
    }
}

/// TLS with the authorities of this file, otherwise the public ones.
///
/// # Errors
/// The problem of the file.
pub fn tls(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let Some(ca) = ca else { return Trust::default().config() };
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", ca.display());
    let text = std::fs::read(ca).map_err(|error| told(&error))?;
    Trust { authorities: Some(&text), ..Trust::default() }.config().map_err(|error| told(&error))
}

/// The innermost cause, the most helpful one.
#[must_use]
pub fn cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string()
}
