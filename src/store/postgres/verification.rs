//! Verification of a restored database before it is used.

use sqlx::{Connection as _, postgres::PgConnectOptions};

use super::{audit, connect, decode::count, migrations, usual};
use crate::error::OpenError;
use callgate_core::domain::ids::TenantId;

/// Contents of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Sessions.
    pub sessions: u64,
    /// Judged calls.
    pub calls: u64,
    /// Outcomes.
    pub outcomes: u64,
    /// Audit entries of all tenants.
    pub audited: u64,
    /// Problems of the audit logs; empty when every chain is intact.
    pub problems: Vec<String>,
}

/// Counts the rows, and verifies each tenant's audit log; none without a schema. Must run as the owner, who bypasses
/// row-level security.
///
/// # Errors
/// [`OpenError`] when the database cannot be read, or this build does not support its schema.
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
