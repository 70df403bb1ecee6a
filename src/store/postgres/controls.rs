//! Rows of control events, and of uses of tiers and grants.

use serde::{Deserialize, Serialize};
use sqlx::{Row as _, postgres::PgRow};

use super::{
    append::encode::rows,
    columns::{ColumnKind, DAY, INT2, INT8, JSON, TEXT},
    decode::{LoadedRow, at, corrupt, count, decode, hash, name},
    edits::StoredEdit,
    row::big,
    sealed::{CLEARED, Opener, REASON, WHY},
};
use callgate_core::domain::{
    audit::{self, Actor},
    budget::{Dimension, Raise},
    call::ApprovalStatus,
    control::{Clearance, Control, ControlEvent},
    effect::Resource,
    event::Append,
    fingerprint::Fingerprint,
    grant::{Burst, Grant, GrantUse},
    ids::{CallId, SessionId, ToolName},
    outcome::OutcomeStatus,
    pattern::Pattern,
    time::Timestamp,
};

/// Maximum number of events read back per tree, newest first.
pub(super) const EVENTS_MAX: i64 = 2_000;

rows! {
    /// One row per control event.
    ControlRow<'a>(append: &'a Append, event: &'a ControlEvent) {
        let told = audit::AuditEvent::of(event);
        let by = told.as_ref().map(|told| &told.by);
    } => {
        shard: i16 = append.shard().0 => INT2,
        tenant_id: i64 = append.tenant.0 => INT8,
        root_id: &'a str = append.root.as_str() => TEXT,
        epoch: i32 = append.epoch => DAY,
        seq: i64 = big(event.seq) => INT8,
        session_id: &'a str = event.session.as_str() => TEXT,
        at_ms: i64 = event.at.as_millis() => ColumnKind::time("at"),
        kind: &'a str = control_kind(&event.control) => TEXT,
        actor: Option<&'a str> = event.by.as_ref().map(|by| by.name.as_str()) => TEXT,
        reason: Option<&'a str> = event.reason.as_deref() => TEXT.as_encryptable(),
        detail: String =
            serde_json::to_string(&Detail::from(&event.control)).unwrap_or_default() => JSON.as_encryptable(),
        // Its entry in the audit, where it has one; the rest of it is above.
        credential: Option<String> = by.map(|by| by.credential.to_string()) => TEXT.as_sent_only(),
        origin: Option<String> = by.and_then(|by| by.from.clone()) => TEXT.as_sent_only(),
        told: Option<&'a str> = told.as_ref().map(|told| told.kind.as_str()) => TEXT.as_sent_only(),
        what: Option<String> = told.map(|told| told.what) => TEXT.as_sent_only(),
    }
}

/// Grant name in the row of a raised budget; no grant has it.
const NO_GRANT: &str = "budget";

/// The `kind` of an event. A raised budget is stored as an event that the previous release ignores: it could not read
/// the session otherwise (docs/operations.md#upgrade-and-rollback).
const fn control_kind(control: &Control) -> &'static str {
    match control {
        Control::BudgetRaised(_) => "revoked",
        control => control.as_str(),
    }
}

/// The `detail` of an event; its fields depend on the `kind`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Detail {
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approved: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_run: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clears: Option<StoredClearance>,
    #[serde(skip_serializing_if = "Option::is_none")]
    edit: Option<StoredEdit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimension: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<u64>,
}

/// Clearance in the `detail` of an answer.
#[derive(Debug, Serialize, Deserialize)]
struct StoredClearance {
    tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    until_ms: i64,
    policy: String,
    rules: Vec<String>,
}

impl From<&Clearance> for StoredClearance {
    fn from(clear: &Clearance) -> Self {
        Self {
            tool: clear.tool.to_string(),
            resource: clear.resource.as_ref().map(|resource| resource.as_str().to_owned()),
            until_ms: clear.until.as_millis(),
            policy: clear.policy.clone(),
            rules: clear.rules.clone(),
        }
    }
}

impl StoredClearance {
    fn restore(self, session: &SessionId) -> LoadedRow<Clearance> {
        Ok(Clearance {
            session: session.clone(),
            tool: name(ToolName::parse, &self.tool)?,
            resource: self.resource.map(Resource::new),
            until: Timestamp::from_millis(self.until_ms),
            policy: self.policy,
            rules: self.rules,
        })
    }
}

