//! What happens to sessions from outside their calls: as rows, and read back. With it, what else a cold tree needs
//! beyond its last events: uses of tiers and grants, changed resources, and answers that later calls build on.

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    columns::{DAY, INT2, INT4, INT8, JSON, Kind, TEXT, columns},
    decode::{Loaded, at, corrupt, count, hash, name},
    load::Key,
    row::big,
};
use crate::domain::{
    call::ApprovalStatus,
    control::{Clearance, Control, Controlled},
    effect::Resource,
    event::Append,
    fingerprint::Fingerprint,
    grant::{Burst, Grant, Use},
    ids::{CallId, SessionId, ToolName},
    outcome::OutcomeStatus,
    pattern::Pattern,
    time::Timestamp,
    tree::{CHANGES_MAX, Changed, KEPT_BYTES_MAX, KEPT_MAX, KeptText},
};

/// Events of one tree that are read back: the newest.
const EVENTS_MAX: i64 = 2_000;

columns! {
    /// One row an event from outside the calls.
    ControlColumns / ControlRow {
        no: i32 => INT4.only_sent(), shard: i16 => INT2, tenant_id: i64 => INT8,
        root_id: String => TEXT, epoch: i32 => DAY,
        seq: i64 => INT8, session_id: String => TEXT, at_ms: i64 => Kind::time("at"), kind: String => TEXT,
        actor: Option<String> => TEXT, reason: Option<String> => TEXT, detail: String => JSON,
    }
}

/// The `detail` of an event; its `kind` says which parts there are.
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
}

/// What a yes cleared, as the `detail` of an answer holds it.
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
    fn restore(self, session: &SessionId) -> Loaded<Clearance> {
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
            Control::Answered { approval_id, call_id, answer, fingerprint, root_run, clears } => Self {
                approval_id: Some(approval_id.clone()),
                call_id: Some(call_id.to_string()),
                approved: Some(*answer == ApprovalStatus::Approved),
                fingerprint: Some(fingerprint.to_hex()),
                root_run: Some(*root_run),
                clears: clears.as_ref().map(StoredClearance::from),
                ..nothing
            },
            Control::Withdrawn { approval_id, call_id } => {
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
        }
    }
}

