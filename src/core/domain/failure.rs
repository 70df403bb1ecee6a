//! What went wrong with a tool call, as one of a closed set of kinds.

/// The kind of a failure. `retry::classify` finds it; retry statistics are kept per kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// No answer within the time allowed.
    Timeout,
    /// The provider asks for fewer calls.
    RateLimited,
    /// The provider says that it cannot serve at the moment.
    Unavailable,
    /// The connection could not be made or broke.
    Network,
    /// Somebody else holds or changed the thing: a lock, a version, a serialisation failure.
    Conflict,
    /// The caller's credentials are missing or wrong.
    Auth,
    /// The caller is known, and may not.
    Permission,
    /// The thing asked for does not exist.
    NotFound,
    /// The arguments cannot be accepted, whenever they are sent.
    InvalidArgument,
    /// A paid or daily allowance is spent: waiting seconds does not bring it back.
    QuotaExhausted,
    /// The provider broke inside.
    Internal,
    /// None of the above could be told from the error.
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

    /// True when such a failure may pass by itself: it says something about the tool, and not about the arguments.
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
    /// How long the provider asks to wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
}
