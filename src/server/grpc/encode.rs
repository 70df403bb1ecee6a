//! Encoding of the domain's nouns as messages.

use super::time::timestamp;
use crate::{
    gate::{EvaluateAnswer, RecordAnswer},
    grpc::ToWire,
};
use callgate_core::domain::{
    budget::{RemainingBudget, Usage},
    failure::FailureKind,
    finding::{Decision, Finding, Level},
    health::Cooldown,
    ids::ToolName,
    outcome::{Advice, OutcomeStatus},
    session_state::{CallState, CallTold, SessionState},
    tool::InjectAs,
};
use callgate_proto::{time::duration, v1};

pub(super) fn decision(decision: Decision) -> i32 {
    decision.to_wire().into()
}

pub(super) fn level(level: Option<Level>) -> i32 {
    level.map_or(v1::LoopLevel::Unspecified, ToWire::to_wire).into()
}

pub(super) fn status(status: OutcomeStatus) -> i32 {
    status.to_wire().into()
}

pub(super) fn failure(kind: Option<FailureKind>) -> i32 {
    kind.map_or(v1::FailureKind::Unspecified, ToWire::to_wire).into()
}

pub(super) fn usage(usage: Usage) -> v1::Usage {
    let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros } = usage;
    let model = String::new();
    v1::Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros, model }
}

/// Used share of a limit from which it is reported unasked, in percent.
const TOLD_FROM_PERCENT: u64 = 80;

fn is_tight(left: &RemainingBudget) -> bool {
    left.used.saturating_mul(100) >= left.limit.saturating_mul(TOLD_FROM_PERCENT)
}

/// Remaining budgets of `all` limits, or of those that are nearly used up.
fn budgets(left: &[RemainingBudget], all: bool) -> Vec<v1::BudgetUsage> {
    let one = |left: &RemainingBudget| v1::BudgetUsage {
        scope: left.scope.to_wire().into(),
        dimension: left.dimension.to_wire().into(),
        used: left.used,
        limit: left.limit,
        extra: left.extra,
    };
    left.iter().filter(|left| all || is_tight(left)).map(one).collect()
}

pub(super) fn finding(finding: &Finding) -> v1::Finding {
    v1::Finding {
        rule: finding.rule.to_string(),
        decision: decision(finding.decision),
        reason: finding.reason.as_str().to_owned(),
        level: level(finding.level),
        count: finding.count,
        message: finding.message.clone(),
        enforced: finding.enforced,
        retry_after: finding.retry_after_ms.map(duration),
    }
}

pub(super) fn verdict(answer: EvaluateAnswer, call_id: String, all_budgets: bool) -> v1::Verdict {
    let verdict = answer.verdict;
    let winner = verdict.decided_by();
    let text = answer.text;
    let (approval, edited) = (verdict.approval.as_ref(), answer.edited.as_ref());
    let (header, argument) = match &answer.inject_as {
        Some(InjectAs::Header(name)) => (name.to_string(), String::new()),
        Some(InjectAs::Argument(name)) => (String::new(), name.to_string()),
        None => Default::default(),
    };
    v1::Verdict {
        call_id,
        decision: decision(verdict.decision),
        reason: winner.map(|winner| winner.reason.as_str().to_owned()).unwrap_or_default(),
        level: level(winner.and_then(|winner| winner.level)),
        count: winner.and_then(|winner| winner.count),
        retry_after: verdict.retry_after_ms().map(duration),
        permit: verdict.permit.as_ref().map(|permit| v1::Permit {
            idempotency_key: permit.idempotency_key.clone(),
            attempt: permit.attempt,
            lease_expire_time: Some(timestamp(permit.lease_until)),
            idempotency_header: header.clone(),
            idempotency_argument: argument.clone(),
            arguments_json: answer.executes.clone().unwrap_or_default(),
        }),
        approval_id: approval.map(|approval| approval.id.clone()).unwrap_or_default(),
        approval_expire_time: approval.map(|approval| timestamp(approval.expires_at)),
        is_error: text.as_ref().is_some_and(|text| text.is_error),
        tool_result_json: text.map(|text| text.json).unwrap_or_default(),
        next_context_hint: verdict.context_hint().unwrap_or_default(),
        tools_disabled: verdict.tools_disabled,
        findings: verdict.findings.iter().map(finding).collect(),
        budgets: budgets(&verdict.left, all_budgets),
        replayed: verdict.replayed,
        enforced: verdict.is_enforced(),
        fingerprint: verdict.fingerprint.to_hex(),
        policy_version: verdict.policy.to_string(),
        host_may_approve: answer.host_may_approve,
        approved_args_digest: edited.map(|edited| hex::encode(edited.digest.0)).unwrap_or_default(),
        approved_arguments_json: edited.and_then(|edited| edited.arguments.as_deref()).unwrap_or_default().to_owned(),
    }
}

