//! Codes of gRPC as text, and as statuses of HTTP.

use http::StatusCode;
use tonic::Code;

/// Its name, as telemetry has it, and its status of HTTP. (<https://connectrpc.com/docs/protocol#error-codes>)
const fn code(code: Code) -> (&'static str, u16) {
    match code {
        Code::Ok => ("OK", 200),
        Code::Cancelled => ("CANCELLED", 499),
        Code::Unknown => ("UNKNOWN", 500),
        Code::InvalidArgument => ("INVALID_ARGUMENT", 400),
        Code::DeadlineExceeded => ("DEADLINE_EXCEEDED", 504),
        Code::NotFound => ("NOT_FOUND", 404),
        Code::AlreadyExists => ("ALREADY_EXISTS", 409),
        Code::PermissionDenied => ("PERMISSION_DENIED", 403),
        Code::ResourceExhausted => ("RESOURCE_EXHAUSTED", 429),
        Code::FailedPrecondition => ("FAILED_PRECONDITION", 400),
        Code::Aborted => ("ABORTED", 409),
        Code::OutOfRange => ("OUT_OF_RANGE", 400),
        Code::Unimplemented => ("UNIMPLEMENTED", 501),
        Code::Internal => ("INTERNAL", 500),
        Code::Unavailable => ("UNAVAILABLE", 503),
        Code::DataLoss => ("DATA_LOSS", 500),
        Code::Unauthenticated => ("UNAUTHENTICATED", 401),
    }
}

/// The name of a code: `DEADLINE_EXCEEDED`.
pub(in crate::grpc) const fn to_code_name(of: Code) -> &'static str {
    code(of).0
}

/// The status of HTTP that an error of this code has.
pub fn to_http_status(of: Code) -> StatusCode {
    StatusCode::from_u16(code(of).1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
