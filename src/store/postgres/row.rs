//! The rows of an append, and how events become them.

use std::sync::Arc;

use super::{
    append::encode::rows,
    columns::{BOOL, BYTEA, DAY, FLOAT4, FLOAT8, FOLLOW_UP, INT2, INT4, INT8, JSON, Kind, TEXT},
    controls,
    findings::{self, StoredFinding},
    follow_up, marks,
};
use callgate_core::domain::{
    call::{Approval, ApprovalStatus, Permit},
    effect::{EffectKind, Resource, Share},
    event::{Append, Judged, Settled},
    failure::FailureKind,
    finding::{Decision, Level},
    ids::{AgentId, HostName, RunId, UserId},
    ledger::{LedgerChange, LedgerRow, LedgerState},
    outcome::{Advice, Basis, Guard, OutcomeStatus, Repeat},
    profile::ToolState,
    reason::Reason,
    shard::Shard,
    time::Timestamp,
};

rows! {
    /// One row a tree of the batch.
    TreeRow<'a> {
        shard: i16 => INT2, tenant_id: i64 => INT8, root_id: &'a str => TEXT, epoch: i32 => DAY,
        expected: i64 => INT8.only_sent(), next: i64 => INT8.column("version"),
        started_ms: i64 => Kind::time("started_at"), last_ms: i64 => Kind::time("last_at"), steps: i64 => INT8,
        calls: i64 => INT8, open_calls: i32 => INT4, cost_micros: i64 => INT8, reserved_micros: i64 => INT8,
        tokens: i64 => INT8, due_ms: Option<i64> => Kind::time("due"),
    }
}

rows! {
    /// One row a session that the batch adds.
    SessionRow<'a> {
        shard: i16 => INT2, tenant_id: i64 => INT8, session_id: &'a str => TEXT, root_id: &'a str => TEXT,
        parent_id: Option<&'a str> => TEXT, depth: i32 => INT4,
    }
}

rows! {
    /// One row a judgement.
    CallRow<'a> {
        shard: i16 => INT2, tenant_id: i64 => INT8, epoch: i32 => DAY, session_id: &'a str => TEXT, seq: i64 => INT8,
        root_id: &'a str => TEXT, call_id: &'a str => TEXT, round: i32 => INT4, at_ms: i64 => Kind::time("at"),
        run_id: Option<&'a str> => TEXT, run_from: i64 => INT8, batch: i64 => INT8,
        agent_id: Option<&'a str> => TEXT, tool: &'a str => TEXT, fingerprint: &'a [u8] => BYTEA,
        args_digest: &'a [u8] => BYTEA, effect: i16 => INT2, resource: Option<&'a str> => TEXT,
        once: bool => BOOL, idempotent: bool => BOOL, decision: i16 => INT2, would: i16 => INT2,
        rule: Option<&'a str> => TEXT.rare(), reason: Option<&'a str> => TEXT.rare(),
        level: Option<i16> => INT2.rare(), findings: Option<String> => JSON.rare(), attempt: Option<i32> => INT4,
        occurrence: Option<i64> => INT8, idempotency_key: Option<&'a str> => TEXT,
        lease_ms: Option<i64> => Kind::time("lease_until"), reserved_micros: Option<i64> => INT8,
        approval_id: Option<&'a str> => TEXT.rare(), asked_by: Option<&'a str> => TEXT.rare(),
        approval_ms: Option<i64> => Kind::time("approval_expires_at").rare(), input_tokens: Option<i64> => INT8,
        output_tokens: Option<i64> => INT8, cache_read_tokens: Option<i64> => INT8.rare(),
        cache_write_tokens: Option<i64> => INT8.rare(), cost_micros: Option<i64> => INT8, observed: bool => BOOL,
        policy_version: &'a str => TEXT, arguments: Option<&'a str> => TEXT,
        justification: Option<&'a str> => TEXT.rare(), follow_up: Option<String> => FOLLOW_UP.rare(),
        uses: Option<String> => JSON.rare(), terminal: bool => BOOL, waited: bool => BOOL, share: i16 => INT2,
        coerced: Option<String> => JSON.rare(), self_corrections: Option<String> => JSON.rare(),
        resumes: bool => BOOL, key_honoured: bool => BOOL, repeatable: bool => BOOL,
        user_id: Option<&'a str> => TEXT, in_steps: bool => BOOL, trace_id: Option<&'a [u8]> => BYTEA,
        host: Option<&'a str> => TEXT.rare(), witness: Option<&'a [u8]> => BYTEA.rare(),
    }
}

