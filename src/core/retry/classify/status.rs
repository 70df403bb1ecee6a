//! HTTP and gRPC statuses.

use crate::domain::failure::FailureKind::{
    self, Auth, Conflict, Internal, InvalidArgument, NotFound, Permission, QuotaExhausted, RateLimited, Timeout,
    Unavailable,
};

/// The usual kind of an HTTP status. None for successes and ambiguous statuses.
pub(super) const fn of_http(status: u16) -> Option<FailureKind> {
    Some(match status {
        400 | 405 | 406 | 411 | 413..=417 | 422 | 428 | 431 => InvalidArgument,
        401 | 407 | 440 => Auth,
        402 => QuotaExhausted,
        403 | 451 => Permission,
        404 | 410 | 501 => NotFound,
        // 522 and 524 are Cloudflare's, 598 and 599 those of several proxies.
        408 | 504 | 522 | 524 | 598 | 599 => Timeout,
        409 | 412 | 423 => Conflict,
        429 => RateLimited,
        // 520 to 530 are Cloudflare's "the origin does not answer"; 529 is Anthropic's overload.
        502 | 503 | 507 | 520..=530 => Unavailable,
        // RFC 9110, section 15: an unknown 5xx is read as 500.
        500..=599 => Internal,
        _ => return None,
    })
}

/// The usual kind of a gRPC status code. CANCELLED, UNKNOWN and `FAILED_PRECONDITION` are ambiguous.
pub(super) const fn of_grpc(code: u8) -> Option<FailureKind> {
    Some(match code {
        // 6 is ALREADY_EXISTS: the existing thing stays.
        3 | 6 | 11 => InvalidArgument,
        4 => Timeout,
        5 | 12 => NotFound,
        10 => Conflict,
        7 => Permission,
        8 => RateLimited,
        13 | 15 => Internal,
        14 => Unavailable,
        16 => Auth,
        _ => return None,
    })
}
