//! Lines of a summary, part by part.

use super::{
    history::{CallHistory, SessionHistory, came_of, error_line},
    token_limit::{LinePriority, SummaryLine},
};
use crate::{
    domain::{
        budget::RemainingBudget,
        call::{ApprovalStatus, Call, CallStatus},
        content::{self, Content},
        effect::EffectKind,
        history::PastCall,
        json,
        reason::Reason,
        session_state::CallState,
        time::{Timestamp, wait_in_words},
        tree::Session,
    },
    engine::state::Stops,
};

/// Maximum number of listed open calls and refusal reasons.
const LISTED_MAX: usize = 12;

pub(super) fn plan(session: &Session) -> Vec<SummaryLine> {
    let phase = session.phase.as_ref().map(|phase| format!("Phase: {phase}."));
    let plan = session.plan.as_ref().filter(|plan| !plan.order.is_empty()).map(|plan| {
        let step = |(i, tool): (usize, &crate::domain::ids::ToolName)| match i {
            i if i < plan.done => format!("{tool} (done)"),
            i if i == plan.done => format!("{tool} (next)"),
            _ => tool.to_string(),
        };
        let steps: Vec<String> = plan.order.iter().enumerate().map(step).collect();
        let rest = if plan.done >= plan.order.len() { " All of it is done." } else { "" };
        format!("Plan: {}.{rest}", steps.join(", "))
    });
    phase.into_iter().chain(plan).map(SummaryLine::fixed_line).collect()
}

/// Calls that wait for approval, run, or have an unknown outcome.
pub(super) fn open(session: &Session, past: &SessionHistory<'_>, now: Timestamp) -> Vec<SummaryLine> {
    let held = session.calls.iter().filter_map(|call| {
        let state = question(call, now)?;
        let arguments = past.arguments_of(call.fingerprint).unwrap_or_default();
        Some(format!("- {} {arguments} {state}.", call.tool))
    });
    let started = past.entries().filter_map(|entry| {
        let named = past.describe_call(entry.newest);
        match entry.state {
            CallState::InFlight => {
                let since = wait_in_words(now.since_ms(entry.newest.at));
                Some(format!("- {named} is running since {since}. Wait for its result."))
            }
            CallState::Unknown if entry.newest.is_unsafe_to_repeat() => Some(format!(
                "- {named} got no answer and may have happened. Do not repeat it: check first whether it did, or ask \
                 the user."
            )),
            CallState::Unknown => Some(format!(
                "- {named} got no answer and may have happened. It may be called again; check first what it did."
            )),
            _ => None,
        }
    });
    let mut lines: Vec<String> = held.chain(started).collect();
    let beyond = lines.len().saturating_sub(LISTED_MAX);
    if beyond > 0 {
        lines.drain(..beyond);
        lines.insert(0, format!("- {beyond} more that began earlier"));
    }
    lines.into_iter().map(SummaryLine::fixed_line).collect()
}

/// Calls with a double effect.
pub(super) fn list_double_effects(past: &SessionHistory<'_>) -> Vec<SummaryLine> {
    let twice = past.entries().filter(|entry| entry.is_double).map(|entry| {
        let named = past.describe_call(entry.newest);
        SummaryLine::fixed_line(match entry.newest.effect.kind {
            EffectKind::Write => format!("- {named} succeeded in two attempts. Undo one of them, or tell the user."),
            _ => format!(
                "- {named} succeeded in two attempts. If it changes something, undo one of them, or tell the user."
            ),
        })
    });
    twice.take(LISTED_MAX).collect()
}

/// The status of an approval request, while the call may still run.
fn question(call: &Call, now: Timestamp) -> Option<String> {
    let CallStatus::Held(approval) = call.standing(now) else { return None };
    match approval.answer {
        ApprovalStatus::Pending if now < approval.expires_at => {
            let since = wait_in_words(now.since_ms(call.at));
            Some(format!("waits for a person's approval since {since}. Do not ask for it again"))
        }
        ApprovalStatus::Approved => Some("was approved by a person and has not run yet. Call it now".to_owned()),
        ApprovalStatus::Edited => Some(
            "was approved by a person with other arguments, and does not run with these. Call it again to be told them"
                .to_owned(),
        ),
        _ => None,
    }
}

/// True for a completed write, unless declared repeatable.
fn is_done(call: &PastCall) -> bool {
    call.effect.kind == EffectKind::Write && !call.effect.repeatable
}

/// The declared writes that succeeded.
pub(super) fn list_writes(past: &SessionHistory<'_>) -> Vec<SummaryLine> {
    let writes = past.entries().filter_map(|entry| {
        let call = entry.success.filter(|call| is_done(call))?;
        let class = if call.effect.once { LinePriority::Once } else { LinePriority::Write };
        Some(
            SummaryLine::optional_line(class, call.seq, format!("- {}", describe_success(entry, call, past)))
                .of(kind_of(call)),
        )
    });
    writes.collect()
}

/// True for an undeclared call with content and the result of a write.
fn is_act(call: &PastCall) -> bool {
    let has_content = || {
        let arguments = call.arguments.as_deref().unwrap_or_default();
        // Of long ones only the beginning is kept.
        json::parse(arguments).map_or(!arguments.is_empty(), |arguments| content::of(&arguments) == Content::Written)
    };
    let is_undeclared = call.effect.kind == EffectKind::Unknown && !call.effect.in_steps && !call.effect.repeatable;
    is_undeclared && call.outcome.as_ref().is_some_and(|outcome| outcome.is_act) && has_content()
}

