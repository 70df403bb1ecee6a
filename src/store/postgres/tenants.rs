//! Tenants: names, states, quotas, retention periods and active policies.

use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store, audit,
    decode::{LoadedRow, at, corrupt, count, decode},
    policies, rollouts,
    row::big,
};
use crate::error::StoreError;
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    hashing::KeyMark,
    ids::{DEFAULT_TENANT, TenantId},
    revision::Revision,
    rollout::Rollout,
    tenant::{Quota, Quotas, Tenant, TenantState, TenantUsage, Terms},
};

const ROW: &str = "t.tenant_id, t.name, t.state, t.state_by, t.state_reason, t.calls_per_second, t.sessions,
    t.stored_bytes, t.approvals_open, t.used_sessions, t.used_bytes, t.words_days, t.calls_days,
    t.months_days, t.fingerprint_mark,
    (extract(epoch from t.state_at at time zone 'utc') * 1000)::bigint as state_ms,
    (extract(epoch from t.used_at at time zone 'utc') * 1000)::bigint as used_ms,
    (extract(epoch from t.created_at at time zone 'utc') * 1000)::bigint as created_ms";

impl Store {
    /// All tenants, each with its active revision (none for the built-in policy) and the last step of its rollouts.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn tenants(&self) -> Result<Vec<(Tenant, Option<Revision>, Option<Rollout>)>, StoreError> {
        if let Some(memory) = &self.memory {
            return Ok(vec![(memory.default_tenant(), self.active_revision(DEFAULT_TENANT).await?, None)]);
        }
        self.readers.read(async |conn| read_tenants(conn).await).await
    }

    /// Creates a tenant; none if the name is or was used.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn create_tenant(&self, name: &str, quotas: &Quotas, by: &Actor) -> Result<Option<Tenant>, StoreError> {
        self.readers.read(async |conn| create(conn, name, quotas, by).await).await
    }

    /// Sets the state of a tenant; none if unknown or deleted.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn set_tenant_state(
        &self,
        name: &str,
        state: TenantState,
        by: &Actor,
        reason: &str,
    ) -> Result<Option<Tenant>, StoreError> {
        let kind = match state {
            TenantState::Active => AuditOperation::TenantResumed,
            TenantState::Suspended => AuditOperation::TenantSuspended,
            TenantState::Deleted => AuditOperation::TenantDeleted,
        };
        let sql = format!(
            "update tenant t set state = $2, state_by = $3, state_reason = $4,
               state_at = case when t.state = $2 then t.state_at else to_timestamp($5 / 1000.0) end
             where name = $1 and state <> 'deleted' returning {ROW}"
        );
        let update = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(name).bind(state.as_str()).bind(&by.name);
        let update = update.bind(reason).bind(self.now().as_millis());
        let event = AuditEvent::new(kind, by.clone(), name).because(reason);
        self.readers.read(async |conn| change_tenant(conn, update, &event).await).await
    }

    /// Enables encryption of a tenant, unless enabled; returns the identifier of its hashing key. None if the tenant
    /// has earlier writes that are not to be dropped (`anew`).
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn adopt_keys(&self, tenant: &Tenant, mark: KeyMark, anew: bool) -> Result<Option<KeyMark>, StoreError> {
        let adopt = format!(
            "update tenant t set fingerprint_mark = $2
             where t.tenant_id = $1 and t.fingerprint_mark is null and $3 returning {ROW}"
        );
        let adopt = sqlx::query(sqlx::AssertSqlSafe(adopt)).bind(tenant.id.0).bind(mark.to_vec());
        let what = format!("{}: its arguments and results are encrypted from now on", tenant.name);
        let event = AuditEvent::new(AuditOperation::TenantChanged, Actor::from("serve"), what);
        let adopted = async |conn: &mut PgConnection| {
            // Separate: a distributed database does not check writes while it changes a replicated table.
            let wrote = sqlx::query_scalar("select exists (select 1 from ledger where tenant_id = $1)");
            let wrote: bool = wrote.bind(tenant.id.0).fetch_one(&mut *conn).await?;
            let adopt = adopt.bind(anew || !wrote);
            if let Some(adopted) = change_tenant(&mut *conn, adopt, &event).await? {
                return Ok(adopted.mark);
            }
            let sql = format!("select {ROW} from tenant t where t.tenant_id = $1");
            let now = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(tenant.id.0).fetch_one(conn).await?;
            self::tenant(&now).map(|now| now.mark)
        };
        self.slow.read(adopted).await
    }

    /// Sets a tenant's quotas; none if unknown or deleted.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn set_tenant_quotas(
        &self,
        name: &str,
        quotas: &Quotas,
        by: &Actor,
    ) -> Result<Option<Tenant>, StoreError> {
        let update = format!(
            "update tenant t set calls_per_second = $2, sessions = $3, stored_bytes = $4, approvals_open = $5
             where name = $1 and state <> 'deleted' returning {ROW}"
        );
        let update = bind_quotas(sqlx::query(sqlx::AssertSqlSafe(update)).bind(name), quotas);
        let event = AuditEvent::new(AuditOperation::TenantChanged, by.clone(), format!("{name}: {}", limits(quotas)));
        self.readers.read(async |conn| change_tenant(conn, update, &event).await).await
    }
}

