//! Row decoding into domain types. An invalid row is an error, never a guess.

use std::sync::Arc;

use sqlx::{Row as _, postgres::PgRow};

use super::{
    findings, follow_up, marks,
    row::{approval, permit},
    sealed::{self, Opener},
};
use crate::error::StoreError;
use callgate_core::domain::{
    budget::Usage,
    effect::{Effect, EffectKind, Resource, Share},
    event::{Judged, Settled},
    failure::FailureKind,
    finding::Decision,
    fingerprint::{ArgsDigest, Fingerprint, ResultDigest, Witness},
    ids::{AgentId, CallId, RunId, SessionId, ToolName},
    ledger::{LedgerRow, LedgerState},
    outcome::{Advice, Basis, Confidence, Guard, OutcomeStatus, Repeat},
    profile::{Circumstances, ToolState},
    reason::Reason,
    similarity::Shape,
    time::Timestamp,
    whole::Whole,
};

pub(super) type Loaded<T> = Result<T, StoreError>;

pub(super) fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}

pub(super) fn name<T>(
    parse: impl Fn(&str, &str) -> Result<T, callgate_core::domain::ids::Invalid>,
    text: &str,
) -> Loaded<T> {
    parse("name", text).map_err(|invalid| corrupt(&invalid.problem))
}

pub(super) fn count(row: &PgRow, column: &str) -> Loaded<u64> {
    Ok(u64::try_from(row.try_get::<Option<i64>, _>(column)?.unwrap_or(0)).unwrap_or(0))
}

pub(super) fn at(row: &PgRow, column: &str) -> Loaded<Timestamp> {
    Ok(Timestamp::from_millis(row.try_get::<Option<i64>, _>(column)?.unwrap_or(0)))
}

pub(super) fn maybe_at(row: &PgRow, column: &str) -> Loaded<Option<Timestamp>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(Timestamp::from_millis))
}

pub(super) fn hash(bytes: &[u8]) -> Loaded<[u8; 32]> {
    bytes.try_into().map_err(|_| corrupt("a hash has not 32 bytes"))
}

fn witness(row: &PgRow) -> Loaded<Option<Witness>> {
    let digest: Option<Vec<u8>> = row.try_get("witness")?;
    let sixteen = |digest: Vec<u8>| digest.try_into().map_err(|_| corrupt("a witness has not 16 bytes"));
    digest.map(sixteen).transpose().map(|digest| digest.map(Witness))
}

pub(super) fn member<T: Copy>(all: &[T], code: i16) -> Loaded<T> {
    usize::try_from(code).ok().and_then(|at| all.get(at)).copied().ok_or_else(|| corrupt("an unknown code"))
}

/// From columns with this prefix.
pub(super) fn usage(row: &PgRow, words: &str) -> Loaded<Usage> {
    let part = |name: &str| count(row, &format!("{words}{name}"));
    Ok(Usage {
        input_tokens: part("input_tokens")?,
        output_tokens: part("output_tokens")?,
        cache_read_tokens: part("cache_read_tokens")?,
        cache_write_tokens: part("cache_write_tokens")?,
        cost_micros: part("cost_micros")?,
    })
}

pub(super) fn effect(row: &PgRow) -> Loaded<Effect> {
    Ok(Effect {
        kind: member(&EffectKind::ALL, row.try_get("effect")?)?,
        resource: row.try_get::<Option<String>, _>("resource")?.map(Resource::new),
        once: row.try_get("once")?,
        idempotent: row.try_get("idempotent")?,
        key_honoured: row.try_get("key_honoured")?,
        repeatable: row.try_get("repeatable")?,
        in_steps: row.try_get("in_steps")?,
        share: member(&Share::ALL, row.try_get("share")?)?,
    })
}

