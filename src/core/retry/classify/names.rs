//! Error names of callers, languages, clients and systems.

use crate::domain::failure::FailureKind::{
    Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Other, Permission, QuotaExhausted, Timeout,
    Unavailable,
};

use super::codes::{
    Group,
    NameCertainty::{AskStatus, AskText, Sure},
};

// Exception classes of HTTP clients, SDKs and languages, and the plain words that callers use. The endings Error and
// Exception do not count, so `Timeout` covers `TimeoutError` and `TimeoutException`.
#[rustfmt::skip]
pub(super) const CALLERS: &[Group] = &[
    (Timeout, Sure, &["Timeout", "ReadTimeout", "WriteTimeout", "ConnectTimeout", "PoolTimeout", "ConnectionTimeout",
        "APITimeoutError", "APIConnectionTimeoutError", "SocketTimeoutException", "HttpTimeoutException",
        "ServerTimeoutError", "TimeoutExpired", "GatewayTimeout", "HeadersTimeoutError", "BodyTimeoutError",
        "StatementTimeout", "LambdaTimeout", "timed_out"]),
    (Network, AskText, &["Connection", "APIConnectionError", "NetworkError", "ConnectError", "MaxRetryError",
        "ProtocolError", "ClientConnectorError", "ClientOSError", "SocketException"]),
    (Network, Sure, &["ConnectionRefusedError", "ConnectionResetError", "ConnectionAbortedError", "ConnectionFailed",
        "BrokenPipeError", "gaierror", "ReadError", "WriteError", "RemoteProtocolError", "ServerDisconnectedError",
        "RemoteDisconnected", "ChunkedEncodingError", "IncompleteRead", "SSLError", "SSLHandshakeException",
        "ProxyError", "NewConnectionError", "NameResolutionError", "UnknownHostException",
        "NoRouteToHostException"]),
    (Unavailable, Sure, &["BadGateway", "Overloaded"]),
    (Auth, Sure, &["Auth", "InvalidCredentials", "NoCredentialsError", "LoginRequired", "BadCredentialsException"]),
    (Permission, Sure, &["AuthorizationError", "NotAllowed"]),
    (NotFound, Sure, &["FileNotFoundError", "MethodNotFound", "UnknownTool", "ToolNotFound", "NotImplemented"]),
    (Conflict, Sure, &["FileExistsError", "OptimisticLockError", "StaleObjectState", "StaleData", "Locked",
        "VersionConflict", "ConcurrentModificationException"]),
    (InvalidArgument, AskStatus, &["Validation", "BadRequest", "UnprocessableEntity"]),
    (InvalidArgument, Sure, &["InvalidParams", "InvalidArguments", "InvalidInput", "SchemaValidation", "ZodError",
        "JSONSchemaValidation", "MissingSchema", "InvalidSchema", "InvalidURL", "bad_arguments"]),
    (QuotaExhausted, Sure, &["OutOfCredits", "PaymentRequired", "usage_limit_reached"]),
];

#[rustfmt::skip]
pub(super) const DATABASES: &[Group] = &[
    (Conflict, Sure, &["DeadlockDetected", "SerializationFailure", "LockNotAvailable", "UniqueViolation",
        "ER_LOCK_DEADLOCK", "ER_LOCK_WAIT_TIMEOUT", "ER_DUP_ENTRY", "SQLITE_BUSY", "SQLITE_LOCKED",
        "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "WriteConflict", "UNABLE_TO_LOCK_ROW"]),
    (Auth, Sure, &["ER_ACCESS_DENIED_ERROR"]),
    (Permission, Sure, &["InsufficientPrivilege", "ER_DBACCESS_DENIED_ERROR", "ER_TABLEACCESS_DENIED_ERROR"]),
    (Permission, Sure, &["SQLITE_READONLY"]),
    (NotFound, Sure, &["UndefinedTable", "UndefinedFunction", "ER_NO_SUCH_TABLE", "ER_BAD_DB_ERROR"]),
    (InvalidArgument, Sure, &["UndefinedColumn", "NotNullViolation", "ForeignKeyViolation", "CheckViolation",
        "InvalidTextRepresentation", "ER_PARSE_ERROR", "ER_BAD_FIELD_ERROR", "SQLITE_CONSTRAINT_NOTNULL",
        "SQLITE_CONSTRAINT_FOREIGNKEY", "SQLITE_CONSTRAINT_CHECK"]),
    (Unavailable, Sure, &["ER_CON_COUNT_ERROR", "ER_SERVER_SHUTDOWN", "SQLITE_FULL"]),
    (Network, Sure, &["PROTOCOL_CONNECTION_LOST"]),
    (Timeout, Sure, &["ER_QUERY_TIMEOUT"]),
    (Timeout, AskText, &["QueryCanceled"]),
];

// errno of libc and Node, and the codes of Node's HTTP clients.
#[rustfmt::skip]
pub(super) const SYSTEM: &[Group] = &[
    (Network, Sure, &["ECONNRESET", "ECONNREFUSED", "EPIPE", "ENOTFOUND", "EAI_AGAIN", "EAI_NONAME", "EAI_FAIL",
        "EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ENETRESET", "ENOTCONN", "EPROTO", "UND_ERR_SOCKET",
        "CERT_HAS_EXPIRED", "DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN",
        "UNABLE_TO_VERIFY_LEAF_SIGNATURE", "ERR_TLS_CERT_ALTNAME_INVALID"]),
    (Network, AskText, &["ECONNABORTED", "ERR_NETWORK"]),
    (Timeout, Sure, &["ETIMEDOUT", "ESOCKETTIMEDOUT", "ETIME", "UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT",
        "UND_ERR_BODY_TIMEOUT"]),
    (Permission, Sure, &["EACCES", "EPERM", "EROFS"]),
    (NotFound, Sure, &["ENOENT", "ESRCH", "ENODEV", "ENXIO"]),
    (Conflict, Sure, &["EBUSY", "ETXTBSY", "EDEADLK", "EEXIST", "ESTALE"]),
    (InvalidArgument, Sure, &["EINVAL", "ENOTDIR", "EISDIR", "ENAMETOOLONG", "ERANGE", "E2BIG", "ERR_INVALID_URL",
        "ERR_INVALID_ARG_TYPE"]),
    (Unavailable, Sure, &["EAGAIN", "EWOULDBLOCK", "ENOMEM", "ENOSPC", "EMFILE", "ENFILE", "ENOBUFS"]),
    (QuotaExhausted, Sure, &["EDQUOT"]),
    (Internal, Sure, &["EIO"]),
    // Node's name for every cancelled request, by any party.
    (Other, Sure, &["ERR_CANCELED"]),
];
