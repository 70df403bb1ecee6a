//! Errors of model providers.

use crate::domain::failure::{
    ErrorReport,
    FailureKind::{
        self, Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Permission, QuotaExhausted, RateLimited,
        Timeout, Unavailable,
    },
};

use super::{code, http, of_type, text};

/// `OpenAI`, Groq and Anthropic.
#[rustfmt::skip]
pub(super) fn models() -> Vec<(ErrorReport, FailureKind)> {
    let spent = "You exceeded your current quota, please check your plan and billing details. For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.";
    let per_minute = "Rate limit reached for gpt-4o in organization org-uVqpjtJiKqvVJMVfvpaounIh on tokens per min (TPM): Limit 30000, Used 14567, Requested 24754. Please try again in 18.642s.";
    let poor = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.";
    let body = format!(r#"Error: 400 {{"type":"error","error":{{"type":"invalid_request_error","message":"{poor}"}},"request_id":"req_011CbrFTcXhtiMzr3s6EocF7"}}"#);
    vec![
        (code("insufficient_quota", 429, spent), QuotaExhausted),
        (code("project_spend_limit_exceeded", 429, ""), QuotaExhausted),
        (http(429, spent), QuotaExhausted),
        (code("rate_limit_exceeded", 429, per_minute), RateLimited),
        (http(429, per_minute), RateLimited),
        (text(per_minute), RateLimited),
        (code("rate_limit_exceeded", 429, "Rate limit reached for gpt-4 on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s."), QuotaExhausted),
        (code("rate_limit_exceeded", 429, "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 42103. The input or output tokens must be reduced in order to run successfully."), InvalidArgument),
        (http(429, "Rate limit reached for model `llama3-70b` on tokens per minute (TPM): Limit 6000. Please try again in 7.66s. Upgrade at https://console.groq.com/settings/billing"), RateLimited),
        (code("invalid_api_key", 401, "Incorrect API key provided: sk-abc***xyz."), Auth),
        (code("context_length_exceeded", 400, "This model's maximum context length is 8192 tokens."), InvalidArgument),
        (code("model_not_found", 404, "The model `gpt-5x` does not exist or you do not have access to it."), NotFound),
        (code("server_error", 500, "The server had an error while processing your request."), Internal),
        (code("server_error", 503, "That model is currently overloaded with other requests."), Unavailable),
        (code("server_is_overloaded", 503, "Our servers are currently overloaded. Please try again later."), Unavailable),
        (text("Our servers are currently overloaded. Please try again later."), Unavailable),
        (code("slow_down", 503, ""), RateLimited),
        (ErrorReport { http_status: Some(401), ..of_type("invalid_request_error", "You didn't provide an API key.") }, Auth),
        (ErrorReport { http_status: Some(404), ..of_type("invalid_request_error", "No such customer: 'cus_1'") }, NotFound),
        (text(&format!("Error code: 429 - {{'error': {{'message': '{spent}', 'type': 'insufficient_quota', 'param': None, 'code': 'insufficient_quota'}}}}")), QuotaExhausted),
        (of_type("RateLimitError", per_minute), RateLimited),
        (of_type("openai.APITimeoutError", "Request timed out."), Timeout),
        (of_type("APIConnectionError", "Connection error."), Network),
        (code("overloaded_error", 529, "Overloaded"), Unavailable),
        (http(529, "Overloaded"), Unavailable),
        (text(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#), Unavailable),
        (text("Overloaded"), Unavailable),
        (text(r#"{"error":{"message":"{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}"}}"#), Unavailable),
        (code("rate_limit_error", 429, "This request would exceed your organization's rate limit of 40,000 input tokens per minute"), RateLimited),
        (code("rate_limit_error", 429, "Number of request tokens has exceeded your daily rate limit"), QuotaExhausted),
        (code("authentication_error", 401, "invalid x-api-key"), Auth),
        (code("permission_error", 403, "Your API key does not have permission to use the specified resource"), Permission),
        (code("not_found_error", 404, "model: claude-x"), NotFound),
        (code("invalid_request_error", 400, "max_tokens: Field required"), InvalidArgument),
        (code("invalid_request_error", 400, poor), QuotaExhausted),
        (code("invalid_request_error", 400, "You have reached your specified API usage limits. You will regain access on 2025-08-01 at 00:00 UTC."), QuotaExhausted),
        (text(&body), QuotaExhausted),
        (code("request_too_large", 413, ""), InvalidArgument),
        (code("api_error", 500, "Internal server error"), Internal),
        (code("timeout_error", 504, ""), Timeout),
        (code("billing_error", 402, ""), QuotaExhausted),
        (code("conflict_error", 409, ""), Conflict),
    ]
}

/// Gemini, and the older and newer shapes of Google's other APIs.
#[rustfmt::skip]
pub(super) fn google() -> Vec<(ErrorReport, FailureKind)> {
    let quota = "You exceeded your current quota, please check your plan and billing details.";
    vec![
        (code("RESOURCE_EXHAUSTED", 429, "Resource has been exhausted (e.g. check quota)."), RateLimited),
        (code("RESOURCE_EXHAUSTED", 429, quota), QuotaExhausted),
        (code("RESOURCE_EXHAUSTED", 429, &format!("{quota}\n* Quota exceeded for metric: generate_content_free_tier_requests, limit: 15\nPlease retry in 20.04466179s.")), RateLimited),
        (code("RESOURCE_EXHAUSTED", 429, &format!("{quota}\n* Quota exceeded for metric: generate_content_free_tier_requests, limit: 0\nPlease retry in 20.04466179s.")), QuotaExhausted),
        (text(&format!("429 RESOURCE_EXHAUSTED. {{'error': {{'code': 429, 'message': '{quota}', 'status': 'RESOURCE_EXHAUSTED', 'details': [{{'violations': [{{'quotaId': 'GenerateRequestsPerMinutePerProjectPerModel-FreeTier'}}]}}]}}}}")), RateLimited),
        (text(&format!("429 RESOURCE_EXHAUSTED. {{'error': {{'code': 429, 'message': '{quota}', 'status': 'RESOURCE_EXHAUSTED', 'details': [{{'violations': [{{'quotaId': 'GenerateRequestsPerDayPerProjectPerModel-FreeTier'}}]}}]}}}}")), QuotaExhausted),
        (http(429, "Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute per user' of service 'sheets.googleapis.com'"), RateLimited),
        (http(403, r#"{"error": {"code": 403, "message": "Rate Limit Exceeded", "errors": [{"domain": "usageLimits", "reason": "rateLimitExceeded"}]}}"#), RateLimited),
        (code("userRateLimitExceeded", 403, "User Rate Limit Exceeded"), RateLimited),
        (code("dailyLimitExceeded", 403, "Daily Limit Exceeded"), QuotaExhausted),
        (code("quotaExceeded", 403, "The request cannot be completed because you have exceeded your quota."), QuotaExhausted),
        (code("UNAVAILABLE", 503, "The model is overloaded. Please try again later."), Unavailable),
        (code("backendError", 503, "Backend Error"), Unavailable),
        (code("UNAUTHENTICATED", 401, "Request had invalid authentication credentials."), Auth),
        (http(400, "API key not valid. Please pass a valid API key."), Auth),
        (code("FAILED_PRECONDITION", 400, "User location is not supported for the API use."), Permission),
        (code("SERVICE_DISABLED", 403, "Cloud Pub/Sub API has not been used in project 1 before or it is disabled."), Permission),
        (code("INVALID_ARGUMENT", 400, "Request contains an invalid argument."), InvalidArgument),
        (code("DEADLINE_EXCEEDED", 504, "Deadline expired before operation could complete."), Timeout),
        (code("ABORTED", 409, "The operation was aborted due to a concurrency conflict"), Conflict),
        (text("google.api_core.exceptions.ResourceExhausted: 429 Quota exceeded for aiplatform.googleapis.com/generate_content_requests_per_minute_per_project_per_base_model"), RateLimited),
    ]
}
