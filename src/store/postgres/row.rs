//! Rows of an append, and their conversion from events.

use std::sync::Arc;

use super::{
    append::{dimension, encode::rows},
    columns::{BOOL, BYTEA, ColumnKind, DAY, FLOAT4, FLOAT8, FOLLOW_UP, INT2, INT4, INT8, JSON, TEXT},
    controls,
    findings::{self, StoredFinding},
    follow_up, marks,
};
use callgate_core::domain::{
    budget::CounterKey,
    call::{Approval, ApprovalStatus, Permit},
    effect::{DuplicateScope, EffectKind, Resource},
    event::{Append, Event, JudgmentEvent, SettledEvent},
    failure::FailureKind,
    finding::{Decision, Level},
    ids::{AgentId, HostName, ModelName, RunId, SessionId, TenantId, UserId},
    ledger::{LedgerChange, LedgerRow, LedgerState},
    outcome::{Advice, Basis, Guard, OutcomeStatus, Repeat},
    profile::ToolState,
    reason::Reason,
    shard::Shard,
    time::Timestamp,
};

rows! {
    /// One row per tree of the batch.
    TreeRow<'a>(first: &'a Append, last: &'a Append, event: &'a Event) {} => {
        shard: i16 = last.shard().0 => INT2,
        tenant_id: i64 = last.tenant.0 => INT8,
        root_id: &'a str = last.root.as_str() => TEXT,
        epoch: i32 = last.epoch => DAY,
        expected: i64 = big(first.expected) => INT8.only_sent(),
        next: i64 = big(event.seq()) => INT8.column("version"),
        started_ms: i64 = last.started_at.as_millis() => ColumnKind::time("started_at"),
        last_ms: i64 = event.at().as_millis() => ColumnKind::time("last_at"),
        steps: i64 = big(last.totals.steps) => INT8,
        calls: i64 = big(last.totals.calls) => INT8,
        open_calls: i32 = i32::try_from(last.open_calls).unwrap_or(i32::MAX) => INT4,
        cost_micros: i64 = big(last.totals.cost_micros) => INT8,
        reserved_micros: i64 = big(last.totals.reserved_micros) => INT8,
        tokens: i64 = big(last.totals.tokens) => INT8,
        due_ms: Option<i64> = last.due.map(Timestamp::as_millis) => ColumnKind::time("due"),
    }
}

rows! {
    /// One row per new session.
    SessionRow<'a>(shard: Shard, append: &'a Append, of: &'a (SessionId, Option<SessionId>, u32)) {} => {
        shard: i16 = shard.0 => INT2,
        tenant_id: i64 = append.tenant.0 => INT8,
        session_id: &'a str = of.0.as_str() => TEXT,
        root_id: &'a str = append.root.as_str() => TEXT,
        parent_id: Option<&'a str> = of.1.as_ref().map(SessionId::as_str) => TEXT,
        depth: i32 = int(of.2) => INT4,
    }
}

