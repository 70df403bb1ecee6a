//! Export of the stored data of a session, an agent or a user: one JSON object per row. It contains single calls, not
//! whole call trees, which may hold data of others.

mod decryption;

use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store,
    columns::export_columns,
    decode::{LoadedRow, corrupt, decode, member},
    forget::shards,
    point_queries,
    row::{CallRow, OutcomeRow},
    sealed::Opener,
    tables::{Export, TABLES},
};
use crate::error::StoreError;
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    budget::Dimension,
    effect::EffectKind,
    failure::FailureKind,
    finding::Decision,
    forgetting::ErasureSubject,
    ids::{SessionId, TenantId},
    outcome::OutcomeStatus,
    shard::Shard,
};

/// Calls per page, with their outcomes a few megabytes at most.
const PAGE: i64 = 16;

/// An exported row: its kind and the row as a JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedRow {
    /// `session`, `call`, `outcome`, `event`, `owner`, `halt`, `counter`, `audit`.
    pub kind: &'static str,
    /// The row.
    pub json: String,
}

/// A session with calls of the subject, and its root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExportSession {
    root: SessionId,
    session: SessionId,
}

impl Store {
    /// The sessions in a part that have calls of the subject.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn places_of(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        part: u16,
    ) -> Result<Vec<ExportSession>, StoreError> {
        self.slow.read_of(&[tenant], async |conn| places(conn, tenant, whom, part).await).await
    }

    /// The subject's data outside its calls.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn export_name(&self, tenant: TenantId, whom: &ErasureSubject) -> Result<Vec<ExportedRow>, StoreError> {
        let opener = self.opener(tenant);
        self.slow.read_of(&[tenant], async |conn| export_shared_rows(conn, &opener, whom).await).await
    }

    /// A session of the subject: its row, and operations of people on it or on the subject's calls.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn export_session(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        place: &ExportSession,
    ) -> Result<Vec<ExportedRow>, StoreError> {
        let opener = self.opener(tenant);
        self.slow.read_of(&[tenant], async |conn| session(conn, &opener, whom, place).await).await
    }

    /// The subject's calls in a session after the event `after`, with their outcomes; and the last event read, none at
    /// the end.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn export_calls(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        place: &ExportSession,
        after: i64,
    ) -> Result<(Vec<ExportedRow>, Option<i64>), StoreError> {
        let opener = self.opener(tenant);
        self.slow.read_of(&[tenant], async |conn| calls(conn, &opener, whom, place, after).await).await
    }

    /// Records the export in the audit log, before its first row is sent.
    ///
    /// # Errors
    /// [`StoreError`]: it was not recorded.
    pub async fn tell_export(
        &self,
        tenant: TenantId,
        whom: &ErasureSubject,
        by: &Actor,
        why: &str,
    ) -> Result<(), StoreError> {
        let what = format!("{} {}", whom.kind_name(), whom.name());
        let mut event = AuditEvent::new(AuditOperation::Exported, by.clone(), what).because(why);
        if let ErasureSubject::Session(session) = whom {
            event = event.with_session(session);
        }
        self.append_audit_entry(tenant, &event).await
    }
}

/// Column of a call with the subject's name.
const fn column(whom: &ErasureSubject) -> &'static str {
    match whom {
        ErasureSubject::Session(_) => "session_id",
        ErasureSubject::Agent(_) => "agent_id",
        ErasureSubject::User(_) => "user_id",
    }
}

async fn places(
    conn: &mut PgConnection,
    tenant: TenantId,
    whom: &ErasureSubject,
    part: u16,
) -> LoadedRow<Vec<ExportSession>> {
    if let ErasureSubject::Session(session) = whom {
        let root = if part == 0 { point_queries::root(conn, tenant, session).await? } else { None };
        return Ok(root.map(|root| ExportSession { root, session: session.clone() }).into_iter().collect());
    }
    let sql = format!(
        "select distinct root_id, session_id from call
         where shard = any($1) and tenant_id = $2 and {} = $3 order by root_id, session_id",
        column(whom)
    );
    let places = sqlx::query(AssertSqlSafe(sql)).bind(shards(part)).bind(tenant.0).bind(whom.name());
    let place = |row: &PgRow| Ok(ExportSession { root: decode(row, "root_id")?, session: decode(row, "session_id")? });
    places.fetch_all(conn).await?.iter().map(place).collect()
}

