//! Errors as the Connect protocol tells them: a status of HTTP, and code, message and details in JSON.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::{Code, Status, body::Body, codegen::http as wire};
use tonic_types::{StatusExt as _, pb};

use super::unary::seconds;

/// The response of an error.
pub(super) fn response(status: &Status) -> wire::Response<Body> {
    let (code, name) = told(status.code());
    let mut error = json!({"code": name, "message": status.message()});
    let details = details(status);
    if !details.is_empty() {
        error["details"] = details.into();
    }
    let mut response = wire::Response::new(Body::new(error.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(pause) = status.get_details_retry_info().and_then(|info| info.retry_delay) {
        // Whole seconds, of which none is too few.
        headers.insert(header::RETRY_AFTER, (pause.as_millis().div_ceil(1_000) as u64).into());
    }
    guard(headers);
    response
}

/// Nothing that is told is kept on the way, or taken for something else.
pub(super) fn guard(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Each detail with its type and its bytes, and in `debug` as text.
fn details(status: &Status) -> Vec<Value> {
    let whole = pb::Status::decode(status.details()).unwrap_or_default();
    let debug = |name: &str| match name {
        "google.rpc.ErrorInfo" => status
            .get_details_error_info()
            .map(|info| json!({"reason": info.reason, "domain": info.domain, "metadata": info.metadata})),
        "google.rpc.RetryInfo" => {
            status.get_details_retry_info().map(|info| json!({"retryDelay": info.retry_delay.map(seconds)}))
        }
        "google.rpc.BadRequest" => status.get_details_bad_request().map(|bad| {
            let fields = bad.field_violations.iter();
            let fields = fields.map(|one| json!({"field": one.field, "description": one.description}));
            json!({"fieldViolations": fields.collect::<Vec<_>>()})
        }),
        _ => None,
    };
    let all = whole.details.iter().map(|detail| {
        let name = detail.type_url.rsplit('/').next().unwrap_or_default();
        let mut told = json!({"type": name, "value": STANDARD_NO_PAD.encode(&detail.value)});
        if let Some(debug) = debug(name) {
            told["debug"] = debug;
        }
        told
    });
    all.collect()
}

/// The status of HTTP, and the name of a code. (<https://connectrpc.com/docs/protocol#error-codes>)
const fn told(code: Code) -> (u16, &'static str) {
    match code {
        Code::Ok | Code::Unknown => (500, "unknown"),
        Code::Cancelled => (499, "canceled"),
        Code::InvalidArgument => (400, "invalid_argument"),
        Code::DeadlineExceeded => (504, "deadline_exceeded"),
        Code::NotFound => (404, "not_found"),
        Code::AlreadyExists => (409, "already_exists"),
        Code::PermissionDenied => (403, "permission_denied"),
        Code::ResourceExhausted => (429, "resource_exhausted"),
        Code::FailedPrecondition => (400, "failed_precondition"),
        Code::Aborted => (409, "aborted"),
        Code::OutOfRange => (400, "out_of_range"),
        Code::Unimplemented => (501, "unimplemented"),
        Code::Internal => (500, "internal"),
        Code::Unavailable => (503, "unavailable"),
        Code::DataLoss => (500, "data_loss"),
        Code::Unauthenticated => (401, "unauthenticated"),
    }
}