impl From<&Control> for Detail {
    fn from(control: &Control) -> Self {
        let nothing = Self::default();
        match control {
            Control::Answered { approval_id, call_id, answer, fingerprint, root_run, clears, edit } => Self {
                approval_id: Some(approval_id.clone()),
                call_id: Some(call_id.to_string()),
                approved: Some(*answer == ApprovalStatus::Approved),
                fingerprint: Some(fingerprint.to_hex()),
                root_run: Some(*root_run),
                clears: clears.as_ref().map(StoredClearance::from),
                edit: edit.as_deref().map(StoredEdit::from),
                ..nothing
            },
            Control::Seconded { approval_id, call_id, edited: Some(edited) } => Self {
                approval_id: Some(String::new()),
                call_id: Some(call_id.to_string()),
                edit: Some(StoredEdit::from(edited).of(approval_id)),
                ..nothing
            },
            Control::Seconded { approval_id, call_id, edited: None } | Control::Withdrawn { approval_id, call_id } => {
                Self { approval_id: Some(approval_id.clone()), call_id: Some(call_id.to_string()), ..nothing }
            }
            Control::PhaseSet { phase, plan } => {
                let plan = plan.as_ref().map(|plan| plan.iter().map(ToString::to_string).collect());
                Self { phase: Some(phase.clone()), plan, ..nothing }
            }
            Control::Compacted => nothing,
            Control::OutcomeSettled { call_id, status } => {
                Self { call_id: Some(call_id.to_string()), status: Some(status.as_str().to_owned()), ..nothing }
            }
            Control::Granted(grant) => Self {
                grant_id: Some(grant.id.clone()),
                tools: Some(grant.tools.as_str().to_owned()),
                ceiling: Some(grant.ceiling),
                expires_ms: Some(grant.expires_at.as_millis()),
                ..nothing
            },
            Control::Revoked { id } => Self { grant_id: Some(id.clone()), ..nothing },
            Control::BudgetRaised(raise) => Self {
                grant_id: Some(NO_GRANT.to_owned()),
                scope: Some(raise.scope().as_str().to_owned()),
                run: raise.run,
                dimension: Some(raise.dimension.as_str().to_owned()),
                extra: Some(raise.extra),
                ..nothing
            },
        }
    }
}

impl Detail {
    fn control(self, kind: &str, by: Option<&str>, session: &SessionId) -> LoadedRow<Control> {
        let lacks = || corrupt("a session event lacks a part");
        let id = self.grant_id.ok_or_else(lacks);
        Ok(match kind {
            "answered" => Control::Answered {
                approval_id: self.approval_id.ok_or_else(lacks)?,
                call_id: name(CallId::parse, &self.call_id.ok_or_else(lacks)?)?,
                answer: match (self.approved.ok_or_else(lacks)?, &self.edit) {
                    (_, Some(_)) => ApprovalStatus::Edited,
                    (true, None) => ApprovalStatus::Approved,
                    (false, None) => ApprovalStatus::Denied,
                },
                fingerprint: Fingerprint(hash(&bytes(&self.fingerprint.ok_or_else(lacks)?)?)?),
                root_run: self.root_run.ok_or_else(lacks)?,
                clears: self.clears.map(|clears| clears.restore(session)).transpose()?,
                edit: self.edit.map(StoredEdit::restore).transpose()?.map(Box::new),
            },
            "seconded" => Control::Seconded {
                approval_id: match &self.edit {
                    Some(edit) => edit.approval_id.clone().ok_or_else(lacks)?,
                    None => self.approval_id.ok_or_else(lacks)?,
                },
                call_id: name(CallId::parse, &self.call_id.ok_or_else(lacks)?)?,
                edited: self.edit.map(|edit| edit.edited()).transpose()?,
            },
            "withdrawn" => Control::Withdrawn {
                approval_id: self.approval_id.ok_or_else(lacks)?,
                call_id: name(CallId::parse, &self.call_id.ok_or_else(lacks)?)?,
            },
            "phase_set" => {
                let step = |tool: String| name(ToolName::parse, &tool);
                let plan = self.plan.map(|plan| plan.into_iter().map(step).collect::<LoadedRow<_>>());
                Control::PhaseSet { phase: self.phase.ok_or_else(lacks)?, plan: plan.transpose()? }
            }
            "compacted" => Control::Compacted,
            "outcome_settled" => {
                let status = self.status.and_then(|status| OutcomeStatus::from_name(&status)).ok_or_else(lacks)?;
                Control::OutcomeSettled { call_id: name(CallId::parse, &self.call_id.ok_or_else(lacks)?)?, status }
            }
            "granted" => Control::Granted(Grant {
                id: id?,
                by: by.unwrap_or_default().to_owned(),
                session: session.clone(),
                tools: name(Pattern::parse, &self.tools.ok_or_else(lacks)?)?,
                ceiling: self.ceiling.ok_or_else(lacks)?,
                expires_at: Timestamp::from_millis(self.expires_ms.ok_or_else(lacks)?),
            }),
            "revoked" => match self.dimension {
                None => Control::Revoked { id: id? },
                Some(dimension) => {
                    let dimension = Dimension::from_name(&dimension).ok_or_else(lacks)?;
                    Control::BudgetRaised(Raise { run: self.run, dimension, extra: self.extra.ok_or_else(lacks)? })
                }
            },
            _ => return Err(corrupt("an unknown session event")),
        })
    }
}

