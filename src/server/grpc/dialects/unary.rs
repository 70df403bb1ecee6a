//! Conversion of unary requests and responses between Connect and gRPC.

use std::{convert::Infallible, io::Read as _, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::read::GzDecoder;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited, StreamBody};
use tonic::{Code, Status, body::Body, codegen::http as wire};

use super::{errors, messages::Method};
use crate::grpc::{limits::MESSAGE_BYTES_MAX, server::Services, status};

/// The caller's deadline, in milliseconds.
const TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_STATUS: &str = "grpc-status";
/// Prefix of a gRPC message: a byte for compression, and its length in four bytes.
const PREFIX_BYTES: usize = 5;
/// Headers of a connection, and those of a body's format: of one dialect only.
const OWN: [HeaderName; 6] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::ACCEPT_ENCODING,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    TIMEOUT,
];

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    /// That of a content type.
    pub(super) fn of(kind: &[u8]) -> Option<Self> {
        let kind = kind.split(|byte| *byte == b';').next()?.trim_ascii();
        match kind {
            b"application/json" => Some(Self::Json),
            b"application/proto" => Some(Self::Protobuf),
            _ => None,
        }
    }

    const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/proto",
        })
    }
}

/// Calls a gRPC service, and converts its response to Connect.
pub(super) async fn answer_unary(
    services: Services,
    request: wire::Request<Body>,
    method: Method,
    encoding: Encoding,
) -> Result<wire::Response<Body>, Infallible> {
    if method.streams {
        return Ok(errors::response(&status::streams()));
    }
    let asked = match to_grpc_request(request, method.clone(), encoding) {
        Ok(asked) => asked,
        Err(wrong) => return Ok(errors::response(&wrong)),
    };
    let Ok(response) = services.observe(asked).await;
    Ok(to_connect_response(response, &method, encoding).await.unwrap_or_else(|wrong| errors::response(&wrong)))
}

/// The request of gRPC. Its body is read on demand, which is after authentication.
fn to_grpc_request(
    request: wire::Request<Body>,
    method: Method,
    encoding: Encoding,
) -> Result<wire::Request<Body>, Status> {
    let (mut head, body) = request.into_parts();
    let timeout = head.headers.get(&TIMEOUT).map(grpc_timeout).transpose()?;
    let is_gzip = match head.headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => false,
        Some(b"gzip") => true,
        Some(_) => return Err(status::encoding_unknown()),
    };
    OWN.iter().for_each(|name| drop(head.headers.remove(name)));
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    head.headers.extend(timeout.map(|timeout| (GRPC_TIMEOUT, timeout)));
    let frame = async move {
        let bytes = body_of(body).await?;
        let bytes = if is_gzip { decompress(&bytes)? } else { bytes };
        let message = match encoding {
            Encoding::Json => method.request(&bytes)?.into(),
            Encoding::Protobuf => bytes,
        };
        Ok::<_, Status>(Frame::data(frame_message(&message)))
    };
    Ok(wire::Request::from_parts(head, Body::new(StreamBody::new(Box::pin(stream::once(frame))))))
}

fn grpc_timeout(value: &HeaderValue) -> Result<HeaderValue, Status> {
    let digits = value.to_str().ok().filter(|text| (1..=10).contains(&text.len()));
    let millis: u64 = digits.and_then(|text| text.parse().ok()).ok_or_else(status::timeout_unreadable)?;
    // gRPC has eight digits.
    let text = if millis < 100_000_000 { format!("{millis}m") } else { format!("{}S", millis / 1_000) };
    HeaderValue::from_str(&text).map_err(|_| status::timeout_unreadable())
}

async fn body_of(body: Body) -> Result<Bytes, Status> {
    match Limited::new(body, MESSAGE_BYTES_MAX).collect().await {
        Ok(body) => Ok(Collected::to_bytes(body)),
        Err(error) if error.is::<LengthLimitError>() => Err(status::body_too_large()),
        Err(_) => Err(Status::cancelled("the body ended before its end")),
    }
}

fn decompress(bytes: &[u8]) -> Result<Bytes, Status> {
    let mut plain = Vec::new();
    let limit = MESSAGE_BYTES_MAX as u64 + 1;
    GzDecoder::new(bytes).take(limit).read_to_end(&mut plain).map_err(|_| status::encoding_unknown())?;
    if plain.len() > MESSAGE_BYTES_MAX { Err(status::body_too_large()) } else { Ok(plain.into()) }
}

fn frame_message(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

/// Converts a gRPC response to one of Connect.
async fn to_connect_response(
    response: wire::Response<Body>,
    method: &Method,
    encoding: Encoding,
) -> Result<wire::Response<Body>, Status> {
    let (head, body) = response.into_parts();
    if let Some(status) = status_of(&head.headers) {
        return Err(status);
    }
    let lost = || Status::internal("the answer was lost on its way");
    let body = body.collect().await.map_err(|_| lost())?;
    let end = body.trailers().and_then(status_of);
    if let Some(status) = end {
        return Err(status);
    }
    let bytes = body.to_bytes();
    let message = bytes.get(PREFIX_BYTES..).ok_or_else(lost)?;
    let content = match encoding {
        Encoding::Protobuf => Bytes::copy_from_slice(message),
        Encoding::Json => method.answer(message).map_err(|_| lost())?.into(),
    };
    let mut response = wire::Response::new(Body::new(http_body_util::Full::new(content)));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, encoding.content_type());
    headers.extend(crate::web::guard_headers());
    Ok(response)
}

/// A status that is no success.
fn status_of(headers: &HeaderMap) -> Option<Status> {
    headers.get(GRPC_STATUS)?;
    Status::from_header_map(headers).filter(|status| status.code() != Code::Ok)
}

/// A pause as JSON has it.
pub(super) fn seconds(pause: Duration) -> String {
    format!("{}s", pause.as_secs_f64())
}
