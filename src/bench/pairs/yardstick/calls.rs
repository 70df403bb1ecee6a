//! Straightforward storage of both halves of a pair in PostgreSQL: a table of sessions, a table of calls, a pool of
//! sixteen connections. Nothing is judged, but the input of a judgment is read: earlier calls with the same arguments.
//!
//! `tx`: one transaction and five round trips per call: begin, the session (locked), the call's history, the write,
//! commit. `cte`: the same in one statement, its own transaction.

use std::str::FromStr as _;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use sqlx::{
    Executor as _, PgPool, Result,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use callgate_proto::v1::{EvaluateRequest, RecordRequest};

const POOL: u32 = 16;

const SCHEMA: &str = "
create table if not exists session (
  session_id text primary key,
  agent_id text not null,
  calls bigint not null default 1,
  cost_micros bigint not null default 0,
  last_at timestamptz not null default now()
);
create table if not exists call (
  session_id text not null,
  call_id text not null,
  at timestamptz not null default now(),
  tool text not null,
  arguments text not null,
  fingerprint bytea not null,
  lease_until timestamptz not null,
  status int,
  settled_at timestamptz,
  result text,
  error text,
  primary key (session_id, call_id)
);
create index if not exists call_fingerprint on call (session_id, fingerprint);
";

/// Session row of a call, locked.
const SESSION: &str = "
insert into session (session_id, agent_id, cost_micros) values ($1, $2, $3)
on conflict (session_id) do update
  set calls = session.calls + 1, cost_micros = session.cost_micros + excluded.cost_micros, last_at = now()
returning calls";
const BEFORE: &str = "
select status from call where session_id = $1 and fingerprint = $2 order by at desc limit 1";
const CALL: &str = "
insert into call (session_id, call_id, tool, arguments, fingerprint, lease_until)
values ($1, $2, $3, $4, $5, now() + interval '1 minute')
on conflict (session_id, call_id) do nothing";

const PERMITTED: &str = "select status from call where session_id = $1 and call_id = $2 for update";
const OUTCOME: &str = "
update call set status = $3, settled_at = now(), result = $4, error = $5 where session_id = $1 and call_id = $2";
const BOOKED: &str = "update session set cost_micros = cost_micros + $2, last_at = now() where session_id = $1";

const EVALUATE_AT_ONCE: &str = "
with asks as (
  insert into session (session_id, agent_id, cost_micros) values ($1, $2, $3)
  on conflict (session_id) do update
    set calls = session.calls + 1, cost_micros = session.cost_micros + excluded.cost_micros, last_at = now()
  returning calls
), before as (
  select status from call where session_id = $1 and fingerprint = $7 order by at desc limit 1
), written as (
  insert into call (session_id, call_id, tool, arguments, fingerprint, lease_until)
  values ($1, $4, $5, $6, $7, now() + interval '1 minute')
  on conflict (session_id, call_id) do nothing
)
select (select calls from asks), (select status from before)";
const RECORD_AT_ONCE: &str = "
with settled as (
  update call set status = $3, settled_at = now(), result = $4, error = $5
  where session_id = $1 and call_id = $2 and status is null
  returning 1
)
update session set cost_micros = cost_micros + $6, last_at = now()
where session_id = $1 and exists (select from settled)";

/// Database of a yardstick.
#[derive(Debug)]
pub(super) struct Calls {
    pool: PgPool,
    at_once: bool,
}

impl Calls {
    pub(super) async fn open(at_once: bool, url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(url).context("--database-url")?.application_name("yardstick");
        // No ping before each use, which would be a round trip more.
        let pool = PgPoolOptions::new().max_connections(POOL).min_connections(POOL).test_before_acquire(false);
        let pool = pool.connect_with(options).await.context("the yardstick's database")?;
        pool.execute(SCHEMA).await.context("the yardstick's tables")?;
        Ok(Self { pool, at_once })
    }

    pub(super) async fn evaluate(&self, question: &EvaluateRequest) -> Result<()> {
        let (caller, call) = (question.caller.clone().unwrap_or_default(), question.call.clone().unwrap_or_default());
        let fingerprint = Sha256::new().chain_update(&call.tool).chain_update(&call.arguments_json).finalize();
        let cost = question.usage.as_ref().map_or(0, |usage| usage.cost_micros as i64);
        if self.at_once {
            let row = sqlx::query(EVALUATE_AT_ONCE).bind(&caller.session_id).bind(&caller.agent_id).bind(cost);
            let row = row.bind(&call.call_id).bind(&call.tool).bind(&call.arguments_json).bind(&fingerprint[..]);
            return row.fetch_one(&self.pool).await.map(drop);
        }
        let mut tx = self.pool.begin().await?;
        let session = sqlx::query(SESSION).bind(&caller.session_id).bind(&caller.agent_id).bind(cost);
        session.fetch_one(&mut *tx).await?;
        let before = sqlx::query(BEFORE).bind(&caller.session_id).bind(&fingerprint[..]);
        before.fetch_optional(&mut *tx).await?;
        let write = sqlx::query(CALL).bind(&caller.session_id).bind(&call.call_id).bind(&call.tool);
        write.bind(&call.arguments_json).bind(&fingerprint[..]).execute(&mut *tx).await?;
        tx.commit().await
    }

    pub(super) async fn record(&self, report: &RecordRequest) -> Result<()> {
        let session_id = report.caller.as_ref().map_or("", |caller| &caller.session_id);
        let error = report.error.as_ref().map(|error| &error.message);
        let cost = report.usage.as_ref().map_or(0, |usage| usage.cost_micros as i64);
        let statement = if self.at_once { RECORD_AT_ONCE } else { OUTCOME };
        let outcome = sqlx::query(statement).bind(session_id).bind(&report.call_id).bind(report.status);
        let outcome = outcome.bind(&report.result).bind(error);
        if self.at_once {
            return outcome.bind(cost).execute(&self.pool).await.map(drop);
        }
        let mut tx = self.pool.begin().await?;
        sqlx::query(PERMITTED).bind(session_id).bind(&report.call_id).fetch_one(&mut *tx).await?;
        outcome.execute(&mut *tx).await?;
        sqlx::query(BOOKED).bind(session_id).bind(cost).execute(&mut *tx).await?;
        tx.commit().await
    }
}
