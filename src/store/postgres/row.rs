//! The rows of an append, and how events become them.

use super::{
    columns::{BOOL, BYTEA, DAY, FLOAT4, FLOAT8, FOLLOW_UP, INT2, INT4, INT8, JSON, Kind, TEXT, columns},
    controls,
    findings::{self, StoredFinding},
    follow_up, marks,
};
use crate::domain::{
    call::{Approval, ApprovalStatus, Permit},
    effect::{EffectKind, Share},
    event::{Append, Judged, Settled},
    failure::FailureKind,
    finding::{Decision, Level},
    ledger::{LedgerChange, LedgerRow, LedgerState},
    outcome::{Advice, Basis, Guard, OutcomeStatus},
    profile::ToolState,
    shard::Shard,
    time::Timestamp,
};

columns! {
    /// One row a tree of the batch.
    TreeColumns / TreeRow {
        no: i32 => INT4.only_sent(), shard: i16 => INT2, tenant_id: i64 => INT8,
        root_id: String => TEXT, epoch: i32 => DAY,
        expected: i64 => INT8.only_sent(), next: i64 => INT8.column("version"),
        started_ms: i64 => Kind::time("started_at"), last_ms: i64 => Kind::time("last_at"),
        steps: i64 => INT8, calls: i64 => INT8, open_calls: i32 => INT4, cost_micros: i64 => INT8,
        reserved_micros: i64 => INT8, tokens: i64 => INT8,
        due_ms: Option<i64> => Kind::time("due"),
    }
}

columns! {
    /// One row a session that the batch adds.
    SessionColumns / SessionRow {
        no: i32 => INT4.only_sent(), shard: i16 => INT2, tenant_id: i64 => INT8,
        session_id: String => TEXT, root_id: String => TEXT,
        parent_id: Option<String> => TEXT, depth: i32 => INT4,
    }
}

columns! {
    /// One row a judgement.
    CallColumns / CallRow {
        no: i32 => INT4.only_sent(), shard: i16 => INT2, tenant_id: i64 => INT8,
        epoch: i32 => DAY, session_id: String => TEXT,
        seq: i64 => INT8, root_id: String => TEXT, call_id: String => TEXT, round: i32 => INT4,
        at_ms: i64 => Kind::time("at"), run_id: Option<String> => TEXT, run_from: i64 => INT8, batch: i64 => INT8,
        agent_id: Option<String> => TEXT, tool: String => TEXT, fingerprint: Vec<u8> => BYTEA,
        args_digest: Vec<u8> => BYTEA, effect: i16 => INT2, resource: Option<String> => TEXT,
        once: bool => BOOL, idempotent: bool => BOOL, decision: i16 => INT2, would: i16 => INT2,
        rule: Option<String> => TEXT, reason: Option<String> => TEXT, level: Option<i16> => INT2,
        findings: Option<String> => JSON, attempt: Option<i32> => INT4, occurrence: Option<i64> => INT8,
        idempotency_key: Option<String> => TEXT, lease_ms: Option<i64> => Kind::time("lease_until"),
        reserved_micros: Option<i64> => INT8, approval_id: Option<String> => TEXT,
        approval_ms: Option<i64> => Kind::time("approval_expires_at"), input_tokens: Option<i64> => INT8,
        output_tokens: Option<i64> => INT8,
        cache_read_tokens: Option<i64> => INT8, cache_write_tokens: Option<i64> => INT8,
        cost_micros: Option<i64> => INT8, observed: bool => BOOL, policy_version: String => TEXT,
        arguments: Option<String> => TEXT, justification: Option<String> => TEXT,
        follow_up: Option<String> => FOLLOW_UP, uses: Option<String> => JSON, terminal: bool => BOOL,
        share: i16 => INT2, coerced: Option<String> => JSON, self_corrections: Option<String> => JSON,
        resumes: bool => BOOL,
        key_honoured: bool => BOOL, repeatable: bool => BOOL,
    }
}