rows! {
    /// One row per judgment.
    CallRow<'a>(append: &'a Append, event: &'a JudgmentEvent) {
        let permit = event.permit.as_ref();
        let approval = event.approval.as_ref();
        let winner = callgate_core::domain::verdict::winner(&event.findings);
        let findings: Vec<StoredFinding> = event.findings.iter().map(StoredFinding::from).collect();
        let level = event.findings.iter().filter_map(|finding| finding.level).max();
    } => {
        shard: i16 = append.shard().0 => INT2,
        tenant_id: i64 = append.tenant.0 => INT8,
        epoch: i32 = append.epoch => DAY,
        session_id: &'a str = event.session.as_str() => TEXT,
        seq: i64 = big(event.seq) => INT8,
        root_id: &'a str = append.root.as_str() => TEXT,
        call_id: &'a str = event.call_id.as_str() => TEXT,
        round: i32 = int(event.round) => INT4,
        at_ms: i64 = event.at.as_millis() => ColumnKind::time("at"),
        run_id: Option<&'a str> = event.run.as_ref().map(RunId::as_str) => TEXT,
        run_from: i64 = big(event.run_from) => INT8,
        batch: i64 = big(event.batch) => INT8,
        agent_id: Option<&'a str> = event.agent.as_ref().map(AgentId::as_str) => TEXT,
        tool: &'a str = event.tool.as_str() => TEXT,
        fingerprint: &'a [u8] = &event.fingerprint.0 => BYTEA,
        args_digest: &'a [u8] = &event.args_digest.0 => BYTEA,
        effect: i16 = code(&EffectKind::ALL, &event.effect.kind) => INT2,
        resource: Option<&'a str> = event.effect.resource.as_ref().map(Resource::as_str) => TEXT.sealed(),
        once: bool = event.effect.once => BOOL,
        idempotent: bool = event.effect.idempotent => BOOL,
        decision: i16 = code(&Decision::ALL, &event.decision) => INT2,
        would: i16 = code(&Decision::ALL, &event.would) => INT2,
        rule: Option<&'a str> = winner.map(|finding| &*finding.rule) => TEXT.rare(),
        reason: Option<&'a str> = event.reason.map(Reason::as_str) => TEXT.rare(),
        level: Option<i16> = level.map(|level| code(&Level::ALL, &level) + 1) => INT2.rare(),
        findings: Option<String> =
            (!findings.is_empty()).then(|| serde_json::to_string(&findings).unwrap_or_default())
                => JSON.rare().sealed(),
        attempt: Option<i32> = permit.map(|permit| int(permit.attempt)) => INT4,
        occurrence: Option<i64> = permit.map(|permit| big(permit.occurrence)) => INT8,
        idempotency_key: Option<&'a str> = permit.map(|permit| permit.idempotency_key.as_str()) => TEXT,
        lease_ms: Option<i64> = permit.map(|permit| permit.lease_until.as_millis()) => ColumnKind::time("lease_until"),
        // Without a permit, the expected cost of the call that did not run.
        reserved_micros: Option<i64> = permit.map_or_else(
            || unless_zero(event.expected_micros), |permit| Some(big(permit.reserved_micros))) => INT8,
        approval_id: Option<&'a str> = approval.map(|approval| approval.id.as_str()) => TEXT.rare(),
        asked_by: Option<&'a str> = approval.and_then(|approval| approval.asked_by.as_deref()) => TEXT.rare(),
        approval_ms: Option<i64> =
            approval.map(|approval| approval.expires_at.as_millis()) => ColumnKind::time("approval_expires_at").rare(),
        input_tokens: Option<i64> = unless_zero(event.usage.input_tokens) => INT8,
        output_tokens: Option<i64> = unless_zero(event.usage.output_tokens) => INT8,
        cache_read_tokens: Option<i64> = unless_zero(event.usage.cache_read_tokens) => INT8.rare(),
        cache_write_tokens: Option<i64> = unless_zero(event.usage.cache_write_tokens) => INT8.rare(),
        cost_micros: Option<i64> = unless_zero(event.usage.cost_micros) => INT8,
        observed: bool = event.observed => BOOL,
        policy_version: &'a str = &event.policy => TEXT,
        arguments: Option<&'a str> = event.arguments.as_deref() => TEXT.sealed(),
        justification: Option<&'a str> = event.justification.as_deref() => TEXT.rare().sealed(),
        follow_up: Option<String> = event.follow_up.as_deref().map(follow_up::json) => FOLLOW_UP.rare(),
        uses: Option<String> = controls::uses_json(&event.uses) => JSON.rare(),
        terminal: bool = event.terminal => BOOL,
        waited: bool = event.waited => BOOL,
        share: i16 = code(&DuplicateScope::ALL, &event.effect.share) => INT2,
        coerced: Option<String> =
            (!event.coerced.is_empty()).then(|| serde_json::to_string(&event.coerced).unwrap_or_default())
                => JSON.rare(),
        self_corrections: Option<String> = findings::self_corrections_json(&event.self_corrections) => JSON.rare(),
        resumes: bool = event.resumes => BOOL,
        key_honoured: bool = event.effect.key_honoured => BOOL,
        repeatable: bool = event.effect.repeatable => BOOL,
        user_id: Option<&'a str> = event.user.as_ref().map(UserId::as_str) => TEXT,
        in_steps: bool = event.effect.in_steps => BOOL,
        trace_id: Option<&'a [u8]> = append.trace.as_ref().map(|trace| &trace.0[..]) => BYTEA,
        host: Option<&'a str> = event.host.as_ref().map(HostName::as_str) => TEXT.rare(),
        witness: Option<&'a [u8]> = event.witness.as_ref().map(|witness| &witness.0[..]) => BYTEA.rare(),
        model: Option<&'a str> = event.model.as_ref().map(ModelName::as_str) => TEXT.rare(),
        approval_group: Option<&'a str> = event.approval_group.as_deref() => TEXT.rare(),
    }
}

