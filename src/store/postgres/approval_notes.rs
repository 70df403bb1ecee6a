//! Claims and comments on approval requests: entries of the audit log.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    Store,
    decode::{LoadedRow, at, corrupt, count},
    row::big,
    sealed,
};
use crate::{error::StoreError, sealing::TenantStorage};
use callgate_core::domain::{
    approval_notes::ApprovalNote,
    audit::{AuditEvent, AuditOperation},
    ids::TenantId,
};

/// Entries that are read at once, the newest.
const NOTES_MAX: i64 = 5_000;

impl Store {
    /// The claims and comments of some approval requests, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn approval_notes(
        &self,
        tenant: TenantId,
        approval_ids: &[String],
    ) -> Result<Vec<ApprovalNote>, StoreError> {
        if let Some(memory) = &self.memory {
            return Ok(memory.approval_notes(tenant, approval_ids));
        }
        // The condition of the index audit_of_approval.
        let query = sqlx::query(
            "select * from (select number, kind, coalesce(words[1], '') as by, coalesce(words[4], '') as session,
               words[5] as approval_id, words[6] as why, resealed, (extract(epoch from at) * 1000)::bigint as at_ms
             from audit where tenant_id = $1 and words[5] = any($2)
               and kind in ('approval_claimed', 'approval_released', 'approval_commented')
             order by number desc limit $3) n order by number",
        );
        let query = query.bind(tenant.0).bind(approval_ids).bind(NOTES_MAX);
        let opener = self.opener(tenant);
        let note = |row: &PgRow| -> LoadedRow<ApprovalNote> {
            let (session, number) = (row.try_get("session")?, count(row, "number")?);
            Ok(ApprovalNote {
                kind: AuditOperation::from_name(row.try_get("kind")?).ok_or_else(|| corrupt("an unknown kind"))?,
                approval_id: row.try_get("approval_id")?,
                by: row.try_get("by")?,
                at: at(row, "at_ms")?,
                text: opener.reason(session, number, row.try_get("why")?, row.try_get("resealed")?)?,
            })
        };
        self.readers.read_of(&[tenant], async |conn| query.fetch_all(conn).await?.iter().map(note).collect()).await
    }

    /// Numbers of the claims, releases and comments after an entry of the audit log, with their requests; and the
    /// number of the newest entry. Without an entry there are none.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn noted_since(
        &self,
        tenant: TenantId,
        after: Option<u64>,
    ) -> Result<(u64, Vec<(u64, String)>), StoreError> {
        let read = async |conn: &mut PgConnection| {
            let head = sqlx::query("select coalesce(max(number), 0) as head from audit where tenant_id = $1");
            let head = count(&head.bind(tenant.0).fetch_one(&mut *conn).await?, "head")?;
            let Some(after) = after.filter(|after| *after < head) else { return Ok((head, Vec::new())) };
            let noted = sqlx::query(
                "select number, words[5] as approval_id from audit
                 where tenant_id = $1 and number > $2 and number <= $3 and words[5] is not null
                   and kind in ('approval_claimed', 'approval_released', 'approval_commented')
                 order by number desc limit $4",
            );
            let noted = noted.bind(tenant.0).bind(big(after)).bind(big(head)).bind(NOTES_MAX);
            let of = |row: &PgRow| -> LoadedRow<_> { Ok((count(row, "number")?, row.try_get("approval_id")?)) };
            Ok((head, noted.fetch_all(conn).await?.iter().map(of).collect::<LoadedRow<_>>()?))
        };
        self.readers.read_of(&[tenant], read).await
    }

    /// Stores a claim, its release or a comment.
    ///
    /// # Errors
    /// [`StoreError`]: it was not stored.
    pub async fn note_approval(&self, tenant: TenantId, mut event: AuditEvent) -> Result<(), StoreError> {
        if let Some(memory) = &self.memory {
            memory.note_approval(tenant, event);
            return Ok(());
        }
        let sealed = match self.keyring.of(tenant) {
            TenantStorage::Plain => Some(()),
            TenantStorage::Keys(keys) => sealed::seal_reason(tenant, &mut event, &keys),
            TenantStorage::Locked => None,
        };
        // A text that cannot be encrypted is not stored.
        sealed.ok_or_else(|| StoreError::KeyMissing { tenant, key: "newest".to_owned() })?;
        self.append_audit_entry(tenant, &event).await
    }
}
