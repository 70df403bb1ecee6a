//! Rollouts of policies: a history of steps by tenant, of which the highest holds.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store, audit,
    decode::{LoadedRow, at, corrupt, count, decode, name},
    row::big,
};
use crate::error::StoreError;
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    finding::Decision,
    ids::{AgentId, TenantId},
    rollout::{Arm, ComparedCalls, Comparison, Rollout, RolloutChange, RolloutPart, RolloutState, version},
};

pub(super) const ROLLOUT: &str = "r.step as rollout_step, r.hash as rollout_hash, r.baseline, r.share, r.agents,
    r.state as rollout_state, r.changed_by, r.note as rollout_note,
    (extract(epoch from r.started_at) * 1000)::bigint as started_ms,
    (extract(epoch from r.changed_at) * 1000)::bigint as changed_ms";

/// Maximum number of calls that are read for a comparison, the newest.
const CALLS_MAX: i64 = 200_000;

/// First judgments of calls by decision, rule and reason, and all of them, of the newest calls of a week at most, until
/// the rollout's end: those by its version, and those that it is compared with. These are in call trees that began
/// since its start, and of its agents, which have no such tree, in those of the week before. The index `call_lately`
/// bounds the scan to those of the tenant.
const COMPARE: &str = "with newest as materialized (
   select c.shard, c.root_id, c.session_id, c.call_id, c.at, c.round, c.agent_id, c.policy_version, c.decision, c.rule,
     c.reason
   from call c where c.tenant_id = $1 and not c.observed and ($8::bigint is null or c.at <= to_timestamp($8 / 1000.0))
     and c.at >= greatest(to_timestamp($2 / 1000.0), coalesce(to_timestamp($8 / 1000.0), now()) - interval '7 days')
       - case when $5 = '{}'::text[] then interval '0' else interval '7 days' end
   order by c.at desc limit $7),
 arms as (
   select c.policy_version = $3 as is_new, c.*
   from newest c join call_tree t on t.shard = c.shard and t.tenant_id = $1 and t.root_id = c.root_id
   where c.round = 1 and case
     when c.policy_version = $3 then c.at >= to_timestamp($2 / 1000.0)
     when c.policy_version <> $4 then false
     when c.agent_id = any($5) then true
     else $6 > 0 and t.started_at >= to_timestamp($2 / 1000.0) end)
 select is_new, grouping(decision) = 1 as is_all, decision, rule, reason, count(*) as calls,
   count(distinct root_id) as sessions, (array_agg(session_id order by at desc))[1:3] as example_sessions,
   (array_agg(call_id order by at desc))[1:3] as example_calls,
   (select count(*) from newest) >= $7 as is_more
 from arms group by grouping sets ((is_new), (is_new, decision, rule, reason)) order by is_new desc, calls desc";

/// A step that begins a rollout, or changes its part.
#[derive(Debug, Clone)]
pub struct RolloutStep<'a> {
    /// The policy.
    pub hash: &'a str,
    /// Its part.
    pub part: &'a RolloutPart,
    /// The actor.
    pub by: &'a Actor,
    /// The actor's note.
    pub note: &'a str,
}

