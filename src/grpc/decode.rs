//! From messages to nouns. Each field is checked here, once; past this room its type says that it is sound.

use std::time::Duration;

use super::{status::invalid, v1};
use crate::{
    domain::{
        budget::Usage,
        call::Request,
        failure::ErrorReport,
        ids::{AgentId, CallId, DEFAULT_TENANT, Invalid, RunId, SessionId, TenantId, ToolName},
        json::{self, BYTES_MAX, Json},
        outcome::OutcomeStatus,
    },
    gate::{BATCH_MAX, Report},
};

/// Longest time that a caller may wait for a person, in milliseconds.
const MAX_WAIT_MS_MAX: u64 = 60_000;
/// Longest name of a phase, of a person, of a question, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Longest free text that people read: a justification, a progress note, in bytes.
const NOTE_BYTES_MAX: usize = 2_000;
/// Longest error text, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest digest made by a caller, in bytes.
const DIGEST_BYTES_MAX: usize = 200;
/// Largest amount of tokens, micro-dollars, bytes or milliseconds: what the store can add up.
const AMOUNT_MAX: u64 = 1 << 50;

pub(super) type Decoded<T> = Result<T, Box<tonic::Status>>;

pub(super) fn sound<T>(result: Result<T, Invalid>) -> Decoded<T> {
    result.map_err(|problem| Box::new(invalid(&problem)))
}

pub(super) fn wrong<T>(field: &str, problem: impl Into<String>) -> Decoded<T> {
    sound(Err(Invalid::new(field, problem)))
}

fn required<'a, T>(field: &str, value: Option<&'a T>) -> Decoded<&'a T> {
    match value {
        Some(value) => Ok(value),
        None => wrong(field, "is required"),
    }
}

/// The empty string is how proto3 says that a text is absent.
pub(super) fn optional<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Decoded<Option<T>> {
    if text.is_empty() { Ok(None) } else { sound(parse(text)).map(Some) }
}

fn bounded(field: &str, text: &str, most: usize) -> Decoded<Option<String>> {
    match text {
        "" => Ok(None),
        text if text.len() > most => wrong(field, format!("is {} bytes long; at most {most} are allowed", text.len())),
        text if text.contains('\0') => wrong(field, "contains NUL, which cannot be stored"),
        text => Ok(Some(text.to_owned())),
    }
}

/// A text that must be there.
pub(super) fn required_text(field: &str, text: &str) -> Decoded<String> {
    match bounded(field, text.trim(), NAME_BYTES_MAX)? {
        Some(text) => Ok(text),
        None => wrong(field, "is required"),
    }
}

/// Free text that people read.
pub(super) fn note(field: &str, text: &str) -> Decoded<Option<String>> {
    bounded(field, text, NOTE_BYTES_MAX)
}

/// How long a caller waits for a person.
pub(super) fn max_wait(millis: u64) -> Decoded<Duration> {
    if millis > MAX_WAIT_MS_MAX {
        return wrong("max_wait_ms", format!("is {millis}; at most {MAX_WAIT_MS_MAX} is allowed"));
    }
    Ok(Duration::from_millis(millis))
}

fn amount(field: &str, amount: u64) -> Decoded<u64> {
    if amount > AMOUNT_MAX {
        return wrong(field, format!("is {amount}; at most {AMOUNT_MAX} is allowed"));
    }
    Ok(amount)
}

/// Until callers carry credentials there is one tenant; it never comes from a request's body.
pub(super) const fn tenant() -> TenantId {
    DEFAULT_TENANT
}

pub(super) fn evaluate(request: &v1::EvaluateRequest) -> Decoded<Request> {
    let caller = required("caller", request.caller.as_ref())?;
    let call = required("call", request.call.as_ref())?;
    question(caller, call, "call", usage("usage", request.usage.as_ref())?)
}

