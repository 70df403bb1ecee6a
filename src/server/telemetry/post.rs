//! post: what the exporters over HTTP send with. One connection to the collector, kept while it holds. It sends on the
//! runtime, since the SDK's threads have none; proxies and redirects are not followed.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Handle,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

use super::environment::{Destination, Tls};

/// Longest answer of a collector, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// Why the last request failed: the exporter keeps it to itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Cause(Arc<Mutex<Option<String>>>);

impl Cause {
    /// Taken once.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().take()
    }

    fn put(&self, cause: Option<String>) {
        *self.0.lock() = cause;
    }
}

/// The way to one collector.
pub(super) struct Client {
    to: Arc<Way>,
    timeout: Duration,
    runtime: Handle,
    cause: Cause,
}

struct Way {
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    kept: tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.to.host).field("port", &self.to.port).finish_non_exhaustive()
    }
}

impl Client {
    /// A way to `destination` that sends on `runtime`; `cause` is told why it fails.
    pub(super) fn new(destination: &Destination, runtime: Handle, cause: Cause) -> Result<Self, String> {
        let endpoint = &destination.endpoint;
        let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = endpoint.port_u16().unwrap_or(if destination.tls.is_some() { 443 } else { 80 });
        let secured = |tls: &Tls| -> Result<_, String> {
            let name = ServerName::try_from(host.clone()).map_err(|_| format!("{host} is no name for TLS"))?;
            Ok((TlsConnector::from(Arc::new(config(tls)?)), name))
        };
        let tls = destination.tls.as_ref().map(secured).transpose()?;
        let to = Way { host, port, tls, kept: tokio::sync::Mutex::default() };
        Ok(Self { to: Arc::new(to), timeout: destination.timeout, runtime, cause })
    }
}

impl HttpClient for Client {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let (to, limit) = (self.to.clone(), self.timeout);
            let sent = self.runtime.spawn(async move {
                let late = |_| format!("no answer within {} ms", limit.as_millis());
                timeout(limit, to.send(request)).await.map_err(late).flatten()
            });
            let answer = sent.await.map_err(|error| error.to_string()).flatten();
            self.cause.put(answer.as_ref().err().cloned());
            answer.map_err(HttpError::from)
        })
    }
}

impl Way {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let request = written(request)?;
        let mut kept = self.kept.lock().await;
        let mut sender = match Self::ready(kept.take()).await {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let answer = sender.send_request(request).await.map_err(|error| in_words(&error))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| format!("its answer cannot be read: {error}"))?.to_bytes();
        *kept = Some(sender);
        Ok(Response::from_parts(head, body))
    }

    /// The connection that was kept, unless the collector has ended it since.
    async fn ready(kept: Option<SendRequest<Full<Bytes>>>) -> Option<SendRequest<Full<Bytes>>> {
        let mut sender = kept?;
        sender.ready().await.is_ok().then_some(sender)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| error.to_string())?;
        match &self.tls {
            None => opened(tcp).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), tcp).await;
                opened(stream.map_err(|error| format!("TLS: {error}"))?).await
            }
        }
    }
}

async fn opened<T>(io: T) -> Result<SendRequest<Full<Bytes>>, String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(|error| in_words(&error))?;
    // Ends with its sender; what went wrong is told to who sends.
    tokio::spawn(connection);
    Ok(sender)
}

/// As HTTP/1 has it: the host in a header, the path alone in the first line.
fn written(request: Request<Bytes>) -> Result<Request<Full<Bytes>>, String> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().map_or("", |authority| authority.as_str()).to_owned();
    head.headers.insert(header::HOST, HeaderValue::from_str(&authority).map_err(|error| error.to_string())?);
    head.uri = Uri::from(head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")));
    Ok(Request::from_parts(head, Full::new(body)))
}

/// An error and what it came of.
fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Whom a collector's certificate may be of, and who we are.
fn config(tls: &Tls) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for authority in tls.authorities.iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem)) {
        let authority = authority.map_err(|error| format!("its authorities cannot be read: {error}"))?;
        roots.add(authority).map_err(|error| format!("its authorities cannot be read: {error}"))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let config = config.with_root_certificates(roots);
    let Some((certificate, key)) = &tls.identity else { return Ok(config.with_no_client_auth()) };
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("the certificate shown to it cannot be read: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|error| format!("the key of the certificate shown to it cannot be read: {error}"))?;
    config.with_client_auth_cert(chain, key).map_err(|error| format!("the certificate shown to it: {error}"))
}
