//! Search by names of agents, users and tools: those of each hour are stored with the hourly rollup.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use super::super::{
    SCHEMA, Store,
    decode::{LoadedRow, member},
};
use crate::error::StoreError;
use callgate_core::domain::{
    calls::{CallFilter, NAMED_CALLS_MAX, NameKind, NamePage},
    ids::TenantId,
};

/// The index for texts within names, and the extension that it needs.
const INDEX: &str = "call_name_trigram";

/// Characters from which on a text is looked up in the index alone, as trigrams need three.
const SHORT: usize = 3;
/// Latest rows that a shorter text is searched in.
const ROWS_MAX: u32 = 50_000;

/// Selection by names: a pattern of LIKE, and the time in which there may be calls of the filter's names.
#[derive(Debug, Clone, Default)]
pub(super) struct NameSearch {
    /// Pattern of `CallFilter::name`.
    pub(super) pattern: Option<String>,
    /// Names are compared by their beginning.
    pub(super) is_prefix: bool,
    /// A multirange of times; none: any time.
    pub(super) times: Option<String>,
}

/// A pattern of LIKE for a text.
fn pattern(text: &str, is_prefix: bool) -> String {
    let mut pattern = if is_prefix { String::new() } else { "%".to_owned() };
    for char in text.chars() {
        if matches!(char, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(char.to_ascii_lowercase());
    }
    pattern + "%"
}

async fn is_prefix(conn: &mut PgConnection) -> LoadedRow<bool> {
    Ok(sqlx::query_scalar("select to_regclass($1) is null").bind(format!("{SCHEMA}.{INDEX}")).fetch_one(conn).await?)
}

impl Store {
    /// What a filter's names select.
    ///
    /// The connection is not bound to the tenant: row-level security would keep a text from the index of names.
    pub(super) async fn name_search(&self, tenant: TenantId, filter: &CallFilter) -> LoadedRow<NameSearch> {
        let exact = [(NameKind::Agent, &filter.agent), (NameKind::User, &filter.user), (NameKind::Tool, &filter.tool)];
        if filter.name.is_none() && exact.iter().all(|(_, name)| name.is_none()) {
            return Ok(NameSearch::default());
        }
        self.readers.read(async |conn| name_search(conn, tenant, filter).await).await
    }

    /// Names with a text, those with the latest calls first. Stored names follow by up to 75 minutes, so those of the
    /// newest calls are added.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn names(
        &self,
        tenant: TenantId,
        kind: Option<NameKind>,
        text: &str,
        max: usize,
    ) -> Result<NamePage, StoreError> {
        self.readers.read(async |conn| names(conn, tenant, (kind, text), max).await).await
    }
}

async fn name_search(conn: &mut PgConnection, tenant: TenantId, filter: &CallFilter) -> LoadedRow<NameSearch> {
    let is_prefix = is_prefix(conn).await?;
    let pattern = filter.name.as_deref().map(|text| pattern(text, is_prefix));
    let of = |condition: String| format!("select h.hour from call_name h where h.tenant_id = $1 and {condition}");
    let exact = |given: &Option<String>, kind: NameKind, no: u8| {
        given
            .as_ref()
            .map(|_| of(format!("h.word = lower(${no} collate \"C\") and h.name = ${no} and h.kind = {}", kind as i16)))
    };
    let hours = [
        exact(&filter.agent, NameKind::Agent, 2),
        exact(&filter.user, NameKind::User, 3),
        exact(&filter.tool, NameKind::Tool, 4),
        filter.name.as_ref().map(|_| of("h.word like $5".to_owned())),
    ];
    let hours = hours.into_iter().flatten().collect::<Vec<_>>().join(" intersect ");
    let sql = format!(
        "select (coalesce((select range_agg(tstzrange(h.hour, h.hour + interval '1 hour')) from ({hours}) h), '{{}}')
           + tstzmultirange(tstzrange(n.names_counted_before, null)))::text
         from tenant n
         where n.tenant_id = $1 and n.names_counted_before is not null and ($2::text, $3::text, $4::text, $5::text)
           is distinct from (null::text, null::text, null::text, null::text)"
    );
    let times = sqlx::query_scalar(AssertSqlSafe(sql)).bind(tenant.0).bind(filter.agent.as_deref());
    let times = times.bind(filter.user.as_deref()).bind(filter.tool.as_deref()).bind(pattern.as_deref());
    Ok(NameSearch { times: times.fetch_optional(conn).await?, pattern, is_prefix: filter.name.is_some() && is_prefix })
}

async fn names(
    conn: &mut PgConnection,
    tenant: TenantId,
    (kind, text): (Option<NameKind>, &str),
    max: usize,
) -> LoadedRow<NamePage> {
    let is_prefix = is_prefix(conn).await?;
    // Too short a text selects too much: then the latest rows are searched, by their key.
    let rows = match text.chars().count() {
        0..SHORT => format!("(select * from call_name where tenant_id = $1 order by hour desc limit {ROWS_MAX})"),
        _ => "call_name".to_owned(),
    };
    let sql = format!(
        "select kind, name from (
           select h.kind, h.name, h.hour from {rows} h where h.tenant_id = $1 and h.word like $2
           union all
           select v.kind, v.name, c.at from (
             select c.agent_id, c.user_id, c.tool, c.at from call c where c.tenant_id = $1 and not c.observed
             order by c.at desc limit $4) c
           cross join lateral (values (0::smallint, c.agent_id), (1::smallint, c.user_id), (2::smallint, c.tool))
             v(kind, name)
           where lower(v.name collate \"C\") like $2) x
         where $3::smallint is null or kind = $3
         group by kind, name order by max(hour) desc, kind, name limit $5"
    );
    let query = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(pattern(text, is_prefix))
        .bind(kind.map(|kind| kind as i16));
    let query = query.bind(i64::from(NAMED_CALLS_MAX)).bind(i64::try_from(max).unwrap_or(i64::MAX));
    let rows = query.fetch_all(conn).await?;
    let name = |row: &sqlx::postgres::PgRow| Ok((member(&NameKind::ALL, row.try_get("kind")?)?, row.try_get("name")?));
    Ok(NamePage { names: rows.iter().map(name).collect::<LoadedRow<_>>()?, is_prefix })
}

/// Makes the index for texts within names, where the extension is.
pub(in super::super) async fn index(conn: &mut PgConnection) -> LoadedRow<()> {
    let place = "select n.nspname::text from pg_extension e join pg_namespace n on n.oid = e.extnamespace
      where e.extname = 'pg_trgm'";
    let Some(place) = sqlx::query_scalar::<_, String>(place).fetch_optional(&mut *conn).await? else { return Ok(()) };
    if is_prefix(conn).await? {
        let place = place.replace('"', "\"\"");
        let sql = format!(
            "create index if not exists {INDEX} on {SCHEMA}.call_name
             using gin (word \"{place}\".gin_trgm_ops)"
        );
        let mut tx = conn.begin().await?;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await?;
        tx.commit().await?;
        tracing::info!("names are found by a text within them: the extension pg_trgm is there");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_pattern() {
        assert_eq!(pattern("A_b%\\", false), "%a\\_b\\%\\\\%");
        assert_eq!(pattern("Ä", true), "Ä%");
    }
}