pub(super) fn batch(request: &v1::BatchEvaluateRequest) -> Decoded<Vec<Request>> {
    let caller = required("caller", request.caller.as_ref())?;
    if request.calls.is_empty() || request.calls.len() > BATCH_MAX {
        return wrong("calls", format!("has {} calls; 1 to {BATCH_MAX} are allowed", request.calls.len()));
    }
    // The usage belongs to the turn: it is booked once, with the first call.
    let mut usage = usage("usage", request.usage.as_ref())?;
    let mut requests: Vec<Request> = Vec::with_capacity(request.calls.len());
    for (i, call) in request.calls.iter().enumerate() {
        let field = format!("calls[{i}]");
        let question = question(caller, call, &field, std::mem::take(&mut usage))?;
        if requests.iter().any(|other| other.call_id == question.call_id) {
            return wrong(&format!("{field}.call_id"), "stands twice in the batch");
        }
        requests.push(question);
    }
    Ok(requests)
}

fn question(caller: &v1::Caller, call: &v1::ToolCall, field: &str, usage: Usage) -> Decoded<Request> {
    let session = sound(SessionId::parse("caller.session_id", &caller.session_id))?;
    let parent = optional(&caller.parent_session_id, |id| SessionId::parse("caller.parent_session_id", id))?;
    if parent.as_ref() == Some(&session) {
        return wrong("caller.parent_session_id", "is the session itself");
    }
    Ok(Request {
        tenant: tenant(),
        session,
        parent,
        run: optional(&caller.run_id, |id| RunId::parse("caller.run_id", id))?,
        agent: optional(&caller.agent_id, |id| AgentId::parse("caller.agent_id", id))?,
        call_id: sound(CallId::parse(&format!("{field}.call_id"), &call.call_id))?,
        tool: sound(ToolName::parse(&format!("{field}.tool"), &call.tool))?,
        arguments: arguments(&format!("{field}.arguments_json"), &call.arguments_json)?,
        usage,
        cost_estimate_micros: call
            .cost_estimate_micros
            .map(|cost| amount(&format!("{field}.cost_estimate_micros"), cost))
            .transpose()?,
        justification: bounded(&format!("{field}.justification"), &call.justification, NOTE_BYTES_MAX)?,
        repeat_intended: call.repeat_intended,
        phase: bounded("caller.phase", &caller.phase, NAME_BYTES_MAX)?,
    })
}

fn arguments(field: &str, text: &str) -> Decoded<Json> {
    match json::parse(if text.is_empty() { "{}" } else { text }) {
        Ok(arguments @ Json::Object(_)) => Ok(arguments),
        Ok(_) => wrong(field, "must be a JSON object"),
        Err(problem) => wrong(field, problem),
    }
}

fn usage(field: &str, usage: Option<&v1::Usage>) -> Decoded<Usage> {
    let Some(usage) = usage else {
        return Ok(Usage::default());
    };
    Ok(Usage {
        input_tokens: amount(&format!("{field}.input_tokens"), usage.input_tokens)?,
        output_tokens: amount(&format!("{field}.output_tokens"), usage.output_tokens)?,
        cache_read_tokens: amount(&format!("{field}.cache_read_tokens"), usage.cache_read_tokens)?,
        cache_write_tokens: amount(&format!("{field}.cache_write_tokens"), usage.cache_write_tokens)?,
        cost_micros: amount(&format!("{field}.cost_micros"), usage.cost_micros)?,
    })
}

