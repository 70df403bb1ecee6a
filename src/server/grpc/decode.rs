//! Decoding of messages to nouns. Each field is validated here, once; past this module its type says that it is sound.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    limits::{
        AMOUNT_MAX, DESCRIBED_MAX, DIGEST_BYTES_MAX, ERROR_BYTES_MAX, GRPC_STATUS, HTTP_STATUS, LAST_CALLS_MAX,
        NOTE_BYTES_MAX, PAGE_MAX, TEXT_BYTES_MAX, WAIT_MS_MAX, WITNESS_BYTES_MAX,
    },
    malformed::MalformedField,
    time::span,
};
use crate::{
    gate::{BATCH_MAX, retry_after_ms},
    grpc::FromWire,
};
use callgate_core::domain::{
    audit::Actor,
    budget::Usage,
    call::{AddedParameters, Request},
    control::{Command, Operation},
    failure::ErrorReport,
    ids::{AgentId, CallId, HostName, Invalid, ModelName, ParameterName, RunId, SessionId, TenantId, ToolName, UserId},
    json::{self, BYTES_MAX, Json},
    outcome::OutcomeStatus,
    report::{Operator, OutcomeReport},
    session_state::{Extent, LAST_CALLS_DEFAULT, SUMMARY_TOKENS_DEFAULT, SUMMARY_TOKENS_MAX, SUMMARY_TOKENS_MIN},
};
use callgate_proto::v1;

pub(super) type DecodeResult<T> = Result<T, MalformedField>;

pub(super) fn wrong<T>(field: &str, problem: impl Into<String>) -> DecodeResult<T> {
    Err(MalformedField::new(field, problem))
}

/// A value that must be there.
pub(super) fn require_field<T>(field: &str, value: Option<T>) -> DecodeResult<T> {
    value.ok_or_else(|| MalformedField::new(field, "is required"))
}

/// The empty string is how proto3 says that a text is absent.
pub(super) fn optional<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> DecodeResult<Option<T>> {
    if text.is_empty() { Ok(None) } else { Ok(Some(parse(text)?)) }
}

pub(super) fn session(id: &str) -> DecodeResult<SessionId> {
    Ok(SessionId::parse("session_id", id)?)
}

/// The session that a list is about; none for all.
pub(super) fn maybe_session(id: &str) -> DecodeResult<Option<SessionId>> {
    optional(id, |id| SessionId::parse("session_id", id))
}

/// A number between these two.
pub(super) fn decode_in_range(field: &str, given: u64, allowed: RangeInclusive<u64>) -> DecodeResult<u64> {
    if allowed.contains(&given) {
        return Ok(given);
    }
    wrong(field, format!("is {given}; {} to {} are allowed", allowed.start(), allowed.end()))
}

/// A count; 0 is how proto3 says that a number is absent.
pub(super) fn count(field: &str, given: u32, default: u32, max: u32) -> DecodeResult<u32> {
    decode_in_range(field, given.into(), 0..=max.into())?;
    Ok(if given == 0 { default } else { given })
}

pub(super) fn page_size(given: u32, default: u32) -> DecodeResult<usize> {
    Ok(count("page_size", given, default, PAGE_MAX)? as usize)
}

/// A command on a session.
pub(super) fn command(session_id: &str, by: Actor, reason: &str, operation: Operation) -> DecodeResult<Command> {
    Ok(Command { session: session(session_id)?, by, reason: note("reason", reason)?, operation })
}

fn is_short(field: &str, text: &str, max: usize) -> DecodeResult<()> {
    if text.len() > max {
        return wrong(field, format!("is {} bytes long; at most {max} are allowed", text.len()));
    }
    Ok(())
}

/// A text of a model or tool as it is stored: no row can hold NUL, which stands as its symbol then.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{2400}")
}