rows! {
    /// One row a report.
    OutcomeRow<'a> {
        shard: i16 => INT2, tenant_id: i64 => INT8, epoch: i32 => DAY, session_id: &'a str => TEXT,
        permit_seq: i64 => INT8, seq: i64 => INT8, root_id: &'a str => TEXT, call_id: &'a str => TEXT,
        at_ms: i64 => Kind::time("at"), status: i16 => INT2, failure: Option<i16> => INT2.rare(),
        error_signature: Option<&'a str> => TEXT.rare(), digest: Option<&'a [u8]> => BYTEA, progress: bool => BOOL,
        retryable: Option<bool> => BOOL.rare(), retry_after_ms: Option<i64> => INT8.rare(),
        retries_remaining: Option<i32> => INT4.rare(), p_success: Option<f64> => FLOAT8.rare(),
        p_low: Option<f64> => FLOAT8.rare(), p_high: Option<f64> => FLOAT8.rare(),
        confidence: Option<i16> => INT2.rare(), basis: Option<i16> => INT2.rare(), guard: Option<i16> => INT2.rare(),
        lease_ms: Option<i64> => Kind::time("lease_until").rare(), by_lease: bool => BOOL,
        input_tokens: Option<i64> => INT8, output_tokens: Option<i64> => INT8,
        cache_read_tokens: Option<i64> => INT8.rare(), cache_write_tokens: Option<i64> => INT8.rare(),
        cost_micros: Option<i64> => INT8, duration_ms: Option<i64> => INT8, is_complete: Option<bool> => BOOL,
        total_matches: Option<i64> => INT8, progress_note: Option<&'a str> => TEXT.rare(),
        result: Option<&'a str> => TEXT, result_bytes: Option<i64> => INT8,
        error_message: Option<&'a str> => TEXT.rare(), follow_up_ok: Option<bool> => BOOL.rare(),
        trials: Option<f64> => FLOAT8.rare(), as_of_ms: Option<i64> => Kind::time("as_of").rare(),
        probe: Option<bool> => BOOL.rare(), tool_state: Option<i16> => INT2.rare(),
        failure_share: Option<f32> => FLOAT4.rare(), failures: Option<i32> => INT4.rare(),
        failing_ms: Option<i64> => INT8.rare(), kept: bool => BOOL,
        marks: Option<String> => JSON, news: bool => BOOL, gist: Option<&'a str> => TEXT,
        made: Option<&'a str> => TEXT.rare(), error_line: Option<&'a str> => TEXT.rare(),
        whole_bytes: Option<i64> => INT8.rare(), whole_sha256: Option<&'a [u8]> => BYTEA.rare(),
        trace_id: Option<&'a [u8]> => BYTEA, effect_open: bool => BOOL, repeat: Option<i16> => INT2.rare(),
        witness: Option<&'a [u8]> => BYTEA.rare(),
        key_sent: bool => BOOL, inferred: bool => BOOL, double_effect: bool => BOOL,
    }
}

rows! {
    /// One row a change of the ledger; sorted by tenant and key, no key twice.
    LedgerRowOut<'a> {
        shard: i16 => INT2, tenant_id: i64 => INT8, ledger_key: &'a [u8] => BYTEA, expected: i64 => INT8.only_sent(),
        state: i16 => INT2, root_id: &'a str => TEXT, session_id: &'a str => TEXT, call_id: &'a str => TEXT,
        epoch: i32 => DAY, fingerprint: &'a [u8] => BYTEA, seq: i64 => INT8, occurrence: i64 => INT8,
        attempt: i32 => INT4, permitted_ms: i64 => Kind::time("permitted_at"),
        lease_ms: i64 => Kind::time("lease_until"), settled_ms: Option<i64> => Kind::time("settled_at"),
        digest: Option<&'a [u8]> => BYTEA, retryable: bool => BOOL, retry_after_ms: i64 => INT8,
        retries_remaining: i32 => INT4, guard: Option<i16> => INT2, key_sent: bool => BOOL,
    }
}

rows! {
    /// One row a shared counter that the batch touches; sorted by its key. `room` is what it may hold at most for all
    /// additions to stay within their limits.
    CounterRow<'a> {
        shard: i16 => INT2, tenant_id: i64 => INT8, agent_id: &'a str => TEXT, day: i32 => DAY,
        dimension: i16 => INT2, tier: &'a str => TEXT, tier_window: i64 => INT8,
        amount: i64 => INT8.column("used"), room: Option<i64> => INT8.only_sent(),
    }
}

