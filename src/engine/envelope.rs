//! The texts for the model: one JSON object, ready to be handed over as the tool's result
//! (docs/semantics.md#the-text-for-the-model).

use serde_json::{Value, json};

use super::Recorded;
use crate::{
    domain::{
        call::Call,
        event::Settled,
        finding::{Decision, Finding},
        json as strict,
        outcome::{Advice, OutcomeStatus},
        time::wait_in_words,
        tool::EmptyMeans,
        verdict::Verdict,
        violation::OnViolation,
    },
    retry::classify,
};

/// From this share on, a model is told that changed arguments help.
const CORRECTED_OFTEN: f64 = 0.5;

/// A text for the model, and whether it reports an error (Anthropic `is_error`, MCP `isError`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// A JSON object.
    pub json: String,
    /// Does it report an error?
    pub is_error: bool,
}

/// A result from memory: its text, or none when only its digest was stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreviousResult {
    /// The result as it was recorded.
    pub text: Option<String>,
}

/// A tool's result as it stands in an envelope: JSON as JSON, text as a string.
fn embedded(text: &str) -> String {
    if strict::parse(text).is_ok() { text.trim().to_owned() } else { Value::from(text).to_string() }
}

/// Writes the members in their order; a result goes in byte for byte, so that its numbers keep all their digits.
fn object(members: Vec<(&str, Value)>, raw: Vec<(&str, String)>) -> String {
    let mut text = String::from("{");
    let members =
        members.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, value.to_string()));
    for (i, (key, value)) in members.chain(raw).enumerate() {
        if i > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(key).to_string());
        text.push(':');
        text.push_str(&value);
    }
    text.push('}');
    text
}

/// The text for a call that is not run; none for ALLOW.
#[must_use]
pub fn refusal(verdict: &Verdict, suggested_next: &[String], previous: Option<&PreviousResult>) -> Option<ToolResult> {
    if verdict.decision == Decision::Allow {
        return None;
    }
    let winner = verdict.winner()?;
    if !winner.violations.is_empty() {
        return Some(invalid(winner, verdict.context_hint()));
    }
    let wait = matches!(verdict.decision, Decision::Wait | Decision::Deny).then(|| verdict.retry_after_ms()).flatten();
    let approval = verdict.approval.as_ref();
    let done_at = winner.reuse.as_ref().filter(|_| previous.is_none_or(|p| p.text.is_none()));
    let members = vec![
        ("status", winner.reason.as_str().into()),
        ("message", winner.message.as_str().into()),
        ("retryable", (verdict.decision == Decision::Wait).into()),
        ("retry_after_ms", wait.map_or(Value::Null, Value::from)),
        ("reason", winner.rule.as_ref().into()),
        ("level", winner.level.map_or(Value::Null, |level| level.as_str().into())),
        ("count", winner.count.map_or(Value::Null, Value::from)),
        ("approval_id", approval.map_or(Value::Null, |approval| approval.id.as_str().into())),
        ("done_at_unix_ms", done_at.map_or(Value::Null, |call| call.at.as_millis().into())),
        ("tools_disabled", if verdict.tools_disabled { true.into() } else { Value::Null }),
        ("suggested_next", if suggested_next.is_empty() { Value::Null } else { json!(suggested_next) }),
        ("next_action_hint", winner.next_action.as_deref().map_or(Value::Null, Value::from)),
        ("warning", verdict.context_hint().map_or(Value::Null, Value::from)),
    ];
    let raw =
        previous.and_then(|p| p.text.as_deref()).map(|text| ("previous_result", embedded(text))).into_iter().collect();
    Some(ToolResult {
        json: object(members, raw),
        is_error: matches!(verdict.decision, Decision::Wait | Decision::Deny | Decision::Stop),
    })
}

/// The text for arguments that the tool does not take.
fn invalid(winner: &Finding, warning: Option<String>) -> ToolResult {
    let errors = winner.violations.iter();
    let errors = errors.map(|violation| json!({"field": violation.field, "message": violation.message}));
    let asks = winner.violations.iter().find(|violation| violation.on_violation == OnViolation::AskUser);
    let hint = asks.map(|violation| {
        let hint = violation.user_facing_hint.as_deref();
        hint.unwrap_or("Ask the user for what is missing before you call it again.")
    });
    let members = vec![
        ("status", "validation_error".into()),
        ("message", winner.message.as_str().into()),
        ("errors", errors.collect::<Vec<Value>>().into()),
        ("user_facing_hint", hint.map_or(Value::Null, Value::from)),
        ("retryable_after_correction", asks.is_none().into()),
        ("retryable", false.into()),
        ("reason", winner.rule.as_ref().into()),
        ("next_action_hint", winner.next_action.as_deref().map_or(Value::Null, Value::from)),
        ("warning", warning.map_or(Value::Null, Value::from)),
    ];
    ToolResult { json: object(members, Vec::new()), is_error: true }
}

