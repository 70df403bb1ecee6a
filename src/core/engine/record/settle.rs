//! Settlement of a report: status, failure kind, digest, progress and advice.

use std::sync::Arc;

use crate::{
    domain::{
        answer::{self, ComparableResult, ContentAmount, ResultDifference, ResultMarkers},
        call::{Call, Permit},
        effect::EffectKind,
        event::SettledEvent,
        failure::FailureKind,
        fingerprint::{ResultDigest, WitnessDigest},
        gist,
        health::{Health, Observation},
        ids::ToolName,
        json::{self, Json},
        outcome::OutcomeStatus,
        profile::{FollowUpKind, ToolState, Trial},
        redaction::Secrets,
        report::OutcomeReport,
        time::Timestamp,
        tool::{StorageMode, ToolSpec},
        tree::{CallTree, Session},
    },
    engine::{
        SharedState,
        follow_up::{follow_up_ok, is_censored, trial},
        record::{attempts::is_double, failed_call::FailedCall},
    },
    policy::Policy,
    retry::{advice::AdviceWithCircuit, classify, profiles::Profiles},
    rules::{requires, tool_circuit_breaker},
};

/// Maximum length of an error line, in characters.
const ERROR_LINE_MAX: usize = 300;
/// Minimum number of seen corrections before their share is reported.
const CORRECTIONS_MIN: f64 = 8.0;

/// Evaluated report.
pub(super) struct Settlement {
    pub(super) settled: SettledEvent,
    /// The result of a success as JSON, if it parses.
    pub(super) read: Option<Json>,
    pub(super) observation: Option<(ToolName, Observation)>,
    pub(super) trial: Option<Trial>,
    /// Stored form of the result.
    pub(super) stored: Option<String>,
    /// Secrets to redact.
    pub(super) secrets: Secrets,
    /// Success share of follow-ups with other arguments.
    pub(super) corrected: Option<f64>,
}

pub(super) fn settle(
    policy: &Policy,
    tree: &CallTree,
    shared: &SharedState,
    call: &Call,
    permit: &Permit,
    report: &OutcomeReport,
    now: Timestamp,
) -> Settlement {
    let spec = policy.tool(&call.tool);
    let (status, failure) = came_to(call, report);
    let result = report.result.as_deref().filter(|_| status == OutcomeStatus::Success);
    let read = result.and_then(|result| json::parse(result.trim()).ok());
    let Texts { stored, error, signature, note, secrets } = Texts::of(policy, spec, report, read.as_ref());
    let marked =
        (status == OutcomeStatus::Success).then(|| digest_success(call, report, read.as_ref(), spec, (&secrets, now)));
    let error_digest = || {
        let kind = failure.filter(|_| status == OutcomeStatus::Error)?;
        Some(ResultDigest::of_error(kind.as_str(), signature.as_deref().unwrap_or_default()))
    };
    let digest =
        marked.as_ref().map(|(digest, _)| *digest).or_else(error_digest).map(|it| it.with_key(&policy.hashing));
    let session = tree.sessions.get(&report.session).map(Box::as_ref);
    let is_new = || digest.zip(session).is_some_and(|(digest, session)| session.is_new(&call.fingerprint, &digest));
    let news = status == OutcomeStatus::Success && (call.effect.kind == EffectKind::Write || is_new());
    let marks = marked.map(|(_, marks)| Arc::new(marks));
    let progress = news && marks.as_deref().is_some_and(|marks| is_progress(marks, call, session));
    let follow_up_ok = follow_up_ok(call, status, failure).filter(|_| !is_censored(session, call, report));
    let observed = to_observation(call, status, failure, now);
    let mut health = shared.health.clone();
    observed.iter().for_each(|seen| health.record_report(seen, &policy.retry.allowance));
    let effect_open = is_open(call, report, status, failure);
    let advised = failure.map(|kind| {
        let case = FailedCall { tree, session, call, permit, report, status, kind, effect_open, now };
        case.advise(policy, &shared.profiles, &health)
    });
    let (is_complete, total_matches) = completeness(spec, report);
    let settled = SettledEvent {
        kept: marks.is_some() && is_built_on(policy, session, call),
        seq: tree.version + 1,
        at: now,
        session: report.session.clone(),
        call_id: report.call_id.clone(),
        permit_seq: permit.seq,
        status,
        failure,
        error_signature: signature,
        digest,
        witness: digest_witness(policy, call, report),
        marks,
        news,
        progress,
        effect_open,
        key_sent: report.key_sent,
        inferred: false,
        double_effect: is_double(tree, shared, (call, permit), report, status),
        advice: advised.map(|advised| advised.advice),
        circumstances: failure.map(|_| health.circumstances(now)),
        follow_up_ok,
        lease_until: (status == OutcomeStatus::Running).then(|| now.plus_ms(spec.lease_ms)),
        by_lease: report.by_lease,
        ledger_revision: 0,
        usage: report.usage,
        model: report.model.clone(),
        duration_ms: report.duration_ms,
        is_complete,
        total_matches,
        progress_note: note,
        result: report.result.clone(),
        result_bytes: report.result_bytes.or_else(|| report.result.as_ref().map(|result| result.len() as u64)),
        whole: None,
        gist: None,
        error_line: error.as_deref().map(error_line),
        error_message: error,
    };
    let trial = observed.as_ref().and_then(|_| trial(call, follow_up_ok, now));
    let observation = observed.map(|seen| (call.tool.clone(), with_advice(policy, &health, seen, advised)));
    let corrected = |kind| correction_share(&shared.profiles, &call.tool, kind, now);
    Settlement { settled, read, stored, secrets, observation, trial, corrected: failure.and_then(corrected) }
}

