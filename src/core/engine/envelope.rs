//! Envelopes: the texts for the model, as one JSON object to return as the tool's result
//! (docs/semantics.md#the-text-for-the-model).

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{RecordResult, edited_envelope::instead};
use crate::{
    domain::{
        call::Call,
        control::EditedArguments,
        digest,
        effect::EffectKind,
        failure::FailureKind,
        finding::{Decision, Finding},
        gist::{self, size},
        json as strict,
        outcome::{Advice, Confidence, OutcomeStatus, Repeat},
        previous::StoredResult,
        reason::Reason,
        redaction::{self, REDACTED},
        time::wait_in_words,
        tool::EmptyMeans,
        truncation::FullText,
        verdict::Verdict,
        violation::OnViolation,
    },
    retry::next_step::{MADE_EARLIER, next_step},
};

/// Text for a refused or failed call that exhausted a budget.
pub(super) const DISABLED: &str =
    "With this call the budget is used up and tools are disabled: give the final answer now.";
/// Maximum number of redacted fields that a previous result lists.
const MISSING_MAX: usize = 20;
/// Minimum success share of corrections that is mentioned to the model.
const CORRECTED_OFTEN: f64 = 0.5;

/// A text for the model, and whether it reports an error (Anthropic `is_error`, MCP `isError`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// A JSON object.
    pub json: String,
    /// Does it report an error?
    pub is_error: bool,
}

/// A tool's result inside an envelope: JSON as JSON, text as a string.
fn embed_result(text: &str, is_json: bool) -> String {
    if is_json { text.trim().to_owned() } else { Value::from(text).to_string() }
}

/// Writes the members in order; results are copied byte for byte, so that numbers keep all their digits.
pub(super) fn object(members: Vec<(&'static str, Value)>, raw: Vec<(&'static str, String)>) -> String {
    let mut text = String::with_capacity(256 + raw.iter().map(|(_, value)| value.len()).sum::<usize>());
    let key = |text: &mut String, key: &str| {
        text.push_str(if text.is_empty() { "{\"" } else { ",\"" });
        text.push_str(key);
        text.push_str("\":");
    };
    for (name, value) in members.into_iter().filter(|(_, value)| !value.is_null()) {
        key(&mut text, name);
        let _ = write!(text, "{value}");
    }
    for (name, value) in raw {
        key(&mut text, name);
        text.push_str(&value);
    }
    text.push_str(if text.is_empty() { "{}" } else { "}" });
    text
}

/// Context of a refusal beside its verdict.
#[derive(Debug, Clone, Copy)]
pub struct RefusalContext<'a> {
    /// Suggested alternatives.
    pub suggested_next: &'a [String],
    /// Previous result that the refusal returns; none when unknown.
    pub previous: Option<&'a StoredResult>,
    /// Maximum size of the returned part, in bytes.
    pub previous_max: usize,
    /// Edited arguments that were approved in place of the call.
    pub edited: Option<&'a EditedArguments>,
}