/// Unsigned amounts are stored as bigint; none that the domain allows comes near its end.
pub(super) fn big(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

fn unless_zero(amount: u64) -> Option<i64> {
    (amount > 0).then(|| big(amount))
}

fn int(amount: u32) -> i32 {
    i32::try_from(amount).unwrap_or(i32::MAX)
}

/// The stored code of a member of a closed set: its place in the set's `ALL`.
pub(super) fn code<T: PartialEq>(all: &[T], member: &T) -> i16 {
    all.iter().position(|known| known == member).map_or(-1, |at| at as i16)
}

impl<'a> CallRow<'a> {
    pub(super) fn of(append: &'a Append, event: &'a Judged) -> Self {
        let permit = event.permit.as_ref();
        let approval = event.approval.as_ref();
        let winner = callgate_core::domain::verdict::winner(&event.findings);
        let findings: Vec<StoredFinding> = event.findings.iter().map(StoredFinding::from).collect();
        let level = event.findings.iter().filter_map(|finding| finding.level).max();
        Self {
            shard: append.shard().0,
            tenant_id: append.tenant.0,
            epoch: append.epoch,
            session_id: event.session.as_str(),
            seq: big(event.seq),
            root_id: append.root.as_str(),
            call_id: event.call_id.as_str(),
            round: int(event.round),
            at_ms: event.at.as_millis(),
            run_id: event.run.as_ref().map(RunId::as_str),
            run_from: big(event.run_from),
            batch: big(event.batch),
            agent_id: event.agent.as_ref().map(AgentId::as_str),
            tool: event.tool.as_str(),
            fingerprint: &event.fingerprint.0,
            args_digest: &event.args_digest.0,
            effect: code(&EffectKind::ALL, &event.effect.kind),
            resource: event.effect.resource.as_ref().map(Resource::as_str),
            once: event.effect.once,
            idempotent: event.effect.idempotent,
            decision: code(&Decision::ALL, &event.decision),
            would: code(&Decision::ALL, &event.would),
            rule: winner.map(|finding| &*finding.rule),
            reason: event.reason.map(Reason::as_str),
            level: level.map(|level| code(&Level::ALL, &level) + 1),
            findings: (!findings.is_empty()).then(|| serde_json::to_string(&findings).unwrap_or_default()),
            attempt: permit.map(|permit| int(permit.attempt)),
            occurrence: permit.map(|permit| big(permit.occurrence)),
            idempotency_key: permit.map(|permit| permit.idempotency_key.as_str()),
            lease_ms: permit.map(|permit| permit.lease_until.as_millis()),
            reserved_micros: permit.map(|permit| big(permit.reserved_micros)),
            approval_id: approval.map(|approval| approval.id.as_str()),
            asked_by: approval.and_then(|approval| approval.asked_by.as_deref()),
            approval_ms: approval.map(|approval| approval.expires_at.as_millis()),
            input_tokens: unless_zero(event.usage.input_tokens),
            output_tokens: unless_zero(event.usage.output_tokens),
            cache_read_tokens: unless_zero(event.usage.cache_read_tokens),
            cache_write_tokens: unless_zero(event.usage.cache_write_tokens),
            cost_micros: unless_zero(event.usage.cost_micros),
            observed: event.observed,
            policy_version: &event.policy,
            arguments: event.arguments.as_deref(),
            justification: event.justification.as_deref(),
            follow_up: event.follow_up.as_deref().map(follow_up::json),
            uses: controls::uses_json(&event.uses),
            terminal: event.terminal,
            waited: event.waited,
            resumes: event.resumes,
            share: code(&Share::ALL, &event.effect.share),
            key_honoured: event.effect.key_honoured,
            repeatable: event.effect.repeatable,
            in_steps: event.effect.in_steps,
            trace_id: append.trace.as_ref().map(|trace| &trace.0[..]),
            user_id: event.user.as_ref().map(UserId::as_str),
            host: event.host.as_ref().map(HostName::as_str),
            witness: event.witness.as_ref().map(|witness| &witness.0[..]),
            self_corrections: findings::self_corrections_json(&event.self_corrections),
            coerced: (!event.coerced.is_empty()).then(|| serde_json::to_string(&event.coerced).unwrap_or_default()),
        }
    }
}

impl<'a> OutcomeRow<'a> {
    pub(super) fn of(append: &'a Append, event: &'a Settled) -> Self {
        let advice: Option<&Advice> = event.advice.as_ref();
        let circumstances = event.circumstances.as_ref();
        Self {
            shard: append.shard().0,
            tenant_id: append.tenant.0,
            epoch: append.epoch,
            session_id: event.session.as_str(),
            permit_seq: big(event.permit_seq),
            seq: big(event.seq),
            root_id: append.root.as_str(),
            call_id: event.call_id.as_str(),
            at_ms: event.at.as_millis(),
            status: code(&OutcomeStatus::ALL, &event.status),
            failure: event.failure.map(|kind| code(&FailureKind::ALL, &kind)),
            error_signature: event.error_signature.as_deref(),
            digest: event.digest.as_ref().map(|digest| &digest.0[..]),
            progress: event.progress,
            retryable: advice.map(|advice| advice.retryable),
            retry_after_ms: advice.map(|advice| big(advice.retry_after_ms)),
            retries_remaining: advice.map(|advice| int(advice.max_retries_remaining)),
            p_success: advice.map(|advice| advice.p_success),
            p_low: advice.map(|advice| advice.interval.0),
            p_high: advice.map(|advice| advice.interval.1),
            confidence: advice.map(|advice| advice.confidence as i16),
            basis: advice.map(|advice| code(&Basis::ALL, &advice.basis)),
            guard: advice.and_then(|advice| advice.guard).map(|guard| code(&Guard::ALL, &guard) + 1),
            lease_ms: event.lease_until.map(Timestamp::as_millis),
            by_lease: event.by_lease,
            input_tokens: unless_zero(event.usage.input_tokens),
            output_tokens: unless_zero(event.usage.output_tokens),
            cache_read_tokens: unless_zero(event.usage.cache_read_tokens),
            cache_write_tokens: unless_zero(event.usage.cache_write_tokens),
            cost_micros: unless_zero(event.usage.cost_micros),
            duration_ms: event.duration_ms.map(big),
            is_complete: event.is_complete,
            total_matches: event.total_matches.map(big),
            progress_note: event.progress_note.as_deref(),
            result: event.result.as_deref(),
            result_bytes: event.result_bytes.map(big),
            error_message: event.error_message.as_deref(),
            follow_up_ok: event.follow_up_ok,
            trials: advice.map(|advice| advice.trials),
            as_of_ms: advice.and_then(|advice| advice.as_of).map(Timestamp::as_millis),
            probe: advice.map(|advice| advice.probe),
            tool_state: circumstances.map(|then| code(&ToolState::ALL, &then.tool)),
            failure_share: circumstances.map(|then| then.failure_share),
            failures: circumstances.map(|then| int(then.failures)),
            failing_ms: circumstances.map(|then| big(then.failing_ms)),
            kept: event.kept,
            marks: event.marks.as_deref().map(marks::json),
            news: event.news,
            gist: event.gist.as_ref().map(|gist| gist.says.as_str()),
            error_line: event.error_line.as_deref(),
            whole_bytes: event.whole.map(|whole| big(whole.bytes)),
            whole_sha256: event.whole.as_ref().map(|whole| &whole.sha256[..]),
            trace_id: append.trace.as_ref().map(|trace| &trace.0[..]),
            made: event.gist.as_ref().and_then(|gist| gist.made.as_deref()),
            effect_open: event.effect_open,
            key_sent: event.key_sent,
            inferred: event.inferred,
            double_effect: event.double_effect,
            repeat: advice.map(|advice| code(&Repeat::ALL, &advice.repeat) + 1),
            witness: event.witness.as_ref().map(|witness| &witness.0[..]),
        }
    }
}

impl<'a> LedgerRowOut<'a> {
    pub(super) fn of(append: &'a Append, change: &'a LedgerChange) -> Self {
        let row: &LedgerRow = &change.row;
        Self {
            shard: Shard::of_ledger(append.tenant, &append.root, &change.key).0,
            tenant_id: append.tenant.0,
            ledger_key: &change.key.0,
            expected: big(change.expected),
            state: code(&LedgerState::ALL, &row.state),
            root_id: row.root.as_str(),
            session_id: row.session.as_str(),
            call_id: row.call_id.as_str(),
            epoch: append.epoch,
            fingerprint: &row.fingerprint.0,
            seq: big(row.seq),
            occurrence: big(row.occurrence),
            attempt: int(row.attempt),
            permitted_ms: row.permitted_at.as_millis(),
            lease_ms: row.lease_until.as_millis(),
            settled_ms: row.settled_at.map(Timestamp::as_millis),
            digest: row.digest.as_ref().map(|digest| &digest.0[..]),
            retryable: row.retryable,
            retry_after_ms: big(row.retry_after_ms),
            retries_remaining: int(row.retries_remaining),
            guard: row.guard.map(|guard| code(&Guard::ALL, &guard) + 1),
            key_sent: row.key_sent,
        }
    }
}

/// A permit from its columns; none for a call that was not let through.
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

/// A question to a person from its columns, as it was asked.
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