impl Detail {
    fn control(self, kind: &str, by: Option<&str>, session: &SessionId) -> Loaded<Control> {
        let lacks = || corrupt("a session event lacks a part");
        let id = self.grant_id.ok_or_else(lacks);
        Ok(match kind {
            "answered" => Control::Answered {
                approval_id: self.approval_id.ok_or_else(lacks)?,
                call_id: name(CallId::parse, &self.call_id.ok_or_else(lacks)?)?,
                answer: if self.approved.ok_or_else(lacks)? {
                    ApprovalStatus::Approved
                } else {
                    ApprovalStatus::Denied
                },
                fingerprint: Fingerprint(hash(&bytes(&self.fingerprint.ok_or_else(lacks)?)?)?),
                root_run: self.root_run.ok_or_else(lacks)?,
                clears: self.clears.map(|clears| clears.restore(session)).transpose()?,
            },
            "withdrawn" => Control::Withdrawn {
                approval_id: self.approval_id.ok_or_else(lacks)?,
                call_id: name(CallId::parse, &self.call_id.ok_or_else(lacks)?)?,
            },
            "phase_set" => {
                let step = |tool: String| name(ToolName::parse, &tool);
                let plan = self.plan.map(|plan| plan.into_iter().map(step).collect::<Loaded<_>>());
                Control::PhaseSet { phase: self.phase.ok_or_else(lacks)?, plan: plan.transpose()? }
            }
            "compacted" => Control::Compacted,
            "outcome_settled" => {
                let status = self.status.ok_or_else(lacks)?;
                let status = OutcomeStatus::ALL.into_iter().find(|known| known.as_str() == status).ok_or_else(lacks)?;
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
            "revoked" => Control::Revoked { id: id? },
            _ => return Err(corrupt("an unknown session event")),
        })
    }
}

fn bytes(hexadecimal: &str) -> Loaded<Vec<u8>> {
    hex::decode(hexadecimal).map_err(|_| corrupt("a hash is not hexadecimal"))
}

impl ControlRow {
    pub(super) fn of(no: i32, append: &Append, event: &Controlled) -> Self {
        Self {
            no,
            shard: append.shard().0,
            tenant_id: append.tenant.0,
            root_id: append.root.to_string(),
            epoch: append.epoch,
            seq: big(event.seq),
            session_id: event.session.to_string(),
            at_ms: event.at.as_millis(),
            kind: event.control.as_str().to_owned(),
            actor: event.by.clone(),
            reason: event.reason.clone(),
            detail: serde_json::to_string(&Detail::from(&event.control)).unwrap_or_default(),
        }
    }
}

/// A use as the `uses` column holds it.
#[derive(Debug, Serialize, Deserialize)]
struct StoredUse {
    key: String,
    opened_ms: i64,
    used: u64,
    /// Bursts: when the first and the last call of each was permitted, and how many there were.
    #[serde(default)]
    recent: Vec<(i64, i64, u64)>,
}

impl From<StoredUse> for Use {
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

/// The `uses` column; none when nothing was used.
pub(super) fn uses_json(uses: &[Use]) -> Option<String> {
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

/// What happened to the tree's sessions after the event `since`, oldest first.
pub(super) async fn events(conn: &mut PgConnection, key: Key<'_>, since: u64) -> Loaded<Vec<Controlled>> {
    let rows = sqlx::query(
        "select * from (
           select seq, session_id, (extract(epoch from at) * 1000)::bigint as at_ms, kind, actor, reason,
             detail::text as detail
           from session_event
           where shard = $6 and tenant_id = $1 and root_id = $2 and epoch = date '1970-01-01' + $3::int4 and seq > $5
           order by seq desc limit $4) e order by seq",
    );
    let rows = rows
        .bind(key.tenant.0)
        .bind(key.root.as_str())
        .bind(key.epoch)
        .bind(EVENTS_MAX)
        .bind(big(since))
        .bind(key.shard());
    rows.fetch_all(conn).await?.iter().map(controlled).collect()
}

fn controlled(row: &PgRow) -> Loaded<Controlled> {
    let session = name(SessionId::parse, row.try_get("session_id")?)?;
    let detail: String = row.try_get("detail")?;
    let detail: Detail = serde_json::from_str(&detail).map_err(|error| corrupt(&error.to_string()))?;
    let by: Option<String> = row.try_get("actor")?;
    Ok(Controlled {
        seq: count(row, "seq")?,
        at: at(row, "at_ms")?,
        control: detail.control(row.try_get("kind")?, by.as_deref(), &session)?,
        by,
        reason: row.try_get("reason")?,
        session,
    })
}

/// How far each tier and grant has been used: the newest word on each.
pub(super) async fn uses(conn: &mut PgConnection, key: Key<'_>) -> Loaded<Vec<Use>> {
    let rows = sqlx::query_scalar(
        "select distinct on (u ->> 'key') u::text from session s
         join call c on c.shard = s.shard and c.tenant_id = s.tenant_id and c.session_id = s.session_id
           and c.epoch = date '1970-01-01' + $3::int4 and c.uses is not null
         cross join lateral jsonb_array_elements(c.uses) u
         where s.shard = $4 and s.tenant_id = $1 and s.root_id = $2 order by u ->> 'key', c.seq desc",
    );
    let rows = rows.bind(key.tenant.0).bind(key.root.as_str()).bind(key.epoch).bind(key.shard());
    let rows: Vec<String> = rows.fetch_all(conn).await?;
    let used = |text: &String| {
        Ok(serde_json::from_str::<StoredUse>(text).map_err(|error| corrupt(&error.to_string()))?.into())
    };
    rows.iter().map(used).collect()
}

/// The uses in a `uses` column.
pub(super) fn uses_of(column: Option<String>) -> Loaded<Vec<Use>> {
    let Some(text) = column else { return Ok(Vec::new()) };
    let stored: Vec<StoredUse> = serde_json::from_str(&text).map_err(|error| corrupt(&error.to_string()))?;
    Ok(stored.into_iter().map(Use::from).collect())
}

/// Things that writes have changed and that did not fail cleanly, oldest first.
pub(super) async fn changes(conn: &mut PgConnection, key: Key<'_>) -> Loaded<Vec<Changed>> {
    let rows = sqlx::query(
        "select * from (
           select c.seq, c.tool, c.fingerprint, c.resource from session s
           join call c on c.shard = s.shard and c.tenant_id = s.tenant_id and c.session_id = s.session_id
             and c.epoch = date '1970-01-01' + $3::int4 and c.effect = 2 and c.resource is not null
             and c.attempt is not null
           where s.shard = $5 and s.tenant_id = $1 and s.root_id = $2 and not exists (
             select from outcome o where o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
               and o.session_id = c.session_id and o.permit_seq = c.seq and o.status in (2, 3))
           order by c.seq desc limit $4) w order by seq",
    );
    let max = i64::try_from(CHANGES_MAX).unwrap_or(i64::MAX);
    let rows = rows
        .bind(key.tenant.0)
        .bind(key.root.as_str())
        .bind(key.epoch)
        .bind(max)
        .bind(key.shard())
        .fetch_all(conn)
        .await?;
    let changed = |row: &PgRow| {
        Ok(Changed {
            resource: Resource::new(row.try_get::<String, _>("resource")?),
            tool: name(ToolName::parse, row.try_get("tool")?)?,
            fingerprint: Fingerprint(hash(row.try_get("fingerprint")?)?),
            seq: count(row, "seq")?,
        })
    };
    let changed: Vec<Changed> = rows.iter().map(changed).collect::<Loaded<_>>()?;
    Ok(changed.into_iter().filter(|changed| changed.resource.is_named()).collect())
}

/// Answers that later calls may depend on, oldest first.
pub(super) async fn kept(conn: &mut PgConnection, key: Key<'_>) -> Loaded<Vec<KeptText>> {
    let rows = sqlx::query(
        "select * from (
           select o.seq, c.session_id, c.tool,
             case when octet_length(c.arguments) <= $5 then c.arguments end as arguments,
             case when octet_length(o.result) <= $5 then o.result end as result
           from session s
           join outcome o on o.shard = s.shard and o.tenant_id = s.tenant_id and o.session_id = s.session_id
             and o.epoch = date '1970-01-01' + $3::int4 and o.kept
           join call c on c.shard = o.shard and c.tenant_id = o.tenant_id and c.epoch = o.epoch
             and c.session_id = o.session_id
             and c.seq = o.permit_seq
           where s.shard = $6 and s.tenant_id = $1
             and s.root_id = $2 order by o.seq desc limit $4) k order by seq",
    );
    let max = i64::try_from(KEPT_MAX).unwrap_or(i64::MAX);
    let bytes = i32::try_from(KEPT_BYTES_MAX).unwrap_or(i32::MAX);
    let rows = rows.bind(key.tenant.0).bind(key.root.as_str()).bind(key.epoch).bind(max).bind(bytes).bind(key.shard());
    let row = |row: &PgRow| {
        Ok((
            count(row, "seq")?,
            name(SessionId::parse, row.try_get("session_id")?)?,
            name(ToolName::parse, row.try_get("tool")?)?,
            row.try_get("arguments")?,
            row.try_get("result")?,
        ))
    };
    rows.fetch_all(conn).await?.iter().map(row).collect()
}
