//! Kill switch: halts, shared by all replicas.

use std::collections::BTreeMap;

use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store, audit,
    decode::{LoadedRow, at, corrupt, decode, name},
};
use crate::error::StoreError;
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    fleet::TimeSpan,
    halt::{HALTS_MAX, Halt, HaltTarget},
    ids::{AgentId, SessionId, TenantId, ToolName},
    time::Timestamp,
};

const ROW: &str = "tenant_id, kind, name, halted_by, reason,
    (extract(epoch from halted_at at time zone 'utc') * 1000)::bigint as at_ms";

impl Store {
    /// Halts a target; returns the active halt, an existing one if there is one.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: nothing was halted, or the result is unknown.
    pub async fn halt(
        &self,
        tenant: TenantId,
        what: &HaltTarget,
        by: &Actor,
        reason: &str,
    ) -> Result<Halt, StoreError> {
        self.readers.read_of(&[tenant], async |conn| halt(conn, tenant, what, by, reason).await).await
    }

    /// Lifts a halt; false when there was none.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn resume(
        &self,
        tenant: TenantId,
        what: &HaltTarget,
        by: &Actor,
        reason: &str,
    ) -> Result<bool, StoreError> {
        self.readers.read_of(&[tenant], async |conn| resume(conn, tenant, what, by, reason).await).await
    }

    /// All active halts, by tenant.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn halts(&self) -> Result<BTreeMap<TenantId, Vec<Halt>>, StoreError> {
        self.readers.read(async |conn| halts(conn).await).await
    }

    /// Periods of the tenant's halts that were active at some time since.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn halted_since(&self, tenant: TenantId, since: Timestamp) -> Result<Vec<TimeSpan>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| spans(conn, tenant, since).await).await
    }
}

fn event(kind: AuditOperation, what: &HaltTarget, by: &Actor, reason: &str) -> AuditEvent {
    let event = AuditEvent::new(kind, by.clone(), what.describe()).because(reason);
    if let HaltTarget::Session(session) = what { event.with_session(session) } else { event }
}

async fn halt(
    conn: &mut PgConnection,
    tenant: TenantId,
    what: &HaltTarget,
    by: &Actor,
    reason: &str,
) -> LoadedRow<Halt> {
    let insert = format!(
        "insert into halt (tenant_id, kind, name, halted_by, reason) values ($1, $2, $3, $4, $5)
         on conflict (tenant_id, kind, name) where resumed_at is null do nothing returning {ROW}"
    );
    let known =
        format!("select {ROW} from halt where tenant_id = $1 and kind = $2 and name = $3 and resumed_at is null");
    // An earlier halt may be resumed between the two: then there is room for this one.
    loop {
        let mut tx = conn.begin().await?;
        let inserted = sqlx::query(sqlx::AssertSqlSafe(insert.as_str())).bind(tenant.0).bind(what.kind_name());
        let inserted = inserted.bind(what.name()).bind(&by.name).bind(reason).fetch_optional(&mut *tx).await?;
        if let Some(row) = inserted {
            audit::commit(tx, tenant, &event(AuditOperation::Halted, what, by, reason)).await?;
            return read(&row);
        }
        let known =
            sqlx::query(sqlx::AssertSqlSafe(known.as_str())).bind(tenant.0).bind(what.kind_name()).bind(what.name());
        if let Some(row) = known.fetch_optional(&mut *tx).await? {
            return read(&row);
        }
    }
}

async fn resume(
    conn: &mut PgConnection,
    tenant: TenantId,
    what: &HaltTarget,
    by: &Actor,
    reason: &str,
) -> LoadedRow<bool> {
    let mut tx = conn.begin().await?;
    let update = sqlx::query(
        "update halt set resumed_at = now(), resumed_by = $4
         where tenant_id = $1 and kind = $2 and name = $3 and resumed_at is null",
    );
    let update = update.bind(tenant.0).bind(what.kind_name()).bind(what.name()).bind(&by.name);
    if update.execute(&mut *tx).await?.rows_affected() == 0 {
        return Ok(false);
    }
    audit::commit(tx, tenant, &event(AuditOperation::Resumed, what, by, reason)).await?;
    Ok(true)
}

async fn halts(conn: &mut PgConnection) -> LoadedRow<BTreeMap<TenantId, Vec<Halt>>> {
    let query = format!(
        "select {ROW} from (select *, row_number() over (partition by tenant_id order by halt_id desc) as n from halt
           where resumed_at is null) h where n <= $1 order by tenant_id, kind, name"
    );
    let max = i64::try_from(HALTS_MAX).unwrap_or(i64::MAX);
    let mut halts: BTreeMap<TenantId, Vec<Halt>> = BTreeMap::new();
    for row in sqlx::query(sqlx::AssertSqlSafe(query)).bind(max).fetch_all(conn).await? {
        halts.entry(TenantId(row.try_get("tenant_id")?)).or_default().push(read(&row)?);
    }
    Ok(halts)
}

async fn spans(conn: &mut PgConnection, tenant: TenantId, since: Timestamp) -> LoadedRow<Vec<TimeSpan>> {
    // Two statements in one, so that each is by an index.
    let rows = sqlx::query(
        "select (extract(epoch from h.halted_at) * 1000)::bigint as from_ms, null::bigint as until_ms
         from halt h where h.tenant_id = $1 and h.resumed_at is null
         union all
         select (extract(epoch from h.halted_at) * 1000)::bigint, (extract(epoch from h.resumed_at) * 1000)::bigint
         from halt h where h.tenant_id = $1 and h.resumed_at > to_timestamp($2 / 1000.0)",
    );
    let rows = rows.bind(tenant.0).bind(since.as_millis()).fetch_all(conn).await?;
    rows.iter().map(|row| Ok(TimeSpan { from: at(row, "from_ms")?, until: decode(row, "until_ms")? })).collect()
}

fn read(row: &PgRow) -> LoadedRow<Halt> {
    let named: String = row.try_get("name")?;
    let what = match row.try_get::<String, _>("kind")?.as_str() {
        "session" => HaltTarget::Session(name(SessionId::parse, &named)?),
        "agent" => HaltTarget::Agent(name(AgentId::parse, &named)?),
        "tool" => HaltTarget::Tool(name(ToolName::parse, &named)?),
        "tenant" => HaltTarget::Tenant,
        _ => return Err(corrupt("an unknown kind of halt")),
    };
    Ok(Halt { what, by: row.try_get("halted_by")?, reason: row.try_get("reason")?, at: at(row, "at_ms")? })
}
