//! Statuses of rejected requests over HTTP without gRPC.

use tonic::{Code, Status};

use super::status;
use crate::grpc::{limits::MESSAGE_BYTES_MAX, malformed::MalformedField};

/// A body that is no message of this name; `error` has the fault and its position.
pub(in crate::grpc) fn not_json(name: &str, error: &str) -> Status {
    MalformedField::new("body", format!("is no {name} in JSON: {error}")).into()
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
