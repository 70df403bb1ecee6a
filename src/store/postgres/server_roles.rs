//! Roles of the server, which a dump omits and a new cluster needs. Only a superuser can read them with their
//! passwords.

use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, PgConnection, postgres::PgConnectOptions};

use super::{SchemaState, connect, migrations, usual};
use crate::error::OpenError;

/// Generates statements that create the roles, except PostgreSQL's own and the owner's.
const ROLES: &str = "
  select format('create role %I%s%s%s%s%s%s%s', rolname,
    case when rolcanlogin then ' login' else '' end,
    case when rolsuper then ' superuser' else '' end,
    case when rolcreaterole then ' createrole' else '' end,
    case when rolcreatedb then ' createdb' else '' end,
    case when rolbypassrls then ' bypassrls' else '' end,
    case when rolinherit then '' else ' noinherit' end,
    case when rolpassword is null then '' else format(' password %L', rolpassword) end)
  from pg_authid where rolname !~ '^pg_' and rolname <> current_user order by rolname";
const MEMBERS: &str = "
  select format('grant %I to %I%s', r.rolname, m.rolname,
    case when a.admin_option then ' with admin option' else '' end)
  from pg_auth_members a join pg_authid r on r.oid = a.roleid join pg_authid m on m.oid = a.member
  where m.rolname !~ '^pg_' order by r.rolname, m.rolname";

/// Data to carry over beside a dump.
#[derive(Debug, Clone)]
pub struct CarriedState {
    /// Statements that make the roles.
    pub roles: Vec<String>,
    /// Schema state relative to this build.
    pub schema: SchemaState,
    /// Last applied migration; none without a schema.
    pub newest: Option<i64>,
}

/// Reads it.
///
/// # Errors
/// [`OpenError`] when the database cannot be read, or not as a superuser.
pub async fn read_carried_state(options: PgConnectOptions) -> Result<CarriedState, OpenError> {
    let (mut conn, _) = connect::first(usual(options).application_name("callgate backup")).await?;
    let mut roles: Vec<String> = sqlx::query_scalar(ROLES).fetch_all(&mut conn).await?;
    roles.extend(sqlx::query_scalar::<_, String>(MEMBERS).fetch_all(&mut conn).await?);
    let schema = migrations::state(&mut conn).await?;
    let newest = match schema.applied {
        0 => None,
        _ => sqlx::query_scalar("select max(version) from _sqlx_migrations").fetch_one(&mut conn).await?,
    };
    Ok(CarriedState { roles, schema, newest })
}

/// Creates the roles in a new cluster atomically.
///
/// # Errors
/// [`OpenError`] of the database.
pub async fn make_roles(options: PgConnectOptions, roles: &[String]) -> Result<(), OpenError> {
    let mut conn = plain(options).await?;
    let mut tx = sqlx::Connection::begin(&mut conn).await?;
    for statement in roles {
        tx.execute(AssertSqlSafe(statement.as_str())).await?;
    }
    Ok(tx.commit().await?)
}

/// Last step: statistics for the planner.
///
/// # Errors
/// [`OpenError`] of the database.
pub async fn analyze(options: PgConnectOptions) -> Result<(), OpenError> {
    plain(options).await?.execute("analyze").await?;
    Ok(())
}

async fn plain(options: PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    options.application_name("callgate restore").connect().await
}
