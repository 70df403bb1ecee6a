//! Decoding and encoding of policy checks and backtests.

use super::{
    decode::{DecodeResult, count, wrong},
    limits::{BACKTEST_CALLS_DEFAULT, BACKTEST_CALLS_MAX, CHANGES_MAX, DAY_MS, PROBLEMS_MAX},
    status::clip_text,
    time::{point_in_time, timestamp},
};
use crate::{
    gate::{BacktestOutcome, BacktestQuery, BacktestTold, CheckedPolicy, PolicyProblem},
    grpc::ToWire,
};
use callgate_core::domain::{difference::Example, revision::Revision, time::Timestamp};
use callgate_proto::v1;

/// Default age of the oldest call, in days.
const DAYS: u64 = 7;

fn problem(severity: v1::PolicyProblemSeverity, problem: &PolicyProblem) -> v1::PolicyProblem {
    v1::PolicyProblem {
        severity: severity.into(),
        line: problem.line.unwrap_or_default(),
        column: problem.column.unwrap_or_default(),
        path: clip_text(&problem.path),
        problem: clip_text(&problem.problem),
    }
}

pub(super) fn encode_check(
    checked: CheckedPolicy,
    encoded: impl FnOnce(Revision) -> v1::PolicyRevision,
) -> v1::CheckPolicyResponse {
    use v1::{PolicyProblemSeverity::*, UnlistedToolsDecision as Unlisted};
    let errors = checked.errors.iter().map(|error| problem(Error, error));
    let mut problems: Vec<_> = errors.chain(checked.warnings.iter().map(|warning| problem(Warning, warning))).collect();
    problems.sort_by_key(|problem| problem.line);
    let problem_count = u32::try_from(problems.len()).unwrap_or(u32::MAX);
    problems.truncate(PROBLEMS_MAX);
    let unlisted_tools = checked.unlisted.as_ref().map_or(Unlisted::Unspecified, |unlisted| match unlisted.becomes {
        "allow" => Unlisted::Allow,
        "grant" => Unlisted::Grant,
        "ask" => Unlisted::Ask,
        _ => Unlisted::Deny,
    });
    v1::CheckPolicyResponse {
        hash: checked.hash,
        valid: checked.errors.is_empty(),
        problems,
        problem_count,
        unlisted_tools: unlisted_tools.into(),
        unlisted_tools_reason: checked.unlisted.map(|unlisted| unlisted.why).unwrap_or_default(),
        tools_without_tier: checked.without_tier.into_iter().take(PROBLEMS_MAX).collect(),
        stored: checked.is_stored,
        revision: checked.revision.map(encoded),
    }
}

/// Decodes the query of calls.
pub(super) fn decode_query(message: &v1::BacktestPolicyRequest, now: Timestamp) -> DecodeResult<BacktestQuery> {
    let until = match &message.end_time {
        None => now,
        given => point_in_time("end_time", given.as_ref())?,
    };
    let since = match &message.start_time {
        None => Timestamp::from_millis(until.as_millis().saturating_sub_unsigned(DAYS * DAY_MS)),
        given => point_in_time("start_time", given.as_ref())?,
    };
    if since >= until {
        return wrong("start_time", "is not before `end_time`, so there are no calls between them");
    }
    let calls_max = count("max_calls", message.max_calls, BACKTEST_CALLS_DEFAULT, BACKTEST_CALLS_MAX)?;
    Ok(BacktestQuery { since, until, calls_max })
}

fn example(example: Example) -> v1::BacktestExample {
    let (before, after) = example.decisions;
    v1::BacktestExample {
        session_id: example.session.to_string(),
        call_id: example.call_id.to_string(),
        before: before.to_wire().into(),
        after: after.to_wire().into(),
        message: clip_text(&example.message),
    }
}

/// One message of the stream.
pub(super) fn encode_progress(told: BacktestTold) -> v1::BacktestPolicyResponse {
    use v1::backtest_policy_response::Event;
    let event = match told {
        BacktestTold::Progress { judged, total } => {
            Event::Progress(v1::BacktestProgress { calls_judged: judged, calls_total: total })
        }
        BacktestTold::Done(done) => Event::Result(result(*done)),
    };
    v1::BacktestPolicyResponse { event: Some(event) }
}

fn result(done: BacktestOutcome) -> v1::BacktestResult {
    let mut changes: Vec<v1::BacktestChange> = Vec::new();
    for ((what, rule, tool), change) in done.changes {
        changes.push(v1::BacktestChange {
            kind: what.to_wire().into(),
            rule,
            tool,
            calls: change.calls,
            lost: change.lost,
            approved: change.approved,
            examples: change.examples.into_iter().map(example).collect(),
        });
    }
    changes.sort_by_key(|change| std::cmp::Reverse(change.calls));
    let changes_omitted = u32::try_from(changes.len().saturating_sub(CHANGES_MAX)).unwrap_or(u32::MAX);
    changes.truncate(CHANGES_MAX);
    let decisions = done.decisions.into_iter().map(|((before, after), calls)| v1::BacktestDecisions {
        before: before.to_wire().into(),
        after: after.to_wire().into(),
        calls,
    });
    v1::BacktestResult {
        hash: done.hash,
        baseline_hash: done.against_hash,
        first_call_time: done.times.map(|(first, _)| timestamp(first)),
        last_call_time: done.times.map(|(_, last)| timestamp(last)),
        calls: done.calls,
        sessions: done.sessions,
        calls_changed: done.calls_changed,
        sessions_changed: done.sessions_changed,
        calls_unreadable: done.unreadable,
        more_calls: done.is_more,
        decisions: decisions.collect(),
        changes,
        changes_omitted,
        calls_judged_before: done.judged_before,
        calls_decided_otherwise: done.otherwise,
    }
}