/// The envelope of a call that does not run; none for ALLOW.
#[must_use]
pub fn refusal(verdict: &Verdict, beside: &RefusalContext<'_>) -> Option<ToolResult> {
    if verdict.decision == Decision::Allow {
        return None;
    }
    let winner = verdict.winner()?;
    let disabled = verdict.tools_disabled && verdict.decision != Decision::Stop;
    if !winner.violations.is_empty() {
        return Some(invalid(winner, disabled, verdict.context_hint()));
    }
    if winner.reason == Reason::ApprovalEdited {
        return Some(instead(winner, disabled, beside.edited));
    }
    let waits = !matches!(verdict.decision, Decision::Ask | Decision::Stop);
    let wait = waits.then(|| verdict.retry_after_ms()).flatten();
    let approval = verdict.approval.as_ref();
    let previous = beside.previous.filter(|_| winner.reuse.is_some());
    let text = previous.and_then(|given| given.text.as_deref());
    let done_at = winner.reuse.as_ref().filter(|_| text.is_none());
    let whole = previous.and_then(|given| given.whole.as_ref());
    let cut = text.filter(|text| text.len() > beside.previous_max || whole.is_some());
    let whose = if verdict.decision == Decision::Reuse { "Its result" } else { "The last result" };
    let left_out = text.map(|text| redaction::missing(text, MISSING_MAX)).unwrap_or_default();
    let about = winner.reuse.is_some().then(|| about_previous(whose, previous, &left_out, beside.previous_max));
    // One next step: an exhausted budget overrides the rule's.
    let said = if disabled { winner.situation() } else { &winner.message };
    let message = [Some(said), about.as_deref(), disabled.then_some(DISABLED)];
    let message: Vec<&str> = message.into_iter().flatten().collect();
    let suggested_next = if verdict.decision == Decision::Stop || disabled { &[] } else { beside.suggested_next };
    let next = if disabled { Some(DISABLED) } else { winner.next_action.as_deref() };
    let members = vec![
        ("status", winner.reason.as_str().into()),
        ("message", message.join(" ").into()),
        ("retryable", (verdict.decision == Decision::Wait).into()),
        ("retry_after_ms", wait.map_or(Value::Null, Value::from)),
        ("reason", winner.rule.as_ref().into()),
        ("level", winner.level.map_or(Value::Null, |level| level.as_str().into())),
        ("count", winner.count.map_or(Value::Null, Value::from)),
        ("approval_id", approval.map_or(Value::Null, |approval| approval.id.as_str().into())),
        ("done_at_unix_ms", done_at.map_or(Value::Null, |call| call.at.as_millis().into())),
        ("total_matches", previous.and_then(|given| given.total_matches).map_or(Value::Null, Value::from)),
        ("is_complete", previous.and_then(|given| given.is_complete).map_or(Value::Null, Value::from)),
        ("previous_result_truncated", cut.map_or(Value::Null, |_| true.into())),
        ("previous_result_bytes", cut.map_or(Value::Null, |text| whole_bytes(text, whole).into())),
        ("previous_result_sha256", cut.map_or(Value::Null, |text| sha256(text, whole).into())),
        ("redacted_fields", if left_out.is_empty() { Value::Null } else { json!(left_out) }),
        ("tools_disabled", if verdict.tools_disabled { true.into() } else { Value::Null }),
        ("suggested_next", if suggested_next.is_empty() { Value::Null } else { json!(suggested_next) }),
        ("next_action_hint", next.map_or(Value::Null, Value::from)),
        ("warning", verdict.context_hint().map_or(Value::Null, Value::from)),
    ];
    let given = text.map(|text| {
        cut.map_or_else(
            || embed_result(text, strict::parse(text).is_ok()),
            |text| Value::from(&text[..text.floor_char_boundary(beside.previous_max)]).to_string(),
        )
    });
    let raw = given.map(|text| ("previous_result", text)).into_iter().collect();
    Some(ToolResult {
        json: object(members, raw),
        is_error: matches!(verdict.decision, Decision::Wait | Decision::Deny | Decision::Stop),
    })
}

/// Original size of a previous result, which may be stored truncated.
fn whole_bytes(text: &str, whole: Option<&FullText>) -> u64 {
    whole.map_or(text.len() as u64, |whole| whole.bytes)
}

fn sha256(text: &str, whole: Option<&FullText>) -> String {
    whole.map_or_else(|| digest::of_text(text), |whole| digest::in_hexadecimal(&whole.sha256))
}

/// The fields about a previous result.
fn about_previous(whose: &str, previous: Option<&StoredResult>, left_out: &[String], max: usize) -> String {
    let stored = previous.map(|given| (given.text.as_deref(), given.whole.as_ref(), given.is_gone));
    let given = match stored.unwrap_or_default() {
        (None, _, true) => {
            return format!(
                "{whose} is no longer kept and cannot be given here: what was done then holds. Use what you were told \
                 then, or read what it did with another tool."
            );
        }
        (None, _, false) if previous.is_some_and(|given| given.is_inferred) => {
            return format!("{whose} never came and cannot be given here: look at what is there.");
        }
        (None, _, false) => {
            return format!("{whose} is not stored and cannot be given here: use what you were told then.");
        }
        (Some(text), Some(whole), _) => format!(
            "{whose} was {} long, and only its first {} are stored; its first {} are in previous_result. The rest \
             cannot be given here: use what you were told then, or ask for less at a time with other arguments.",
            size(whole.bytes),
            size(text.len() as u64),
            size(max.min(text.len()) as u64)
        ),
        (Some(text), None, _) if text.len() > max => format!(
            "{whose} is {} long; its first {} are in previous_result. To see the rest, ask for less at a time with \
             other arguments.",
            size(text.len() as u64),
            size(max as u64)
        ),
        (Some(_), None, _) => format!("{whose} is in previous_result."),
    };
    match left_out {
        [] => given,
        fields if fields.iter().all(String::is_empty) => {
            format!("{given} Secrets in it are not stored and read {REDACTED}: use what you were told then.")
        }
        fields => format!("{given} Secrets are not stored: {} is missing there.", fields.join(", ")),
    }
}

