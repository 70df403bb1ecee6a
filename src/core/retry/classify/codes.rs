//! Error codes of providers, in their own spelling.

use std::{collections::BTreeMap, sync::LazyLock};

use crate::domain::failure::FailureKind::{
    self, Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Other, Permission, QuotaExhausted, RateLimited,
    Timeout, Unavailable,
};

use super::{
    codes::NameCertainty::{AskStatus, AskText, Sure},
    names, sqlstate, status,
};

/// Certainty of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameCertainty {
    /// Decides alone.
    Sure,
    /// The message may refine it.
    AskText,
    /// Ambiguous across statuses: a status decides, and the message may refine it.
    AskStatus,
}

/// Meaning of a known name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) kind: FailureKind,
    pub(super) reading: NameCertainty,
}

/// Synonymous names.
pub(super) type Group = (FailureKind, NameCertainty, &'static [&'static str]);

#[rustfmt::skip]
const OPENAI: &[Group] = &[
    (QuotaExhausted, Sure, &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active",
        "credit_balance_exhausted", "organization_spend_limit_exceeded", "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded"]),
    // Also sent for daily limits and for a single request above the limit.
    (RateLimited, AskText, &["rate_limit_exceeded", "rate_limit_reached"]),
    (RateLimited, Sure, &["slow_down"]),
    (Unavailable, Sure, &["server_is_overloaded", "engine_overloaded"]),
    (Auth, Sure, &["invalid_api_key", "incorrect_api_key", "account_deactivated", "mismatched_organization"]),
    (Permission, Sure, &["unsupported_country_region_territory", "insufficient_permissions"]),
    (NotFound, Sure, &["model_not_found", "DeploymentNotFound", "previous_response_not_found"]),
    (InvalidArgument, Sure, &["context_length_exceeded", "string_above_max_length", "invalid_prompt", "invalid_type",
        "invalid_value", "unknown_parameter", "unsupported_parameter", "unsupported_value",
        "missing_required_parameter", "invalid_function_parameters", "content_policy_violation", "content_filter",
        "invalid_json", "integer_above_max_value", "decimal_above_max_value"]),
    (Internal, AskStatus, &["server_error"]),
];

#[rustfmt::skip]
const ANTHROPIC: &[Group] = &[
    // An empty purse is an invalid_request_error too; OpenAI sends it with 401 and 404, Stripe with 404.
    (InvalidArgument, AskStatus, &["invalid_request_error"]),
    (InvalidArgument, Sure, &["request_too_large"]),
    (Auth, Sure, &["authentication_error"]),
    (QuotaExhausted, Sure, &["billing_error"]),
    (Permission, Sure, &["permission_error"]),
    (NotFound, Sure, &["not_found_error"]),
    (Conflict, Sure, &["conflict_error"]),
    (RateLimited, AskText, &["rate_limit_error"]),
    (Internal, AskStatus, &["api_error"]),
    (Timeout, Sure, &["timeout_error"]),
    (Unavailable, Sure, &["overloaded_error"]),
];