columns! {
    /// One row a report.
    OutcomeColumns / OutcomeRow {
        no: i32 => INT4.only_sent(), shard: i16 => INT2, tenant_id: i64 => INT8,
        epoch: i32 => DAY, session_id: String => TEXT,
        permit_seq: i64 => INT8, seq: i64 => INT8, root_id: String => TEXT, call_id: String => TEXT,
        at_ms: i64 => Kind::time("at"), status: i16 => INT2, failure: Option<i16> => INT2,
        error_signature: Option<String> => TEXT, digest: Option<Vec<u8>> => BYTEA, progress: bool => BOOL,
        retryable: Option<bool> => BOOL, retry_after_ms: Option<i64> => INT8,
        retries_remaining: Option<i32> => INT4, p_success: Option<f64> => FLOAT8, p_low: Option<f64> => FLOAT8,
        p_high: Option<f64> => FLOAT8, confidence: Option<i16> => INT2, basis: Option<i16> => INT2,
        guard: Option<i16> => INT2, lease_ms: Option<i64> => Kind::time("lease_until"), by_lease: bool => BOOL,
        input_tokens: Option<i64> => INT8, output_tokens: Option<i64> => INT8,
        cache_read_tokens: Option<i64> => INT8, cache_write_tokens: Option<i64> => INT8,
        cost_micros: Option<i64> => INT8, duration_ms: Option<i64> => INT8, is_complete: Option<bool> => BOOL,
        total_matches: Option<i64> => INT8, progress_note: Option<String> => TEXT,
        result: Option<String> => TEXT, result_bytes: Option<i64> => INT8, error_message: Option<String> => TEXT,
        follow_up_ok: Option<bool> => BOOL, trials: Option<f64> => FLOAT8,
        as_of_ms: Option<i64> => Kind::time("as_of"),
        probe: Option<bool> => BOOL, tool_state: Option<i16> => INT2, failure_share: Option<f32> => FLOAT4,
        failures: Option<i32> => INT4, failing_ms: Option<i64> => INT8, sketch: Option<Vec<u8>> => BYTEA,
        kept: bool => BOOL, marks: Option<String> => JSON, news: bool => BOOL, gist: Option<String> => TEXT,
        made: Option<String> => TEXT, error_line: Option<String> => TEXT,
    }
}

columns! {
    /// One row a change of the ledger; sorted by tenant and key, no key twice.
    LedgerColumns / LedgerRowOut {
        no: i32 => INT4.only_sent(), shard: i16 => INT2, tenant_id: i64 => INT8,
        ledger_key: Vec<u8> => BYTEA,
        expected: i64 => INT8.only_sent(),
        state: i16 => INT2, root_id: String => TEXT, session_id: String => TEXT, call_id: String => TEXT,
        epoch: i32 => DAY, fingerprint: Vec<u8> => BYTEA, seq: i64 => INT8, occurrence: i64 => INT8,
        attempt: i32 => INT4, permitted_ms: i64 => Kind::time("permitted_at"),
        lease_ms: i64 => Kind::time("lease_until"),
        settled_ms: Option<i64> => Kind::time("settled_at"), digest: Option<Vec<u8>> => BYTEA,
        retryable: bool => BOOL,
        retry_after_ms: i64 => INT8, retries_remaining: i32 => INT4, guard: Option<i16> => INT2,
    }
}

columns! {
    /// One row a shared counter that the batch touches; sorted by its key.
    CounterColumns / CounterRow {
        k: i32 => INT4.only_sent(), shard: i16 => INT2, tenant_id: i64 => INT8,
        agent_id: String => TEXT, day: i32 => DAY,
        dimension: i16 => INT2, tier: String => TEXT, tier_window: i64 => INT8,
    }
}

