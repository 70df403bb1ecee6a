//! The append as stored functions: one that writes a batch, in one round trip, and one that says who lost when it did
//! not. Their texts are made from the lists of columns, and they are named by a hash of it, so that replicas of
//! different versions work beside each other.

use std::{fmt::Write as _, sync::LazyLock};

use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _, postgres::types::Oid};

use super::super::{
    columns::{Kind, attributes, insert, set},
    controls::ControlRow,
    row::{CallRow, CounterRow, LedgerRowOut, OutcomeRow, SessionRow, TreeRow},
};

/// The arguments of the append, in their order: the name, its columns, and whether the rare ones are among them. Trees
/// come before counters and counters before the ledger: who locks rows does it in this order.
pub(super) const ARGUMENTS: [(&str, List, bool); 11] = [
    ("trees", TreeRow::LIST, true),
    ("new_trees", TreeRow::LIST, true),
    ("sessions", SessionRow::LIST, true),
    ("counters", CounterRow::LIST, true),
    ("ledger", LedgerRowOut::LIST, true),
    ("new_ledger", LedgerRowOut::LIST, true),
    ("calls", CallRow::LIST, false),
    ("full_calls", CallRow::LIST, true),
    ("outcomes", OutcomeRow::LIST, false),
    ("full_outcomes", OutcomeRow::LIST, true),
    ("controls", ControlRow::LIST, true),
];
type List = &'static [(&'static str, Kind)];

/// The SQLSTATE by which a part says that it moved fewer rows than it should have. It does not leave the function.
const SHORT: &str = "CG001";
const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000)::bigint";
const OF_TREE: &str = "t.shard = x.shard and t.tenant_id = x.tenant_id and t.root_id = x.root_id";
const OF_SESSION: &str = "s.shard = x.shard and s.tenant_id = x.tenant_id and s.session_id = x.session_id";
const OF_COUNTER: &str = "k.shard = x.shard and k.tenant_id = x.tenant_id and k.agent_id = x.agent_id and k.day = x.day
  and k.dimension = x.dimension and k.tier = x.tier and k.tier_window = x.tier_window";
const OF_LEDGER: &str = "l.shard = x.shard and l.tenant_id = x.tenant_id and l.ledger_key = x.ledger_key";
const OF_CALL: &str = "c.shard = x.shard and c.tenant_id = x.tenant_id and c.epoch = x.epoch
  and c.session_id = x.session_id and c.call_id = x.call_id and c.round = x.round";

/// A part of the append: skipped without rows; with `counted`, all is undone when it changed fewer rows than it has.
fn part(argument: &str, statement: &str, counted: bool) -> String {
    let count = format!(
        "get diagnostics n = row_count;
    if n <> cardinality({argument}) then raise sqlstate '{SHORT}'; end if;"
    );
    format!(
        "  if {argument} is not null then
    {statement};
    {}
  end if;\n",
        if counted { &count } else { "" }
    )
}

fn from(argument: &str, list: List, table: &str, with_rare: bool) -> String {
    format!("{} from unnest({argument}) x", insert(list, table, with_rare))
}

/// An update goes through the array in its order: the settings of the writer's connection leave the planner no other
/// way than a nested loop from the array to the primary key.
fn write() -> String {
    let new = |argument, list, table, with_rare| from(argument, list, table, with_rare) + " on conflict do nothing";
    let moved_trees = format!(
        "update call_tree t set {} from unnest(trees) x where {OF_TREE} and t.version = x.expected",
        set(TreeRow::LIST, &["shard", "tenant_id", "root_id"])
    );
    let ledger = format!(
        "update ledger l set revision = x.expected + 1, {} from unnest(ledger) x
      where {OF_LEDGER} and l.revision = x.expected",
        set(LedgerRowOut::LIST, &["shard", "tenant_id", "ledger_key"])
    );
    let new_ledger = new("new_ledger", LedgerRowOut::LIST, "ledger", true)
        .replacen("insert into ledger (", "insert into ledger (revision, ", 1)
        .replacen(" select ", " select 1, ", 1);
    // Who races with another for a new session of the same tree may find it there.
    let sessions = format!(
        "{};
    get diagnostics n = row_count;
    if n < cardinality(sessions) then
      select count(*) into n from unnest(sessions) x join session s on {OF_SESSION} and s.root_id = x.root_id;
    end if;
    if n <> cardinality(sessions) then raise sqlstate '{SHORT}'; end if",
        new("sessions", SessionRow::LIST, "session", true)
    );
    let trials = "insert into retry_trial (shard, tenant_id, epoch, session_id, permit_seq, seq)
      select x.shard, x.tenant_id, x.epoch, x.session_id, x.permit_seq, x.seq from unnest(full_outcomes) x
      where x.follow_up_ok is not null";
    [
        part("trees", &moved_trees, true),
        part("new_trees", &new("new_trees", TreeRow::LIST, "call_tree", true), true),
        part("sessions", &sessions, false),
        part("counters", &counters(), false),
        part("ledger", &ledger, true),
        part("new_ledger", &new_ledger, true),
        part("calls", &from("calls", CallRow::LIST, "call", false), true),
        part("full_calls", &from("full_calls", CallRow::LIST, "call", true), true),
        part("outcomes", &from("outcomes", OutcomeRow::LIST, "outcome", false), true),
        part("full_outcomes", &from("full_outcomes", OutcomeRow::LIST, "outcome", true), true),
        part("full_outcomes", trials, false),
        part("controls", &from("controls", ControlRow::LIST, "session_event", true), true),
    ]
    .concat()
}