/// Columns of a call that are not exported: hashes, sketches, internal data.
const NOT_OF_CALL: &str = "shard tenant_id epoch run_from batch fingerprint args_digest once idempotent level \
    occurrence reserved_micros asked_by follow_up uses terminal waited share self_corrections resumes key_honoured \
    repeatable in_steps witness";
/// Columns of an outcome that are not exported.
const NOT_OF_OUTCOME: &str = "shard tenant_id epoch permit_seq digest progress retryable retry_after_ms \
    retries_remaining p_success p_low p_high confidence basis guard lease_ms follow_up_ok trials as_of_ms probe \
    tool_state failure_share failures failing_ms kept marks news whole_bytes whole_sha256 effect_open repeat witness \
    key_sent inferred double_effect";

async fn calls(
    conn: &mut PgConnection,
    opener: &Opener,
    whom: &ErasureSubject,
    place: &ExportSession,
    after: i64,
) -> LoadedRow<(Vec<ExportedRow>, Option<i64>)> {
    let tenant = opener.tenant();
    let shard = Shard::of(tenant, &place.root).0;
    let sql = format!(
        "select c.seq, to_jsonb(q)::text as json from (
           select * from call c where shard = $1 and tenant_id = $2 and session_id = $3 and {} = $4 and seq > $5
           order by seq limit {PAGE}) c, lateral (select {}) q order by c.seq",
        column(whom),
        export_columns(CallRow::LIST, "c", NOT_OF_CALL)
    );
    let query = sqlx::query(AssertSqlSafe(sql)).bind(shard).bind(tenant.0).bind(place.session.as_str());
    let rows = query.bind(whom.name()).bind(after).fetch_all(&mut *conn).await?;
    let Some(last) = rows.last() else { return Ok((Vec::new(), None)) };
    let last: i64 = last.try_get("seq")?;
    let mut exported: Vec<ExportedRow> =
        rows.iter().map(|row| of_row("call", row, opener)).collect::<LoadedRow<_>>()?;
    let permits: Vec<i64> = rows.iter().map(|row| row.try_get("seq")).collect::<Result<_, _>>()?;
    let sql = format!(
        "select to_jsonb(q)::text as json from outcome o, lateral (select {}) q
         where o.shard = $1 and o.tenant_id = $2 and o.session_id = $3 and o.permit_seq = any($4) order by o.seq",
        export_columns(OutcomeRow::LIST, "o", NOT_OF_OUTCOME)
    );
    let query = sqlx::query(AssertSqlSafe(sql)).bind(shard).bind(tenant.0).bind(place.session.as_str());
    for row in query.bind(permits).fetch_all(conn).await? {
        exported.push(of_row("outcome", &row, opener)?);
    }
    Ok((exported, Some(last)))
}

/// The exported rows of one call: its judgments and reports, the newest hundred of each.
pub(super) async fn rows_of(
    conn: &mut PgConnection,
    opener: &Opener,
    shard: i16,
    (session, call_id): (&str, &str),
) -> LoadedRow<Vec<String>> {
    let parts = [
        ("call", export_columns(CallRow::LIST, "c", NOT_OF_CALL), "c", "round"),
        ("outcome", export_columns(OutcomeRow::LIST, "o", NOT_OF_OUTCOME), "o", "seq"),
    ];
    let mut rows = Vec::new();
    for (kind, columns, alias, order) in parts {
        let sql = format!(
            "select json from (
               select to_jsonb(q)::text as json, {alias}.{order} as no from {kind} {alias}, lateral (select {columns}) q
               where {alias}.shard = $1 and {alias}.tenant_id = $2 and {alias}.session_id = $3
                 and {alias}.call_id = $4 order by {alias}.{order} desc limit 100) r order by no"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(shard).bind(opener.tenant().0).bind(session).bind(call_id);
        for row in query.fetch_all(&mut *conn).await? {
            rows.push(of_row(kind, &row, opener)?.json);
        }
    }
    Ok(rows)
}