impl Store {
    /// The last step of a tenant's rollouts.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn rollout(&self, tenant: TenantId) -> Result<Option<Rollout>, StoreError> {
        if self.is_in_memory() {
            return Ok(None);
        }
        self.readers.read_of(&[tenant], async |conn| last(conn, tenant).await).await
    }

    /// Begins the rollout of a stored policy, or changes the part of the running one.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the result is unknown then.
    pub async fn start_rollout(&self, tenant: TenantId, step: &RolloutStep<'_>) -> Result<RolloutChange, StoreError> {
        self.readers.read_of(&[tenant], async |conn| start(conn, tenant, step).await).await
    }

    /// Aborts the running rollout, if the hash of its policy begins so.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the result is unknown then.
    pub async fn abort_rollout(
        &self,
        tenant: TenantId,
        prefix: &str,
        by: &Actor,
        note: &str,
    ) -> Result<RolloutChange, StoreError> {
        let abort = async |conn: &mut PgConnection| {
            let mut tx = conn.begin().await?;
            let Some(running) = lock(&mut tx, tenant).await?.filter(|last| last.is_running_of(prefix)) else {
                return Ok(RolloutChange::NotRunning);
            };
            let what = end(&mut tx, tenant, (&running, RolloutState::Aborted), by, note).await?;
            let done = last(&mut tx, tenant).await?.ok_or_else(|| corrupt("a rollout without a step"))?;
            audit::commit(tx, tenant, &event(by, what.trim_start_matches("; ").to_owned(), note)).await?;
            Ok(RolloutChange::Done(Box::new(done)))
        };
        self.readers.read_of(&[tenant], abort).await
    }

    /// The calls of a rollout's version next to those of the version that it is compared with.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn compare_rollout(&self, tenant: TenantId, rollout: &Rollout) -> Result<Comparison, StoreError> {
        self.readers.read_of(&[tenant], async |conn| compare(conn, tenant, rollout).await).await
    }
}

fn event(by: &Actor, what: String, note: &str) -> AuditEvent {
    AuditEvent::new(AuditOperation::PolicyActivated, by.clone(), what).because(note)
}

