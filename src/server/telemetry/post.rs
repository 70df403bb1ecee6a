//! HTTP client of the OTLP exporters. It sends on the runtime, since the SDK's threads have none.

use std::{error::Error as _, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use callgate_net::client::{self, Trust};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::{Error, connect::dns::GaiResolver};
use opentelemetry_http::{HttpClient, HttpError};
use parking_lot::Mutex;
use tokio::{runtime::Handle, time::timeout};

use super::environment::Destination;

/// Longest idle time of a connection to a collector.
const KEPT: Duration = Duration::from_secs(90);
/// Longest answer of a collector, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// Cause of the last failed request: the exporter does not report it.
#[derive(Debug, Clone, Default)]
pub(super) struct Cause(Arc<Mutex<Option<String>>>);

impl Cause {
    /// Taken once.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().take()
    }

    fn put_cause(&self, cause: Option<String>) {
        *self.0.lock() = cause;
    }
}

/// The way to one collector.
#[derive(Debug)]
pub(super) struct CollectorClient {
    to: client::HttpClient,
    timeout: Duration,
    runtime: Handle,
    cause: Cause,
}

impl CollectorClient {
    /// A client for `destination` that sends on `runtime`; `cause` gets the cause of a failure.
    pub(super) fn new(destination: &Destination, runtime: Handle, cause: Cause) -> Result<Self, String> {
        let tls = destination.tls.as_ref();
        let identity = tls.and_then(|tls| tls.identity.as_ref());
        let trust = Trust {
            authorities: tls.and_then(|tls| tls.authorities.as_deref()),
            public: true,
            identity: identity.map(|(certificate, key)| (certificate.as_slice(), key.as_slice())),
        };
        let to = client::client(GaiResolver::new(), trust.config()?, KEPT);
        Ok(Self { to, timeout: destination.timeout, runtime, cause })
    }
}

impl HttpClient for CollectorClient {
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
                timeout(limit, send(to, request)).await.map_err(late).flatten()
            });
            let answer = sent.await.map_err(|error| error.to_string()).flatten();
            self.cause.put_cause(answer.as_ref().err().cloned());
            answer.map_err(HttpError::from)
        })
    }
}

async fn send(to: client::HttpClient, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
    // The client's own error has only the failed step.
    let told = |error: Error| error.source().map_or_else(|| error.to_string(), describe_error);
    let response = to.request(request.map(Full::new)).await.map_err(told)?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("its answer cannot be read: {error}"))?.to_bytes();
    Ok(Response::from_parts(head, body))
}

/// An error with its causes.
fn describe_error(error: &dyn std::error::Error) -> String {
    let (mut text, mut error) = (error.to_string(), error);
    while let Some(cause) = error.source() {
        error = cause;
        text.push_str(": ");
        text.push_str(&error.to_string());
    }
    text
}