/// True when a plan or a requirement depends on the call's result.
fn is_built_on(policy: &Policy, session: Option<&Session>, call: &Call) -> bool {
    let plan = session.and_then(|session| session.plan.as_ref());
    plan.is_some_and(|plan| plan.order.contains(&call.tool))
        || policy.rules.get::<requires::Params>().builds_on(call.tool.as_str())
}

/// The witness of a read, if unchanged across the execution; for a write, the state after it.
fn digest_witness(policy: &Policy, call: &Call, report: &OutcomeReport) -> Option<WitnessDigest> {
    let after = report.witness_after.as_deref().map(|value| WitnessDigest::of(value, &policy.hashing));
    after.filter(|after| call.effect.kind == EffectKind::Write || call.witness == Some(*after))
}

/// Success share of follow-ups with other arguments, once enough were seen.
fn correction_share(profiles: &Profiles, tool: &ToolName, kind: FailureKind, now: Timestamp) -> Option<f64> {
    let corrections = profiles.estimate.corrections(tool, kind, now);
    (corrections.n >= CORRECTIONS_MIN).then(|| corrections.k / corrections.n)
}

/// Redacted texts of a report.
struct Texts {
    /// The result.
    stored: Option<String>,
    error: Option<String>,
    /// Masked error for equality, independent of secrets in it.
    signature: Option<String>,
    note: Option<String>,
    secrets: Secrets,
}

impl Texts {
    fn of(policy: &Policy, spec: &ToolSpec, report: &OutcomeReport, read: Option<&Json>) -> Self {
        let mut secrets = Secrets::default();
        let mut said = |text: &String| policy.stored_text(spec.stored.1, text, &mut secrets).into_owned();
        let error = report.error.as_ref().map(|error| said(&error.message));
        let note = report.progress_note.as_ref().map(said);
        let stored = report.result.as_deref().and_then(|text| policy.stored_result(spec, text, read, &mut secrets));
        Self { stored, signature: error.as_deref().map(classify::error_signature), error, note, secrets }
    }
}

/// Digest and marks of a success. Names are kept only if the result is stored in full.
fn digest_success(
    call: &Call,
    report: &OutcomeReport,
    read: Option<&Json>,
    spec: &ToolSpec,
    (secrets, now): (&Secrets, Timestamp),
) -> (ResultDigest, ResultMarkers) {
    let bytes = report.result_bytes;
    let ComparableResult { digest, mut marks } = match &report.result {
        Some(result) => ComparableResult::of_read(result, read, &spec.volatile, now),
        None => ComparableResult::of_digest(report.result_digest.as_deref().unwrap_or_default(), bytes),
    };
    if let Some(pointer) = &spec.failure_at {
        let result = report.result.as_deref().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        marks.failed = result.as_ref().and_then(|result| result.pointer(pointer)).is_some_and(tells_failure);
    }
    if marks.says == ContentAmount::Much {
        let asked = || json::parse(call.arguments.as_deref()?).ok();
        let echoes = read.is_some_and(|read| asked().is_some_and(|asked| answer::is_echo(read, &asked)));
        marks.says = if echoes { ContentAmount::Little } else { ContentAmount::Much };
    }
    let is_hidden = matches!(spec.stored.1, StorageMode::Redacted | StorageMode::Hash);
    if is_hidden || spec.stored.1 == StorageMode::Full && !secrets.is_empty() {
        marks.named = marks.named.filter_names(|name| !is_hidden && *secrets.without(name) == *name);
        marks.hide_numbers();
    }
    (digest, marks)
}

