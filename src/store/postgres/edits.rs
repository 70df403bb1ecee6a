//! Edited arguments of approvals.

use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    Store,
    decode::{LoadedRow, at, corrupt, count, decode, hash},
    point_queries,
    row::big,
    sealed::{EDITED, Opener},
};
use crate::error::StoreError;
use callgate_core::domain::{
    control::{Edit, EditedArguments},
    fingerprint::ArgsDigest,
    ids::{CallId, SessionId, TenantId},
    shard::Shard,
    time::Timestamp,
    tree::{EDITS_MAX, StoredPermit, StoredYes},
};

/// Permits that are looked through after the oldest yes of a session.
const PERMITS_MAX: usize = 1_000;

impl Store {
    /// The edits of a session, the newest of very many, and the permits of their arguments since; both in order.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn chosen_since(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<(Vec<StoredYes>, Vec<StoredPermit>), StoreError> {
        if let Some(memory) = &self.memory {
            return Ok(memory.chosen_since(tenant, session));
        }
        self.readers.read_of(&[tenant], async |conn| chosen_since(conn, tenant, session).await).await
    }
}

async fn chosen_since(
    conn: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
) -> LoadedRow<(Vec<StoredYes>, Vec<StoredPermit>)> {
    let Some(root) = point_queries::root(&mut *conn, tenant, session).await? else { return Ok(Default::default()) };
    let answers = format!(
        "select e.seq, e.detail ->> 'approval_id' as approval_id, e.actor, e.detail #>> '{{edit,digest}}' as digest,
           coalesce((e.detail #>> '{{edit,until_ms}}')::bigint, 0) as until_ms,
           coalesce(e.detail #>> '{{edit,policy}}', '') as policy
         from call_tree t join session_event e on e.shard = t.shard and e.tenant_id = t.tenant_id
           and e.root_id = t.root_id and e.epoch = t.epoch
         where t.shard = $1 and t.tenant_id = $2 and t.root_id = $3 and e.session_id = $4 and e.kind = 'answered'
           and e.detail -> 'edit' is not null
         order by e.seq desc limit {EDITS_MAX}"
    );
    let shard = Shard::of(tenant, &root).0;
    let query = sqlx::query(sqlx::AssertSqlSafe(answers)).bind(shard).bind(tenant.0);
    let rows = query.bind(root.as_str()).bind(session.as_str()).fetch_all(&mut *conn).await?;
    let answers: Vec<StoredYes> = rows.iter().rev().map(decode_approval).collect::<LoadedRow<_>>()?;
    let Some(first) = answers.first() else { return Ok(Default::default()) };
    let digests: Vec<&[u8]> = answers.iter().map(|yes| &yes.approved.0[..]).collect();
    let permits = format!(
        "select c.seq, (extract(epoch from c.at) * 1000)::bigint as at_ms, c.call_id, c.args_digest, c.policy_version
         from call_tree t join call c on c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
         where t.shard = $1 and t.tenant_id = $2 and t.root_id = $3 and c.session_id = $4 and c.seq > $5
           and c.attempt is not null and c.args_digest = any($6)
         order by c.seq limit {PERMITS_MAX}"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(permits)).bind(shard).bind(tenant.0).bind(root.as_str());
    let query = query.bind(session.as_str()).bind(big(first.seq)).bind(digests);
    let permits = query.fetch_all(conn).await?.iter().map(permit).collect::<LoadedRow<_>>()?;
    Ok((answers, permits))
}

fn decode_approval(row: &PgRow) -> LoadedRow<StoredYes> {
    Ok(StoredYes {
        seq: count(row, "seq")?,
        approval_id: row.try_get("approval_id")?,
        by: row.try_get("actor")?,
        approved: digest(row.try_get("digest")?)?,
        until: at(row, "until_ms")?,
        policy: row.try_get("policy")?,
    })
}

fn permit(row: &PgRow) -> LoadedRow<StoredPermit> {
    Ok(StoredPermit {
        seq: count(row, "seq")?,
        at: at(row, "at_ms")?,
        call_id: row.try_get("call_id")?,
        digest: decode(row, "args_digest")?,
        policy: row.try_get("policy_version")?,
    })
}

pub(super) async fn read_edit(
    conn: &mut PgConnection,
    tenant: TenantId,
    session: &SessionId,
    call_id: &CallId,
    opener: &Opener,
) -> LoadedRow<Option<EditedArguments>> {
    let Some(root) = point_queries::root(&mut *conn, tenant, session).await? else { return Ok(None) };
    let found = sqlx::query(
        "select e.seq, e.detail #>> '{edit,digest}' as digest, e.detail #>> '{edit,arguments}' as arguments
         from call_tree t join session_event e on e.shard = t.shard and e.tenant_id = t.tenant_id
           and e.root_id = t.root_id and e.epoch = t.epoch
         where t.shard = $4 and t.tenant_id = $1 and t.root_id = $5 and e.session_id = $2 and e.kind = 'answered'
           and e.detail ->> 'call_id' = $3 and e.detail -> 'edit' is not null
         order by e.seq desc limit 1",
    )
    .bind(tenant.0)
    .bind(session.as_str())
    .bind(call_id.as_str())
    .bind(Shard::of(tenant, &root).0)
    .bind(root.as_str());
    let Some(row) = found.fetch_optional(conn).await? else { return Ok(None) };
    chosen(row.try_get("digest")?, row.try_get("arguments")?, session.as_str(), count(&row, "seq")?, opener).map(Some)
}

/// Edited arguments in an event's detail.
pub(super) fn chosen(
    digest: &str,
    arguments: Option<String>,
    session: &str,
    seq: u64,
    opener: &Opener,
) -> LoadedRow<EditedArguments> {
    let arguments = opener.optional_text(EDITED, session, seq, arguments)?;
    Ok(EditedArguments { digest: self::digest(digest)?, arguments: arguments.map(Into::into) })
}

/// Edited arguments in the `detail` of an answer. Builds without this feature read such an answer as a denial, and such
/// a second approval as one of another request: nothing runs.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredEdit {
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    /// Of a second approval: its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval_id: Option<String>,
    /// Of an answer: digest of the requested arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rules: Vec<String>,
}

impl From<&EditedArguments> for StoredEdit {
    fn from(edited: &EditedArguments) -> Self {
        let arguments = edited.arguments.as_deref().map(str::to_owned);
        Self { digest: hex::encode(edited.digest.0), arguments, ..Self::default() }
    }
}

impl From<&Edit> for StoredEdit {
    fn from(edit: &Edit) -> Self {
        Self {
            asked: Some(hex::encode(edit.asked.0)),
            until_ms: Some(edit.until.as_millis()),
            policy: Some(edit.policy.clone()),
            rules: edit.rules.clone(),
            ..Self::from(&edit.edited)
        }
    }
}

impl StoredEdit {
    /// Of a second approval of this request.
    pub(super) fn of(self, approval_id: &str) -> Self {
        Self { approval_id: Some(approval_id.to_owned()), ..self }
    }

    pub(super) fn edited(&self) -> LoadedRow<EditedArguments> {
        Ok(EditedArguments { digest: digest(&self.digest)?, arguments: self.arguments.as_deref().map(Into::into) })
    }

    pub(super) fn restore(self) -> LoadedRow<Edit> {
        let lacks = || corrupt("an answer with other arguments lacks a part");
        Ok(Edit {
            asked: digest(self.asked.as_deref().ok_or_else(lacks)?)?,
            edited: self.edited()?,
            until: Timestamp::from_millis(self.until_ms.ok_or_else(lacks)?),
            policy: self.policy.ok_or_else(lacks)?,
            rules: self.rules,
            is_used: false,
        })
    }
}

fn digest(hexadecimal: &str) -> LoadedRow<ArgsDigest> {
    let bytes = hex::decode(hexadecimal).map_err(|_| corrupt("a digest of chosen arguments is not hexadecimal"))?;
    Ok(ArgsDigest(hash(&bytes)?))
}
