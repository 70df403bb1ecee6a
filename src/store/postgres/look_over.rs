//! What a restored database holds, looked over whole, before anybody relies on it.

use sqlx::{Connection as _, postgres::PgConnectOptions};

use super::{audit, connect, decode::count, migrations, usual};
use crate::error::OpenError;
use callgate_core::domain::ids::TenantId;

/// What was found in a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Sessions.
    pub sessions: u64,
    /// Calls that were judged.
    pub calls: u64,
    /// What came of them.
    pub outcomes: u64,
    /// Entries of the audits of all tenants.
    pub audited: u64,
    /// What is wrong with the audits; none where every chain holds.
    pub problems: Vec<String>,
}

/// Counts what is stored, and checks the audit of each tenant; none where there is no schema. To be asked as the owner,
/// whom row-level security does not bind.
///
/// # Errors
/// [`OpenError`] when the database cannot be read, or its schema is not one that this build serves.
pub async fn look_over(options: PgConnectOptions) -> Result<Option<Contents>, OpenError> {
    let (mut conn, _) = connect::first(usual(options).application_name("callgate verify")).await?;
    let schema = migrations::state(&mut conn).await?;
    if schema.applied == 0 {
        return Ok(None);
    }
    let row = sqlx::query(
        "select (select count(distinct (tenant_id, session_id)) from session) as sessions,
           (select count(*) from call) as calls, (select count(*) from outcome) as outcomes,
           (select count(*) from audit) as audited",
    );
    let row = row.fetch_one(&mut conn).await?;
    let mut found = Contents {
        sessions: count(&row, "sessions")?,
        calls: count(&row, "calls")?,
        outcomes: count(&row, "outcomes")?,
        audited: count(&row, "audited")?,
        problems: Vec::new(),
    };
    let tenants = "select tenant_id from audit union select tenant_id from audit_head order by tenant_id";
    for tenant in sqlx::query_scalar::<_, i64>(tenants).fetch_all(&mut conn).await? {
        let checked = audit::check(&mut conn, TenantId(tenant), Vec::new()).await?;
        found.problems.extend(checked.problems.into_iter().map(|problem| format!("tenant {tenant}: {problem}")));
    }
    conn.close().await?;
    Ok(Some(found))
}