fn decode_bounded(field: &str, text: &str, max: usize) -> DecodeResult<Option<String>> {
    is_short(field, text, max)?;
    if text.contains('\0') {
        return wrong(field, "contains NUL, which cannot be stored");
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// A text that its caller did not write.
pub(super) fn decode_foreign_text(field: &str, text: &str, max: usize) -> DecodeResult<Option<String>> {
    decode_bounded(field, &storable(text), max)
}

/// A text that must be there.
pub(super) fn required_text(field: &str, text: &str) -> DecodeResult<String> {
    require_field(field, decode_bounded(field, text.trim(), TEXT_BYTES_MAX)?)
}

/// A name that may be left out.
pub(super) fn maybe_text(field: &str, text: &str) -> DecodeResult<Option<String>> {
    decode_bounded(field, text, TEXT_BYTES_MAX)
}

/// Free text that people read.
pub(super) fn note(field: &str, text: &str) -> DecodeResult<Option<String>> {
    decode_bounded(field, text, NOTE_BYTES_MAX)
}

/// The caller's longest wait.
pub(super) fn max_wait(given: Option<&prost_types::Duration>) -> DecodeResult<Duration> {
    Ok(Duration::from_millis(span("max_wait", given, 0..=WAIT_MS_MAX)?.unwrap_or(0)))
}

fn amount(field: &str, amount: u64) -> DecodeResult<u64> {
    decode_in_range(field, amount, 0..=AMOUNT_MAX)
}

fn maybe_amount(field: &str, given: Option<u64>) -> DecodeResult<Option<u64>> {
    given.map(|given| amount(field, given)).transpose()
}

pub(super) fn evaluate(request: &v1::EvaluateRequest, tenant: TenantId) -> DecodeResult<Request> {
    let caller = require_field("caller", request.caller.as_ref())?;
    let call = require_field("call", request.call.as_ref())?;
    let model = model(request.usage.as_ref())?;
    let usage = usage("usage", request.usage.as_ref())?;
    Ok(Request { model, ..decode_proposed(tenant, caller, call, "call", usage)? })
}

pub(super) fn batch(batch: &v1::BatchEvaluateRequest, tenant: TenantId) -> DecodeResult<Vec<Request>> {
    let (caller, calls) = (require_field("caller", batch.caller.as_ref())?, &batch.calls);
    if !(1..=BATCH_MAX).contains(&calls.len()) {
        return wrong("calls", format!("has {} calls; 1 to {BATCH_MAX} are allowed", calls.len()));
    }
    // The usage belongs to the turn: it is booked once, with the first call.
    let mut usage = usage("usage", batch.usage.as_ref())?;
    let model = model(batch.usage.as_ref())?;
    let mut requests: Vec<Request> = Vec::with_capacity(calls.len());
    for (i, call) in calls.iter().enumerate() {
        let field = format!("calls[{i}]");
        let request = decode_proposed(tenant, caller, call, &field, std::mem::take(&mut usage))?;
        let request = Request { model: model.clone(), ..request };
        if requests.iter().any(|other| other.call_id == request.call_id) {
            return wrong(&format!("{field}.call_id"), "appears twice in the batch");
        }
        requests.push(request);
    }
    Ok(requests)
}

fn decode_proposed(
    tenant: TenantId,
    caller: &v1::Caller,
    call: &v1::ToolCall,
    field: &str,
    usage: Usage,
) -> DecodeResult<Request> {
    let session = SessionId::parse("caller.session_id", &caller.session_id)?;
    let parent = optional(&caller.parent_session_id, |id| SessionId::parse("caller.parent_session_id", id))?;
    if parent.as_ref() == Some(&session) {
        return wrong("caller.parent_session_id", "is the session itself");
    }
    let run = optional(&caller.run_id, |id| RunId::parse("caller.run_id", id))?;
    let agent = optional(&caller.agent_id, |id| AgentId::parse("caller.agent_id", id))?;
    let user = optional(&caller.user_id, |id| UserId::parse("caller.user_id", id))?;
    let host = optional(&caller.host, |name| HostName::parse("caller.host", name))?;
    let request = decode_call(tenant, call, session).map_err(|wrong| wrong.with_outer(field))?;
    let phase = decode_bounded("caller.phase", &caller.phase, TEXT_BYTES_MAX)?;
    let mut request = Request { parent, run, agent, user, host, usage, phase, ..request };
    if request.host.is_some() {
        let state = file_state(&mut request.arguments);
        request.witness = request.witness.take().or(state);
    }
    Ok(request)
}

/// Hooks of earlier releases put the state of a call's file among its arguments.
fn file_state(arguments: &mut Json) -> Option<Box<str>> {
    let Json::Object(members) = arguments else { return None };
    let is_one = |text: &str| text == "absent" || text.contains(" bytes, changed at ");
    let is_state = |(name, value): &(String, Json)| match value {
        Json::String(text) => name == "file_state" && is_one(text),
        _ => false,
    };
    let at = members.iter().position(is_state)?;
    match members.remove(at).1 {
        Json::String(state) => Some(state.into()),
        _ => None,
    }
}

/// The tools that a caller offers to a model.
pub(super) fn tools(names: &[String]) -> DecodeResult<Vec<ToolName>> {
    if names.len() > DESCRIBED_MAX {
        return wrong("tools", format!("has {} names; at most {DESCRIBED_MAX} are allowed", names.len()));
    }
    names.iter().enumerate().map(|(i, name)| Ok(ToolName::parse(&format!("tools[{i}]"), name)?)).collect()
}

/// The request of a call.
fn decode_call(tenant: TenantId, call: &v1::ToolCall, session: SessionId) -> DecodeResult<Request> {
    let call_id = CallId::parse("call_id", &call.call_id)?;
    let tool = ToolName::parse("tool", &call.tool)?;
    let arguments = arguments("arguments_json", &call.arguments_json)?;
    Ok(Request {
        cost_estimate_micros: maybe_amount("cost_estimate_micros", call.cost_estimate_micros)?,
        justification: decode_foreign_text("justification", &call.justification, NOTE_BYTES_MAX)?,
        repeat_intended: call.repeat_intended,
        sayable: sayable(call)?,
        witness: witness("witness", &call.witness)?,
        ..Request::new(tenant, session, call_id, tool, arguments)
    })
}

/// The state of what a call reads, by its caller's program.
fn witness(field: &str, value: &str) -> DecodeResult<Option<Box<str>>> {
    is_short(field, value, WITNESS_BYTES_MAX)?;
    Ok((!value.is_empty()).then(|| value.into()))
}

fn sayable(call: &v1::ToolCall) -> DecodeResult<Option<Box<AddedParameters>>> {
    let named = |field, name: &str| optional(name, |name| ParameterName::parse(field, name));
    let sayable = AddedParameters {
        justification: named("justification_parameter", &call.justification_parameter)?,
        repeat: named("repeat_parameter", &call.repeat_parameter)?,
    };
    Ok((sayable != AddedParameters::default()).then(|| Box::new(sayable)))
}

/// The model's arguments. Unreadable text goes on, for a verdict that tells the model so.
pub(super) fn arguments(field: &str, text: &str) -> DecodeResult<Json> {
    is_short(field, text, BYTES_MAX)?;
    Ok(match json::parse(if text.is_empty() { "{}" } else { text }) {
        Ok(arguments @ Json::Object(_)) => arguments,
        _ => Json::String(storable(text)),
    })
}

fn usage(field: &str, usage: Option<&v1::Usage>) -> DecodeResult<Usage> {
    let Some(usage) = usage else {
        return Ok(Usage::default());
    };
    let amount = |name, given| amount(name, given).map_err(|wrong| wrong.with_outer(field));
    Ok(Usage {
        input_tokens: amount("input_tokens", usage.input_tokens)?,
        output_tokens: amount("output_tokens", usage.output_tokens)?,
        cache_read_tokens: amount("cache_read_tokens", usage.cache_read_tokens)?,
        cache_write_tokens: amount("cache_write_tokens", usage.cache_write_tokens)?,
        cost_micros: amount("cost_micros", usage.cost_micros)?,
    })
}

/// The model of a usage.
fn model(usage: Option<&v1::Usage>) -> DecodeResult<Option<ModelName>> {
    usage.map_or(Ok(None), |usage| optional(&usage.model, |name| ModelName::parse("usage.model", name)))
}

/// A report, with the request of its call if it had no Evaluate.
pub(super) fn record(
    request: &v1::RecordRequest,
    tenant: TenantId,
    now_unix_ms: i64,
) -> DecodeResult<(OutcomeReport, Option<Request>)> {
    let caller = require_field("caller", request.caller.as_ref())?;
    let observed = request.observed_call.as_ref();
    let mut observed =
        observed.map(|call| decode_proposed(tenant, caller, call, "observed_call", Usage::default())).transpose()?;
    // A call without an Evaluate stands in for none; the witness of a hook of an earlier release is from afterwards.
    let seen = observed.as_mut().and_then(|observed| observed.witness.take());
    let seen_after = seen.filter(|_| request.observed_call.as_ref().is_some_and(|call| call.witness.is_empty()));
    let session = SessionId::parse("caller.session_id", &caller.session_id)?;
    let call_id = match &observed {
        Some(observed) => observed.call_id.clone(),
        None => CallId::parse("call_id", &request.call_id)?,
    };
    let status = status(request.status)?;
    if request.error.is_some() && !matches!(status, OutcomeStatus::Error | OutcomeStatus::Unknown) {
        return wrong("error", "goes with an error or an unknown outcome only");
    }
    if request.error.is_none() && status == OutcomeStatus::Error {
        return wrong("error", "is required with an error");
    }
    if request.result.is_some() && status != OutcomeStatus::Success {
        return wrong("result", "goes with a success only");
    }
    if let Some(result) = &request.result {
        is_short("result", result, BYTES_MAX)?;
    }
    if request.not_started && status != OutcomeStatus::Cancelled {
        return wrong("not_started", "goes with a cancelled call only");
    }
    let report = OutcomeReport {
        not_started: request.not_started,
        read_only: request.read_only,
        witness_after: witness("witness_after", &request.witness_after)?.or(seen_after),
        key_sent: request.key_sent,
        error: request.error.as_ref().map(|error| tool_error(error, now_unix_ms)).transpose()?,
        result: request.result.as_deref().map(storable),
        result_digest: decode_bounded("result_digest", &request.result_digest, DIGEST_BYTES_MAX)?,
        result_bytes: maybe_amount("result_bytes", request.result_bytes)?,
        is_complete: request.is_complete,
        total_matches: maybe_amount("total_matches", request.total_matches)?,
        progress_note: decode_foreign_text("progress", &request.progress, NOTE_BYTES_MAX)?,
        usage: usage("usage", request.usage.as_ref())?,
        model: model(request.usage.as_ref())?,
        duration_ms: span("duration", request.duration.as_ref(), 0..=AMOUNT_MAX)?,
        ..OutcomeReport::new(session, call_id, status)
    };
    Ok((report, observed))
}

/// An operator's report of a call's outcome.
pub(super) fn decode_settlement(request: &v1::SettleOutcomeRequest, by: Actor) -> DecodeResult<OutcomeReport> {
    let (session, call_id) = (session(&request.session_id)?, CallId::parse("call_id", &request.call_id)?);
    let status = status(request.status)?;
    if !matches!(status, OutcomeStatus::Success | OutcomeStatus::Cancelled | OutcomeStatus::Error) {
        return wrong("status", "must be SUCCESS, CANCELLED or ERROR: somebody has looked");
    }
    let message = decode_foreign_text("error_message", &request.error_message, ERROR_BYTES_MAX)?;
    if message.is_some() != (status == OutcomeStatus::Error) {
        return wrong("error_message", "goes with ERROR, and only with it");
    }
    if request.result.is_some() && status != OutcomeStatus::Success {
        return wrong("result", "goes with a success only");
    }
    is_short("result", request.result.as_deref().unwrap_or_default(), BYTES_MAX)?;
    Ok(OutcomeReport {
        error: message.map(|message| ErrorReport { message, ..ErrorReport::default() }),
        result: request.result.as_deref().map(storable),
        by: Some(Operator { by, reason: note("reason", &request.reason)? }),
        ..OutcomeReport::new(session, call_id, status)
    })
}

fn status(code: i32) -> DecodeResult<OutcomeStatus> {
    let status = v1::OutcomeStatus::try_from(code).ok().and_then(|status| OutcomeStatus::from_wire(status).ok());
    status.ok_or_else(|| MalformedField::no_member::<v1::OutcomeStatus>("status", code))
}

fn tool_error(error: &v1::ToolError, now_unix_ms: i64) -> DecodeResult<ErrorReport> {
    let http =
        error.http_status.map(|status| decode_in_range("error.http_status", status.into(), HTTP_STATUS)).transpose()?;
    let grpc =
        error.grpc_status.map(|status| decode_in_range("error.grpc_status", status.into(), GRPC_STATUS)).transpose()?;
    let header = decode_bounded("error.retry_after_header", &error.retry_after_header, DIGEST_BYTES_MAX)?;
    let asked = span("error.retry_after", error.retry_after.as_ref(), 0..=AMOUNT_MAX)?;
    Ok(ErrorReport {
        message: decode_foreign_text("error.message", &error.message, ERROR_BYTES_MAX)?.unwrap_or_default(),
        error_type: decode_bounded("error.type", &error.r#type, DIGEST_BYTES_MAX)?,
        http_status: http.and_then(|status| u16::try_from(status).ok()),
        grpc_status: grpc.and_then(|status| u8::try_from(status).ok()),
        provider_code: decode_bounded("error.provider_code", &error.provider_code, DIGEST_BYTES_MAX)?,
        retry_after_ms: asked.or_else(|| header.and_then(|header| retry_after_ms(&header, now_unix_ms))),
    })
}

/// The requested session, and the extent of its state.
pub(super) fn session_state(request: &v1::GetSessionStateRequest) -> DecodeResult<(SessionId, Extent)> {
    let last_calls = count("last_calls", request.last_calls, LAST_CALLS_DEFAULT as u32, LAST_CALLS_MAX)?;
    let summary_tokens = summary_tokens(request.summary_tokens)?;
    Ok((session(&request.session_id)?, Extent { last_calls: last_calls as usize, summary_tokens, ..Extent::default() }))
}

/// Longest summary, in tokens.
pub(super) fn summary_tokens(tokens: u32) -> DecodeResult<usize> {
    let tokens = count("summary_tokens", tokens, SUMMARY_TOKENS_DEFAULT as u32, SUMMARY_TOKENS_MAX as u32)?;
    if (tokens as usize) < SUMMARY_TOKENS_MIN {
        return wrong("summary_tokens", format!("must be {SUMMARY_TOKENS_MIN} or more, or 0 for the default"));
    }
    Ok(tokens as usize)
}