/// True when the policy's failure field is present and not empty.
fn tells_failure(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Null => false,
        Value::Bool(failed) => *failed,
        Value::Number(code) => code.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// Progress: more than another name or number in the call's last result, and no failure.
fn is_progress(marks: &ResultMarkers, call: &Call, session: Option<&Session>) -> bool {
    let calls = session.into_iter().flat_map(|session| session.calls.iter().rev());
    let same = calls.filter(|other| other.fingerprint == call.fingerprint).filter_map(|other| other.outcome.as_ref());
    let last = same.filter_map(|outcome| outcome.marks.as_deref().map(|marks| (outcome.seq, marks)));
    let last = last.max_by_key(|(seq, _)| *seq).map(|(_, marks)| marks);
    !marks.failed && last.is_none_or(|last| marks.compared_with(last, &[]) == ResultDifference::News)
}

/// The error in one line for the model: without a traceback, and of a JSON object its message.
fn error_line(message: &str) -> Arc<str> {
    let inside = classify::message_in_json(message);
    gist::truncate_line(&classify::one_line(inside.as_deref().unwrap_or(message).trim()), ERROR_LINE_MAX).into()
}

/// Completeness by the report, otherwise by the policy's pointers into the result.
fn completeness(spec: &ToolSpec, report: &OutcomeReport) -> (Option<bool>, Option<u64>) {
    let (complete_at, total_at) = &spec.result_map;
    if complete_at.is_none() && total_at.is_none() {
        return (report.is_complete, report.total_matches);
    }
    let result = report.result.as_deref().and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    let at = |pointer: &Option<String>| result.as_ref()?.pointer(pointer.as_deref()?).cloned();
    let is_complete = report.is_complete.or_else(|| at(complete_at)?.as_bool());
    (is_complete, report.total_matches.or_else(|| at(total_at)?.as_u64()))
}

fn came_to(call: &Call, report: &OutcomeReport) -> (OutcomeStatus, Option<FailureKind>) {
    let is_check = call.effect.kind == EffectKind::Check;
    let classify = if is_check { classify::classify_check } else { classify::classify };
    let failure = report.error.as_ref().map(classify);
    let status = match report.status {
        // Settled by an operator, or known not to have started.
        status if report.by.is_some() || report.not_started => status,
        OutcomeStatus::Error | OutcomeStatus::Cancelled if call.effect.may_have_happened() => {
            let is_open = |error| failure.is_some_and(|kind| classify::may_have_taken_effect(kind, error));
            let open = report.status == OutcomeStatus::Cancelled || report.error.as_ref().is_some_and(is_open);
            if open { OutcomeStatus::Unknown } else { report.status }
        }
        status => status,
    };
    match status {
        OutcomeStatus::Error => (status, Some(failure.unwrap_or(FailureKind::Other))),
        _ => (status, failure),
    }
}

/// True for an open effect: not a success, and a timeout, an internal provider error, a cancellation or an expired
/// lease.
fn is_open(call: &Call, report: &OutcomeReport, status: OutcomeStatus, failure: Option<FailureKind>) -> bool {
    let effect = &call.effect;
    let is_declared = effect.kind == EffectKind::Write;
    let declared_read = report.read_only && effect.kind == EffectKind::Unknown;
    if !effect.may_have_acted() || declared_read || report.not_started {
        return false;
    }
    match status {
        OutcomeStatus::Unknown => true,
        OutcomeStatus::Cancelled => report.by.is_none(),
        OutcomeStatus::Error if report.by.is_none() && !is_declared => {
            let told = failure.zip(report.error.as_ref());
            told.is_some_and(|(kind, error)| {
                // A provider that names a retry time has not accepted the call.
                let is_put_off = kind == FailureKind::Unavailable && error.retry_after_ms.is_some();
                classify::may_have_taken_effect(kind, error) && !is_put_off
            })
        }
        OutcomeStatus::Error | OutcomeStatus::Success | OutcomeStatus::Running => false,
    }
}

/// The health observation before any advice; none without information.
fn to_observation(
    call: &Call,
    status: OutcomeStatus,
    failure: Option<FailureKind>,
    at: Timestamp,
) -> Option<Observation> {
    let failure = match status {
        OutcomeStatus::Success => None,
        OutcomeStatus::Error | OutcomeStatus::Unknown => Some(failure?),
        OutcomeStatus::Running | OutcomeStatus::Cancelled => return None,
    };
    let retry = call.follow_up.as_ref().filter(|follow_up| follow_up.kind == FollowUpKind::Same);
    let probe_of = retry.filter(|retry| retry.probe).map(|retry| retry.failure);
    let sent_at = call.permit.as_ref().map_or(at, |permit| permit.at);
    Some(Observation { at, sent_at, failure, cooldown_ms: None, retry_told: false, probe_told: false, probe_of })
}

/// The observation with the advice: rate limits and outages open the circuit for all sessions.
fn with_advice(policy: &Policy, health: &Health, seen: Observation, advised: Option<AdviceWithCircuit>) -> Observation {
    use FailureKind::{Network, RateLimited, Timeout, Unavailable};
    let down = || health.state(seen.at) != ToolState::Working;
    let is_everybodys = match seen.failure {
        Some(RateLimited) => true,
        Some(Timeout | Unavailable | Network) => down(),
        _ => false,
    };
    Observation {
        cooldown_ms: advised
            .filter(|_| is_everybodys)
            .map(|advised| advised.leave_alone_ms.min(policy.rules.get::<tool_circuit_breaker::Params>().max_ms)),
        retry_told: advised.is_some_and(|advised| advised.advice.retryable),
        probe_told: advised.is_some_and(|advised| advised.advice.probe),
        ..seen
    }
}