rows! {
    /// One row per report.
    OutcomeRow<'a>(append: &'a Append, event: &'a SettledEvent) {
        let advice: Option<&Advice> = event.advice.as_ref();
        let circumstances = event.circumstances.as_ref();
    } => {
        shard: i16 = append.shard().0 => INT2,
        tenant_id: i64 = append.tenant.0 => INT8,
        epoch: i32 = append.epoch => DAY,
        session_id: &'a str = event.session.as_str() => TEXT,
        permit_seq: i64 = big(event.permit_seq) => INT8,
        seq: i64 = big(event.seq) => INT8,
        root_id: &'a str = append.root.as_str() => TEXT,
        call_id: &'a str = event.call_id.as_str() => TEXT,
        at_ms: i64 = event.at.as_millis() => ColumnKind::time("at"),
        status: i16 = code(&OutcomeStatus::ALL, &event.status) => INT2,
        failure: Option<i16> = event.failure.map(|kind| code(&FailureKind::ALL, &kind)) => INT2.rare(),
        error_signature: Option<&'a str> = event.error_signature.as_deref() => TEXT.rare().sealed(),
        digest: Option<&'a [u8]> = event.digest.as_ref().map(|digest| &digest.0[..]) => BYTEA,
        progress: bool = event.progress => BOOL,
        retryable: Option<bool> = advice.map(|advice| advice.retryable) => BOOL.rare(),
        retry_after_ms: Option<i64> = advice.map(|advice| big(advice.retry_after_ms)) => INT8.rare(),
        retries_remaining: Option<i32> = advice.map(|advice| int(advice.max_retries_remaining)) => INT4.rare(),
        p_success: Option<f64> = advice.map(|advice| advice.p_success) => FLOAT8.rare(),
        p_low: Option<f64> = advice.map(|advice| advice.interval.0) => FLOAT8.rare(),
        p_high: Option<f64> = advice.map(|advice| advice.interval.1) => FLOAT8.rare(),
        confidence: Option<i16> = advice.map(|advice| advice.confidence as i16) => INT2.rare(),
        basis: Option<i16> = advice.map(|advice| code(&Basis::ALL, &advice.basis)) => INT2.rare(),
        guard: Option<i16> =
            advice.and_then(|advice| advice.guard).map(|guard| code(&Guard::ALL, &guard) + 1) => INT2.rare(),
        lease_ms: Option<i64> = event.lease_until.map(Timestamp::as_millis) => ColumnKind::time("lease_until").rare(),
        by_lease: bool = event.by_lease => BOOL,
        input_tokens: Option<i64> = unless_zero(event.usage.input_tokens) => INT8,
        output_tokens: Option<i64> = unless_zero(event.usage.output_tokens) => INT8,
        cache_read_tokens: Option<i64> = unless_zero(event.usage.cache_read_tokens) => INT8.rare(),
        cache_write_tokens: Option<i64> = unless_zero(event.usage.cache_write_tokens) => INT8.rare(),
        cost_micros: Option<i64> = unless_zero(event.usage.cost_micros) => INT8,
        duration_ms: Option<i64> = event.duration_ms.map(big) => INT8,
        is_complete: Option<bool> = event.is_complete => BOOL,
        total_matches: Option<i64> = event.total_matches.map(big) => INT8,
        progress_note: Option<&'a str> = event.progress_note.as_deref() => TEXT.rare().sealed(),
        result: Option<&'a str> = event.result.as_deref() => TEXT.sealed(),
        result_bytes: Option<i64> = event.result_bytes.map(big) => INT8,
        error_message: Option<&'a str> = event.error_message.as_deref() => TEXT.rare().sealed(),
        follow_up_ok: Option<bool> = event.follow_up_ok => BOOL.rare(),
        trials: Option<f64> = advice.map(|advice| advice.trials) => FLOAT8.rare(),
        as_of_ms: Option<i64> =
            advice.and_then(|advice| advice.as_of).map(Timestamp::as_millis) => ColumnKind::time("as_of").rare(),
        probe: Option<bool> = advice.map(|advice| advice.probe) => BOOL.rare(),
        tool_state: Option<i16> = circumstances.map(|then| code(&ToolState::ALL, &then.tool)) => INT2.rare(),
        failure_share: Option<f32> = circumstances.map(|then| then.failure_share) => FLOAT4.rare(),
        failures: Option<i32> = circumstances.map(|then| int(then.failures)) => INT4.rare(),
        failing_ms: Option<i64> = circumstances.map(|then| big(then.failing_ms)) => INT8.rare(),
        kept: bool = event.kept => BOOL,
        marks: Option<String> = event.marks.as_deref().map(marks::json) => JSON.sealed(),
        news: bool = event.news => BOOL,
        gist: Option<&'a str> = event.gist.as_ref().map(|gist| gist.says.as_str()) => TEXT.sealed(),
        made: Option<&'a str> = event.gist.as_ref().and_then(|gist| gist.made.as_deref()) => TEXT.rare().sealed(),
        error_line: Option<&'a str> = event.error_line.as_deref() => TEXT.rare().sealed(),
        whole_bytes: Option<i64> = event.whole.map(|whole| big(whole.bytes)) => INT8.rare(),
        whole_sha256: Option<&'a [u8]> = event.whole.as_ref().map(|whole| &whole.sha256[..]) => BYTEA.rare(),
        trace_id: Option<&'a [u8]> = append.trace.as_ref().map(|trace| &trace.0[..]) => BYTEA,
        effect_open: bool = event.effect_open => BOOL,
        repeat: Option<i16> = advice.map(|advice| code(&Repeat::ALL, &advice.repeat) + 1) => INT2.rare(),
        witness: Option<&'a [u8]> = event.witness.as_ref().map(|witness| &witness.0[..]) => BYTEA.rare(),
        key_sent: bool = event.key_sent => BOOL,
        inferred: bool = event.inferred => BOOL,
        double_effect: bool = event.double_effect => BOOL,
        model: Option<&'a str> = event.model.as_ref().map(ModelName::as_str) => TEXT.rare(),
    }
}

