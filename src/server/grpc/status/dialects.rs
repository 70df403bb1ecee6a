//! Statuses of rejected requests over HTTP without gRPC.

use tonic::{Code, Status};

use super::{clip_text, status};
use crate::grpc::{limits::MESSAGE_BYTES_MAX, malformed::MalformedField};

/// A request for a method in a format that it does not take.
pub(in crate::grpc) fn content_type_unknown(kind: &str) -> Status {
    let is = if kind.is_empty() { "is missing".to_owned() } else { format!("is {:?}", clip_text(kind)) };
    let problem = format!("{is}; it must be application/json, application/proto or application/grpc");
    MalformedField::new("content-type", problem).into()
}

/// A request for a method by another verb of HTTP.
pub(in crate::grpc) fn takes_post() -> Status {
    Status::new(Code::Unimplemented, "this method takes POST only, with the request as its body")
}

/// A deadline that cannot be read.
pub(in crate::grpc) fn timeout_unreadable() -> Status {
    MalformedField::new("connect-timeout-ms", "must be a number of milliseconds, of ten digits at most").into()
}

/// A body of an unknown compression, or of another one than its header has.
pub(in crate::grpc) fn encoding_unknown() -> Status {
    MalformedField::new("content-encoding", "must be identity or gzip, as the body is encoded").into()
}

/// A body beyond the maximum of a message.
pub(in crate::grpc) fn body_too_large() -> Status {
    Status::new(Code::OutOfRange, format!("the body has more than {MESSAGE_BYTES_MAX} bytes, the maximum of a message"))
}

/// A page of an origin that is not allowed.
pub(in crate::grpc) fn origin_status() -> Status {
    let message = "pages of this origin may not send requests: the server's --origin lists the allowed ones";
    status(Code::PermissionDenied, "ORIGIN_REFUSED", message, None)
}

/// A request to a foreign name, where no credential is required (DNS rebinding): a page may have a name of its own
/// resolve to this machine.
pub(in crate::grpc) fn host_name_status() -> Status {
    let message = "use an IP address or localhost: without credentials this server refuses other names";
    status(Code::PermissionDenied, "ORIGIN_REFUSED", message, None)
}

/// A streaming method over a protocol of one message.
pub(in crate::grpc) fn streams() -> Status {
    Status::new(Code::Unimplemented, "this method streams messages, which requires gRPC")
}
