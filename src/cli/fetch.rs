//! One small text from an address, as the keys of an issuer are.

use std::{net::IpAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
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
use url::{Host, Url};

/// Longest time for all of it.
const LIMIT: Duration = Duration::from_secs(10);

/// The text at `https://…`, or `http://…` of this machine; `ca` is the authority of its certificate, `bearer` a file
/// with a token that is shown there.
pub(super) async fn text(url: &str, ca: Option<&Path>, bearer: Option<&Path>, max: usize) -> anyhow::Result<String> {
    let answer = timeout(LIMIT, answer(url, ca, bearer, max)).await;
    answer.map_err(|_| anyhow!("no answer within {} s", LIMIT.as_secs()))?.with_context(|| url.to_owned())
}

async fn answer(url: &str, ca: Option<&Path>, bearer: Option<&Path>, max: usize) -> anyhow::Result<String> {
    let url = Url::parse(url)?;
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else { bail!("it names no host") };
    let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    if url.scheme() != "https" && !is_here(&host) {
        bail!("what comes by http:// can be anybody's: use https://");
    }
    let tcp = TcpStream::connect((name.as_str(), port)).await?;
    let mut request = http::Request::get(&url[url::Position::BeforePath..url::Position::AfterQuery])
        .header("host", &url[url::Position::BeforeHost..url::Position::AfterPort])
        .header("accept", "application/json");
    if let Some(bearer) = bearer {
        let token = tokio::fs::read_to_string(bearer).await.with_context(|| bearer.display().to_string())?;
        request = request.header("authorization", format!("Bearer {}", token.trim()));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| anyhow!("the request cannot be written"))?;
    if url.scheme() != "https" {
        return asked(tcp, request, max).await;
    }
    let name = ServerName::try_from(name).context("its host is no name for TLS")?;
    asked(TlsConnector::from(Arc::new(tls(ca)?)).connect(name, tcp).await?, request, max).await
}

pub(super) fn is_here(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => IpAddr::V4(*address).is_loopback(),
        Host::Ipv6(address) => IpAddr::V6(*address).is_loopback(),
    }
}

pub(super) fn tls(ca: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(ca) = ca {
        roots.roots.clear();
        for certificate in CertificateDer::pem_file_iter(ca).with_context(|| ca.display().to_string())? {
            roots.add(certificate.with_context(|| ca.display().to_string())?)?;
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

async fn asked<T>(io: T, request: http::Request<Empty<Bytes>>, max: usize) -> anyhow::Result<String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await?;
        if !response.status().is_success() {
            bail!("it answered {}", response.status());
        }
        let body = Limited::new(response.into_body(), max).collect().await;
        let body = body.map_err(|error| anyhow!("its answer cannot be read: {error}"))?.to_bytes();
        Ok(String::from_utf8(body.to_vec())?)
    };
    let answer = answer.await;
    connection.abort();
    answer
}
