//! Client of the MCP server at its URL: pooled connections over TCP or TLS.

use std::{error::Error, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use http::{Request, Response, request::Parts};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::{Error as ClientError, connect::dns::GaiResolver};
use url::{Position, Url};

use super::admission;
use callgate_net::client::{HttpClient, cause, client, tls};

/// Idle timeout of a connection, below the 5 seconds of many servers, which could otherwise close it under a call.
const KEPT: Duration = Duration::from_secs(4);

/// A server.
pub(super) struct Upstream {
    url: Url,
    client: HttpClient,
}

impl Upstream {
    /// The server at `url`; `ca` is the authority of its certificate, unless public.
    pub(super) fn new(url: &str, ca: Option<&Path>) -> anyhow::Result<Self> {
        let url = Url::parse(url).context("--url is not a URL")?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            bail!("--url must begin with http:// or https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            bail!("--url: other users of this machine can read it; let the host send the credential as a header");
        }
        let tls = tls(ca).map_err(anyhow::Error::msg)?;
        Ok(Self { url, client: client(GaiResolver::new(), tls, KEPT) })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The URL without its query, which may be a secret.
    pub(super) fn as_public_url(&self) -> &str {
        &self.url[..Position::AfterPath]
    }

    /// Forwards a request with this body.
    pub(super) async fn send(&self, request: &Parts, body: Bytes) -> Result<Response<Incoming>, UpstreamFailure> {
        let mut url = self.url.clone();
        if let Some(query) = request.uri.query() {
            url.set_query(Some(query));
        }
        let mut sent = Request::new(Full::new(body));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = url.as_str().parse().map_err(|error| UpstreamFailure::unsent(&error))?;
        *sent.headers_mut() = admission::forward_headers(&request.headers);
        self.send_to(sent).await
    }

    /// Sends a request to any server.
    pub(super) async fn send_to(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, UpstreamFailure> {
        self.client.request(request).await.map_err(|error| UpstreamFailure::of(&error))
    }
}

/// Failure to get a response.
#[derive(Debug)]
pub(super) struct UpstreamFailure {
    pub(super) why: String,
    /// True if the request was never sent.
    pub(super) is_unsent: bool,
}

impl UpstreamFailure {
    fn unsent(error: &dyn Error) -> Self {
        Self { why: cause(error), is_unsent: true }
    }

    fn of(error: &ClientError) -> Self {
        Self { why: cause(error), is_unsent: error.is_connect() }
    }
}