async fn session(
    conn: &mut PgConnection,
    opener: &Opener,
    whom: &ErasureSubject,
    place: &ExportSession,
) -> LoadedRow<Vec<ExportedRow>> {
    let (shard, tenant) = (Shard::of(opener.tenant(), &place.root).0, opener.tenant().0);
    let mut exported = Vec::new();
    for table in &TABLES {
        let Some(Export::OfSession(kind, sql)) = table.export else { continue };
        // A distributed database wants each of its parameters used.
        let sql = format!(
            "select to_jsonb(q)::text as json from ({sql}) q
             where $1 >= 0 and $2 > 0 and '' not in ($3::text, $4::text, $5::text, $6::text)"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(shard).bind(tenant).bind(place.session.as_str());
        let query = query.bind(place.root.as_str()).bind(whom.name()).bind(whom.kind_name());
        for row in query.fetch_all(&mut *conn).await? {
            exported.push(of_row(kind, &row, opener)?);
        }
    }
    Ok(exported)
}

async fn export_shared_rows(
    conn: &mut PgConnection,
    opener: &Opener,
    whom: &ErasureSubject,
) -> LoadedRow<Vec<ExportedRow>> {
    // Operations of people are exported for their calls only: the audit log is about its actors.
    let tables = TABLES.iter().filter(|_| !matches!(whom, ErasureSubject::User(_)));
    let mut exported = Vec::new();
    for table in tables {
        let Some(Export::OfName(kind, sql)) = table.export else { continue };
        let sql = format!("select to_jsonb(q)::text as json from ({sql}) q");
        let query = sqlx::query(AssertSqlSafe(sql)).bind(opener.tenant().0).bind(whom.kind_name()).bind(whom.name());
        for row in query.fetch_all(&mut *conn).await? {
            exported.push(of_row(kind, &row, opener)?);
        }
    }
    Ok(exported)
}

/// Conversion of a stored row to its exported form: codes become names, and JSON stored as text stays text, as its
/// caller sent it.
fn of_row(kind: &'static str, row: &PgRow, opener: &Opener) -> LoadedRow<ExportedRow> {
    let text: String = row.try_get("json")?;
    let mut object: Map<String, Value> = serde_json::from_str(&text).map_err(|error| corrupt(&error.to_string()))?;
    object.retain(|_, value| !value.is_null());
    decryption::open(kind, &mut object, opener)?;
    for (column, value) in &mut object {
        if let Some(code) = value.as_i64().and_then(|code| i16::try_from(code).ok())
            && let Some(named) = decode_name(column, code)?
        {
            *value = Value::from(named);
        }
    }
    object.insert("record".to_owned(), Value::from(kind));
    Ok(ExportedRow { kind, json: Value::Object(object).to_string() })
}

/// Name of a closed set's code.
fn decode_name(column: &str, code: i16) -> LoadedRow<Option<&'static str>> {
    Ok(Some(match column {
        "decision" | "would" => member(&Decision::ALL, code)?.as_str(),
        "effect" => member(&EffectKind::ALL, code)?.as_str(),
        "status" => member(&OutcomeStatus::ALL, code)?.as_str(),
        "failure" => member(&FailureKind::ALL, code)?.as_str(),
        "dimension" => {
            let shared = [Dimension::Steps, Dimension::ToolCalls, Dimension::Cost, Dimension::Tokens];
            member(&shared, code)?.as_str()
        }
        _ => return Ok(None),
    }))
}