/// Additions within their limits; a counter that nobody has added to yet holds 0.
fn counters() -> String {
    format!(
        "with u as (update counter k set used = k.used + x.amount
      from unnest(counters) with ordinality as x({names}, place)
      where {OF_COUNTER} and (x.room is null or k.used <= x.room) returning x.place, k.used)
    select count(*), array_agg(u.used order by u.place) into n, used from u;
    if n < cardinality(counters) then
      {insert} from unnest(counters) x where (x.room is null or x.room >= 0)
        and not exists (select from counter k where {OF_COUNTER})
        on conflict do nothing;
      get diagnostics m = row_count;
      if n + m <> cardinality(counters) then raise sqlstate '{SHORT}'; end if;
      select array_agg(k.used order by x.place) into used
      from unnest(counters) with ordinality as x({names}, place) join counter k on {OF_COUNTER};
    end if",
        insert = insert(CounterRow::LIST, "counter", true),
        names = names(CounterRow::LIST, true),
    )
}

fn names(list: List, with_rare: bool) -> String {
    let sent = list.iter().filter(|(_, kind)| with_rare || !kind.is_rare());
    sent.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The places, from 1, of the rows of `argument` that are in the way of `condition`, or in whose way something is.
fn places(argument: &str, condition: &str) -> String {
    let (_, list, with_rare) = ARGUMENTS.iter().find(|(name, ..)| *name == argument).copied().unwrap_or(ARGUMENTS[0]);
    format!(
        "array(select x.place::int4 from unnest({argument}) with ordinality as x({}, place) where {condition})",
        names(list, with_rare)
    )
}

/// The arguments that somebody else's rows can stand in the way of, as [`lost`] tells them.
const LOST: [&str; 7] = ["trees", "new_trees", "sessions", "ledger", "new_ledger", "calls", "full_calls"];

fn lost() -> String {
    let lost = [
        ("trees", format!("not exists (select from call_tree t where {OF_TREE} and t.version = x.expected)")),
        ("new_trees", format!("exists (select from call_tree t where {OF_TREE})")),
        ("sessions", format!("exists (select from session s where {OF_SESSION} and s.root_id <> x.root_id)")),
        ("ledger", format!("not exists (select from ledger l where {OF_LEDGER} and l.revision = x.expected)")),
        ("new_ledger", format!("exists (select from ledger l where {OF_LEDGER})")),
        ("calls", format!("exists (select from call c where {OF_CALL})")),
        ("full_calls", format!("exists (select from call c where {OF_CALL})")),
    ];
    let mut body = String::new();
    for (argument, condition) in lost {
        let _ = writeln!(body, "  lost_{argument} := {};", places(argument, &condition));
    }
    let _ = write!(
        body,
        "  used := array(select coalesce(k.used, 0) from unnest(counters) with ordinality as x({}, place)
    left join counter k on {OF_COUNTER} order by x.place);
  now_ms := {NOW};\n",
        names(CounterRow::LIST, true)
    );
    body
}