/// A report, and what a question about it would have been if nobody asked.
pub(super) fn record(request: &v1::RecordRequest, now_unix_ms: i64) -> Decoded<(Report, Option<Request>)> {
    let caller = required("caller", request.caller.as_ref())?;
    let observed = request.observed_call.as_ref();
    let observed = observed.map(|call| question(caller, call, "observed_call", Usage::default())).transpose()?;
    let session = sound(SessionId::parse("caller.session_id", &caller.session_id))?;
    let call_id = match &observed {
        Some(observed) => observed.call_id.clone(),
        None => sound(CallId::parse("call_id", &request.call_id))?,
    };
    let status = match v1::OutcomeStatus::try_from(request.status) {
        Ok(v1::OutcomeStatus::Running) => OutcomeStatus::Running,
        Ok(v1::OutcomeStatus::Success) => OutcomeStatus::Success,
        Ok(v1::OutcomeStatus::Error) => OutcomeStatus::Error,
        Ok(v1::OutcomeStatus::Cancelled) => OutcomeStatus::Cancelled,
        Ok(v1::OutcomeStatus::Unknown) => OutcomeStatus::Unknown,
        Ok(v1::OutcomeStatus::Unspecified) => return wrong("status", "is required"),
        Err(_) => return wrong("status", format!("is {}, which is no status", request.status)),
    };
    if request.error.is_some() && !matches!(status, OutcomeStatus::Error | OutcomeStatus::Unknown) {
        return wrong("error", "goes with an error or an unknown outcome only");
    }
    if request.error.is_none() && status == OutcomeStatus::Error {
        return wrong("error", "is required with an error");
    }
    if request.result.is_some() && status != OutcomeStatus::Success {
        return wrong("result", "goes with a success only");
    }
    let result = match &request.result {
        Some(text) if text.len() > BYTES_MAX => {
            return wrong("result", format!("is {} bytes long; at most {BYTES_MAX} are allowed", text.len()));
        }
        Some(text) if text.contains('\0') => return wrong("result", "contains NUL, which cannot be stored"),
        result => result.clone(),
    };
    let maybe = |field: &str, value: Option<u64>| value.map(|value| amount(field, value)).transpose();
    let report = Report {
        error: request.error.as_ref().map(|error| tool_error(error, now_unix_ms)).transpose()?,
        result,
        result_digest: bounded("result_digest", &request.result_digest, DIGEST_BYTES_MAX)?,
        result_bytes: maybe("result_bytes", request.result_bytes)?,
        is_complete: request.is_complete,
        total_matches: maybe("total_matches", request.total_matches)?,
        progress_note: bounded("progress", &request.progress, NOTE_BYTES_MAX)?,
        usage: usage("usage", request.usage.as_ref())?,
        duration_ms: maybe("duration_ms", request.duration_ms)?,
        ..Report::new(session, call_id, status)
    };
    Ok((report, observed))
}

fn tool_error(error: &v1::ToolError, now_unix_ms: i64) -> Decoded<ErrorReport> {
    let http_status = match error.http_status {
        None => None,
        Some(status @ 100..=599) => u16::try_from(status).ok(),
        Some(status) => {
            return wrong("error.http_status", format!("is {status}; it must lie between 100 and 599"));
        }
    };
    let grpc_status = match error.grpc_status {
        None => None,
        Some(status @ 1..=16) => u8::try_from(status).ok(),
        Some(status) => {
            return wrong("error.grpc_status", format!("is {status}; it must lie between 1 and 16"));
        }
    };
    let header = bounded("error.retry_after_header", &error.retry_after_header, DIGEST_BYTES_MAX)?;
    let asked = error.retry_after_ms.map(|ms| amount("error.retry_after_ms", ms)).transpose()?;
    Ok(ErrorReport {
        message: bounded("error.message", &error.message, ERROR_BYTES_MAX)?.unwrap_or_default(),
        error_type: bounded("error.type", &error.r#type, DIGEST_BYTES_MAX)?,
        http_status,
        grpc_status,
        provider_code: bounded("error.provider_code", &error.provider_code, DIGEST_BYTES_MAX)?,
        retry_after_ms: asked.or_else(|| header.and_then(|header| crate::gate::retry_after_ms(&header, now_unix_ms))),
    })
}

/// The session that is asked about, and how many of its calls.
pub(super) fn session_state(request: &v1::GetSessionStateRequest) -> Decoded<(SessionId, usize)> {
    let session = sound(SessionId::parse("session_id", &request.session_id))?;
    match request.last_calls {
        0 => Ok((session, crate::gate::LAST_CALLS_DEFAULT)),
        n @ 1..=64 => Ok((session, n as usize)),
        n => wrong("last_calls", format!("is {n}; 0 to 64 are allowed")),
    }
}
