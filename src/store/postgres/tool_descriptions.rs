//! Descriptions of the tools of MCP servers. A report of stored ones writes nothing, but for their last report.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store, audit,
    decode::{LoadedRow, at, corrupt, count},
};
use crate::error::StoreError;
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    ids::TenantId,
    time::Timestamp,
    tool_descriptions::{DescriptionPage, DescriptionState, DescriptionTexts, DescriptionVersion, ReportedTool},
};

/// Stored descriptions of a tool that are neither its first one nor accepted, the newest.
const OTHERS_MAX: i64 = 8;
/// Stored descriptions of a tenant.
pub const DESCRIPTIONS_MAX: i64 = 20_000;

/// Sort key of a description: server, tool, milliseconds of the first report, digest.
pub type DescriptionKey = (String, String, i64, String);

const COLUMNS: &str =
    "d.server, d.tool, d.digest, d.description, d.schema, d.state, d.first_reported_by, d.resolved_by,
    (extract(epoch from d.first_reported_at) * 1000)::bigint as first_ms,
    (extract(epoch from d.last_reported_at) * 1000)::bigint as last_ms,
    (extract(epoch from d.resolved_at) * 1000)::bigint as resolved_ms,
    b.digest as accepted_digest, b.description as accepted_description, b.schema as accepted_schema";

/// Descriptions `d`, each with the newest accepted one `b` of its tool, where it is not accepted itself.
const FROM: &str = "tool_description d left join lateral (
      select o.digest, o.description, o.schema from tool_description o
      where o.tenant_id = d.tenant_id and o.server = d.server and o.tool = d.tool and o.digest <> d.digest
        and o.state in ('first', 'accepted') and d.state in ('changed', 'rejected')
      order by coalesce(o.resolved_at, o.first_reported_at) desc limit 1) b on true";

impl Store {
    /// Stores the descriptions of a server's tools; false when the tenant has too many.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the result is unknown then.
    pub async fn report_tools(
        &self,
        tenant: TenantId,
        (server, by): (&str, &str),
        tools: &[ReportedTool],
    ) -> Result<bool, StoreError> {
        let report = async |conn: &mut PgConnection| report(conn, tenant, (server, by), tools).await;
        self.readers.read_of(&[tenant], report).await
    }

    /// Descriptions after a key, at most `max`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tool_descriptions(
        &self,
        tenant: TenantId,
        is_only_changed: bool,
        after: Option<&DescriptionKey>,
        max: usize,
    ) -> Result<DescriptionPage, StoreError> {
        let read = async |conn: &mut PgConnection| {
            let sql = format!(
                "select {COLUMNS} from {FROM} where d.tenant_id = $1 and (not $2 or d.state = 'changed')
                   and ($3::text is null or (d.server, d.tool,
                     (extract(epoch from d.first_reported_at) * 1000)::bigint, d.digest) > ($3, $4, $5, $6))
                 order by d.server, d.tool, first_ms, d.digest limit $7"
            );
            let (server, tool, first, digest) = match after {
                Some((server, tool, first, digest)) => (Some(server), Some(tool), Some(first), Some(digest)),
                None => (None, None, None, None),
            };
            let rows = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(is_only_changed).bind(server).bind(tool);
            let rows = rows.bind(first).bind(digest).bind(i64::try_from(max).unwrap_or(i64::MAX));
            let versions = rows.fetch_all(&mut *conn).await?.iter().map(version).collect::<LoadedRow<_>>()?;
            let changed = "select count(*) as changed from tool_description where tenant_id = $1 and state = 'changed'";
            let changed = sqlx::query(changed).bind(tenant.0).fetch_one(conn).await?;
            Ok(DescriptionPage { versions, changed: count(&changed, "changed")? })
        };
        self.readers.read_of(&[tenant], read).await
    }

    /// Accepts or rejects a description, with an entry in the audit log; none for an unknown one.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the result is unknown then.
    pub async fn resolve_tool_description(
        &self,
        tenant: TenantId,
        named: (&str, &str, &str),
        is_accepted: bool,
        (by, why): (&Actor, &str),
    ) -> Result<Option<DescriptionVersion>, StoreError> {
        let resolve = async |conn: &mut PgConnection| resolve(conn, tenant, named, is_accepted, (by, why)).await;
        self.readers.read_of(&[tenant], resolve).await
    }

    /// Number of changed descriptions by tenant; a tenant without one is left out.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn changed_tools(&self, tenants: &[TenantId]) -> Result<BTreeMap<TenantId, u64>, StoreError> {
        let changed = "select tenant_id, count(*) as changed from tool_description
             where tenant_id = any($1) and state = 'changed' group by tenant_id";
        let ids: Vec<i64> = tenants.iter().map(|tenant| tenant.0).collect();
        let of = |row: &PgRow| -> LoadedRow<_> { Ok((TenantId(row.try_get("tenant_id")?), count(row, "changed")?)) };
        let changed = sqlx::query(changed).bind(ids);
        self.readers.read(async |conn| changed.fetch_all(conn).await?.iter().map(of).collect()).await
    }
}

