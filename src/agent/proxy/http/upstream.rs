//! The server at its URL: connections over TCP or TLS, kept while they are used.

use std::{
    error::Error,
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures_util::future::BoxFuture;
use http::{Request, Response, Uri, request::Parts};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::{
        Client, Error as ClientError,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};
use tonic::codegen::Service;
use url::{Position, Url};

use super::doors;
use callgate_net::outgoing;

/// Longest time for a connection.
const CONNECTED: Duration = Duration::from_secs(10);
/// How long one is kept that nobody uses: a server that ends one after 5 seconds, as many do, must not get a call then.
const KEPT: Duration = Duration::from_secs(4);

/// A server.
pub(super) struct Upstream {
    url: Url,
    client: Client<Connector, Full<Bytes>>,
}

impl Upstream {
    /// The server at `url`; `ca` is the authority of its certificate, if that is none of the public ones.
    pub(super) fn new(url: &str, ca: Option<&Path>) -> anyhow::Result<Self> {
        let url = Url::parse(url).context("--url is not a URL")?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            bail!("--url takes http://… and https://…");
        }
        if !url.username().is_empty() || url.password().is_some() {
            bail!("--url: who else is on this machine can read it; its host sends the credential, as a header");
        }
        let tls =
            (url.scheme() == "https").then(|| outgoing::tls(ca)).transpose().map_err(anyhow::Error::msg)?.map(Arc::new);
        let connector = Connector { url: Arc::new(url.clone()), tls };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEPT)
            .build(connector);
        Ok(Self { url, client })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The URL as it may be told: a query may be a secret.
    pub(super) fn shown(&self) -> &str {
        &self.url[..Position::AfterPath]
    }

    /// Sends a request as it came, with this body.
    pub(super) async fn send(&self, request: &Parts, body: Bytes) -> Result<Response<Incoming>, Unanswered> {
        let mut url = self.url.clone();
        if let Some(query) = request.uri.query() {
            url.set_query(Some(query));
        }
        let mut sent = Request::new(Full::new(body));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = url.as_str().parse().map_err(|error| Unanswered::unsent(&error))?;
        *sent.headers_mut() = doors::forwarded(&request.headers);
        self.client.request(sent).await.map_err(|error| Unanswered::of(&error))
    }
}

/// Why a server has not answered.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) why: String,
    /// It has not seen the request.
    pub(super) is_unsent: bool,
}

impl Unanswered {
    fn unsent(error: &dyn Error) -> Self {
        Self { why: told(error), is_unsent: true }
    }

    fn of(error: &ClientError) -> Self {
        Self { why: told(error), is_unsent: error.is_connect() }
    }
}

/// The innermost cause, which is the one that helps.
pub(super) fn told(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Makes connections to one server.
#[derive(Clone)]
struct Connector {
    url: Arc<Url>,
    tls: Option<Arc<ClientConfig>>,
}

impl Connector {
    async fn connect(self) -> io::Result<TokioIo<Wire>> {
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let tcp = TcpStream::connect((host, self.url.port_or_known_default().unwrap_or(0))).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = self.tls else { return Ok(TokioIo::new(Wire(Box::pin(tcp)))) };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(TokioIo::new(Wire(Box::pin(TlsConnector::from(tls).connect(name, tcp).await?))))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Wire>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = self.clone().connect();
        Box::pin(async { timeout(CONNECTED, connecting).await.map_err(io::Error::from)? })
    }
}

trait Io: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

/// A connection, over TLS or not.
struct Wire(Pin<Box<dyn Io>>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(context, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(context)
    }
}
