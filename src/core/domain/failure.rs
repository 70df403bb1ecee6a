//! Failure kinds: a closed set.

/// Kind of a failure. `retry::classify` determines it; retry statistics are kept per kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// No answer within the time allowed.
    Timeout,
    /// The provider asks for fewer calls.
    RateLimited,
    /// The provider is temporarily unavailable.
    Unavailable,
    /// The connection could not be made or broke.
    Network,
    /// A lock, version or serialization conflict.
    Conflict,
    /// The caller's credentials are missing or wrong.
    Auth,
    /// The caller is authenticated, and not authorized.
    Permission,
    /// The thing asked for does not exist.
    NotFound,
    /// The arguments cannot be accepted, whenever they are sent.
    InvalidArgument,
    /// A paid or daily allowance is spent: waiting seconds does not bring it back.
    QuotaExhausted,
    /// Internal error of the provider.
    Internal,
    /// Unclassified.
    Other,
}

impl FailureKind {
    /// Every kind, in the order of its stored code.
    pub const ALL: [Self; 12] = [
        Self::Timeout,
        Self::RateLimited,
        Self::Unavailable,
        Self::Network,
        Self::Conflict,
        Self::Auth,
        Self::Permission,
        Self::NotFound,
        Self::InvalidArgument,
        Self::QuotaExhausted,
        Self::Internal,
        Self::Other,
    ];

    /// The name used in texts, SQL, metrics and `error_type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::Network => "network",
            Self::Conflict => "conflict",
            Self::Auth => "auth",
            Self::Permission => "permission",
            Self::NotFound => "not_found",
            Self::InvalidArgument => "invalid_argument",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Internal => "internal",
            Self::Other => "other",
        }
    }

    /// The kind of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

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
