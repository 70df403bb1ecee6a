//! Streamable HTTP proxy: listens on this machine and forwards every request to the server's URL unchanged, except for
//! tool calls, which wait for their verdict.

pub(super) mod admission;
mod answer;
mod decoded;
mod exchange;
mod oauth;
mod reply;
mod sessions;
mod stdio;
mod upstream;

use std::{convert::Infallible, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use clap::Args;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use tokio::{sync::watch, time::timeout};

use self::{
    admission::Refusal,
    exchange::Exchange,
    reply::{Body, JSON, ResponseSender, head, whole},
    sessions::Sessions,
    upstream::Upstream,
};
use super::{LAST_WORDS, Setup, lines::LINE_BYTES_MAX, state::Proxy};
use callgate_client::signal;
use callgate_net::listener::{BoundListener, ConnectionLimits, ListenerContext, TransportSettings};

/// Where the proxy listens, and what for.
#[derive(Debug, Args)]
pub(super) struct HttpArgs {
    /// The URL of an MCP server over HTTP: the proxy listens on this machine in its place
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// The proxy's address for --url: give the host http://ADDRESS with the path of --url
    #[arg(long, value_name = "ADDRESS", requires = "url", default_value = "127.0.0.1:7610")]
    listen: SocketAddr,
    /// Serve the host that starts this command by its pipes instead of an address. Each variable CALLGATE_HEADER_NAME
    /// is a header for --url
    #[arg(long, requires = "url", conflicts_with = "listen")]
    pub(super) stdio: bool,
    /// The settings that `callgate mcp wrap --undo` restores
    #[arg(long, value_name = "KEY", requires = "stdio", hide = true)]
    restores: Option<String>,
    /// The certificate of the MCP server's authority [default: the public authorities]
    #[arg(long, value_name = "FILE", requires = "url", hide_short_help = true)]
    url_ca: Option<PathBuf>,
}

/// State shared by all requests.
struct Site {
    upstream: Upstream,
    sessions: Sessions,
    authorization: oauth::OAuthState,
    /// True during shutdown.
    ending: watch::Receiver<bool>,
}

impl Site {
    fn new(upstream: Upstream, setup: Setup, ending: watch::Receiver<bool>) -> Self {
        let authorization = oauth::OAuthState::default();
        Self { upstream, sessions: Sessions::new(setup), authorization, ending }
    }
}

/// Serves until a signal.
pub(super) async fn run(setup: Setup, args: &HttpArgs) -> anyhow::Result<ExitCode> {
    let upstream = Upstream::new(args.url.as_deref().unwrap_or_default(), args.url_ca.as_deref())?;
    if args.stdio {
        let (_end, ending) = watch::channel(false);
        let site = Arc::new(Site::new(upstream, setup, ending));
        let ended = stdio::run(Arc::clone(&site)).await;
        site.sessions.close(LAST_WORDS).await;
        return ended.map(|()| ExitCode::SUCCESS);
    }
    let bound = BoundListener::bind(args.listen, &TransportSettings::default())?;
    let (address, listener) = (bound.address().url(), bound.listen()?);
    setup.options.print_line(&format!(
        "{address}{} serves {} behind the gate",
        upstream.url().path(),
        upstream.as_public_url()
    ));
    let (end, ending) = watch::channel(false);
    let site = Arc::new(Site::new(upstream, setup, ending.clone()));
    let served = Arc::clone(&site);
    let service = service_fn(move |request| answer_request(Arc::clone(&served), request).boxed());
    let server = ListenerContext::new(ConnectionLimits::default());
    let serving = server.serve(listener, service, ending);
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        () = signal::stop() => {
            end.send_replace(true);
            // Pending responses get a short grace period.
            let _ = timeout(LAST_WORDS, serving).await;
        }
    }
    site.sessions.close(LAST_WORDS).await;
    Ok(ExitCode::SUCCESS)
}

/// The reason why a server cannot be behind pipes, by its answer to a first message without a credential.
pub(super) async fn find_objection(url: &str) -> Option<&'static str> {
    let Ok(upstream) = Upstream::new(url, None) else { return Some("its URL is none that the proxy takes") };
    let params = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"callgate","version":"1"}}"#;
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
    let (mut request, ()) = Request::new(()).into_parts();
    request.method = Method::POST;
    for (name, value) in [(header::CONTENT_TYPE, JSON), (header::ACCEPT, "application/json, text/event-stream")] {
        request.headers.insert(name, HeaderValue::from_static(value));
    }
    match timeout(LAST_WORDS, upstream.send(&request, Bytes::from(message))).await {
        Ok(Ok(response)) if [401, 403].contains(&response.status().as_u16()) => Some(
            "it asks its host to sign in: run `callgate mcp-proxy --url` in front of it, and give the host the \
             proxy's address",
        ),
        Ok(Ok(_)) => None,
        _ => Some("it does not answer, so that it is unknown whether it asks its host to sign in"),
    }
}

async fn answer_request(site: Arc<Site>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    Ok(answer(site, request).await.unwrap_or_else(|(status, text)| {
        let kind = if text.starts_with('{') { JSON } else { "text/plain; charset=utf-8" };
        whole(head(status, kind), Bytes::from(text))
    }))
}

async fn answer(site: Arc<Site>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let (request, body) = request.into_parts();
    let own = admission::check_local(&request)?;
    if let Some(endpoint) = oauth::Endpoint::of(&request, site.upstream.url()) {
        return oauth::answer(&site, endpoint, &request, body, &own).await;
    }
    admission::enter(&request, site.upstream.url())?;
    let (proxy, client) = site.sessions.of(&request.headers).map_err(|error| to_refusal(&error))?;
    let body = match request.method {
        Method::POST => read(body, &proxy).await?,
        _ => Bytes::new(),
    };
    let (reply, answer) = ResponseSender::new();
    let exchange = Exchange::new(site, proxy, client, request, own);
    // Detached: requests complete even if their client disconnects.
    tokio::spawn(exchange.run(body, reply));
    answer.await.map_err(|error| to_refusal(&error.into()))
}

/// Reads the body of a POST.
async fn read(body: Incoming, proxy: &Proxy) -> Result<Bytes, Refusal> {
    let body = Limited::new(body, LINE_BYTES_MAX).collect().await.map_err(|error| {
        let problem = match error.is::<http_body_util::LengthLimitError>() {
            true => format!("it is longer than {} MiB", LINE_BYTES_MAX >> 20),
            false => format!("it has no end: {error}"),
        };
        (StatusCode::PAYLOAD_TOO_LARGE, proxy.unreadable(&problem))
    });
    body.map(http_body_util::Collected::to_bytes)
}

fn to_refusal(error: &anyhow::Error) -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("callgate mcp-proxy: {error:#}\n"))
}

/// True for a client of a protocol version without sessions, where closing a stream cancels its request.
fn is_sessionless(headers: &HeaderMap) -> bool {
    headers.get("mcp-protocol-version").is_some_and(|version| version.as_bytes() >= b"2026".as_slice())
}
