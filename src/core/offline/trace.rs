//! Recorded traces: JSON lines, one call per line, plain or gzipped. This file only parses them.
//!
//! `trace` session id · `seq` position in it · `tool` · `args` object · `result` text, perhaps truncated, null without
//! a recorded outcome · `result_sha256` of the whole result · `result_len` characters of the whole result · `is_error`
//! · `error_type` a hint · `ts` RFC 3339, UTC unless it names a zone · `run` a part of the session · `call_id`, default
//! `seq`. All but the first four are optional; other fields are ignored.

use chrono::DateTime;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::domain::{
    budget::Usage,
    ids::{AgentId, CallId, Invalid, RunId, SessionId, ToolName},
    json::{self, Json},
    outcome::OutcomeStatus,
    time::Timestamp,
};

/// One recorded call.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceRow {
    /// Session.
    pub trace: SessionId,
    /// Root of its call tree, if another session.
    pub root: Option<SessionId>,
    /// Position in the session.
    pub seq: u64,
    /// Its id.
    pub call_id: CallId,
    /// Run, if recorded.
    pub run: Option<RunId>,
    /// Requesting agent.
    pub agent: Option<AgentId>,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments: an object.
    pub arguments: Json,
    /// The agent's justification.
    pub justification: Option<String>,
    /// Model usage before the call, if known.
    pub usage: Usage,
    /// Time of the call.
    pub at: Option<Timestamp>,
    /// True when it was refused, and so did not run.
    pub refused: bool,
    /// True when a person approved it.
    pub approved: bool,
    /// Recorded outcome.
    pub result: Option<RecordedResult>,
    /// Recorded end without a result: unknown or cancelled.
    pub ended: Option<OutcomeStatus>,
    /// Cost, and model usage during the call, if known.
    pub reported: Usage,
    /// Recorded retry estimate: worthwhile or not, and the wait, in milliseconds.
    pub estimated: Option<(bool, u64)>,
    /// Completeness of the result, as recorded.
    pub is_complete: Option<bool>,
    /// Total number of matches, as recorded.
    pub total_matches: Option<u64>,
    /// Witness before and after the call, by the caller's program: any text that is equal if the state is.
    pub witness: Option<Box<str>>,
    pub witness_after: Option<Box<str>>,
}

impl TraceRow {
    /// Parses one line.
    ///
    /// # Errors
    /// It is not a recorded call; the message names the field.
    pub fn parse(line: &str) -> Result<Self, String> {
        // serde would take an array for the fields in their order.
        if !line.trim_ascii_start().starts_with('{') {
            return Err("is not a JSON object".to_owned());
        }
        serde_json::from_str::<RawFields<'_>>(line)
            .map_err(|error| format!("{} (column {})", without_place(&error), error.column()))
            .and_then(row)
    }

    /// The root of its call tree.
    #[must_use]
    pub fn root(&self) -> &SessionId {
        self.root.as_ref().unwrap_or(&self.trace)
    }

    /// A success, for tests.
    #[cfg(test)]
    pub(crate) fn success(session: &str, seq: u64, tool: &str, result: &str) -> Self {
        let line = serde_json::json!({"trace": session, "seq": seq, "tool": tool, "args": {}, "result": result});
        Self::parse(&line.to_string()).expect("a good row")
    }
}

/// Outcome of a recorded call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResult {
    /// The result, perhaps truncated.
    pub text: String,
    /// SHA-256 of the whole result, in hexadecimal.
    pub sha256: Option<String>,
    /// True when `text` is truncated.
    pub is_cut: bool,
    /// True for an error; `text` is then its message.
    pub is_error: bool,
    /// Recorded error type.
    pub error_type: Option<String>,
}

impl RecordedResult {
    /// Identity of the result: the recorded hash, otherwise that of the text.
    #[must_use]
    pub fn identity(&self) -> String {
        self.sha256.clone().unwrap_or_else(|| hex::encode(Sha256::digest(&self.text)))
    }
}

