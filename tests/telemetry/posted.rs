//! OTLP collector over HTTP with TLS, for clients with a certificate of its authority.

use std::{convert::Infallible, io::Read as _, sync::Arc};

use flate2::read::GzDecoder;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};

use crate::{
    certificates::{Authority, der},
    collector::{ExportLogs, ExportMetrics, ExportTraces, ReceivedTelemetry},
};

/// The header that it asks for.
pub(crate) const KEY: (&str, &str) = ("api-key", "of the tests");

/// Serves until the task is stopped; counts connections.
pub(crate) async fn serve(
    listener: TcpListener,
    authority: Authority,
    got: ReceivedTelemetry,
    connections: Arc<std::sync::atomic::AtomicUsize>,
) {
    let mut roots = RootCertStore::empty();
    roots.add(der(&authority.pem)).expect("an authority");
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_client_cert_verifier(verifier.build().expect("a verifier"));
    let shown = authority.server();
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).expect("a key");
    let config = config.with_single_cert(vec![der(&shown.certificate)], key).expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (acceptor, got, connections) = (acceptor.clone(), got.clone(), connections.clone());
        tokio::spawn(async move {
            let stream = acceptor.accept(stream).await.expect("TLS with a certificate");
            connections.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let service = service_fn(move |request| answer(got.clone(), request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(got: ReceivedTelemetry, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let said = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let as_asked = said(KEY.0).as_deref() == Some(KEY.1)
        && said(header::CONTENT_TYPE.as_str()).as_deref() == Some("application/x-protobuf")
        && said(header::CONTENT_ENCODING.as_str()).as_deref() == Some("gzip")
        && said(header::HOST.as_str()).is_some_and(|host| host.starts_with("localhost:"));
    let packed = body.collect().await.expect("a body").to_bytes();
    let mut body = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut body).expect("gzip");
    match head.uri.to_string().as_str() {
        _ if !as_asked => return Ok(respond_with(StatusCode::BAD_REQUEST)),
        "/otel/v1/traces" => got.traces(ExportTraces::decode(&body[..]).expect("traces")),
        "/otel/v1/metrics" => got.metrics(ExportMetrics::decode(&body[..]).expect("metrics")),
        "/otel/v1/logs" => got.logs(ExportLogs::decode(&body[..]).expect("logs")),
        _ => return Ok(respond_with(StatusCode::NOT_FOUND)),
    }
    Ok(respond_with(StatusCode::OK))
}

fn respond_with(status: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}