columns! {
    /// One row an addition to a counter, in the order of the trees.
    AddColumns / AddRow {
        no: i32 => INT4.only_sent(), k: i32 => INT4, amount: i64 => INT8, max: Option<i64> => INT8,
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

impl CallRow {
    pub(super) fn of(no: i32, append: &Append, event: &Judged) -> Self {
        let permit = event.permit.as_ref();
        let approval = event.approval.as_ref();
        let winner = crate::domain::verdict::winner(&event.findings);
        let findings: Vec<StoredFinding> = event.findings.iter().map(StoredFinding::from).collect();
        let level = event.findings.iter().filter_map(|finding| finding.level).max();
        Self {
            no,
            shard: append.shard().0,
            tenant_id: append.tenant.0,
            epoch: append.epoch,
            session_id: event.session.to_string(),
            seq: big(event.seq),
            root_id: append.root.to_string(),
            call_id: event.call_id.to_string(),
            round: int(event.round),
            at_ms: event.at.as_millis(),
            run_id: event.run.as_ref().map(ToString::to_string),
            run_from: big(event.run_from),
            batch: big(event.batch),
            agent_id: event.agent.as_ref().map(ToString::to_string),
            tool: event.tool.to_string(),
            fingerprint: event.fingerprint.0.to_vec(),
            args_digest: event.args_digest.0.to_vec(),
            effect: code(&EffectKind::ALL, &event.effect.kind),
            resource: event.effect.resource.as_ref().map(|resource| resource.as_str().to_owned()),
            once: event.effect.once,
            idempotent: event.effect.idempotent,
            decision: code(&Decision::ALL, &event.decision),
            would: code(&Decision::ALL, &event.would),
            rule: winner.map(|finding| finding.rule.to_string()),
            reason: event.reason.map(|reason| reason.as_str().to_owned()),
            level: level.map(|level| code(&Level::ALL, &level) + 1),
            findings: (!findings.is_empty()).then(|| serde_json::to_string(&findings).unwrap_or_default()),
            attempt: permit.map(|permit| int(permit.attempt)),
            occurrence: permit.map(|permit| big(permit.occurrence)),
            idempotency_key: permit.map(|permit| permit.idempotency_key.clone()),
            lease_ms: permit.map(|permit| permit.lease_until.as_millis()),
            reserved_micros: permit.map(|permit| big(permit.reserved_micros)),
            approval_id: approval.map(|approval| approval.id.clone()),
            approval_ms: approval.map(|approval| approval.expires_at.as_millis()),
            input_tokens: unless_zero(event.usage.input_tokens),
            output_tokens: unless_zero(event.usage.output_tokens),
            cache_read_tokens: unless_zero(event.usage.cache_read_tokens),
            cache_write_tokens: unless_zero(event.usage.cache_write_tokens),
            cost_micros: unless_zero(event.usage.cost_micros),
            observed: event.observed,
            policy_version: event.policy.clone(),
            arguments: event.arguments.as_deref().map(str::to_owned),
            justification: event.justification.clone(),
            follow_up: event.follow_up.as_deref().map(follow_up::json),
            uses: controls::uses_json(&event.uses),
            terminal: event.terminal,
            resumes: event.resumes,
            share: code(&Share::ALL, &event.effect.share),
            key_honoured: event.effect.key_honoured,
            repeatable: event.effect.repeatable,
            self_corrections: findings::self_corrections_json(&event.self_corrections),
            coerced: (!event.coerced.is_empty()).then(|| serde_json::to_string(&event.coerced).unwrap_or_default()),
        }
    }
}

impl OutcomeRow {
    pub(super) fn of(no: i32, append: &Append, event: &Settled) -> Self {
        let advice: Option<&Advice> = event.advice.as_ref();
        let circumstances = event.circumstances.as_ref();
        Self {
            no,
            shard: append.shard().0,
            tenant_id: append.tenant.0,
            epoch: append.epoch,
            session_id: event.session.to_string(),
            permit_seq: big(event.permit_seq),
            seq: big(event.seq),
            root_id: append.root.to_string(),
            call_id: event.call_id.to_string(),
            at_ms: event.at.as_millis(),
            status: code(&OutcomeStatus::ALL, &event.status),
            failure: event.failure.map(|kind| code(&FailureKind::ALL, &kind)),
            error_signature: event.error_signature.clone(),
            digest: event.digest.map(|digest| digest.0.to_vec()),
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
            progress_note: event.progress_note.clone(),
            result: event.result.clone(),
            result_bytes: event.result_bytes.map(big),
            error_message: event.error_message.clone(),
            follow_up_ok: event.follow_up_ok,
            trials: advice.map(|advice| advice.trials),
            as_of_ms: advice.and_then(|advice| advice.as_of).map(Timestamp::as_millis),
            probe: advice.map(|advice| advice.probe),
            tool_state: circumstances.map(|then| code(&ToolState::ALL, &then.tool)),
            failure_share: circumstances.map(|then| then.failure_share),
            failures: circumstances.map(|then| int(then.failures)),
            failing_ms: circumstances.map(|then| big(then.failing_ms)),
            sketch: event.sketch.map(|sketch| sketch.0.to_vec()),
            kept: event.kept,
            marks: event.marks.as_deref().map(marks::json),
            news: event.news,
            gist: event.gist.as_ref().map(|gist| gist.says.clone()),
            error_line: event.error_line.as_deref().map(str::to_owned),
            made: event.gist.as_ref().and_then(|gist| gist.made.clone()),
        }
    }
}

impl LedgerRowOut {
    pub(super) fn of(no: i32, append: &Append, change: &LedgerChange) -> Self {
        let row: &LedgerRow = &change.row;
        Self {
            no,
            shard: Shard::of_ledger(append.tenant, &append.root, &change.key).0,
            tenant_id: append.tenant.0,
            ledger_key: change.key.0.to_vec(),
            expected: big(change.expected),
            state: code(&LedgerState::ALL, &row.state),
            root_id: row.root.to_string(),
            session_id: row.session.to_string(),
            call_id: row.call_id.to_string(),
            epoch: append.epoch,
            fingerprint: row.fingerprint.0.to_vec(),
            seq: big(row.seq),
            occurrence: big(row.occurrence),
            attempt: int(row.attempt),
            permitted_ms: row.permitted_at.as_millis(),
            lease_ms: row.lease_until.as_millis(),
            settled_ms: row.settled_at.map(Timestamp::as_millis),
            digest: row.digest.map(|digest| digest.0.to_vec()),
            retryable: row.retryable,
            retry_after_ms: big(row.retry_after_ms),
            retries_remaining: int(row.retries_remaining),
            guard: row.guard.map(|guard| code(&Guard::ALL, &guard) + 1),
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
pub(super) fn approval(id: Option<String>, expires_ms: Option<i64>, policy: String) -> Option<Approval> {
    let expires_at = Timestamp::from_millis(expires_ms?);
    Some(Approval { id: id?, answer: ApprovalStatus::Pending, expires_at, policy, reason: None })
}