/// The text for a call that was reported on: what the model sees instead of the raw answer.
#[must_use]
pub fn recorded(call: &Call, empty_means: Option<EmptyMeans>, recorded: &Recorded) -> ToolResult {
    match recorded.settled.status {
        OutcomeStatus::Success => success(call.arguments.as_deref(), empty_means, &recorded.settled),
        OutcomeStatus::Running => running(recorded),
        OutcomeStatus::Error => error(recorded),
        OutcomeStatus::Cancelled => cancelled(call),
        OutcomeStatus::Unknown => unknown(call, recorded),
    }
}

/// The text for a call that did what it should, by its canonical arguments.
#[must_use]
pub fn success(arguments: Option<&str>, empty_means: Option<EmptyMeans>, settled: &Settled) -> ToolResult {
    let empty = empty_means.filter(|_| settled.result.as_deref().is_some_and(is_empty));
    let hint = match (settled.total_matches, settled.is_complete) {
        _ if empty == Some(EmptyMeans::Suspect) => Some(
            "The result is empty, which this tool rarely means: check the arguments against what you know, or tell \
             the user that nothing was found and what was asked for.",
        ),
        _ if empty == Some(EmptyMeans::NoMatches) => {
            Some("There are no matches. The same query gives the same answer: change it, or say so.")
        }
        (Some(0), _) => Some("There are no matches. The same query gives the same answer: change it, or say so."),
        (_, Some(false)) => Some("This is not all: ask for the next part, or narrow the query."),
        (_, Some(true)) => Some("This is everything there is; no need to ask again."),
        _ => None,
    };
    let members = vec![
        ("status", "success".into()),
        ("total_matches", settled.total_matches.map_or(Value::Null, Value::from)),
        ("is_complete", settled.is_complete.map_or(Value::Null, Value::from)),
        ("next_action_hint", hint.map_or(Value::Null, Value::from)),
    ];
    let summary = arguments.map(|arguments| ("query_summary", arguments.to_owned()));
    let results = settled.result.as_deref().map(|text| ("results", embedded(text)));
    let raw = summary.into_iter().chain(results).collect();
    ToolResult { json: object(members, raw), is_error: false }
}

/// Nothing, in any of the ways in which tools say so.
fn is_empty(result: &str) -> bool {
    matches!(result.trim(), "" | "null" | "[]" | "{}" | "\"\"")
}

fn running(recorded: &Recorded) -> ToolResult {
    let members = vec![
        ("status", "running".into()),
        ("progress", recorded.settled.progress_note.as_deref().map_or(Value::Null, Value::from)),
        ("next_action_hint", "The call is still running: wait for its result instead of calling again.".into()),
    ];
    ToolResult { json: object(members, Vec::new()), is_error: false }
}

fn error(recorded: &Recorded) -> ToolResult {
    let settled = &recorded.settled;
    let advice = recorded.advice.as_ref();
    let retryable = advice.is_some_and(|advice| advice.retryable);
    let members = vec![
        ("status", "error".into()),
        ("error_type", settled.failure.map_or(Value::Null, |kind| kind.as_str().into())),
        ("error_message", classify::one_line(settled.error_message.as_deref().unwrap_or_default()).into()),
        ("retryable", retryable.into()),
        ("retry_after_ms", advice.filter(|_| retryable).map_or(Value::Null, |a| a.retry_after_ms.into())),
        ("max_retries_remaining", advice.map_or(Value::Null, |advice| advice.max_retries_remaining.into())),
        ("next_action_hint", advice.map_or(Value::Null, |advice| after_error(advice, recorded.corrected).into())),
    ];
    ToolResult { json: object(members, Vec::new()), is_error: true }
}

fn after_error(advice: &Advice, corrected: Option<f64>) -> String {
    if advice.retryable {
        let wait = wait_in_words(advice.retry_after_ms);
        return format!("Call again with the same arguments after {wait}; it may well work then.");
    }
    if let Some(share) = corrected.filter(|share| *share >= CORRECTED_OFTEN) {
        return format!(
            "Do not repeat this call. With changed arguments it worked in {:.0} % of such cases: change what the error \
             names, or tell the user.",
            share * 100.0
        );
    }
    "Do not repeat this call: change the arguments by what the error says, use another tool, or tell the user."
        .to_owned()
}

fn cancelled(call: &Call) -> ToolResult {
    let message = format!("{} was cancelled before it did anything.", call.tool);
    let members = vec![("status", "cancelled".into()), ("message", message.into())];
    ToolResult { json: object(members, Vec::new()), is_error: true }
}

fn unknown(call: &Call, recorded: &Recorded) -> ToolResult {
    let retryable = !call.effect.is_unsafe_to_repeat();
    let hint = if retryable {
        "It may be called again; check first what the earlier call did."
    } else {
        "Do not repeat it: check whether it happened, or ask the user."
    };
    let members = vec![
        ("status", "outcome_unknown".into()),
        ("error_type", recorded.settled.failure.map_or(Value::Null, |kind| kind.as_str().into())),
        ("message", format!("{} got no clear answer and may have taken effect.", call.tool).into()),
        ("retryable", retryable.into()),
        ("next_action_hint", hint.into()),
    ];
    ToolResult { json: object(members, Vec::new()), is_error: true }
}