/// The envelope for invalid arguments.
fn invalid(winner: &Finding, disabled: bool, warning: Option<String>) -> ToolResult {
    let errors = winner.violations.iter();
    let errors = errors.map(|violation| json!({"field": violation.field, "message": violation.message}));
    let asks = winner.violations.iter().find(|violation| violation.on_violation == OnViolation::AskUser);
    let told = winner.violations.iter().find_map(|violation| violation.user_facing_hint.as_deref());
    let asked = asks.map(|_| "Ask the user for what is missing before you call it again.");
    let hint = asks.and_then(|asks| asks.user_facing_hint.as_deref()).or(told).or(asked);
    // Not worth a try only where models have hardly ever fixed it.
    let helps = winner.violations.iter().all(|violation| !violation.is_hopeless);
    let members = vec![
        ("status", "validation_error".into()),
        ("message", winner.message.as_str().into()),
        ("errors", errors.collect::<Vec<Value>>().into()),
        ("user_facing_hint", hint.map_or(Value::Null, Value::from)),
        ("retryable_after_correction", (helps && !disabled).into()),
        ("retryable", false.into()),
        ("reason", winner.rule.as_ref().into()),
        ("tools_disabled", if disabled { true.into() } else { Value::Null }),
        (
            "next_action_hint",
            if disabled { Some(DISABLED) } else { winner.next_action.as_deref() }.map_or(Value::Null, Value::from),
        ),
        ("warning", warning.map_or(Value::Null, Value::from)),
    ];
    ToolResult { json: object(members, Vec::new()), is_error: true }
}

/// The envelope after a report, which replaces the raw answer.
#[must_use]
pub fn envelope_of_report(call: &Call, empty_means: Option<EmptyMeans>, recorded: &RecordResult) -> ToolResult {
    match recorded.settled.status {
        OutcomeStatus::Success => {
            success(call.arguments.as_deref(), (empty_means, call.effect.kind == EffectKind::Poll), recorded)
        }
        OutcomeStatus::Running => running(recorded),
        OutcomeStatus::Error => error(call, recorded),
        OutcomeStatus::Cancelled => envelope_of_cancelled(call, recorded.settled.effect_open),
        OutcomeStatus::Unknown => unknown(call, recorded),
    }
}

/// The envelope of a success, by its canonical arguments. A poll may always be repeated.
#[must_use]
pub fn success(
    arguments: Option<&str>,
    (empty_means, is_poll): (Option<EmptyMeans>, bool),
    recorded: &RecordResult,
) -> ToolResult {
    let settled = &recorded.settled;
    let hint = describe_success(empty_means, is_poll, recorded);
    let members = vec![
        ("status", "success".into()),
        ("total_matches", settled.total_matches.map_or(Value::Null, Value::from)),
        ("is_complete", settled.is_complete.map_or(Value::Null, Value::from)),
        ("progress", settled.progress_note.as_deref().map_or(Value::Null, Value::from)),
        ("next_action_hint", hint.map_or(Value::Null, Value::from)),
    ];
    let summary = arguments.map(|arguments| ("query_summary", arguments.to_owned()));
    let results = settled.result.as_deref().map(|text| ("results", embed_result(text, recorded.read.is_some())));
    let raw = summary.into_iter().chain(results).collect();
    ToolResult { json: object(members, raw), is_error: false }
}

/// The state after a success, with the known numbers.
fn describe_success(empty_means: Option<EmptyMeans>, is_poll: bool, recorded: &RecordResult) -> Option<String> {
    let settled = &recorded.settled;
    let is_empty = settled.result.as_deref().is_some_and(|text| gist::is_empty(text, recorded.read.as_ref()));
    let matches = |n: u64| if n == 1 { "1 match".to_owned() } else { format!("{n} matches") };
    Some(match (settled.total_matches, settled.is_complete) {
        _ if is_poll => return None,
        _ if is_empty && empty_means == Some(EmptyMeans::Suspect) => {
            "The result is empty, which this tool rarely means: check the arguments against what you know, or tell the \
             user that nothing was found and what was asked for."
                .to_owned()
        }
        (Some(0), _) => "There are 0 matches. Search again only with other parameters, or say so.".to_owned(),
        _ if is_empty && empty_means == Some(EmptyMeans::NoMatches) => {
            "There are no matches. Search again only with other parameters, or say so.".to_owned()
        }
        (Some(n), Some(true)) => {
            let them = if n == 1 { "it" } else { "them" };
            format!(
                "Found {}, and that is all there is. Present {them}; search again only with other parameters.",
                matches(n)
            )
        }
        (Some(n), Some(false)) => {
            format!(
                "There are {} in all, and these are not all of them: ask for the next part, or narrow the query.",
                matches(n)
            )
        }
        (None, Some(false)) => "This is not all: ask for the next part, or narrow the query.".to_owned(),
        (None, Some(true)) => "This is all there is. Use it; ask again only with other parameters.".to_owned(),
        (Some(_), None) | (None, None) => return None,
    })
}