pub(super) fn judged(row: &PgRow, opener: &Opener) -> Loaded<Judged> {
    let (seq, at) = (count(row, "seq")?, at(row, "at_ms")?);
    let session: &str = row.try_get("session_id")?;
    let findings = findings::read(row.try_get("findings")?, opener, session, seq)?;
    let text = |column: &str| row.try_get::<Option<String>, _>(column);
    let open = |text| opener.maybe(sealed::ARGUMENTS, session, seq, text);
    let arguments = open(text("arguments")?)?;
    let looks = match (text("looks")?, &arguments) {
        (Some(_), Some(arguments)) => Some(Shape::of(arguments)),
        (looks, _) => open(looks)?.as_deref().map(Shape::of),
    };
    let mut effect = effect(row)?;
    effect.resource = opener.resource(session, seq, effect.resource.take())?;
    let policy: Arc<str> = row.try_get::<String, _>("policy_version")?.into();
    Ok(Judged {
        seq,
        at,
        session: name(SessionId::parse, session)?,
        parent: text("parent_id")?.map(|parent| name(SessionId::parse, &parent)).transpose()?,
        depth: u32::try_from(row.try_get::<i32, _>("depth")?).unwrap_or(0),
        run: text("run_id")?.map(|run| name(RunId::parse, &run)).transpose()?,
        run_from: count(row, "run_from")?,
        user: None,
        host: None,
        agent: text("agent_id")?.map(|agent| name(AgentId::parse, &agent)).transpose()?,
        call_id: name(CallId::parse, row.try_get("call_id")?)?,
        round: u32::try_from(row.try_get::<i32, _>("round")?).unwrap_or(1),
        batch: count(row, "batch")?,
        tool: name(ToolName::parse, row.try_get("tool")?)?,
        fingerprint: Fingerprint(hash(row.try_get("fingerprint")?)?),
        args_digest: ArgsDigest(hash(row.try_get("args_digest")?)?),
        effect,
        witness: witness(row)?,
        decision: member(&Decision::ALL, row.try_get("decision")?)?,
        would: member(&Decision::ALL, row.try_get("would")?)?,
        reason: text("reason")?.and_then(|reason| Reason::from_name(&reason)),
        findings: findings.into(),
        permit: permit(
            row.try_get("attempt")?,
            row.try_get("occurrence")?,
            text("idempotency_key")?,
            at,
            seq,
            row.try_get("lease_ms")?,
            row.try_get("reserved_micros")?,
        ),
        approval: approval(text("approval_id")?, row.try_get("approval_ms")?, &policy, text("asked_by")?).map(Box::new),
        uses: Vec::new(),
        terminal: row.try_get("terminal")?,
        waited: row.try_get("waited")?,
        resumes: row.try_get("resumes")?,
        coerced: Vec::new(),
        self_corrections: Vec::new(),
        follow_up: follow_up::read(row)?.map(Box::new),
        usage: usage(row, "")?,
        observed: row.try_get("observed")?,
        policy,
        shape: looks.map(Arc::new),
        arguments: arguments.map(Into::into),
        justification: None,
    })
}

pub(super) fn settled(row: &PgRow, opener: &Opener) -> Loaded<Settled> {
    let code = |column: &str| row.try_get::<Option<i16>, _>(column);
    let digest: Option<Vec<u8>> = row.try_get("digest")?;
    opener.settled(Settled {
        seq: count(row, "seq")?,
        at: at(row, "at_ms")?,
        session: name(SessionId::parse, row.try_get("session_id")?)?,
        call_id: name(CallId::parse, row.try_get("call_id")?)?,
        permit_seq: count(row, "permit_seq")?,
        status: member(&OutcomeStatus::ALL, row.try_get("status")?)?,
        failure: code("failure")?.map(|code| member(&FailureKind::ALL, code)).transpose()?,
        error_signature: row.try_get("error_signature")?,
        digest: digest.map(|digest| hash(&digest)).transpose()?.map(ResultDigest),
        witness: witness(row)?,
        kept: row.try_get("kept")?,
        marks: row.try_get::<Option<String>, _>("marks")?.as_deref().map(marks::read).transpose()?.map(Arc::new),
        news: row.try_get("news")?,
        progress: row.try_get("progress")?,
        advice: advice(row)?,
        circumstances: circumstances(row)?,
        follow_up_ok: row.try_get("follow_up_ok")?,
        by_lease: row.try_get("by_lease")?,
        lease_until: maybe_at(row, "lease_ms")?,
        ledger_revision: 0,
        usage: usage(row, "")?,
        duration_ms: row.try_get::<Option<i64>, _>("duration_ms")?.and_then(|ms| u64::try_from(ms).ok()),
        is_complete: row.try_get("is_complete")?,
        total_matches: row.try_get::<Option<i64>, _>("total_matches")?.and_then(|n| u64::try_from(n).ok()),
        progress_note: row.try_get("progress_note")?,
        result: None,
        result_bytes: row.try_get::<Option<i64>, _>("result_bytes")?.and_then(|n| u64::try_from(n).ok()),
        whole: whole(row)?,
        gist: None,
        error_line: row.try_get::<Option<String>, _>("error_line")?.map(Into::into),
        effect_open: flag(row, "effect_open")?,
        key_sent: flag(row, "key_sent")?,
        inferred: flag(row, "inferred")?,
        double_effect: flag(row, "double_effect")?,
        error_message: None,
    })
}