impl Store {
    /// Sets a tenant's retention periods; none if unknown or deleted. Also an entry in the tenant's own audit log, for
    /// its readers.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn set_tenant_terms(&self, name: &str, terms: &Terms, by: &Actor) -> Result<Option<Tenant>, StoreError> {
        let update = format!(
            "update tenant t set words_days = $2, calls_days = $3, months_days = $4
             where name = $1 and state <> 'deleted' returning {ROW}"
        );
        let days = [terms.words, terms.calls, terms.months].map(|days| days.and_then(|days| i32::try_from(days).ok()));
        let update = sqlx::query(sqlx::AssertSqlSafe(update)).bind(name);
        let update = days.into_iter().fold(update, |update, days| update.bind(days));
        let event =
            AuditEvent::new(AuditOperation::RetentionChanged, by.clone(), format!("{name}: {}", describe_terms(terms)));
        self.readers
            .read(async |conn| {
                let mut tx = conn.begin().await?;
                let Some(row) = update.fetch_optional(&mut *tx).await? else { return Ok(None) };
                let changed = tenant(&row)?;
                // The deployment's entry comes last everywhere, against deadlocks.
                if changed.id != DEFAULT_TENANT {
                    audit::append(&mut tx, changed.id, &event).await?;
                }
                audit::commit(tx, DEFAULT_TENANT, &event).await?;
                Ok(Some(changed))
            })
            .await
    }
}

fn describe_terms(terms: &Terms) -> String {
    let Terms { words, calls, months } = *terms;
    let told = [("texts", words), ("calls", calls), ("months", months)].map(|(what, days)| {
        format!("{what} {}", days.map_or_else(|| "for ever".to_owned(), |days| format!("{days} days")))
    });
    told.join(", ")
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

fn bind_quotas<'q>(query: Query<'q>, quotas: &Quotas) -> Query<'q> {
    let limits = [quotas.calls_per_second, quotas.sessions, quotas.stored_bytes, quotas.approvals_open];
    limits.into_iter().fold(query, |query, limit| query.bind(limit.map(big)))
}

/// One statement per second for all tenants, with the newest activation of each and the last step of its rollouts.
async fn read_tenants(conn: &mut PgConnection) -> LoadedRow<Vec<(Tenant, Option<Revision>, Option<Rollout>)>> {
    let sql = format!(
        "select {ROW}, {}, {} from tenant t left join lateral (
           select a.* from policy_activation a where a.tenant_id = t.tenant_id order by a.revision desc limit 1
         ) v on true left join lateral (
           select s.* from policy_rollout s where s.tenant_id = t.tenant_id order by s.step desc limit 1
         ) r on true order by t.tenant_id",
        policies::REVISION,
        rollouts::ROLLOUT
    );
    let known = |row: &PgRow| {
        let active = row.try_get::<Option<i64>, _>("revision")?.map(|_| policies::revision(row)).transpose()?;
        Ok((tenant(row)?, active, rollouts::rollout(row)?))
    };
    sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(conn).await?.iter().map(known).collect()
}