pub(super) fn advice(advice: &Advice) -> v1::Advice {
    v1::Advice {
        retryable: advice.retryable,
        retry_after: advice.retryable.then(|| duration(advice.retry_after_ms)),
        max_retries_remaining: advice.max_retries_remaining,
        p_success: advice.p_success,
        p_low: advice.interval.0,
        p_high: advice.interval.1,
        confidence: advice.confidence.to_wire().into(),
        basis: advice.basis.to_wire().into(),
        guard: advice.guard.map_or(v1::AdviceGuard::Unspecified, ToWire::to_wire).into(),
        trials: advice.trials,
        as_of_time: advice.as_of.map(timestamp),
        probe: advice.probe,
        repeat: advice.repeat.to_wire().into(),
    }
}

pub(super) fn encode_record(answer: RecordAnswer, all_budgets: bool) -> v1::RecordResponse {
    let recorded = answer.recorded;
    v1::RecordResponse {
        status: status(recorded.settled.status),
        failure: failure(recorded.settled.failure),
        effect_open: recorded.settled.effect_open,
        double_effect: recorded.settled.double_effect,
        advice: recorded.advice.as_ref().map(advice),
        tool_result_json: answer.text.json,
        is_error: answer.text.is_error,
        next_context_hint: recorded.context_hint.unwrap_or_default(),
        tools_disabled: recorded.tools_disabled,
        budgets: budgets(&recorded.left, all_budgets),
        replayed: answer.replayed,
    }
}

fn call(told: &CallTold) -> v1::CallSummary {
    let CallTold { call, state, .. } = told;
    let state = *state;
    let permit = call.permit.as_ref();
    let in_flight = state == CallState::InFlight;
    v1::CallSummary {
        call_id: call.call_id.to_string(),
        tool: call.tool.to_string(),
        state: state.to_wire().into(),
        decision: decision(call.decision),
        reason: call.reason.map(|reason| reason.as_str().to_owned()).unwrap_or_default(),
        attempt: permit.map_or(0, |permit| permit.attempt),
        judge_time: Some(timestamp(call.at)),
        lease_expire_time: permit.filter(|_| in_flight).map(|permit| timestamp(permit.lease_until)),
        failure: failure(call.outcome.as_ref().and_then(|outcome| outcome.failure)),
        approval_id: call.approval.as_ref().map(|approval| approval.id.clone()).unwrap_or_default(),
        fingerprint: call.fingerprint.to_hex(),
        arguments: told.arguments.clone(),
        result_summary: told.gist.clone(),
        result_bytes: told.result_bytes,
        result_truncated: told.is_cut,
        error_message: told.error.clone(),
        advice: call.outcome.as_ref().and_then(|outcome| outcome.advice.as_deref()).map(advice),
    }
}

fn cooldown(tool: &ToolName, cooldown: &Cooldown) -> v1::OpenCircuitBreaker {
    v1::OpenCircuitBreaker {
        tool: tool.to_string(),
        failure: failure(Some(cooldown.failure)),
        expire_time: Some(timestamp(cooldown.until)),
    }
}

pub(super) fn session_state(session_id: String, state: SessionState) -> v1::SessionState {
    v1::SessionState {
        session_id,
        root_session_id: state.root.to_string(),
        parent_session_id: state.parent.map(|parent| parent.to_string()).unwrap_or_default(),
        run_id: state.run.unwrap_or_default(),
        is_stopped: state.is_stopped,
        budgets: budgets(&state.left, true),
        loops: state
            .loops
            .into_iter()
            .map(|(rule, reached, count)| v1::LoopState { rule, level: level(Some(reached)), count })
            .collect(),
        calls: state.calls.iter().map(call).collect(),
        open_circuit_breakers: state.cooldowns.iter().map(|(tool, cooling)| cooldown(tool, cooling)).collect(),
        summary_for_model: state.summary_for_model,
        read_time: Some(timestamp(state.at)),
    }
}
