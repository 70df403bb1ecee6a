//! Whose call trees are, for all replicas.

use sqlx::PgConnection;

use super::{Store, decode::Loaded};
use crate::{
    domain::{
        ids::{SessionId, TenantId},
        shard::Shard,
    },
    store::error::StoreError,
};

impl Store {
    /// Whose a tree is; none while nobody has worked in it with a credential.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn owner(&self, tenant: TenantId, root: &SessionId) -> Result<Option<String>, StoreError> {
        self.readers.read(async |conn| owner(conn, tenant, root).await).await
    }

    /// Makes a tree this one's, unless it is somebody's already; gives whose it is.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be used.
    pub async fn own(&self, tenant: TenantId, root: &SessionId, name: &str) -> Result<String, StoreError> {
        self.readers.read(async |conn| own(conn, tenant, root, name).await).await
    }
}

async fn owner(conn: &mut PgConnection, tenant: TenantId, root: &SessionId) -> Loaded<Option<String>> {
    let select = "select owner from session_owner where shard = $1 and tenant_id = $2 and root_id = $3";
    let select = sqlx::query_scalar(select).bind(Shard::of(tenant, root).0).bind(tenant.0).bind(root.as_str());
    Ok(select.fetch_optional(conn).await?)
}

async fn own(conn: &mut PgConnection, tenant: TenantId, root: &SessionId, name: &str) -> Loaded<String> {
    // A row may be dropped between the two: then there is room for this one.
    loop {
        if let Some(owner) = owner(conn, tenant, root).await? {
            return Ok(owner);
        }
        let insert = sqlx::query(
            "insert into session_owner (shard, tenant_id, root_id, owner) values ($1, $2, $3, $4)
             on conflict do nothing",
        );
        let insert = insert.bind(Shard::of(tenant, root).0).bind(tenant.0).bind(root.as_str()).bind(name);
        if insert.execute(&mut *conn).await?.rows_affected() > 0 {
            return Ok(name.to_owned());
        }
    }
}
