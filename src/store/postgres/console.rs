//! Console sessions, shared by all replicas. They use the database's clock, so that replicas agree on their end.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection, Row as _};

use super::{Store, audit, decode::LoadedRow};
use crate::error::StoreError;
use callgate_core::domain::{
    audit::AuditEvent,
    ids::{DEFAULT_TENANT, TenantId},
};

/// A signed-in session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    /// Encrypted credential.
    pub sealed: Vec<u8>,
    /// True when the last activity is more than a minute ago.
    pub is_quiet: bool,
}

/// Signing key of cookies.
pub(super) async fn key(conn: &mut PgConnection) -> LoadedRow<Vec<u8>> {
    let key = sqlx::query_scalar("select coalesce(console_key, '') from tenant where tenant_id = $1");
    Ok(key.bind(DEFAULT_TENANT.0).fetch_one(conn).await?)
}

impl Store {
    /// Signing key of cookies.
    #[must_use]
    pub fn console_key(&self) -> &[u8] {
        &self.console_key
    }

    /// Stores a session with its expiry and its audit entry, and deletes ended ones.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: it was not stored, or the result is unknown.
    pub async fn put_console_session(
        &self,
        (id, sealed, lasts): (&[u8], &[u8], Duration),
        tenant: TenantId,
        event: &AuditEvent,
    ) -> Result<(), StoreError> {
        self.readers
            .read(async |conn| {
                let mut transaction = conn.begin().await?;
                sqlx::query("delete from console_session where expires_at < now()").execute(&mut *transaction).await?;
                let insert = "insert into console_session (session_id, sealed, expires_at)
                    values ($1, $2, now() + $3 * interval '1 second')";
                sqlx::query(insert).bind(id).bind(sealed).bind(seconds(lasts)).execute(&mut *transaction).await?;
                audit::commit(transaction, tenant, event).await
            })
            .await
    }

    /// A session that has neither ended nor been idle for `idle`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn console_session(&self, id: &[u8], idle: Duration) -> Result<Option<SignedIn>, StoreError> {
        let select = "select sealed, seen_at < now() - interval '1 minute' as is_quiet from console_session
            where session_id = $1 and expires_at > now() and seen_at > now() - $2 * interval '1 second'";
        let select = sqlx::query(select).bind(id).bind(seconds(idle));
        self.readers
            .read(async |conn| {
                let Some(row) = select.fetch_optional(conn).await? else { return Ok(None) };
                Ok(Some(SignedIn { sealed: row.try_get("sealed")?, is_quiet: row.try_get("is_quiet")? }))
            })
            .await
    }

    /// Records activity.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn touch_console_session(&self, id: &[u8]) -> Result<(), StoreError> {
        let update = sqlx::query("update console_session set seen_at = now() where session_id = $1").bind(id);
        self.readers.read(async |conn| Ok(update.execute(conn).await.map(drop)?)).await
    }

    /// Ends a session, with an audit entry unless it has ended before.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used: it may continue.
    pub async fn end_console_session(&self, id: &[u8], tenant: TenantId, event: &AuditEvent) -> Result<(), StoreError> {
        let delete = sqlx::query("delete from console_session where session_id = $1").bind(id);
        self.readers
            .read(async |conn| {
                let mut transaction = conn.begin().await?;
                if delete.execute(&mut *transaction).await?.rows_affected() == 0 {
                    return Ok(transaction.rollback().await?);
                }
                audit::commit(transaction, tenant, event).await
            })
            .await
    }
}

fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}