/// Raw fields of a line, for errors that name them.
#[derive(Deserialize)]
struct RawFields<'a> {
    #[serde(borrow)]
    trace: Option<&'a RawValue>,
    #[serde(borrow)]
    seq: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    run: Option<&'a RawValue>,
    #[serde(borrow)]
    tool: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    result_sha256: Option<&'a RawValue>,
    #[serde(borrow)]
    result_len: Option<&'a RawValue>,
    #[serde(borrow)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow)]
    error_type: Option<&'a RawValue>,
}

fn row(fields: RawFields<'_>) -> Result<TraceRow, String> {
    let seq: u64 = require_field("seq", fields.seq)?;
    let call_id = optional("call_id", fields.call_id)?.unwrap_or_else(|| seq.to_string());
    let run: Option<String> = optional("run", fields.run)?;
    let ts: Option<String> = optional("ts", fields.ts)?;
    Ok(TraceRow {
        trace: parse_field("trace", SessionId::parse, &require_field::<String>("trace", fields.trace)?)?,
        root: None,
        seq,
        call_id: parse_field("call_id", CallId::parse, &call_id)?,
        run: run.map(|run| parse_field("run", RunId::parse, &run)).transpose()?,
        agent: None,
        tool: parse_field("tool", ToolName::parse, &require_field::<String>("tool", fields.tool)?)?,
        arguments: arguments(fields.args)?,
        justification: None,
        usage: Usage::default(),
        at: ts.map(|ts| timestamp(&ts)).transpose()?,
        refused: false,
        approved: false,
        result: fields.result.map(|result| recorded_result(result, &fields)).transpose()?,
        ended: None,
        reported: Usage::default(),
        estimated: None,
        is_complete: None,
        total_matches: None,
        witness: None,
        witness_after: None,
    })
}

fn recorded_result(result: &RawValue, fields: &RawFields<'_>) -> Result<RecordedResult, String> {
    // A recorder that keeps JSON results as JSON means their text.
    let is_text = result.get().starts_with('"');
    let text = if is_text { require_field("result", Some(result))? } else { result.get().to_owned() };
    let sha256: Option<String> = optional("result_sha256", fields.result_sha256)?;
    let characters: Option<u64> = optional("result_len", fields.result_len)?;
    Ok(RecordedResult {
        is_cut: characters.is_some_and(|characters| characters > text.chars().count() as u64),
        text,
        sha256: sha256.map(|hash| hash.to_ascii_lowercase()),
        is_error: optional("is_error", fields.is_error)?.unwrap_or(false),
        error_type: optional("error_type", fields.error_type)?,
    })
}

fn arguments(raw: Option<&RawValue>) -> Result<Json, String> {
    let raw = raw.ok_or("field args: is missing")?;
    match json::parse(raw.get()).map_err(|problem| format!("field args: {problem}"))? {
        object @ Json::Object(_) => Ok(object),
        _ => Err("field args: must be an object".to_owned()),
    }
}

fn timestamp(text: &str) -> Result<Timestamp, String> {
    let parse = |text: &str| DateTime::parse_from_rfc3339(text).ok();
    let at = parse(text).or_else(|| parse(&format!("{text}Z")));
    let problem = || format!("field ts: {text:?} is no RFC 3339 time such as 2026-05-30T21:23:12.179Z");
    at.map(|at| Timestamp::from_millis(at.timestamp_millis())).ok_or_else(problem)
}

fn optional<'a, T: Deserialize<'a>>(field: &str, raw: Option<&'a RawValue>) -> Result<Option<T>, String> {
    let value = raw.map(|raw| serde_json::from_str(raw.get())).transpose();
    value.map_err(|error| format!("field {field}: {}", without_place(&error)))
}

fn require_field<'a, T: Deserialize<'a>>(field: &str, raw: Option<&'a RawValue>) -> Result<T, String> {
    optional(field, raw)?.ok_or_else(|| format!("field {field}: is missing"))
}

fn parse_field<T>(field: &str, parse: fn(&str, &str) -> Result<T, Invalid>, text: &str) -> Result<T, String> {
    parse(field, text).map_err(|invalid| format!("field {}: {}", invalid.field, invalid.problem))
}

/// The error without serde's position, which is always line 1.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests;
