//! Stored policies: immutable texts by hash, and a history of activations, of which the highest revision is active.

use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgRow};

use super::{
    Store, audit,
    decode::{LoadedRow, at, count},
    rollouts,
    row::big,
};
use crate::error::StoreError;
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    ids::TenantId,
    revision::{Activation, Revision},
    rollout::{Rollout, version},
};

pub(super) const REVISION: &str = "v.revision, v.hash, v.activated_by, v.note,
    (extract(epoch from v.activated_at at time zone 'utc') * 1000)::bigint as at_ms";

impl Store {
    /// Stores a policy's text, once.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn put_policy(
        &self,
        tenant: TenantId,
        hash: &str,
        text: &str,
        by: &Actor,
        note: &str,
    ) -> Result<(), StoreError> {
        if let Some(memory) = &self.memory {
            memory.put_policy(tenant, hash, text);
            return Ok(());
        }
        let insert = sqlx::query(
            "insert into policy (tenant_id, hash, text, applied_by, note) values ($1, $2, $3, $4, $5)
             on conflict do nothing",
        );
        let insert = insert.bind(tenant.0).bind(hash).bind(text).bind(&by.name).bind(note);
        let store = async |conn: &mut PgConnection| {
            let mut tx = conn.begin().await?;
            if insert.execute(&mut *tx).await?.rows_affected() == 0 {
                return Ok(());
            }
            audit::commit(tx, tenant, &event(AuditOperation::PolicyStored, by, hash, note)).await
        };
        self.readers.read_of(&[tenant], store).await
    }

    /// Activates a stored policy by compare-and-set on the active revision (`expected`; any, when absent). It ends the
    /// tenant's running rollout. With `promotes` it is made only while the rollout is at that step.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used; the result is unknown then.
    pub async fn activate_policy(
        &self,
        tenant: TenantId,
        hash: &str,
        (expected, promotes): (Option<u64>, Option<u64>),
        by: &Actor,
        note: &str,
    ) -> Result<Activation, StoreError> {
        if let Some(memory) = &self.memory {
            return Ok(memory.activate_policy(tenant, hash, expected, by, note));
        }
        let expected = (expected, promotes);
        self.readers.read_of(&[tenant], async |conn| activate(conn, tenant, hash, expected, by, note).await).await
    }

    /// The active revision; none for the built-in policy.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn active_revision(&self, tenant: TenantId) -> Result<Option<Revision>, StoreError> {
        Ok(self.revisions(tenant, None, 1).await?.pop())
    }

    /// Activations, newest first: those before a revision, at most `max`.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn revisions(
        &self,
        tenant: TenantId,
        before: Option<u64>,
        max: usize,
    ) -> Result<Vec<Revision>, StoreError> {
        if let Some(memory) = &self.memory {
            return Ok(memory.revisions(tenant, before, max));
        }
        let sql = format!(
            "select {REVISION} from policy_activation v where tenant_id = $1 and ($2::bigint is null or revision < $2)
             order by revision desc limit $3"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(tenant.0).bind(before.map(big));
        let query = query.bind(i64::try_from(max).unwrap_or(i64::MAX));
        self.readers.read_of(&[tenant], async |conn| query.fetch_all(conn).await?.iter().map(revision).collect()).await
    }

    /// Hash and text of the stored policies with this hash prefix, at most two.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn policy_texts(&self, tenant: TenantId, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        if let Some(memory) = &self.memory {
            return Ok(memory.policy_texts(tenant, prefix));
        }
        let query = sqlx::query(
            "select hash, text from policy where tenant_id = $1 and starts_with(hash, $2) order by hash limit 2",
        );
        let query = query.bind(tenant.0).bind(prefix);
        let text = |row: &PgRow| Ok((row.try_get("hash")?, row.try_get("text")?));
        self.readers.read_of(&[tenant], async |conn| query.fetch_all(conn).await?.iter().map(text).collect()).await
    }
}

/// Uses the policy's name in verdicts.
fn event(kind: AuditOperation, by: &Actor, hash: &str, note: &str) -> AuditEvent {
    AuditEvent::new(kind, by.clone(), format!("policy {}", version(hash))).because(note)
}

/// A concurrent activation conflicts on the revision number. The number is passed as a value, because each node of a
/// distributed database would compute its own.
async fn activate(
    conn: &mut PgConnection,
    tenant: TenantId,
    hash: &str,
    (expected, promotes): (Option<u64>, Option<u64>),
    by: &Actor,
    note: &str,
) -> LoadedRow<Activation> {
    let insert = format!(
        "insert into policy_activation as v (tenant_id, revision, hash, activated_by, note)
         values ($1, $2, $3, $4, $5) on conflict do nothing returning {REVISION}"
    );
    loop {
        let query = sqlx::query(
            "select exists (select 1 from policy where tenant_id = $1 and hash = $2) as known,
               (select coalesce(max(revision), 0) from policy_activation where tenant_id = $1) as revision",
        );
        let row = query.bind(tenant.0).bind(hash).fetch_one(&mut *conn).await?;
        let active = count(&row, "revision")?;
        if !row.try_get("known")? {
            return Ok(Activation::Unknown);
        }
        if expected.is_some_and(|expected| expected != active) {
            return Ok(Activation::Changed { revision: active });
        }
        let insert = sqlx::query(sqlx::AssertSqlSafe(insert.as_str())).bind(tenant.0).bind(big(active + 1)).bind(hash);
        let mut tx = conn.begin().await?;
        let rollout = rollouts::lock(&mut tx, tenant).await?.filter(Rollout::is_running);
        if promotes.is_some() && promotes != rollout.as_ref().map(|rollout| rollout.step) {
            return Ok(Activation::Changed { revision: active });
        }
        if let Some(row) = insert.bind(&by.name).bind(note).fetch_optional(&mut *tx).await? {
            let revision = revision(&row)?;
            // Retention may have deleted it meanwhile, and does not any more once there is an activation.
            let known = "select exists (select 1 from policy where tenant_id = $1 and hash = $2)";
            if !sqlx::query_scalar(known).bind(tenant.0).bind(hash).fetch_one(&mut *tx).await? {
                return Ok(Activation::Unknown);
            }
            let ended = match rollout {
                Some(rollout) => rollouts::end(&mut tx, tenant, (&rollout, rollout.ends_by(hash)), by, note).await?,
                None => String::new(),
            };
            let event = event(AuditOperation::PolicyActivated, by, hash, note);
            let what = format!("{} as revision {}{ended}", event.what, revision.number);
            audit::commit(tx, tenant, &AuditEvent { what, ..event }).await?;
            return Ok(Activation::Active(revision));
        }
    }
}

pub(super) fn revision(row: &PgRow) -> LoadedRow<Revision> {
    Ok(Revision {
        number: count(row, "revision")?,
        hash: row.try_get("hash")?,
        at: at(row, "at_ms")?,
        by: row.try_get("activated_by")?,
        note: row.try_get("note")?,
    })
}