/// The undeclared successes that seem to be writes.
pub(super) fn acts(past: &SessionHistory<'_>) -> Vec<SummaryLine> {
    let acts = past.entries().filter_map(|entry| {
        let call = entry.success.filter(|call| is_act(call))?;
        let text = format!("- {}", describe_success(entry, call, past));
        Some(SummaryLine::optional_line(LinePriority::Made, call.seq, text).of(call.tool.to_string()))
    });
    acts.collect()
}

/// The other successes, by tool.
pub(super) fn list_successes(past: &SessionHistory<'_>) -> Vec<SummaryLine> {
    let others = past.entries().filter_map(|entry| {
        let call = entry.success.filter(|call| !is_done(call) && !is_act(call))?;
        // A possible creation has a higher priority than a read.
        let class = if call.effect.kind == EffectKind::Unknown && !entry.made.is_empty() {
            LinePriority::Made
        } else {
            LinePriority::Read
        };
        let text = format!(
            "  - {}",
            describe_success(entry, call, past).strip_prefix(call.tool.as_str()).unwrap_or_default().trim()
        );
        Some(SummaryLine::optional_line(class, call.seq, text).of(call.tool.to_string()))
    });
    others.collect()
}

/// Type of the changed resource, for grouping.
fn kind_of(call: &PastCall) -> String {
    let resource = call.effect.resource.as_ref().map_or("", |resource| resource.as_str());
    let kind = resource.split_once('/').map_or("", |(kind, _)| kind);
    if kind.is_empty() { call.tool.to_string() } else { format!("{} of {kind}", call.tool) }
}

/// `create_document {title: Q3} made doc_1`; `search {q: a}: 2 items: #1, #2`.
fn describe_success(entry: &CallHistory<'_>, call: &PastCall, past: &SessionHistory<'_>) -> String {
    let times = if entry.successes > 1 { format!(" ×{}", entry.successes) } else { String::new() };
    let named = format!("{}{times}", past.describe_call(call));
    let outcome = call.outcome.as_ref();
    match (entry.names(), outcome) {
        (Some(names), _) if call.effect.kind == EffectKind::Write => format!("{named} made {names}"),
        (Some(names), _) if call.effect.kind == EffectKind::Unknown => format!("{named}: gave {names}"),
        (_, Some(outcome)) => format!("{named}: {}", came_of(outcome)),
        (_, None) => named,
    }
}

pub(super) fn list_failures(past: &SessionHistory<'_>, now: Timestamp) -> Vec<SummaryLine> {
    let failed = past.entries().filter_map(|entry| {
        let call = entry.newest;
        let outcome = call.outcome.as_ref().filter(|_| entry.state == CallState::Failed)?;
        let times = if entry.failures > 1 { format!(" {} times", entry.failures) } else { String::new() };
        let kind = outcome.failure.map(|kind| kind.as_str()).unwrap_or_default();
        let error = error_line(outcome);
        let error = if error.is_empty() { kind.to_owned() } else { format!("\"{error}\" ({kind})") };
        let left_ms = outcome.at.plus_ms(outcome.retry_after_ms).since_ms(now);
        let next = match outcome.retryable {
            Some(true) if left_ms > 0 => format!("A retry is worth it in {}.", wait_in_words(left_ms)),
            Some(true) => "A retry is worth it.".to_owned(),
            _ => "The same call again is not worth it.".to_owned(),
        };
        let text = format!("- {} failed{times}: {error}. {next}", past.describe_call(call));
        Some(SummaryLine::optional_line(LinePriority::Failure, call.seq, text))
    });
    failed.collect()
}

/// One line per reason, with the newest refused call.
pub(super) fn list_refusals(session: &Session, past: &SessionHistory<'_>, now: Timestamp) -> Vec<SummaryLine> {
    let held: Vec<_> = session.calls.iter().filter(|call| question(call, now).is_some()).collect();
    let mut reasons: Vec<(Reason, u32, &PastCall)> = Vec::new();
    for call in past.refused() {
        let Some(reason) = call.reason.filter(|_| held.iter().all(|held| held.fingerprint != call.fingerprint)) else {
            continue;
        };
        match reasons.iter_mut().find(|(known, _, _)| *known == reason) {
            Some((_, times, newest)) => (*times, *newest) = (*times + 1, call),
            None => reasons.push((reason, 1, call)),
        }
    }
    let line = |(reason, times, newest): (Reason, u32, &PastCall)| {
        let meaning = reason.meaning().trim_end_matches('.');
        let named = past.describe_call(newest);
        SummaryLine::fixed_line(match times {
            1 => format!("- {named}: {meaning}."),
            n => format!("- {meaning}: {n} calls, the last {named}."),
        })
    };
    reasons.into_iter().take(LISTED_MAX).map(line).collect()
}

/// The remainder of the nearest limit.
pub(super) fn budget(left: &[RemainingBudget], stops: &Stops) -> Vec<SummaryLine> {
    let tight = left.iter().filter(|left| left.limit > 0).min_by_key(|left| left.remaining() * 100 / left.limit);
    let line = tight.filter(|_| !stops.is_run()).map(|tight| {
        let left = tight.dimension.left_in_words(tight.remaining(), tight.limit);
        SummaryLine::fixed_line(format!("Budget left: {left}."))
    });
    line.into_iter().collect()
}
