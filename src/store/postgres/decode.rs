//! Row decoding into domain types. An invalid row is an error, never a guess.

use std::sync::Arc;

use sqlx::{Decode, Postgres, Row as _, Type, postgres::PgRow};

use super::{
    findings, follow_up, marks,
    row::{approval, permit},
    sealed::{self, Opener},
};
use crate::error::StoreError;
use callgate_core::domain::{
    budget::{BudgetScope, Dimension, Usage},
    calls::SessionStatus,
    effect::{DuplicateScope, Effect, EffectKind, Resource},
    event::{JudgmentEvent, SettledEvent},
    failure::FailureKind,
    finding::{Decision, Level},
    fingerprint::{ArgsDigest, Fingerprint, ResultDigest, WitnessDigest},
    ids::{AgentId, CallId, RunId, SessionId, ToolName},
    ledger::{LedgerRow, LedgerState},
    outcome::{Advice, Basis, Confidence, Guard, OutcomeStatus, Repeat},
    profile::{Circumstances, DecidedBy, FollowUpKind, ToolState},
    reason::Reason,
    similarity::ArgumentShape,
    time::Timestamp,
    whole::FullText,
};

pub(super) type LoadedRow<T> = Result<T, StoreError>;

pub(super) fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}

pub(super) fn name<T>(
    parse: impl Fn(&str, &str) -> Result<T, callgate_core::domain::ids::Invalid>,
    text: &str,
) -> LoadedRow<T> {
    parse("name", text).map_err(|invalid| corrupt(&invalid.problem))
}

pub(super) fn count(row: &PgRow, column: &str) -> LoadedRow<u64> {
    Ok(u64::try_from(row.try_get::<Option<i64>, _>(column)?.unwrap_or(0)).unwrap_or(0))
}

pub(super) fn at(row: &PgRow, column: &str) -> LoadedRow<Timestamp> {
    Ok(Timestamp::from_millis(row.try_get::<Option<i64>, _>(column)?.unwrap_or(0)))
}

pub(super) fn hash<const N: usize>(bytes: &[u8]) -> LoadedRow<[u8; N]> {
    bytes.try_into().map_err(|_| StoreError::Corrupt(format!("a hash has not {N} bytes")))
}

pub(super) fn member<T: Copy>(all: &[T], code: i16) -> LoadedRow<T> {
    usize::try_from(code).ok().and_then(|at| all.get(at)).copied().ok_or_else(|| corrupt("an unknown code"))
}

/// A noun of the domain that one column holds.
pub(super) trait ColumnValue: Sized {
    /// As the database has it.
    type Stored<'r>: Decode<'r, Postgres> + Type<Postgres>;

    fn from_stored(stored: Self::Stored<'_>) -> LoadedRow<Self>;
}

/// The noun in a column; none for null, where it is an option.
pub(super) fn decode<T: ColumnValue>(row: &PgRow, column: &str) -> LoadedRow<T> {
    T::from_stored(row.try_get(column)?)
}

impl<T: ColumnValue> ColumnValue for Option<T> {
    type Stored<'r> = Option<T::Stored<'r>>;