fn bytes(hexadecimal: &str) -> LoadedRow<Vec<u8>> {
    hex::decode(hexadecimal).map_err(|_| corrupt("a hash is not hexadecimal"))
}

/// A use in the `uses` column.
#[derive(Debug, Serialize, Deserialize)]
struct StoredUse {
    key: String,
    opened_ms: i64,
    used: u64,
    /// Bursts: time of the first and last permit, and number of calls.
    #[serde(default)]
    recent: Vec<(i64, i64, u64)>,
}

impl From<StoredUse> for GrantUse {
    fn from(stored: StoredUse) -> Self {
        let at = Timestamp::from_millis;
        let burst = |(first, last, calls)| Burst { first: at(first), last: at(last), calls };
        Self {
            key: stored.key,
            opened_at: Timestamp::from_millis(stored.opened_ms),
            used: stored.used,
            recent: stored.recent.into_iter().map(burst).collect(),
        }
    }
}

/// The `uses` column; null when empty.
pub(super) fn uses_json(uses: &[GrantUse]) -> Option<String> {
    let stored: Vec<StoredUse> = uses
        .iter()
        .map(|used| StoredUse {
            key: used.key.clone(),
            opened_ms: used.opened_at.as_millis(),
            used: used.used,
            recent: used.recent.iter().map(|b| (b.first.as_millis(), b.last.as_millis(), b.calls)).collect(),
        })
        .collect();
    (!stored.is_empty()).then(|| serde_json::to_string(&stored).unwrap_or_default())
}

/// The control events of a tree, oldest first.
pub(super) fn read(rows: &[PgRow], opener: &Opener) -> LoadedRow<Vec<ControlEvent>> {
    let mut events: Vec<ControlEvent> =
        rows.iter().map(|row| decode_control_event(row, opener)).collect::<LoadedRow<_>>()?;
    events.sort_by_key(|event| event.seq);
    Ok(events)
}

fn decode_control_event(row: &PgRow, opener: &Opener) -> LoadedRow<ControlEvent> {
    let session: SessionId = decode(row, "session_id")?;
    let detail: String = row.try_get("detail")?;
    let detail: Detail = serde_json::from_str(&detail).map_err(|error| corrupt(&error.to_string()))?;
    let by: Option<String> = row.try_get("actor")?;
    let seq = count(row, "seq")?;
    let mut control = detail.control(row.try_get("kind")?, by.as_deref(), &session)?;
    if let Control::Answered { clears: Some(Clearance { resource: Some(resource), .. }), .. } = &mut control {
        *resource = Resource::new(opener.text(CLEARED, session.as_str(), seq, resource.as_str().to_owned())?);
    }
    if let Control::Answered { edit: Some(edit), .. } = &mut control {
        edit.is_used = row.try_get::<Option<bool>, _>("is_used")?.unwrap_or(true);
    }
    Ok(ControlEvent {
        seq,
        at: at(row, "at_ms")?,
        control,
        by: by.as_deref().map(Actor::from),
        reason: opener.optional_text(REASON, session.as_str(), WHY, row.try_get("reason")?)?,
        session,
    })
}

/// The use of a tier or grant.
pub(super) fn decode_use(row: &PgRow) -> LoadedRow<GrantUse> {
    let text: String = row.try_get("used")?;
    Ok(serde_json::from_str::<StoredUse>(&text).map_err(|error| corrupt(&error.to_string()))?.into())
}

/// The uses in a `uses` column.
pub(super) fn uses_of(column: Option<String>) -> LoadedRow<Vec<GrantUse>> {
    let Some(text) = column else { return Ok(Vec::new()) };
    let stored: Vec<StoredUse> = serde_json::from_str(&text).map_err(|error| corrupt(&error.to_string()))?;
    Ok(stored.into_iter().map(GrantUse::from).collect())
}