rows! {
    /// One row per ledger change; sorted by tenant and key, keys are unique.
    LedgerRowOut<'a>(append: &'a Append, change: &'a LedgerChange) {
        let row: &LedgerRow = &change.row;
    } => {
        shard: i16 = Shard::of_ledger(append.tenant, &append.root, &change.key).0 => INT2,
        tenant_id: i64 = append.tenant.0 => INT8,
        ledger_key: &'a [u8] = &change.key.0 => BYTEA,
        expected: i64 = big(change.expected) => INT8.only_sent(),
        state: i16 = code(&LedgerState::ALL, &row.state) => INT2,
        root_id: &'a str = row.root.as_str() => TEXT,
        session_id: &'a str = row.session.as_str() => TEXT,
        call_id: &'a str = row.call_id.as_str() => TEXT,
        epoch: i32 = append.epoch => DAY,
        fingerprint: &'a [u8] = &row.fingerprint.0 => BYTEA,
        seq: i64 = big(row.seq) => INT8,
        occurrence: i64 = big(row.occurrence) => INT8,
        attempt: i32 = int(row.attempt) => INT4,
        permitted_ms: i64 = row.permitted_at.as_millis() => ColumnKind::time("permitted_at"),
        lease_ms: i64 = row.lease_until.as_millis() => ColumnKind::time("lease_until"),
        settled_ms: Option<i64> = row.settled_at.map(Timestamp::as_millis) => ColumnKind::time("settled_at"),
        digest: Option<&'a [u8]> = row.digest.as_ref().map(|digest| &digest.0[..]) => BYTEA,
        retryable: bool = row.retryable => BOOL,
        retry_after_ms: i64 = big(row.retry_after_ms) => INT8,
        retries_remaining: i32 = int(row.retries_remaining) => INT4,
        guard: Option<i16> = row.guard.map(|guard| code(&Guard::ALL, &guard) + 1) => INT2,
        key_sent: bool = row.key_sent => BOOL,
    }
}

