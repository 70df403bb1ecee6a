//! OTLP collector process that counts and discards, so that telemetry is measured without storage.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use prost::Message as _;
use serde::Serialize;
use tokio::sync::watch;
use tonic::{
    Request, Response, Status,
    body::Body,
    client,
    codegen::{Service, http},
    server::{self, UnaryService},
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use callgate_net::listener::{BoundListener, ConnectionLimits, ListenerContext, TransportSettings};
use callgate_server::grpc::Front;

/// Paths of each signal, by gRPC and HTTP.
const SIGNALS: [(&str, &str); 3] = [
    ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", "/v1/traces"),
    ("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "/v1/metrics"),
    ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", "/v1/logs"),
];
/// Path of the counts query.
const COUNTS: &str = "/callgate.bench.Collector/Counts";

/// Counts of received signals, total or in a period.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Serialize)]
pub(super) struct ReceivedCounts {
    #[prost(uint64, tag = "1")]
    pub(super) spans: u64,
    #[prost(uint64, tag = "2")]
    pub(super) metrics: u64,
    #[prost(uint64, tag = "3")]
    pub(super) lines: u64,
}

impl ReceivedCounts {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            spans: self.spans.saturating_sub(before.spans),
            metrics: self.metrics.saturating_sub(before.metrics),
            lines: self.lines.saturating_sub(before.lines),
        }
    }
}

/// Common structure of all signals' export requests, as far as counting needs it.
#[derive(Clone, PartialEq, prost::Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<OfResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OfResource {
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<OfScope>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OfScope {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    said: Vec<Bytes>,
}

/// Serves until stopped.
pub(crate) async fn run() -> anyhow::Result<()> {
    let bound = BoundListener::bind(([127, 0, 0, 1], 0).into(), &TransportSettings::default())?;
    let address = bound.address();
    let listener = bound.listen()?;
    outln!("the collector serves gRPC on {address}");
    let (_end, ending) = watch::channel(false);
    let server = ListenerContext::new(ConnectionLimits::default());
    tokio::select! {
        () = server.serve(listener, Front(Collector::default()), ending) => anyhow::bail!("the collector ended"),
        () = callgate_client::signal::stop() => Ok(()),
    }
}

#[derive(Debug, Clone, Default)]
struct Collector(Arc<[AtomicU64; 3]>);

impl Collector {
    fn take(&self, signal: usize, sent: &Export) {
        let scopes = sent.resources.iter().flat_map(|resource| &resource.scopes);
        let count = scopes.map(|scope| scope.said.len() as u64).sum();
        self.0[signal].fetch_add(count, Ordering::Relaxed);
    }

    fn counts(&self) -> ReceivedCounts {
        let [spans, metrics, lines] = [0, 1, 2].map(|n: usize| self.0[n].load(Ordering::Relaxed));
        ReceivedCounts { spans, metrics, lines }
    }
}

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let collector = self.clone();
        Box::pin(async move {
            let path = request.uri().path();
            if path == COUNTS {
                let codec = ProstCodec::<ReceivedCounts, ()>::default();
                return Ok(server::Grpc::new(codec).unary(CollectorState(collector.counts()), request).await);
            }
            if let Some(signal) = SIGNALS.iter().position(|(grpc, _)| *grpc == path) {
                let codec = ProstCodec::<(), Export>::default();
                return Ok(server::Grpc::new(codec).unary(TakenExport(collector, signal), request).await);
            }
            let mut answer = http::Response::new(Body::empty());
            *answer.status_mut() = match SIGNALS.iter().position(|(_, http)| *http == path) {
                Some(signal) => post_signal(&collector, signal, request.into_body()).await,
                None => http::StatusCode::NOT_FOUND,
            };
            Ok(answer)
        })
    }
}

async fn post_signal(collector: &Collector, signal: usize, body: Body) -> http::StatusCode {
    let Ok(body) = body.collect().await else { return http::StatusCode::BAD_REQUEST };
    match Export::decode(body.to_bytes()) {
        Ok(sent) => {
            collector.take(signal, &sent);
            http::StatusCode::OK
        }
        Err(_) => http::StatusCode::BAD_REQUEST,
    }
}

/// Export of the signal with that index.
struct TakenExport(Collector, usize);

impl UnaryService<Export> for TakenExport {
    type Response = ();
    type Future = Ready<Result<Response<()>, Status>>;

    fn call(&mut self, request: Request<Export>) -> Self::Future {
        self.0.take(self.1, &request.into_inner());
        ready(Ok(Response::new(())))
    }
}

struct CollectorState(ReceivedCounts);

impl UnaryService<()> for CollectorState {
    type Response = ReceivedCounts;
    type Future = Ready<Result<Response<ReceivedCounts>, Status>>;

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(self.0)))
    }
}

/// Client of the counts query.
#[derive(Debug)]
pub(super) struct CollectorProbe(client::Grpc<Channel>);

impl CollectorProbe {
    pub(super) async fn connect(url: &str) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(url.to_owned())?.connect().await.context("the collector")?;
        Ok(Self(client::Grpc::new(channel)))
    }

    pub(super) async fn counts(&mut self) -> anyhow::Result<ReceivedCounts> {
        self.0.ready().await.context("the collector")?;
        let codec = ProstCodec::<(), ReceivedCounts>::default();
        let path = http::uri::PathAndQuery::from_static(COUNTS);
        let told = self.0.unary(Request::new(()), path, codec).await.context("what the collector got")?;
        Ok(told.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_said_is_counted_once_in_whatever_resource_and_scope() {
        let scope = |count| OfScope { said: vec![Bytes::from_static(b"\x0a\x01x"); count] };
        let sent = Export {
            resources: vec![
                OfResource { scopes: vec![scope(2), scope(1)] },
                OfResource { scopes: vec![scope(4)] },
                OfResource::default(),
            ],
        };
        let collector = Collector::default();
        collector.take(0, &Export::decode(sent.encode_to_vec().as_slice()).expect("as it was sent"));
        let before = collector.counts();
        collector.take(2, &sent);
        assert_eq!(before, ReceivedCounts { spans: 7, metrics: 0, lines: 0 });
        assert_eq!(collector.counts().since(before), ReceivedCounts { spans: 0, metrics: 0, lines: 7 });
    }
}