async fn report(
    conn: &mut PgConnection,
    tenant: TenantId,
    (server, by): (&str, &str),
    tools: &[ReportedTool],
) -> LoadedRow<bool> {
    let texts = |of: fn(&ReportedTool) -> &str| tools.iter().map(of).collect::<Vec<_>>();
    let (names, digests) = (texts(|tool| tool.tool.as_str()), texts(|tool| &tool.texts.digest));
    let known = sqlx::query_scalar(
        "select count(*) from unnest($3::text[], $4::text[]) g (tool, digest)
         join tool_description d on d.tenant_id = $1 and d.server = $2 and d.tool = g.tool and d.digest = g.digest
           and d.state <> 'rejected' and d.last_reported_at > now() - interval '1 hour'",
    );
    let known: i64 = known.bind(tenant.0).bind(server).bind(&names).bind(&digests).fetch_one(&mut *conn).await?;
    if usize::try_from(known).is_ok_and(|known| known == tools.len()) {
        return Ok(true);
    }
    let mut tx = conn.begin().await?;
    // One report after the other: of two first descriptions of a tool, one is a change.
    let lock = sqlx::query("select from tenant where tenant_id = $1 for no key update");
    lock.bind(tenant.0).execute(&mut *tx).await?;
    let store = sqlx::query(
        "insert into tool_description as d
           (tenant_id, server, tool, digest, description, schema, state, first_reported_by)
         select $1, $2, g.tool, g.digest, g.description, g.schema, case when exists (
             select from tool_description o where o.tenant_id = $1 and o.server = $2 and o.tool = g.tool)
           then 'changed' else 'first' end, $7
         from unnest($3::text[], $4::text[], $5::text[], $6::text[]) g (tool, digest, description, schema)
         on conflict (tenant_id, server, tool, digest) do update set last_reported_at = now(),
           state = case d.state when 'rejected' then 'changed' else d.state end,
           resolved_at = case d.state when 'rejected' then null else d.resolved_at end,
           resolved_by = case d.state when 'rejected' then '' else d.resolved_by end",
    );
    let store = store.bind(tenant.0).bind(server).bind(&names).bind(&digests);
    let store = store.bind(texts(|tool| &tool.texts.description)).bind(texts(|tool| &tool.texts.schema));
    store.bind(by).execute(&mut *tx).await?;
    let surplus = sqlx::query(
        "delete from tool_description d using (
           select tool, digest, row_number() over (partition by tool order by first_reported_at desc, digest) as nth
           from tool_description where tenant_id = $1 and server = $2 and tool = any($3)
             and state in ('changed', 'rejected')) o
         where d.tenant_id = $1 and d.server = $2 and d.tool = o.tool and d.digest = o.digest and o.nth > $4",
    );
    surplus.bind(tenant.0).bind(server).bind(&names).bind(OTHERS_MAX).execute(&mut *tx).await?;
    let all = sqlx::query_scalar("select count(*) from tool_description where tenant_id = $1").bind(tenant.0);
    let all: i64 = all.fetch_one(&mut *tx).await?;
    if all > DESCRIPTIONS_MAX {
        return Ok(false);
    }
    tx.commit().await?;
    Ok(true)
}

async fn resolve(
    conn: &mut PgConnection,
    tenant: TenantId,
    (server, tool, digest): (&str, &str, &str),
    is_accepted: bool,
    (by, why): (&Actor, &str),
) -> LoadedRow<Option<DescriptionVersion>> {
    let (state, kind) = match is_accepted {
        true => (DescriptionState::Accepted, AuditOperation::ToolAccepted),
        false => (DescriptionState::Rejected, AuditOperation::ToolRejected),
    };
    let mut tx = conn.begin().await?;
    let change = sqlx::query(
        "update tool_description set state = $5, resolved_at = now(), resolved_by = $6
         where tenant_id = $1 and server = $2 and tool = $3 and digest = $4 and state <> $5",
    );
    let change = change.bind(tenant.0).bind(server).bind(tool).bind(digest).bind(state.as_str()).bind(&by.name);
    let is_changed = change.execute(&mut *tx).await?.rows_affected() > 0;
    let sql = format!(
        "select {COLUMNS} from {FROM} where d.tenant_id = $1 and d.server = $2 and d.tool = $3 and d.digest = $4"
    );
    let found = sqlx::query(AssertSqlSafe(sql)).bind(tenant.0).bind(server).bind(tool).bind(digest);
    let found = found.fetch_optional(&mut *tx).await?.as_ref().map(version).transpose()?;
    if is_changed {
        let what =
            format!("tool {tool} of the MCP server {server}, description {}", digest.get(..16).unwrap_or(digest));
        audit::commit(tx, tenant, &AuditEvent::new(kind, by.clone(), what).because(why)).await?;
    }
    Ok(found)
}

fn version(row: &PgRow) -> LoadedRow<DescriptionVersion> {
    let accepted: Option<String> = row.try_get("accepted_digest")?;
    let accepted = accepted.map(|digest| {
        Ok::<_, StoreError>(DescriptionTexts {
            digest,
            description: row.try_get("accepted_description")?,
            schema: row.try_get("accepted_schema")?,
        })
    });
    Ok(DescriptionVersion {
        server: row.try_get("server")?,
        tool: row.try_get("tool")?,
        texts: DescriptionTexts {
            digest: row.try_get("digest")?,
            description: row.try_get("description")?,
            schema: row.try_get("schema")?,
        },
        state: DescriptionState::from_name(row.try_get("state")?).ok_or_else(|| corrupt("an unknown state"))?,
        first_reported_at: at(row, "first_ms")?,
        first_reported_by: row.try_get("first_reported_by")?,
        last_reported_at: at(row, "last_ms")?,
        resolved_at: row.try_get::<Option<i64>, _>("resolved_ms")?.map(Timestamp::from_millis),
        resolved_by: row.try_get("resolved_by")?,
        accepted: accepted.transpose()?,
    })
}