rows! {
    /// One row per shared counter; sorted by key. `room` is the maximum value at which all additions stay within their
    /// limits.
    CounterRow<'a>(shard: Shard, tenant: TenantId, key: &'a CounterKey, added: (i64, Option<i64>)) {} => {
        shard: i16 = shard.0 => INT2,
        tenant_id: i64 = tenant.0 => INT8,
        agent_id: &'a str = key.agent.as_ref().map_or("", AgentId::as_str) => TEXT,
        day: i32 = key.day => DAY,
        dimension: i16 = dimension(key.dimension) => INT2,
        tier: &'a str = key.tier.as_ref().map_or("", |(tier, _)| &**tier) => TEXT,
        tier_window: i64 = key.tier.as_ref().map_or(0, |(_, window)| *window) => INT8,
        amount: i64 = added.0 => INT8.column("used"),
        room: Option<i64> = added.1 => INT8.only_sent(),
    }
}

/// Amounts are stored as bigint; valid ones are far below its maximum.
pub(super) fn big(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

fn unless_zero(amount: u64) -> Option<i64> {
    (amount > 0).then(|| big(amount))
}

fn int(amount: u32) -> i32 {
    i32::try_from(amount).unwrap_or(i32::MAX)
}

/// The stored code of a closed set's member: its index in the set's `ALL`.
pub(super) fn code<T: PartialEq>(all: &[T], member: &T) -> i16 {
    all.iter().position(|known| known == member).map_or(-1, |at| at as i16)
}

/// A permit from its columns; none for a refused call.
pub(super) fn permit(
    attempt: Option<i32>,
    occurrence: Option<i64>,
    key: Option<String>,
    at: Timestamp,
    seq: u64,
    lease_ms: Option<i64>,
    reserved_micros: Option<i64>,
) -> Option<Permit> {
    Some(Permit {
        attempt: u32::try_from(attempt?).ok()?,
        occurrence: u64::try_from(occurrence?).ok()?,
        idempotency_key: key?,
        at,
        seq,
        lease_until: Timestamp::from_millis(lease_ms?),
        reserved_micros: u64::try_from(reserved_micros?).ok()?,
        ledger_revision: 0,
    })
}

/// An approval request from its columns, as requested.
pub(super) fn approval(
    id: Option<String>,
    expires_ms: Option<i64>,
    policy: &Arc<str>,
    asked_by: Option<String>,
) -> Option<Approval> {
    Some(Approval {
        id: id?,
        answer: ApprovalStatus::Pending,
        expires_at: Timestamp::from_millis(expires_ms?),
        policy: Arc::clone(policy),
        reason: None,
        asked_by: asked_by.map(Arc::from),
        seconded_by: Vec::new(),
    })
}