    fn from_stored(stored: Self::Stored<'_>) -> LoadedRow<Self> {
        stored.map(T::from_stored).transpose()
    }
}

macro_rules! column_values {
    ($(($($noun:ty),+): $stored:ty => $from_stored:expr,)+) => {$($(
        impl ColumnValue for $noun {
            type Stored<'r> = $stored;

            fn from_stored(stored: Self::Stored<'_>) -> LoadedRow<Self> {
                let from_stored: fn(Self::Stored<'_>) -> LoadedRow<Self> = $from_stored;
                from_stored(stored)
            }
        }
    )+)+};
}

column_values! {
    (Timestamp): i64 => |ms| Ok(Self::from_millis(ms)),
    (u32): i32 => |count| Self::try_from(count).map_err(|_| corrupt("a negative count")),
    (u64): i64 => |count| Self::try_from(count).map_err(|_| corrupt("a negative count")),
    (AgentId, CallId, RunId, SessionId, ToolName): &'r str => |text| name(Self::parse, text),
    (ArgsDigest, Fingerprint, ResultDigest, WitnessDigest): &'r [u8] => |bytes| hash(bytes).map(Self),
    (Decision, DecidedBy, Dimension, EffectKind, FailureKind, FollowUpKind, LedgerState, OutcomeStatus, BudgetScope,
     DuplicateScope, SessionStatus, ToolState): i16 => |code| member(&Self::ALL, code),
    (Guard, Level, Repeat): i16 => |code| member(&Self::ALL, code - 1),
}

/// From columns with this prefix.
pub(super) fn usage(row: &PgRow, words: &str) -> LoadedRow<Usage> {
    let part = |name: &str| count(row, &format!("{words}{name}"));
    Ok(Usage {
        input_tokens: part("input_tokens")?,
        output_tokens: part("output_tokens")?,
        cache_read_tokens: part("cache_read_tokens")?,
        cache_write_tokens: part("cache_write_tokens")?,
        cost_micros: part("cost_micros")?,
    })
}

pub(super) fn effect(row: &PgRow) -> LoadedRow<Effect> {
    Ok(Effect {
        kind: decode(row, "effect")?,
        resource: row.try_get::<Option<String>, _>("resource")?.map(Resource::new),
        once: row.try_get("once")?,
        idempotent: row.try_get("idempotent")?,
        key_honoured: row.try_get("key_honoured")?,
        repeatable: row.try_get("repeatable")?,
        in_steps: row.try_get("in_steps")?,
        share: decode(row, "share")?,
    })
}

pub(super) fn judged(row: &PgRow, opener: &Opener) -> LoadedRow<JudgmentEvent> {
    let (seq, at) = (count(row, "seq")?, at(row, "at_ms")?);
    let session: &str = row.try_get("session_id")?;
    let findings = findings::read(row.try_get("findings")?, opener, session, seq)?;
    let text = |column: &str| row.try_get::<Option<String>, _>(column);
    let open = |text| opener.maybe(sealed::ARGUMENTS, session, seq, text);
    let arguments = open(text("arguments")?)?;
    let looks = match (text("looks")?, &arguments) {
        (Some(_), Some(arguments)) => Some(ArgumentShape::of(arguments)),
        (looks, _) => open(looks)?.as_deref().map(ArgumentShape::of),
    };
    let mut effect = effect(row)?;
    effect.resource = opener.resource(session, seq, effect.resource.take())?;
    let policy: Arc<str> = row.try_get::<String, _>("policy_version")?.into();
    Ok(JudgmentEvent {
        seq,
        at,
        session: name(SessionId::parse, session)?,
        parent: decode(row, "parent_id")?,
        depth: decode(row, "depth")?,
        run: decode(row, "run_id")?,
        run_from: count(row, "run_from")?,
        user: None,
        host: None,
        agent: decode(row, "agent_id")?,
        call_id: decode(row, "call_id")?,
        round: decode(row, "round")?,
        batch: count(row, "batch")?,
        tool: decode(row, "tool")?,
        fingerprint: decode(row, "fingerprint")?,
        args_digest: decode(row, "args_digest")?,
        effect,
        witness: decode(row, "witness")?,
        decision: decode(row, "decision")?,
        would: decode(row, "would")?,
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
        approval_group: None,
        uses: Vec::new(),
        terminal: row.try_get("terminal")?,
        waited: row.try_get("waited")?,
        resumes: row.try_get("resumes")?,
        coerced: Vec::new(),
        self_corrections: Vec::new(),
        follow_up: follow_up::read(row)?.map(Box::new),
        usage: usage(row, "")?,
        model: None,
        expected_micros: 0,
        observed: row.try_get("observed")?,
        policy,
        shape: looks.map(Arc::new),
        arguments: arguments.map(Into::into),
        justification: None,
    })
}

pub(super) fn settled(row: &PgRow, opener: &Opener) -> LoadedRow<SettledEvent> {
    opener.settled(SettledEvent {
        seq: count(row, "seq")?,
        at: at(row, "at_ms")?,
        session: decode(row, "session_id")?,
        call_id: decode(row, "call_id")?,
        permit_seq: count(row, "permit_seq")?,
        status: decode(row, "status")?,
        failure: decode(row, "failure")?,
        error_signature: row.try_get("error_signature")?,
        digest: decode(row, "digest")?,
        witness: decode(row, "witness")?,
        kept: row.try_get("kept")?,
        marks: row.try_get::<Option<String>, _>("marks")?.as_deref().map(marks::read).transpose()?.map(Arc::new),
        news: row.try_get("news")?,
        progress: row.try_get("progress")?,
        advice: advice(row)?,
        circumstances: circumstances(row)?,
        follow_up_ok: row.try_get("follow_up_ok")?,
        by_lease: row.try_get("by_lease")?,
        lease_until: decode(row, "lease_ms")?,
        ledger_revision: 0,
        usage: usage(row, "")?,
        model: None,
        duration_ms: decode(row, "duration_ms")?,
        is_complete: row.try_get("is_complete")?,
        total_matches: decode(row, "total_matches")?,
        progress_note: row.try_get("progress_note")?,
        result: None,
        result_bytes: decode(row, "result_bytes")?,
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
pub(super) fn flag(row: &PgRow, column: &str) -> LoadedRow<bool> {
    Ok(row.try_get::<Option<bool>, _>(column)?.unwrap_or(false))
}

/// Original size and digest of a truncated result.
pub(super) fn whole(row: &PgRow) -> LoadedRow<Option<FullText>> {
    let sha256: Option<&[u8]> = row.try_get("whole_sha256")?;
    let whole = |sha256: &[u8]| Ok(FullText { bytes: count(row, "whole_bytes")?, sha256: hash(sha256)? });
    sha256.map(whole).transpose()
}

fn circumstances(row: &PgRow) -> LoadedRow<Option<Circumstances>> {
    let Some(tool) = decode(row, "tool_state")? else { return Ok(None) };
    Ok(Some(Circumstances {
        tool,
        failure_share: row.try_get("failure_share")?,
        failures: decode(row, "failures")?,
        failing_ms: count(row, "failing_ms")?,
    }))
}

pub(super) fn advice(row: &PgRow) -> LoadedRow<Option<Advice>> {
    let Some(retryable) = row.try_get::<Option<bool>, _>("retryable")? else {
        return Ok(None);
    };
    let confidence: Option<i16> = row.try_get("confidence")?;
    Ok(Some(Advice {
        retryable,
        retry_after_ms: count(row, "retry_after_ms")?,
        max_retries_remaining: decode::<Option<_>>(row, "retries_remaining")?.unwrap_or(0),
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
        as_of: decode(row, "as_of_ms")?,
        probe: row.try_get::<Option<bool>, _>("probe")?.unwrap_or(false),
        guard: decode(row, "guard")?,
        // What was stored before somebody said who may: nobody is told to.
        repeat: decode::<Option<_>>(row, "repeat")?.unwrap_or(Repeat::Never),
    }))
}

/// A row of the ledger.
pub(super) fn ledger(row: &PgRow) -> LoadedRow<LedgerRow> {
    Ok(LedgerRow {
        revision: count(row, "revision")?,
        state: decode(row, "state")?,
        root: decode(row, "root_id")?,
        session: decode(row, "session_id")?,
        call_id: decode(row, "call_id")?,
        fingerprint: decode(row, "fingerprint")?,
        seq: count(row, "seq")?,
        occurrence: count(row, "occurrence")?,
        attempt: decode(row, "attempt")?,
        permitted_at: at(row, "permitted_ms")?,
        lease_until: at(row, "lease_ms")?,
        settled_at: decode(row, "settled_ms")?,
        digest: decode(row, "digest")?,
        retryable: row.try_get("retryable")?,
        retry_after_ms: count(row, "retry_after_ms")?,
        retries_remaining: decode(row, "retries_remaining")?,
        guard: decode(row, "guard")?,
        key_sent: flag(row, "key_sent")?,
    })
}