/// A change with its entry in the audit log of the deployment's own tenant, because operators make it.
async fn change_tenant(conn: &mut PgConnection, change: Query<'_>, event: &AuditEvent) -> LoadedRow<Option<Tenant>> {
    let mut tx = conn.begin().await?;
    let Some(row) = change.fetch_optional(&mut *tx).await? else { return Ok(None) };
    let changed = tenant(&row)?;
    audit::commit(tx, DEFAULT_TENANT, event).await?;
    Ok(Some(changed))
}

fn limits(quotas: &Quotas) -> String {
    let Quotas { calls_per_second, sessions, stored_bytes, approvals_open } = *quotas;
    let limits = [
        (Quota::CallsPerSecond, calls_per_second),
        (Quota::Sessions, sessions),
        (Quota::StoredBytes, stored_bytes),
        (Quota::ApprovalsOpen, approvals_open),
    ];
    let told = limits.map(|(quota, limit)| {
        format!("{} {}", quota.as_str(), limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string()))
    });
    told.join(", ")
}

/// The id is passed as a value, because each node of a distributed database would compute its own. A concurrent
/// creation conflicts and takes the next.
async fn create(conn: &mut PgConnection, name: &str, quotas: &Quotas, by: &Actor) -> LoadedRow<Option<Tenant>> {
    let insert = format!(
        "insert into tenant as t (tenant_id, name, state_by, calls_per_second, sessions, stored_bytes, approvals_open)
         values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing returning {ROW}"
    );
    loop {
        let query =
            sqlx::query("select coalesce(max(tenant_id), 0) + 1 as next, bool_or(name = $1) as taken from tenant");
        let row = query.bind(name).fetch_one(&mut *conn).await?;
        if row.try_get("taken")? {
            return Ok(None);
        }
        let insert = sqlx::query(sqlx::AssertSqlSafe(insert.as_str())).bind(row.try_get::<i64, _>("next")?);
        let insert = bind_quotas(insert.bind(name).bind(&by.name), quotas);
        let event = AuditEvent::new(AuditOperation::TenantCreated, by.clone(), format!("{name}: {}", limits(quotas)));
        if let Some(made) = change_tenant(&mut *conn, insert, &event).await? {
            return Ok(Some(made));
        }
    }
}

fn tenant(row: &PgRow) -> LoadedRow<Tenant> {
    let state = TenantState::from_name(row.try_get("state")?).ok_or_else(|| corrupt("an unknown state of a tenant"))?;
    let mark: Option<Vec<u8>> = row.try_get("fingerprint_mark")?;
    Ok(Tenant {
        id: TenantId(row.try_get("tenant_id")?),
        name: row.try_get("name")?,
        state,
        since: (at(row, "state_ms")?, row.try_get("state_by")?, row.try_get("state_reason")?),
        quotas: Quotas {
            calls_per_second: decode(row, "calls_per_second")?,
            sessions: decode(row, "sessions")?,
            stored_bytes: decode(row, "stored_bytes")?,
            approvals_open: decode(row, "approvals_open")?,
        },
        used: TenantUsage {
            sessions: count(row, "used_sessions")?,
            stored_bytes: count(row, "used_bytes")?,
            at: decode(row, "used_ms")?,
        },
        terms: Terms {
            words: decode(row, "words_days")?,
            calls: decode(row, "calls_days")?,
            months: decode(row, "months_days")?,
        },
        mark: mark.map(|mark| mark.try_into().map_err(|_| corrupt("a mark of a key has not 8 bytes"))).transpose()?,
        created_at: at(row, "created_ms")?,
    })
}
