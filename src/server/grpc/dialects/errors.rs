//! Errors of the Connect protocol: an HTTP status, and code, message and details in JSON.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use http::{HeaderValue, header};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::{Code, Status, body::Body, codegen::http as wire};
use tonic_types::{StatusExt as _, pb};

use super::unary::seconds;
use crate::grpc::status::{to_code_name, to_http_status};

/// The response of an error.
pub(super) fn response(status: &Status) -> wire::Response<Body> {
    let mut error = json!({"code": to_connect_name(status.code()), "message": status.message()});
    let details = details(status);
    if !details.is_empty() {
        error["details"] = details.into();
    }
    let mut response = wire::Response::new(Body::new(error.to_string()));
    *response.status_mut() = to_http_status(status.code());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(pause) = status.get_details_retry_info().and_then(|info| info.retry_delay) {
        // Whole seconds, of which none is too few.
        headers.insert(header::RETRY_AFTER, (pause.as_millis().div_ceil(1_000) as u64).into());
    }
    headers.extend(crate::web::guard_headers());
    response
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

/// The name of a code, which is not quite that of gRPC.
fn to_connect_name(code: Code) -> String {
    match code {
        Code::Cancelled => "canceled".to_owned(),
        code => to_code_name(code).to_ascii_lowercase(),
    }
}