/// The last step, with the tenant's row locked: activations and steps come one after the other.
pub(super) async fn lock(conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<Option<Rollout>> {
    let lock = sqlx::query("select from tenant where tenant_id = $1 for no key update");
    lock.bind(tenant.0).execute(&mut *conn).await?;
    last(conn, tenant).await
}

async fn last(conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<Option<Rollout>> {
    let sql = format!("select {ROLLOUT} from policy_rollout r where r.tenant_id = $1 order by r.step desc limit 1");
    let row = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).fetch_optional(conn).await?;
    Ok(row.as_ref().map(rollout).transpose()?.flatten())
}

async fn start(conn: &mut PgConnection, tenant: TenantId, step: &RolloutStep<'_>) -> LoadedRow<RolloutChange> {
    let RolloutStep { hash, part, by, note } = *step;
    let mut tx = conn.begin().await?;
    let before = lock(&mut tx, tenant).await?;
    let active =
        sqlx::query_scalar("select hash from policy_activation where tenant_id = $1 order by revision desc limit 1");
    let active: Option<String> = active.bind(tenant.0).fetch_optional(&mut *tx).await?;
    let baseline = active.unwrap_or_default();
    if baseline == hash {
        return Ok(RolloutChange::Active);
    }
    let running = before.as_ref().filter(|before| before.is_running());
    match running {
        Some(running) if running.hash != hash => return Ok(RolloutChange::Other(running.hash.clone())),
        Some(running) if running.part == *part => return Ok(RolloutChange::Done(Box::new(running.clone()))),
        _ => {}
    }
    let insert = "insert into policy_rollout
       (tenant_id, step, hash, baseline, share, agents, state, started_at, changed_by, note)
     select $1, $2, $3, $4, $5, $6, $7, coalesce(to_timestamp($8 / 1000.0), now()), $9, $10";
    let agents: Vec<&str> = part.agents.iter().map(AgentId::as_str).collect();
    let insert = sqlx::query(insert).bind(tenant.0).bind(big(before.as_ref().map_or(0, |before| before.step) + 1));
    let insert = insert.bind(hash).bind(baseline).bind(i32::from(part.share)).bind(agents);
    let insert =
        insert.bind(RolloutState::Running.as_str()).bind(running.map(|running| running.started_at.as_millis()));
    insert.bind(&by.name).bind(note).execute(&mut *tx).await?;
    // Retention may have deleted it meanwhile, and does not any more once there is a step.
    let known = sqlx::query_scalar("select exists (select from policy where tenant_id = $1 and hash = $2)");
    if !known.bind(tenant.0).bind(hash).fetch_one(&mut *tx).await? {
        return Ok(RolloutChange::Unknown);
    }
    let done = last(&mut tx, tenant).await?.ok_or_else(|| corrupt("a rollout without a step"))?;
    let what = format!("rollout of policy {} to {}", version(hash), done.part);
    audit::commit(tx, tenant, &event(by, what, note)).await?;
    Ok(RolloutChange::Done(Box::new(done)))
}

/// Ends the running rollout in the transaction of its cause, with its row locked; returns its words for the audit log.
pub(super) async fn end(
    conn: &mut PgConnection,
    tenant: TenantId,
    (running, state): (&Rollout, RolloutState),
    by: &Actor,
    note: &str,
) -> LoadedRow<String> {
    let insert = sqlx::query(
        "insert into policy_rollout
           (tenant_id, step, hash, baseline, share, agents, state, started_at, changed_by, note)
         select tenant_id, step + 1, hash, baseline, share, agents, $3, started_at, $4, $5
         from policy_rollout where tenant_id = $1 and step = $2",
    );
    let insert = insert.bind(tenant.0).bind(big(running.step)).bind(state.as_str()).bind(&by.name).bind(note);
    insert.execute(conn).await?;
    Ok(format!("; rollout of policy {} {}", version(&running.hash), state.as_str()))
}

/// None in a row of a tenant without rollouts.
pub(super) fn rollout(row: &PgRow) -> LoadedRow<Option<Rollout>> {
    let Some(hash) = row.try_get("rollout_hash")? else { return Ok(None) };
    let state: &str = row.try_get("rollout_state")?;
    let agents: Vec<String> = row.try_get("agents")?;
    let agents = agents.iter().map(|agent| name(AgentId::parse, agent)).collect::<LoadedRow<_>>()?;
    let share = u16::try_from(row.try_get::<i32, _>("share")?).map_err(|_| corrupt("a share of no size"))?;
    Ok(Some(Rollout {
        step: count(row, "rollout_step")?,
        hash,
        baseline: row.try_get("baseline")?,
        part: RolloutPart { share, agents },
        // A state of a later build is an end.
        state: RolloutState::from_name(state).unwrap_or(RolloutState::Aborted),
        started_at: at(row, "started_ms")?,
        at: at(row, "changed_ms")?,
        by: row.try_get("changed_by")?,
        note: row.try_get("rollout_note")?,
    }))
}

async fn compare(conn: &mut PgConnection, tenant: TenantId, rollout: &Rollout) -> LoadedRow<Comparison> {
    let agents: Vec<&str> = rollout.part.agents.iter().map(AgentId::as_str).collect();
    let query = sqlx::query(COMPARE).bind(tenant.0).bind(rollout.started_at.as_millis());
    let query = query.bind(version(&rollout.hash)).bind(version(&rollout.baseline)).bind(agents);
    let until = (!rollout.is_running()).then(|| rollout.at.as_millis());
    let query = query.bind(i32::from(rollout.part.share)).bind(CALLS_MAX).bind(until);
    let rows = query.fetch_all(conn).await?;
    let mut compared = Comparison::default();
    let mut found: BTreeMap<(Decision, Option<String>, Option<String>), ComparedCalls> = BTreeMap::new();
    for row in &rows {
        let (is_new, arm) =
            (row.try_get("is_new")?, Arm { calls: count(row, "calls")?, sessions: count(row, "sessions")? });
        compared.is_more = row.try_get("is_more")?;
        if row.try_get("is_all")? {
            *(if is_new { &mut compared.rollout } else { &mut compared.baseline }) = arm;
            continue;
        }
        let (decision, rule, reason) = (decode(row, "decision")?, row.try_get("rule")?, row.try_get("reason")?);
        let key = (decision, rule, reason);
        let of = found.entry(key.clone()).or_insert_with(|| ComparedCalls {
            decision: key.0,
            rule: key.1,
            reason: key.2,
            ..ComparedCalls::default()
        });
        *(if is_new { &mut of.rollout } else { &mut of.baseline }) = arm;
        // The rows of the rollout's version come first.
        if of.examples.is_empty() {
            let (sessions, calls): (Vec<_>, Vec<_>) = (row.try_get("example_sessions")?, row.try_get("example_calls")?);
            of.examples = sessions.into_iter().zip(calls).collect();
        }
    }
    compared.calls = found.into_values().collect();
    Ok(compared)
}