fn running(recorded: &RecordResult) -> ToolResult {
    let members = vec![
        ("status", "running".into()),
        ("progress", recorded.settled.progress_note.as_deref().map_or(Value::Null, Value::from)),
        ("next_action_hint", "The call is still running: wait for its result instead of calling again.".into()),
    ];
    ToolResult { json: object(members, Vec::new()), is_error: false }
}

fn error(call: &Call, recorded: &RecordResult) -> ToolResult {
    let settled = &recorded.settled;
    let disabled = recorded.tools_disabled;
    let advice = recorded.advice.as_ref();
    let retryable = !disabled && advice.is_some_and(|advice| advice.retryable);
    let kind = settled.failure.unwrap_or(FailureKind::Other);
    let line = settled.error_line.as_deref().unwrap_or_default();
    let message = if line.is_empty() {
        format!("{} failed and gave no error text ({}).", call.tool, kind.as_str())
    } else {
        line.to_owned()
    };
    let next = match advice {
        _ if disabled => DISABLED.to_owned(),
        Some(advice) if retryable => retry(advice),
        _ if recorded.made_earlier => MADE_EARLIER.to_owned(),
        _ if settled.effect_open => {
            "It may have taken effect: if it changes something, check whether it happened before you go on, or tell \
             the user."
                .to_owned()
        }
        _ => after_error(kind, line, recorded.corrected),
    };
    let remaining = advice.map(|advice| if retryable { advice.max_retries_remaining } else { 0 });
    let members = vec![
        ("status", "error".into()),
        ("error_type", kind.as_str().into()),
        ("error_message", message.into()),
        ("retryable", retryable.into()),
        ("retry_after_ms", advice.filter(|_| retryable).map_or(Value::Null, |a| a.retry_after_ms.into())),
        ("max_retries_remaining", remaining.map_or(Value::Null, Value::from)),
        ("tools_disabled", if disabled { true.into() } else { Value::Null }),
        ("next_action_hint", next.into()),
    ];
    ToolResult { json: object(members, Vec::new()), is_error: true }
}

/// The retry advice, with its probability if known.
fn retry(advice: &Advice) -> String {
    let wait = wait_in_words(advice.retry_after_ms);
    let most = match advice.max_retries_remaining {
        1 => "once more".to_owned(),
        n => format!("at most {n} more times"),
    };
    let chance = match advice.confidence {
        Confidence::Low => String::new(),
        _ => format!(" That works in about {:.0} % of such cases.", advice.p_success * 100.0),
    };
    match advice.repeat {
        Repeat::ByModel => format!(
            "It may have taken effect. If it only reads, call it again with the same arguments after {wait}, {most}; \
             if it changes something, check first whether it happened.{chance}"
        ),
        _ => format!("Call it again with the same arguments after {wait}, {most}.{chance}"),
    }
}

fn after_error(kind: FailureKind, line: &str, corrected: Option<f64>) -> String {
    let next = next_step(kind, line);
    // Only where arguments can be the fault.
    let is_of_arguments = matches!(kind, FailureKind::InvalidArgument | FailureKind::NotFound | FailureKind::Other);
    match corrected.filter(|share| is_of_arguments && *share >= CORRECTED_OFTEN) {
        Some(share) => format!("{next} With changed arguments it worked in {:.0} % of such cases.", share * 100.0),
        None => next.to_owned(),
    }
}

fn envelope_of_cancelled(call: &Call, effect_open: bool) -> ToolResult {
    let may = if effect_open { ", and it may have taken effect in part" } else { "" };
    let message = format!("{} was cancelled: there is no result{may}.", call.tool);
    let members = vec![("status", "cancelled".into()), ("message", message.into())];
    ToolResult { json: object(members, Vec::new()), is_error: true }
}

fn unknown(call: &Call, recorded: &RecordResult) -> ToolResult {
    let retryable = !call.effect.is_unsafe_to_repeat(recorded.settled.key_sent);
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
