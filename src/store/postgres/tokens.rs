//! API tokens, shared by all replicas.

use std::collections::BTreeMap;

use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store, audit,
    decode::{LoadedRow, at, corrupt, decode, hash},
};
use crate::error::StoreError;
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    identity::{MappedIdentity, Role},
    ids::{DEFAULT_TENANT, TenantId},
    pattern::Pattern,
    tenant::DEFAULT_TENANT_NAME,
    time::Timestamp,
    token::StoredToken,
};

const ROW: &str = "token_id, tenant_id, name, digest, roles, groups, agents, any_session, created_by,
    (extract(epoch from created_at at time zone 'utc') * 1000)::bigint as created_ms,
    (extract(epoch from expires_at at time zone 'utc') * 1000)::bigint as expires_ms,
    (extract(epoch from used_at at time zone 'utc') * 1000)::bigint as used_ms,
    (extract(epoch from revoked_at at time zone 'utc') * 1000)::bigint as revoked_ms";

impl Store {
    /// These tokens of any tenant, if they exist; and whether any token exists.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tokens_by_id(&self, ids: &[String]) -> Result<(Vec<StoredToken>, bool), StoreError> {
        if self.is_in_memory() {
            return Ok((Vec::new(), false));
        }
        self.readers.read(async |conn| by_id(conn, ids).await).await
    }

    /// A tenant's tokens after this id, in order.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tokens(&self, tenant: TenantId, after: &str, max: usize) -> Result<Vec<StoredToken>, StoreError> {
        let select =
            format!("select {ROW} from token where tenant_id = $1 and token_id > $2 order by token_id limit $3");
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let select = sqlx::query(sqlx::AssertSqlSafe(select)).bind(tenant.0).bind(after).bind(max);
        self.readers.read(async |conn| select.fetch_all(conn).await?.iter().map(read).collect()).await
    }

    /// Of each tenant, creation and expiry of the token that expires next, among those used within the hour.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn token_ends(&self) -> Result<Vec<(TenantId, (Timestamp, Timestamp))>, StoreError> {
        let select = format!(
            "select distinct on (tenant_id) {ROW} from token
             where revoked_at is null and expires_at > now() and used_at > now() - interval '1 hour'
             order by tenant_id, expires_at"
        );
        let select = sqlx::query(sqlx::AssertSqlSafe(select));
        let ends = |row: &PgRow| {
            let expires = decode::<Option<_>>(row, "expires_ms")?.ok_or_else(|| corrupt("a token without an end"))?;
            Ok((TenantId(row.try_get("tenant_id")?), (at(row, "created_ms")?, expires)))
        };
        self.slow.read(async |conn| select.fetch_all(conn).await?.iter().map(ends).collect()).await
    }

    /// Stores a new token. It may replace one, whose expiry is limited to that time.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: none was stored, or the result is unknown.
    pub async fn put_token(
        &self,
        token: &StoredToken,
        replaced: Option<(&str, Timestamp)>,
        by: &Actor,
    ) -> Result<(), StoreError> {
        self.readers.read(async |conn| insert_token(conn, token, replaced, by).await).await
    }

    /// Revokes a token of a tenant; returns it, none if unknown.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn revoke_token(
        &self,
        tenant: TenantId,
        id: &str,
        by: &Actor,
    ) -> Result<Option<StoredToken>, StoreError> {
        self.readers.read(async |conn| revoke(conn, tenant, id, by).await).await
    }

    /// The existing tenants of these names.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn find_tenants(&self, names: &[String]) -> Result<BTreeMap<String, TenantId>, StoreError> {
        if self.is_in_memory() {
            let is_known = names.iter().any(|name| name == DEFAULT_TENANT_NAME);
            return Ok(is_known.then(|| (DEFAULT_TENANT_NAME.to_owned(), DEFAULT_TENANT)).into_iter().collect());
        }
        let select = sqlx::query("select name, tenant_id from tenant where name = any($1)").bind(names);
        let read = |row: &PgRow| Ok((row.try_get("name")?, TenantId(row.try_get("tenant_id")?)));
        self.readers.read(async |conn| select.fetch_all(conn).await?.iter().map(read).collect()).await
    }

    /// Records the use of these tokens.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn touch_tokens(&self, ids: &[String]) -> Result<(), StoreError> {
        let update = sqlx::query("update token set used_at = now() where token_id = any($1)").bind(ids);
        self.readers.read(async |conn| Ok(update.execute(conn).await.map(drop)?)).await
    }
}