// The canonical codes, google.api.ErrorReason, and the reasons of the older JSON APIs. CANCELLED, UNKNOWN and
// FAILED_PRECONDITION are missing on purpose.
#[rustfmt::skip]
const GOOGLE: &[Group] = &[
    (RateLimited, AskText, &["RESOURCE_EXHAUSTED", "rateLimitExceeded", "userRateLimitExceeded",
        "concurrentLimitExceeded", "OVER_QUERY_LIMIT"]),
    (QuotaExhausted, AskText, &["quotaExceeded", "RESOURCE_QUOTA_EXCEEDED"]),
    (QuotaExhausted, Sure, &["dailyLimitExceeded", "OVER_DAILY_LIMIT", "BILLING_DISABLED"]),
    (Unavailable, AskText, &["UNAVAILABLE"]),
    (Unavailable, Sure, &["backendError", "MODEL_CAPACITY_EXHAUSTED"]),
    (Timeout, Sure, &["DEADLINE_EXCEEDED"]),
    (Auth, Sure, &["UNAUTHENTICATED", "authError", "API_KEY_INVALID", "ACCESS_TOKEN_EXPIRED", "CREDENTIALS_MISSING",
        "SESSION_COOKIE_INVALID"]),
    (Permission, AskText, &["PERMISSION_DENIED", "forbidden", "accessNotConfigured"]),
    (Permission, Sure, &["insufficientPermissions", "SERVICE_DISABLED", "IAM_PERMISSION_DENIED",
        "API_KEY_SERVICE_BLOCKED", "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "CONSUMER_SUSPENDED", "USER_BLOCKED_BY_ADMIN"]),
    (NotFound, Sure, &["NOT_FOUND", "UNIMPLEMENTED"]),
    (Conflict, Sure, &["ABORTED", "conditionNotMet"]),
    (InvalidArgument, AskText, &["INVALID_ARGUMENT"]),
    (InvalidArgument, Sure, &["ALREADY_EXISTS", "duplicate", "OUT_OF_RANGE", "invalidParameter", "uploadTooLarge"]),
    (Internal, AskText, &["INTERNAL"]),
    (Internal, Sure, &["DATA_LOSS"]),
];

#[rustfmt::skip]
const AWS: &[Group] = &[
    (RateLimited, Sure, &["Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
        "RequestThrottledException", "ProvisionedThroughputExceededException", "BandwidthLimitExceeded",
        "SlowDown", "EC2ThrottledException", "KMSThrottlingException"]),
    // Salesforce calls its daily allowance REQUEST_LIMIT_EXCEEDED; LimitExceeded is also IAM's number of things.
    (RateLimited, AskText, &["RequestLimitExceeded", "LimitExceededException", "TooManyRequestsException"]),
    (QuotaExhausted, Sure, &["ServiceQuotaExceededException"]),
    (Timeout, Sure, &["RequestTimeout", "RequestTimeoutException", "ModelTimeoutException"]),
    (Unavailable, AskText, &["ServiceUnavailable", "ServiceUnavailableException"]),
    (Unavailable, Sure, &["ModelNotReadyException"]),
    (Internal, AskStatus, &["InternalFailure", "InternalServerError", "InternalServerException"]),
    (Internal, Sure, &["ModelErrorException", "ModelStreamErrorException"]),
    (Auth, Sure, &["ExpiredToken", "ExpiredTokenException", "RequestExpired", "RequestTimeTooSkewed", "AuthFailure",
        "InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
        "IncompleteSignature", "InvalidSignatureException", "MissingAuthenticationToken", "TokenRefreshRequired",
        "NotAuthorizedException"]),
    (Permission, Sure, &["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "OptInRequired",
        "UnauthorizedAccess"]),
    (NotFound, Sure, &["ResourceNotFoundException", "NoSuchKey", "NoSuchBucket", "NoSuchEntity", "NoSuchUpload"]),
    (Conflict, Sure, &["ConditionalCheckFailedException", "TransactionConflictException",
        "TransactionInProgressException", "PriorRequestNotComplete", "OperationAborted", "PreconditionFailed",
        "ConditionalRequestConflict", "ResourceInUseException", "ResourceConflictException", "ConflictException"]),
    // Its reasons are listed in the message.
    (Conflict, AskText, &["TransactionCanceledException"]),
    (InvalidArgument, AskStatus, &["ValidationException"]),
    (InvalidArgument, Sure, &["InvalidParameterValue", "InvalidParameterCombination", "InvalidParameterException",
        "BucketAlreadyExists", "MissingParameter", "MalformedQueryString", "EntityTooLarge", "SerializationException"]),
];

// A declined card or an empty balance is the business's answer, and 402 must not turn it into a spent quota.
#[rustfmt::skip]
const STRIPE: &[Group] = &[
    (RateLimited, AskText, &["rate_limit", "StripeRateLimitError"]),
    (Conflict, Sure, &["lock_timeout", "idempotency_key_in_use"]),
    (InvalidArgument, Sure, &["idempotency_error", "resource_already_exists"]),
    (InvalidArgument, Sure, &["parameter_invalid_empty", "parameter_invalid_integer",
        "parameter_invalid_string_blank", "parameter_invalid_string_empty", "parameter_missing", "parameter_unknown",
        "parameters_exclusive", "amount_too_large", "amount_too_small", "incorrect_number", "invalid_number",
        "invalid_expiry_month", "invalid_expiry_year", "invalid_cvc", "incorrect_cvc", "expired_card",
        "email_invalid", "url_invalid"]),
    (Other, Sure, &["card_declined", "card_error", "StripeCardError", "insufficient_funds", "balance_insufficient",
        "processing_error", "charge_already_captured", "charge_already_refunded"]),
    (Auth, Sure, &["api_key_expired", "platform_api_key_expired", "secret_key_required"]),
    (Permission, Sure, &["testmode_charges_only", "not_allowed_on_standard_account"]),
    (NotFound, Sure, &["resource_missing"]),
    (Network, AskText, &["api_connection_error", "StripeConnectionError"]),
    (InvalidArgument, AskStatus, &["StripeInvalidRequestError"]),
    (Internal, AskStatus, &["StripeAPIError"]),
    (Auth, Sure, &["StripeAuthenticationError"]),
    (Permission, Sure, &["StripePermissionError"]),
    (InvalidArgument, Sure, &["StripeIdempotencyError"]),
];

// GitHub, Slack, Notion, Shopify, GraphQL servers, MCP and JSON-RPC.
#[rustfmt::skip]
const SERVICES: &[Group] = &[
    (RateLimited, AskText, &["rate_limited", "ratelimited", "RateLimitExceededException"]),
    (Auth, Sure, &["unauthorized", "not_authed", "invalid_auth", "token_expired", "token_revoked", "account_inactive",
        "invalid_grant"]),
    (Permission, Sure, &["missing_scope", "no_permission", "restricted_resource", "INSUFFICIENT_SCOPES",
        "insufficient_scope", "not_in_channel", "not_allowed_token_type", "ekm_access_denied"]),
    (NotFound, Sure, &["channel_not_found", "user_not_found", "message_not_found", "object_not_found"]),
    (InvalidArgument, Sure, &["invalid_arguments", "invalid_request_url", "missing_version", "BAD_USER_INPUT",
        "GRAPHQL_VALIDATION_FAILED", "GRAPHQL_PARSE_FAILED", "MAX_NODE_LIMIT_EXCEEDED", "missing_field"]),
    (InvalidArgument, AskStatus, &["invalid_request"]),
    (Timeout, Sure, &["gateway_timeout"]),
    (Unavailable, Sure, &["database_connection_unavailable"]),
    (InvalidArgument, AskText, &["-32700", "-32600", "-32602"]),
    (NotFound, Sure, &["-32601", "-32002"]),
    (Internal, AskText, &["-32603"]),
    (Timeout, AskText, &["-32001"]),
];

/// All tables, in any order; a test verifies that they do not contradict each other.
pub(super) const TABLES: &[&[Group]] =
    &[OPENAI, ANTHROPIC, GOOGLE, AWS, STRIPE, SERVICES, names::CALLERS, names::DATABASES, names::SYSTEM];

/// Spellings without meaning despite a match in the table: the base class of every error in the `OpenAI` and Anthropic
/// SDKs, and an abort by the caller (gRPC's ABORTED is written in capitals).
const SILENT: [&str; 2] = ["APIError", "aborted"];

static INDEX: LazyLock<BTreeMap<String, Meaning>> = LazyLock::new(|| {
    let groups = TABLES.iter().flat_map(|table| table.iter());
    let entries = groups.flat_map(|(kind, reading, spelt)| {
        spelt.iter().map(|name| (key(name), Meaning { kind: *kind, reading: *reading }))
    });
    entries.collect()
});

/// The meaning of `name`, a code or a type, in any spelling and with any module path. A number of three digits is an
/// HTTP status.
pub(super) fn find_code(name: &str) -> Option<Meaning> {
    let name = name.trim();
    if let Some(state) = sqlstate::find_sqlstate(name) {
        return Some(state);
    }
    let key = key(name);
    if SILENT.contains(&name.rsplit('.').next().unwrap_or(name)) {
        return None;
    }
    if let Some(known) = INDEX.get(&key) {
        return Some(*known);
    }
    if let Some(kind) = FailureKind::from_name(name).filter(|kind| *kind != Other) {
        return Some(Meaning { kind, reading: Sure });
    }
    let status = key.strip_prefix("http").unwrap_or(&key);
    let status = if status.len() == 3 { status.parse().ok().and_then(status::of_http) } else { None };
    status.map(|kind| Meaning { kind, reading: AskText })
}

/// The significant letters and digits of a name, without surroundings: `requests.exceptions.ReadTimeout`,
/// `rate_limit_error`, `com.amazonaws.dynamodb.v20120810#ThrottlingException`, `ThrottlingException:http://…`.
pub(super) fn key(name: &str) -> String {
    let dotted = name.trim().replace("::", ".");
    let path = dotted.split(':').next().unwrap_or_default();
    let name = path.rsplit(['#', '.', '/']).next().unwrap_or_default();
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let bare = letters.strip_suffix("error").or_else(|| letters.strip_suffix("exception"));
    bare.map_or_else(|| letters.clone(), str::to_owned)
}
