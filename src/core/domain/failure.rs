//! Failure kinds: a closed set.

use super::closed_set::closed_set;

closed_set! {
    /// Kind of a failure. `retry::classify` determines it; retry statistics are kept per kind.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum FailureKind {
        /// No answer within the time allowed.
        Timeout = "timeout",
        /// The provider asks for fewer calls.
        RateLimited = "rate_limited",
        /// The provider is temporarily unavailable.
        Unavailable = "unavailable",
        /// The connection could not be made or broke.
        Network = "network",
        /// A lock, version or serialization conflict.
        Conflict = "conflict",
        /// The caller's credentials are missing or wrong.
        Auth = "auth",
        /// The caller is authenticated, and not authorized.
        Permission = "permission",
        /// The thing asked for does not exist.
        NotFound = "not_found",
        /// The arguments cannot be accepted, whenever they are sent.
        InvalidArgument = "invalid_argument",
        /// A paid or daily allowance is spent: waiting seconds does not bring it back.
        QuotaExhausted = "quota_exhausted",
        /// Internal error of the provider.
        Internal = "internal",
        /// Unclassified.
        Other = "other",
    }
}

impl FailureKind {
    /// True for transient kinds: they depend on the tool, not on the arguments.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        use FailureKind::{Conflict, Internal, Network, RateLimited, Timeout, Unavailable};
        matches!(self, Timeout | RateLimited | Unavailable | Network | Conflict | Internal)
    }
}

/// An error as the caller reports it; everything but the message is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorReport {
    /// A type name of the caller's or the provider's: `TimeoutError`, `rate_limit`, `invalid_request_error`.
    pub error_type: Option<String>,
    /// HTTP status of the tool's answer.
    pub http_status: Option<u16>,
    /// gRPC status code of the tool's answer, 0 to 16.
    pub grpc_status: Option<u8>,
    /// The provider's own code: `insufficient_quota`, `ThrottlingException`, SQLSTATE `40001`, `ECONNRESET`.
    pub provider_code: Option<String>,
    /// The error's text, raw.
    pub message: String,
    /// The provider's wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
}