async fn by_id(conn: &mut PgConnection, ids: &[String]) -> LoadedRow<(Vec<StoredToken>, bool)> {
    let any: bool = sqlx::query_scalar("select exists (select 1 from token)").fetch_one(&mut *conn).await?;
    if ids.is_empty() || !any {
        return Ok((Vec::new(), any));
    }
    // Tokens of deleted tenants are excluded.
    let select = format!(
        "select {ROW} from token where token_id = any($1)
         and exists (select 1 from tenant where tenant.tenant_id = token.tenant_id)"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(select)).bind(ids).fetch_all(conn).await?;
    Ok((rows.iter().map(read).collect::<LoadedRow<_>>()?, any))
}

async fn insert_token(
    conn: &mut PgConnection,
    token: &StoredToken,
    replaced: Option<(&str, Timestamp)>,
    by: &Actor,
) -> LoadedRow<()> {
    let MappedIdentity { name, roles, groups, agents, any_session, .. } = &token.is;
    let roles: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    let mut what = format!("token {} for {name}: {}", token.id, roles.join(", "));
    let insert = sqlx::query(
        "insert into token
           (token_id, tenant_id, name, digest, roles, groups, agents, any_session, created_by, expires_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, to_timestamp($10::bigint / 1000.0))",
    )
    .bind(&token.id)
    .bind(token.tenant.0)
    .bind(name)
    .bind(token.digest.as_slice())
    .bind(roles)
    .bind(groups)
    .bind(agents.as_ref().map(Pattern::as_str))
    .bind(any_session)
    .bind(&token.created_by)
    .bind(token.expires_at.map(Timestamp::as_millis));
    let mut tx = conn.begin().await?;
    insert.execute(&mut *tx).await?;
    let mut kind = AuditOperation::TokenCreated;
    if let Some((id, end)) = replaced {
        let update = sqlx::query(
            "update token set expires_at = least(expires_at, to_timestamp($3::bigint / 1000.0))
             where tenant_id = $1 and token_id = $2",
        );
        update.bind(token.tenant.0).bind(id).bind(end.as_millis()).execute(&mut *tx).await?;
        kind = AuditOperation::TokenRotated;
        what = format!("{what}, in the place of {id}");
    }
    audit::commit(tx, token.tenant, &AuditEvent::new(kind, by.clone(), what)).await
}

async fn revoke(conn: &mut PgConnection, tenant: TenantId, id: &str, by: &Actor) -> LoadedRow<Option<StoredToken>> {
    let mut tx = conn.begin().await?;
    let update = format!(
        "update token set revoked_at = now(), revoked_by = $3
         where tenant_id = $1 and token_id = $2 and revoked_at is null returning {ROW}"
    );
    let update = sqlx::query(sqlx::AssertSqlSafe(update)).bind(tenant.0).bind(id).bind(&by.name);
    if let Some(row) = update.fetch_optional(&mut *tx).await? {
        let token = read(&row)?;
        let what = format!("token {id} of {}", token.is.name);
        audit::commit(tx, tenant, &AuditEvent::new(AuditOperation::TokenRevoked, by.clone(), what)).await?;
        return Ok(Some(token));
    }
    let known = format!("select {ROW} from token where tenant_id = $1 and token_id = $2");
    let known = sqlx::query(sqlx::AssertSqlSafe(known)).bind(tenant.0).bind(id);
    known.fetch_optional(&mut *tx).await?.as_ref().map(read).transpose()
}

fn read(row: &PgRow) -> LoadedRow<StoredToken> {
    let roles: Vec<String> = row.try_get("roles")?;
    // A role that a later version knows gives nothing here.
    let roles = roles.iter().filter_map(|role| Role::from_name(role)).collect();
    let agents: Option<String> = row.try_get("agents")?;
    let agents = agents.map(|agents| Pattern::parse("agents", &agents).map_err(|_| corrupt("a pattern of agents")));
    Ok(StoredToken {
        id: row.try_get("token_id")?,
        tenant: TenantId(row.try_get("tenant_id")?),
        is: MappedIdentity {
            tenant: String::new(),
            name: row.try_get("name")?,
            roles,
            groups: row.try_get("groups")?,
            agents: agents.transpose()?,
            any_session: row.try_get("any_session")?,
        },
        digest: hash(row.try_get("digest")?)?,
        created_at: at(row, "created_ms")?,
        created_by: row.try_get("created_by")?,
        expires_at: decode(row, "expires_ms")?,
        used_at: decode(row, "used_ms")?,
        revoked_at: decode(row, "revoked_ms")?,
    })
}
