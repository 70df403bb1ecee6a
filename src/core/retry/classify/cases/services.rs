//! Errors of clouds, services and databases.

use crate::domain::failure::{
    ErrorReport,
    FailureKind::{
        self, Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Other, Permission, QuotaExhausted,
        RateLimited, Timeout, Unavailable,
    },
};

use super::{bare, code, grpc, http, of_type, text};

/// AWS.
#[rustfmt::skip]
pub(super) fn aws() -> Vec<(ErrorReport, FailureKind)> {
    vec![
        (code("ThrottlingException", 400, "Rate exceeded"), RateLimited),
        (text("An error occurred (ThrottlingException) when calling the InvokeModel operation (reached max retries: 4): Too many tokens, please wait before trying again."), RateLimited),
        (code("com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", 400, ""), RateLimited),
        (code("ThrottlingException:http://internal.amazon.com/coral/com.amazon.coral.availability/", 400, ""), RateLimited),
        (code("RequestTimeout", 400, "Your socket connection to the server was not read from or written to within the timeout period."), Timeout),
        (code("SlowDown", 503, "Please reduce your request rate."), RateLimited),
        (code("ServiceUnavailable", 503, ""), Unavailable),
        (code("AccessDenied", 403, "Access Denied"), Permission),
        (text("An error occurred (AccessDenied) when calling the GetObject operation: Access Denied"), Permission),
        (http(403, "The security token included in the request is expired"), Auth),
        (code("ExpiredToken", 400, "The provided token has expired."), Auth),
        (code("ConditionalCheckFailedException", 400, "The conditional request failed"), Conflict),
        (http(400, "The conditional request failed"), Conflict),
        (code("TransactionCanceledException", 400, "Transaction cancelled [None, ConditionalCheckFailed]"), Conflict),
        (code("ValidationException", 400, "1 validation error detected: Value null at 'key'"), InvalidArgument),
        (code("NoSuchKey", 404, "The specified key does not exist."), NotFound),
        (text("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code><Message>The resource you requested does not exist</Message></Error>"), NotFound),
        (code("LimitExceeded", 409, "Cannot exceed quota for PoliciesPerRole: 10"), QuotaExhausted),
        (code("ServiceQuotaExceededException", 402, ""), QuotaExhausted),
    ]
}

/// Stripe, GitHub, Slack and Notion.
#[rustfmt::skip]
pub(super) fn services() -> Vec<(ErrorReport, FailureKind)> {
    vec![
        (code("rate_limit", 429, "Too many requests hit the API too quickly."), RateLimited),
        (code("lock_timeout", 429, "This object cannot be accessed right now because another API request or Stripe process is currently accessing it."), Conflict),
        (http(429, "This object cannot be accessed right now because another API request or Stripe process is currently accessing it."), Conflict),
        (code("idempotency_key_in_use", 409, ""), Conflict),
        (code("card_declined", 402, "Your card was declined."), Other),
        (http(402, "Your card has insufficient funds."), Other),
        (http(402, "Insufficient Balance"), QuotaExhausted),
        (code("resource_missing", 404, "No such customer: 'cus_123'"), NotFound),
        (code("parameter_missing", 400, "Missing required param: amount."), InvalidArgument),
        (of_type("StripeCardError", "Your card's expiration year is invalid."), Other),
        (of_type("idempotency_error", "Keys for idempotent requests can only be used with the same parameters"), InvalidArgument),
        (http(403, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."), RateLimited),
        (http(403, "You have triggered an abuse detection mechanism. Please retry your request again later."), RateLimited),
        (http(403, "API rate limit exceeded for installation ID 5425010."), RateLimited),
        (http(403, "Resource not accessible by integration"), Permission),
        (http(401, "Bad credentials"), Auth),
        (bare("ratelimited", ""), RateLimited),
        (bare("not_authed", ""), Auth),
        (bare("missing_scope", ""), Permission),
        (bare("channel_not_found", ""), NotFound),
        (code("conflict_error", 409, "Conflict occurred while saving. Please try again."), Conflict),
        (code("database_connection_unavailable", 503, ""), Unavailable),
        (code("restricted_resource", 403, ""), Permission),
    ]
}

/// `PostgreSQL`, `MySQL` and `SQLite`.
#[rustfmt::skip]
pub(super) fn databases() -> Vec<(ErrorReport, FailureKind)> {
    vec![
        (bare("08006", "connection failure"), Network),
        (bare("22P02", "invalid input syntax for type uuid: \"x\""), InvalidArgument),
        (bare("23505", "duplicate key value violates unique constraint \"users_pkey\""), InvalidArgument),
        (http(409, "A repository with that name already exists"), InvalidArgument),
        (text("mkdir: cannot create directory 'a': File exists"), InvalidArgument),
        (grpc(6, "document doc_1 already exists"), InvalidArgument),
        (text("AbortError: The operation was aborted due to timeout"), Timeout),
        (bare("23503", "violates foreign key constraint"), InvalidArgument),
        (bare("28P01", "password authentication failed for user \"x\""), Auth),
        (bare("40001", "could not serialize access due to concurrent update"), Conflict),
        (bare("40P01", "deadlock detected"), Conflict),
        (bare("40003", ""), Network),
        (bare("42501", "permission denied for table t"), Permission),
        (bare("42P01", "relation \"t\" does not exist"), NotFound),
        (bare("42601", "syntax error at or near \"FORM\""), InvalidArgument),
        (bare("53300", "sorry, too many clients already"), Unavailable),
        (bare("55P03", "could not obtain lock on row"), Conflict),
        (bare("57P01", "terminating connection due to administrator command"), Unavailable),
        (bare("57P03", "the database system is starting up"), Unavailable),
        (bare("57014", "canceling statement due to statement timeout"), Timeout),
        (bare("57014", "canceling statement due to user request"), Other),
        (bare("XX000", "cache lookup failed"), Internal),
        (http(500, "ERROR: could not serialize access due to concurrent update (SQLSTATE 40001)"), Conflict),
        (text("ERROR: deadlock detected (SQLSTATE 40P01)"), Conflict),
        (text("null value in column \"name\" of relation \"t\" violates not-null constraint"), InvalidArgument),
        (text("psycopg2.errors.UndefinedColumn: column \"x\" does not exist\nLINE 1: SELECT x"), InvalidArgument),
        (text("psycopg.errors.SerializationFailure: x"), Conflict),
        (bare("ER_LOCK_DEADLOCK", ""), Conflict),
        (bare("SQLITE_BUSY", "database is locked"), Conflict),
        (of_type("sqlite3.OperationalError", "database is locked"), Conflict),
        // Twilio numbers its errors with five digits too; the status decides there.
        (code("20429", 429, "Too Many Requests"), RateLimited),
        (code("21211", 400, "The 'To' number is not a valid phone number."), InvalidArgument),
    ]
}