/// A boolean column that is null, meaning false, in rows of earlier builds.
pub(super) fn flag(row: &PgRow, column: &str) -> Loaded<bool> {
    Ok(row.try_get::<Option<bool>, _>(column)?.unwrap_or(false))
}

/// Original size and digest of a truncated result.
pub(super) fn whole(row: &PgRow) -> Loaded<Option<Whole>> {
    let sha256: Option<Vec<u8>> = row.try_get("whole_sha256")?;
    let whole = |sha256: Vec<u8>| Ok(Whole { bytes: count(row, "whole_bytes")?, sha256: hash(&sha256)? });
    sha256.map(whole).transpose()
}

fn circumstances(row: &PgRow) -> Loaded<Option<Circumstances>> {
    let Some(state) = row.try_get::<Option<i16>, _>("tool_state")? else { return Ok(None) };
    Ok(Some(Circumstances {
        tool: member(&ToolState::ALL, state)?,
        failure_share: row.try_get("failure_share")?,
        failures: u32::try_from(row.try_get::<i32, _>("failures")?).unwrap_or(0),
        failing_ms: count(row, "failing_ms")?,
    }))
}

pub(super) fn advice(row: &PgRow) -> Loaded<Option<Advice>> {
    let Some(retryable) = row.try_get::<Option<bool>, _>("retryable")? else {
        return Ok(None);
    };
    let confidence: Option<i16> = row.try_get("confidence")?;
    Ok(Some(Advice {
        retryable,
        retry_after_ms: count(row, "retry_after_ms")?,
        max_retries_remaining: u32::try_from(row.try_get::<Option<i32>, _>("retries_remaining")?.unwrap_or(0))
            .unwrap_or(0),
        p_success: row.try_get::<Option<f64>, _>("p_success")?.unwrap_or(0.0),
        interval: (
            row.try_get::<Option<f64>, _>("p_low")?.unwrap_or(0.0),
            row.try_get::<Option<f64>, _>("p_high")?.unwrap_or(1.0),
        ),
        confidence: match confidence {
            Some(2) => Confidence::High,
            Some(1) => Confidence::Medium,
            _ => Confidence::Low,
        },
        basis: member(&Basis::ALL, row.try_get::<Option<i16>, _>("basis")?.unwrap_or(0))?,
        trials: row.try_get::<Option<f64>, _>("trials")?.unwrap_or(0.0),
        as_of: maybe_at(row, "as_of_ms")?,
        probe: row.try_get::<Option<bool>, _>("probe")?.unwrap_or(false),
        guard: guard(row)?,
        // Rows from before this column: never repeat.
        repeat: member(&Repeat::ALL, row.try_get::<Option<i16>, _>("repeat")?.unwrap_or(4) - 1)?,
    }))
}

pub(super) fn guard(row: &PgRow) -> Loaded<Option<Guard>> {
    let code: Option<i16> = row.try_get("guard")?;
    code.map(|code| member(&Guard::ALL, code - 1)).transpose()
}

/// A ledger row.
pub(super) fn ledger(row: &PgRow) -> Loaded<LedgerRow> {
    let digest: Option<Vec<u8>> = row.try_get("digest")?;
    Ok(LedgerRow {
        revision: count(row, "revision")?,
        state: member(&LedgerState::ALL, row.try_get("state")?)?,
        root: name(SessionId::parse, row.try_get("root_id")?)?,
        session: name(SessionId::parse, row.try_get("session_id")?)?,
        call_id: name(CallId::parse, row.try_get("call_id")?)?,
        fingerprint: Fingerprint(hash(row.try_get("fingerprint")?)?),
        seq: count(row, "seq")?,
        occurrence: count(row, "occurrence")?,
        attempt: u32::try_from(row.try_get::<i32, _>("attempt")?).unwrap_or(1),
        permitted_at: at(row, "permitted_ms")?,
        lease_until: at(row, "lease_ms")?,
        settled_at: maybe_at(row, "settled_ms")?,
        digest: digest.map(|digest| hash(&digest)).transpose()?.map(ResultDigest),
        retryable: row.try_get("retryable")?,
        retry_after_ms: count(row, "retry_after_ms")?,
        retries_remaining: u32::try_from(row.try_get::<i32, _>("retries_remaining")?).unwrap_or(0),
        guard: guard(row)?,
        key_sent: flag(row, "key_sent")?,
    })
}
