//! OTLP collector over gRPC, as far as the tests read it.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use tonic::{body::Body, codec::CompressionEncoding::Gzip, codegen::Service, server::NamedService};

/// Received parts of OTLP messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedTelemetry {
    pub(crate) resources: Arc<Mutex<Vec<Resource>>>,
    pub(crate) spans: Arc<Mutex<Vec<Span>>>,
    pub(crate) metrics: Arc<Mutex<Vec<Metric>>>,
    pub(crate) records: Arc<Mutex<Vec<Record>>>,
    /// Credentials received over gRPC.
    pub(crate) keys: Arc<Mutex<Vec<http::HeaderValue>>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportTraces {
    #[prost(message, repeated, tag = "1")]
    pub(crate) of: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "13")]
    pub(crate) links: Vec<Link>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Link {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportLogs {
    #[prost(message, repeated, tag = "1")]
    pub(crate) of: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceLogs {
    #[prost(message, repeated, tag = "2")]
    pub(crate) scopes: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    pub(crate) records: Vec<Record>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Record {
    #[prost(message, optional, tag = "5")]
    pub(crate) body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) attributes: Vec<Attribute>,
    #[prost(bytes = "vec", tag = "9")]
    pub(crate) trace_id: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportMetrics {
    #[prost(message, repeated, tag = "1")]
    pub(crate) of: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scopes: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    pub(crate) metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Metric {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AnyValue {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
    #[prost(int64, tag = "3")]
    pub(crate) number: i64,
}

impl ReceivedTelemetry {
    pub(crate) fn traces(&self, sent: ExportTraces) {
        let spans = sent.of.iter().flat_map(|of| &of.scopes).flat_map(|scope| scope.spans.clone());
        self.spans.lock().expect("whole").extend(spans);
        self.resources.lock().expect("whole").extend(sent.of.into_iter().filter_map(|of| of.resource));
    }

    pub(crate) fn metrics(&self, sent: ExportMetrics) {
        let metrics = sent.of.iter().flat_map(|of| &of.scopes).flat_map(|scope| scope.metrics.clone());
        self.metrics.lock().expect("whole").extend(metrics);
        self.resources.lock().expect("whole").extend(sent.of.into_iter().filter_map(|of| of.resource));
    }

    pub(crate) fn logs(&self, sent: ExportLogs) {
        let records = sent.of.iter().flat_map(|of| &of.scopes).flat_map(|scope| scope.records.clone());
        self.records.lock().expect("whole").extend(records);
    }
}

/// A gRPC service of one method that keeps its requests and responds with an empty message.
macro_rules! service {
    ($service:ident, $name:literal, $export:ty, $keep:expr) => {
        #[derive(Debug, Clone)]
        pub(crate) struct $service(pub(crate) ReceivedTelemetry);

        impl NamedService for $service {
            const NAME: &'static str = $name;
        }

        impl Service<tonic::Request<$export>> for $service {
            type Response = tonic::Response<()>;
            type Error = tonic::Status;
            type Future = std::future::Ready<Result<tonic::Response<()>, tonic::Status>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), tonic::Status>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: tonic::Request<$export>) -> Self::Future {
                $keep(&self.0, request.into_inner());
                std::future::ready(Ok(tonic::Response::new(())))
            }
        }

        impl Service<http::Request<Body>> for $service {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<Body>) -> Self::Future {
                let service = self.clone();
                self.0.keys.lock().expect("whole").extend(request.headers().get("api-key").cloned());
                Box::pin(async move {
                    let codec = tonic_prost::ProstCodec::<(), $export>::default();
                    Ok(tonic::server::Grpc::new(codec).accept_compressed(Gzip).unary(service, request).await)
                })
            }
        }
    };
}

service!(Traces, "opentelemetry.proto.collector.trace.v1.TraceService", ExportTraces, ReceivedTelemetry::traces);
service!(Metrics, "opentelemetry.proto.collector.metrics.v1.MetricsService", ExportMetrics, ReceivedTelemetry::metrics);
service!(Logs, "opentelemetry.proto.collector.logs.v1.LogsService", ExportLogs, ReceivedTelemetry::logs);
