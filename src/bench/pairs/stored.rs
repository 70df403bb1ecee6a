//! Prefill of a database: some calls are made through the server, then SQL copies their rows under other session names,
//! in all tables and columns.

use std::time::Duration;

use anyhow::Context as _;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, PgConnection, postgres::PgConnectOptions};

use super::{
    drive::Crew,
    link::{ServerTarget, Transport},
    load::{LoadShape, Mix},
};

const SESSIONS: usize = 400;
const CALLS: u32 = 25;
/// Number of calls made through the server.
const MADE: u64 = SESSIONS as u64 * CALLS as u64;
/// Copies per statement.
const AT_ONCE: u64 = 50;

/// Every table with sessions, its columns and their copied values. A copy is an hour older, so that queries for recent
/// activity skip it.
const TABLES: &str = "
select c.relname::text,
  string_agg(quote_ident(attname), ', ' order by attnum),
  string_agg(case
    when attname in ('session_id', 'root_id', 'parent_id') then format('%I || ''~'' || g', attname)
    when atttypid = 'timestamptz'::regtype then format('%I - interval ''1 hour'' - g * interval ''1 ms''', attname)
    else quote_ident(attname) end, ', ' order by attnum)
from pg_class c join pg_attribute a on attrelid = c.oid
where relnamespace = 'callgate'::regnamespace and relkind in ('r', 'p') and not relispartition
  and attnum > 0 and not attisdropped and attgenerated = '' and attidentity = ''
group by c.relname
having bool_or(attname in ('session_id', 'root_id'))
order by c.relname";

/// Fills the unused database of a server with `count` calls, or slightly more.
pub(super) async fn fill(url: &str, database: &PgConnectOptions, count: u64) -> anyhow::Result<()> {
    make(url).await?;
    let mut conn = database.clone().connect().await.context("the database")?;
    let tables: Vec<(String, String, String)> =
        sqlx::query_as(TABLES).fetch_all(&mut conn).await.context("the tables of sessions")?;
    for (table, ..) in &tables {
        run(&mut conn, &format!("create temp table copied_{table} as select * from callgate.{table}")).await?;
    }
    let copies = count.div_ceil(MADE).saturating_sub(1);
    for from in (1..=copies).step_by(AT_ONCE as usize) {
        let upto = copies.min(from + AT_ONCE - 1);
        for (table, columns, values) in &tables {
            let copy = format!(
                "insert into callgate.{table} ({columns}) select {values} from copied_{table} cross join \
                 generate_series({from}, {upto}) g"
            );
            run(&mut conn, &copy).await?;
        }
        errln!("  {} of {count} calls are stored", (upto + 1) * MADE);
    }
    run(&mut conn, "vacuum analyze").await?;
    run(&mut conn, "checkpoint").await
}

/// Makes sessions that end after their calls.
async fn make(url: &str) -> anyhow::Result<()> {
    let load = LoadShape {
        connections: 4,
        in_flight: 5,
        sessions: SESSIONS,
        calls_per_session: None,
        grown: CALLS,
        agents: 100,
        tenants: 0,
        transport: Transport::Unary,
        rate: None,
        mix: Mix::default(),
    };
    let running = Crew::new(&load, &ServerTarget::to(url)).await?.begin(Duration::ZERO).await?;
    running.end().await.map(drop)
}

async fn run(conn: &mut PgConnection, sql: &str) -> anyhow::Result<()> {
    conn.execute(AssertSqlSafe(sql)).await.with_context(|| sql.chars().take(80).collect::<String>())?;
    Ok(())
}
