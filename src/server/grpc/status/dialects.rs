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
    MalformedField::new("content-encoding", "must be identity or gzip, and what the body is in").into()
}

/// More than a message may have.
pub(in crate::grpc) fn body_too_large() -> Status {
    Status::new(
        Code::OutOfRange,
        format!("the body has more than the {MESSAGE_BYTES_MAX} bytes that a message may have"),
    )
}

/// A page of an origin that may not ask.
pub(in crate::grpc) fn origin_status() -> Status {
    let message = "pages of this origin may not ask here: the server's --origin lists those that may";
    status(Code::PermissionDenied, "ORIGIN_REFUSED", message, None)
}

/// A request to a foreign name, where no credential is required: a page may have a name of its own resolve to this
/// machine.
pub(in crate::grpc) fn host_name_status() -> Status {
    let message = "ask by an address or as localhost: without credentials no other name of this server is answered";
    status(Code::PermissionDenied, "ORIGIN_REFUSED", message, None)
}

/// A method of several messages, asked for with one.
pub(in crate::grpc) fn streams() -> Status {
    Status::new(Code::Unimplemented, "this method sends several messages, which takes gRPC")
}