/// The functions of this build.
#[derive(Debug)]
pub(super) struct Functions {
    /// What they are named by.
    pub(super) hash: String,
    /// Writes a batch: gives the database's time, then what its counters hold; null when nothing was written.
    pub(super) append: String,
    /// Says who is to blame for that.
    pub(super) lost: String,
    create: Vec<String>,
    types: String,
}

pub(super) static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let (write, lost) = (write(), lost());
    let columns = ARGUMENTS.map(|(_, list, with_rare)| attributes(list, with_rare)).concat();
    let hash = hex::encode(&Sha256::digest(format!("{write}{lost}{columns}"))[..6]);
    let name = |argument: &str| format!("append_{hash}_{argument}");
    let mut create: Vec<String> = ARGUMENTS
        .iter()
        .map(|(argument, list, rare)| format!("create type {} as ({})", name(argument), attributes(list, *rare)))
        .collect();
    let arguments = ARGUMENTS.map(|(argument, ..)| format!("{argument} {}[]", name(argument))).join(", ");
    // What is caught is undone, and leaves no line in the server's log: losing a race is nothing to tell.
    create.push(format!(
        "create function append_{hash}({arguments}) returns bigint[] language plpgsql as $append$
declare
  n bigint;
  m bigint;
  used bigint[];
begin
{write}  return array_prepend({NOW}, used);
exception
  when sqlstate '{SHORT}' or unique_violation then return null;
end
$append$"
    ));
    let outs = LOST.map(|argument| format!("out lost_{argument} int4[]")).join(", ");
    create.push(format!(
        "create function lost_{hash}({arguments}, {outs}, out used bigint[], out now_ms bigint)
language plpgsql as $lost$
begin
{lost}end
$lost$"
    ));
    let sent = (1..=ARGUMENTS.len()).map(|n| format!("${n}")).collect::<Vec<_>>().join(", ");
    let types = ARGUMENTS.map(|(argument, ..)| format!("to_regtype('{}')::oid", name(argument))).join(", ");
    Functions {
        append: format!("select append_{hash}({sent})"),
        lost: format!("select * from lost_{hash}({sent})"),
        types: format!("select array[{types}], to_regproc('lost_{hash}') is not null"),
        create,
        hash,
    }
});

/// The types of the arguments on a new connection, whose functions are made if they are not there: by the first
/// replica of this build, or because another one has tidied them away meanwhile.
pub(super) async fn types(conn: &mut PgConnection) -> Result<Vec<Oid>, sqlx::Error> {
    if let Some(types) = known(conn).await? {
        return Ok(types);
    }
    if let Err(error) = create(conn).await {
        // Somebody else was faster.
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
        if !["42710", "42723", "23505"].contains(&code.as_str()) {
            return Err(error);
        }
    }
    known(conn).await?.ok_or(sqlx::Error::RowNotFound)
}

async fn known(conn: &mut PgConnection) -> Result<Option<Vec<Oid>>, sqlx::Error> {
    let row = conn.fetch_one(AssertSqlSafe(FUNCTIONS.types.as_str())).await?;
    let types: Vec<Option<Oid>> = row.try_get(0)?;
    Ok(if row.try_get(1)? { types.into_iter().collect() } else { None })
}

async fn create(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin().await?;
    for statement in &FUNCTIONS.create {
        tx.execute(AssertSqlSafe(statement.as_str())).await?;
    }
    tx.commit().await
}

/// Functions of other builds whose writers are not connected. One that comes back makes its own again.
const UNUSED: &str = "select p.proname::text from pg_proc p where p.pronamespace = 'callgate'::regnamespace
  and p.proname ~ '^append_[0-9a-f]{12}$' and p.proname <> $1 and not exists (
    select from pg_stat_activity a where a.application_name = 'callgate writer ' || substr(p.proname, 8))";

/// Drops the functions that nobody uses any more.
pub(in crate::store::postgres) async fn tidy(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let own = format!("append_{}", FUNCTIONS.hash);
    let unused: Vec<String> = sqlx::query_scalar(UNUSED).bind(own).fetch_all(&mut *conn).await?;
    for name in unused {
        let lost = name.replacen("append", "lost", 1);
        let types = ARGUMENTS.map(|(argument, ..)| format!("{name}_{argument}")).join(", ");
        for drop in [format!("drop function if exists {name}, {lost}"), format!("drop type if exists {types}")] {
            conn.execute(AssertSqlSafe(drop)).await?;
        }
    }
    Ok(())
}
