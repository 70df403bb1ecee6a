//! One small request to somebody else: the keys of an issuer, a sign-in by it, a webhook. By https, or to this machine;
//! redirects and proxies are not followed.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};
use url::{Host, Position, Url};

/// Longest time for all of it.
const LIMIT: Duration = Duration::from_secs(10);

/// Why there is no answer, with the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {problem}")]
pub struct Failed {
    url: String,
    /// What went wrong.
    pub problem: String,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// All of it.
    pub body: String,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Ask {
    url: String,
    method: Method,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    authority: Option<PathBuf>,
}

impl Ask {
    /// For what is at an address.
    #[must_use]
    pub fn get(url: &str) -> Self {
        Self { url: url.to_owned(), method: Method::GET, headers: Vec::new(), body: Bytes::new(), authority: None }
    }

    /// With something for an address.
    #[must_use]
    pub fn post(url: &str, kind: HeaderValue, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(url) }.header(header::CONTENT_TYPE, kind)
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// To somebody whose certificate is of the authorities in this file, and of no public one.
    #[must_use]
    pub fn authority(mut self, ca: Option<&Path>) -> Self {
        self.authority = ca.map(Path::to_owned);
        self
    }

    /// Sends it; the answer may have `max` bytes.
    ///
    /// # Errors
    /// [`Failed`] where there is no answer within ten seconds, whatever it says.
    pub async fn send(&self, max: usize) -> Result<Answer, Failed> {
        let answer = timeout(LIMIT, self.answer(max)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())));
        // What stands behind the path may be a secret.
        let told = self.url.split(['?', '#']).next().unwrap_or_default();
        answer.map_err(|problem| Failed { url: told.to_owned(), problem })
    }

    async fn answer(&self, max: usize) -> Result<Answer, String> {
        let url = Url::parse(&self.url).map_err(|error| error.to_string())?;
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err("it names no host".to_owned());
        };
        let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if url.scheme() != "https" && !is_here(&host) {
            return Err("what comes by http:// can be anybody's: use https://".to_owned());
        }
        let tcp = TcpStream::connect((name.as_str(), port)).await.map_err(|error| error.to_string())?;
        let path = &url[Position::BeforePath..Position::AfterQuery];
        let mut request = Request::builder()
            .method(&self.method)
            .uri(if path.is_empty() { "/" } else { path })
            .header(header::HOST, &url[Position::BeforeHost..Position::AfterPort])
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("callgate/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body.clone())).map_err(|error| error.to_string())?;
        if url.scheme() != "https" {
            return exchanged(tcp, request, max).await;
        }
        let tls = TlsConnector::from(Arc::new(tls(self.authority.as_deref())?));
        let name = ServerName::try_from(name).map_err(|_| "its host is no name for TLS".to_owned())?;
        exchanged(tls.connect(name, tcp).await.map_err(|error| error.to_string())?, request, max).await
    }
}

/// True for a host that is this machine by its name.
#[must_use]
pub fn is_here(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => IpAddr::V4(*address).is_loopback(),
        Host::Ipv6(address) => IpAddr::V6(*address).is_loopback(),
    }
}

/// TLS to somebody whose certificate is of the authorities in this file, else of a public one.
///
/// # Errors
/// What is wrong with the file.
pub fn tls(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(ca) = ca {
        roots.roots.clear();
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", ca.display());
        for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| told(&error))? {
            roots.add(certificate.map_err(|error| told(&error))?).map_err(|error| told(&error))?;
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

async fn exchanged<T>(io: T, request: Request<Full<Bytes>>, max: usize) -> Result<Answer, String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), max).collect().await;
        let body = body.map_err(|error| format!("its answer cannot be read: {error}"))?.to_bytes();
        let body = String::from_utf8(body.to_vec()).map_err(|_| "its answer is no text".to_owned())?;
        Ok(Answer { status, body })
    };
    let answer = answer.await;
    connection.abort();
    answer
}
