//! Loading of cold trees, batched: one statement for all trees born in one month. One statement sees one snapshot, so
//! that totals and events are consistent, and later events can be applied on top.

mod totals;

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

pub(super) use self::totals::{control_events, decode_spend, open_calls};
use super::{
    codes::RUNNING,
    columns::{self, Column},
    decode::{LoadedRow, at, corrupt},
    maintain::{month, partition},
    point_queries,
    row::{CallRow, OutcomeRow, big},
    row_union::{self, RowSet},
    sealed::{Opener, length_condition},
};
use callgate_core::domain::{
    event::Event,
    ids::{SessionId, TenantId},
    shard::Shard,
    tree::{CallTree, FAILED_ARGUMENTS_MAX, HELD_MAX},
};

/// SQLSTATE of a missing table.
const UNDEFINED_TABLE: &str = "42P01";

/// Maximum number of judgment rows per session: more than a tree keeps, because a call may have several.
const ROWS_MAX: usize = 160;

/// A requested tree: tenant, root, day of birth (if known), and the opener of its values.
pub(super) type TreeQuery = (TenantId, SessionId, Option<i32>, Opener);

/// The trees of the statement, all born in the month `#born`. A tree that has moved too far since the `known` version
/// (0: none) is excluded.
pub(super) const TREES: &str = "t as materialized (
   select x.no, x.known, t.* from unnest($1::int2[], $2::int8[], $3::text[], $4::int8[])
     with ordinality as x(shard, tenant_id, root_id, known, no)
   join call_tree t on t.shard = x.shard and t.tenant_id = x.tenant_id and t.root_id = x.root_id
   where t.epoch >= date '#born' and t.epoch < date '#born' + interval '1 month'
     and (x.known = 0 or t.version between x.known and x.known + 256)),
 s as materialized (
   select t.no, t.shard, t.tenant_id, t.epoch, t.known, t.version, t.open_calls, s.session_id, s.parent_id, s.depth
   from t join session s on s.shard = t.shard and s.tenant_id = t.tenant_id and s.root_id = t.root_id)";

/// `a.shard = b.shard and …`: rows of one session.
pub(super) fn same_session_condition(a: &str, b: &str) -> String {
    let equal = ["shard", "tenant_id", "epoch", "session_id"].map(|column| format!("{a}.{column} = {b}.{column}"));
    equal.join(" and ")
}

/// A statement for the trees born in the month of `day`. It names the single partition of calls and outcomes, because
/// the planner would consider all.
pub(super) fn born_in(sql: &str, day: i32) -> String {
    let first = month(day, 0);
    let sql = sql.replace("#call", &partition("call", first)).replace("#outcome", &partition("outcome", first));
    sql.replace("#born", &first.to_string())
}

/// Condition that two rows are of one shard.
static ONE_SHARD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\b(\w+)\.shard = \w+\.shard\b").ok());

/// Split of requests by shard: a distributed database routes a statement to the node of the shard that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardSplit {
    Not,
    ByShard,
}

impl ShardSplit {
    /// The split of a database.
    pub(super) const fn of(is_distributed: bool) -> Self {
        if is_distributed { Self::ByShard } else { Self::Not }
    }

    /// Condition that the rows of the table `alias` are in the shards of the array `shards`.
    pub(super) fn shard_condition(self, alias: &str, shards: &str) -> String {
        match self {
            Self::Not => String::new(),
            Self::ByShard => format!(" and {alias}.shard = any({shards})"),
        }
    }

    /// Groups of tree indexes, with the statement for each.
    fn group_trees(self, sql: &str, trees: &[(TenantId, &SessionId, u64)]) -> Vec<(String, Vec<usize>)> {
        if self == Self::Not {
            return vec![(sql.to_owned(), (0..trees.len()).collect())];
        }
        let mut shards: BTreeMap<Shard, Vec<usize>> = BTreeMap::new();
        for (at, (tenant, root, _)) in trees.iter().enumerate() {
            shards.entry(Shard::of(*tenant, root)).or_default().push(at);
        }
        let named = |Shard(shard)| match &*ONE_SHARD {
            Some(equal) => equal.replace_all(sql, format!("$1.shard = {shard}")).into_owned(),
            None => sql.to_owned(),
        };
        shards.into_iter().map(|(shard, places)| (named(shard), places)).collect()
    }
}

/// The index of a requested tree, with its row's columns.
pub(super) fn head() -> RowSet {
    let millis = |column: &str| format!("(extract(epoch from t.{column}) * 1000)::bigint");
    let mut columns = vec![
        Column::new("no", "int8", "t.no"),
        Column::new("day", "int4", "t.epoch - date '1970-01-01'"),
        Column::new("started_ms", "int8", millis("started_at")),
        Column::new("last_ms", "int8", millis("last_at")),
        Column::new("due_ms", "int8", millis("due")),
        Column::new("open_calls", "int4", "t.open_calls"),
    ];
    for name in ["version", "steps", "calls", "cost_micros", "reserved_micros", "tokens"] {
        columns.push(Column::new(name, "int8", format!("t.{name}")));
    }
    RowSet::new(columns, "t")
}

/// Columns of a call in `s` and `c`; the arguments only as long as a tree keeps them.
pub(super) fn call_columns() -> Vec<Column> {
    let left_out = [
        "shard",
        "tenant_id",
        "epoch",
        "root_id",
        "rule",
        "level",
        "arguments",
        "justification",
        "uses",
        "coerced",
        "self_corrections",
    ];
    let short = length_condition("c.arguments", FAILED_ARGUMENTS_MAX);
    let arguments = format!(
        "case when c.attempt is not null and not exists (select from #outcome o where {} and o.permit_seq = c.seq
           and o.status > {RUNNING} and (o.failure is null or not {short}))
         then c.arguments end",
        same_session_condition("o", "c")
    );
    let looks = format!("case when {short} then c.arguments end");
    let mut columns = columns::read(CallRow::LIST, "c", &left_out);
    columns.extend([
        Column::new("arguments", "text", arguments),
        Column::new("looks", "text", looks),
        Column::new("parent_id", "text", "s.parent_id"),
        Column::new("depth", "int4", "s.depth"),
    ]);
    columns
}

/// Columns of a report `o`.
pub(super) fn outcome_columns() -> Vec<Column> {
    let left_out = ["shard", "tenant_id", "epoch", "root_id", "result", "error_message", "gist", "made"];
    columns::read(OutcomeRow::LIST, "o", &left_out)
}

/// With the index of its tree.
pub(super) fn add_tree_index(mut columns: Vec<Column>, table: &str) -> Vec<Column> {
    columns.push(Column::new("no", "int8", format!("{table}.no")));
    columns
}

/// Keys of the last judgments of every session, of all open ones, and of the last held or approved ones.
fn recent() -> String {
    let (c, o, h, n) = (
        same_session_condition("c", "s"),
        same_session_condition("o", "c"),
        same_session_condition("h", "s"),
        same_session_condition("n", "h"),
    );
    format!(
        "k as materialized (
           select s.no, s.session_id, c.seq from s cross join lateral (
             select c.seq from #call c where {c} order by c.seq desc limit {ROWS_MAX}) c
           union
           select s.no, s.session_id, c.seq from s cross join lateral (
             select c.seq from #call c where {c} and c.attempt is not null and not exists (
               select from #outcome o where {o} and o.permit_seq = c.seq and o.status > {RUNNING})
             order by c.seq desc limit s.open_calls) c
           union
           select s.no, s.session_id, h.seq from s join t on t.no = s.no cross join lateral (
             select h.seq from #call h where {h} and h.approval_id is not null
               and not exists (select from #call n where {n} and n.seq > h.seq
                 and (n.call_id = h.call_id or (n.fingerprint = h.fingerprint and n.attempt is not null)))
               and not exists (select from session_event e where e.shard = h.shard and e.tenant_id = h.tenant_id
                 and e.root_id = t.root_id and e.epoch = h.epoch and e.kind in ('answered', 'withdrawn')
                 and e.detail ->> 'approval_id' = h.approval_id and e.detail ->> 'approved' is distinct from 'true')
             order by h.seq desc limit {HELD_MAX}) h)"
    )
}

/// Common parts of statements over trees, by index.
pub(super) const HEAD: i32 = 0;
const CALLS: i32 = 1;
pub(super) const OUTCOMES: i32 = 2;

static LOAD: LazyLock<String> = LazyLock::new(|| {
    let call = format!(
        "k join s using (no, session_id) join #call c on {} and c.seq = k.seq",
        same_session_condition("c", "s")
    );
    let outcome = format!(
        "k join s using (no, session_id) cross join lateral (
           select o.* from #outcome o where {} and o.permit_seq = k.seq order by o.seq desc limit 4) o",
        same_session_condition("o", "s")
    );
    let mut parts = vec![
        head(),
        RowSet::new(add_tree_index(call_columns(), "k"), call),
        RowSet::new(add_tree_index(outcome_columns(), "k"), outcome),
    ];
    parts.extend(totals::row_sets(ROWS_MAX));
    format!("with {TREES}, {} {}", recent(), row_union::union(&parts))
});

/// Loads trees, each in one snapshot; none for one without events.
pub(super) async fn trees(
    conn: &mut PgConnection,
    wanted: &[TreeQuery],
    cut: ShardSplit,
) -> LoadedRow<Vec<LoadedRow<Option<CallTree>>>> {
    let mut trees: Vec<LoadedRow<Option<CallTree>>> = wanted.iter().map(|_| Ok(None)).collect();
    let mut days: Vec<Option<i32>> = wanted.iter().map(|(_, _, day, _)| *day).collect();
    if days.contains(&None) {
        let roots: Vec<_> = wanted.iter().map(|(tenant, root, ..)| (*tenant, root.clone())).collect();
        let heads = point_queries::heads(conn, &roots, cut).await?;
        days = heads.into_iter().map(|head| Ok(head?.map(|(_, day, _)| day))).collect::<LoadedRow<_>>()?;
    }
    for (day, born) in by_month(days) {
        let keys: Vec<_> = born.iter().map(|at| (wanted[*at].0, &wanted[*at].1, 0)).collect();
        let rows = read(conn, &born_in(&LOAD, day), &keys, cut).await?;
        for (at, rows) in born.into_iter().zip(rows) {
            trees[at] = tree(&wanted[at], &rows).transpose();
        }
    }
    Ok(trees)
}

/// Indexes of trees with a row, by the first day of their month of birth.
pub(super) fn by_month(days: impl IntoIterator<Item = Option<i32>>) -> BTreeMap<i32, Vec<usize>> {
    let mut by_month: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for (at, day) in days.into_iter().enumerate() {
        if let Some(day) = day {
            by_month.entry(month(day, 0).to_epoch_days()).or_default().push(at);
        }
    }
    by_month
}

/// The rows of a statement over several trees, by tree and part index.
pub(super) type TreeRows = BTreeMap<i32, Vec<PgRow>>;

/// Runs a statement on [`TREES`], with tenant, root and last known event of each.
pub(super) async fn read(
    conn: &mut PgConnection,
    sql: &str,
    trees: &[(TenantId, &SessionId, u64)],
    cut: ShardSplit,
) -> LoadedRow<Vec<TreeRows>> {
    let mut parts: Vec<TreeRows> = trees.iter().map(|_| TreeRows::new()).collect();
    for (sql, places) in cut.group_trees(sql, trees) {
        let together: Vec<_> = places.iter().map(|at| trees[*at]).collect();
        for (at, rows) in places.into_iter().zip(read_together(conn, &sql, &together).await?) {
            parts[at] = rows;
        }
    }
    Ok(parts)
}

async fn read_together(
    conn: &mut PgConnection,
    sql: &str,
    trees: &[(TenantId, &SessionId, u64)],
) -> LoadedRow<Vec<TreeRows>> {
    let shards: Vec<i16> = trees.iter().map(|(tenant, root, _)| Shard::of(*tenant, root).0).collect();
    let tenants: Vec<i64> = trees.iter().map(|(tenant, _, _)| tenant.0).collect();
    let roots: Vec<&str> = trees.iter().map(|(_, root, _)| root.as_str()).collect();
    let known: Vec<i64> = trees.iter().map(|(_, _, known)| big(*known)).collect();
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(shards).bind(tenants).bind(roots).bind(known);
    let mut parts: Vec<TreeRows> = trees.iter().map(|_| TreeRows::new()).collect();
    let rows = match rows.fetch_all(conn).await {
        // Their month was dropped meanwhile: what still lives is in another one.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(UNDEFINED_TABLE) => Vec::new(),
        rows => rows?,
    };
    for row in rows {
        let no = usize::try_from(row.try_get::<i64, _>("no")?).unwrap_or(0);
        let of_tree =
            no.checked_sub(1).and_then(|at| parts.get_mut(at)).ok_or_else(|| corrupt("a tree nobody asked for"))?;
        of_tree.entry(row.try_get("part")?).or_default().push(row);
    }
    Ok(parts)
}

fn tree((tenant, root, _, opener): &TreeQuery, rows: &TreeRows) -> Option<LoadedRow<CallTree>> {
    let head = rows.get(&HEAD)?.first()?;
    let restored = || {
        let mut tree = CallTree::new(*tenant, root.clone(), at(head, "started_ms")?);
        tree.epoch = head.try_get("day")?;
        let totals = totals::read(head, rows, opener)?;
        Ok(tree.restore(&events(rows, opener, |_, _, _| Ok(()))?, totals))
    };
    Some(restored())
}

/// Reader of an event's additional fields.
pub(super) type EventTexts = fn(&mut Event, &PgRow, &Opener) -> LoadedRow<()>;

/// The calls and reports among the rows, in order, completed by `whole`.
pub(super) fn events(rows: &TreeRows, opener: &Opener, whole: EventTexts) -> LoadedRow<Vec<Event>> {
    let of = |part: i32| rows.get(&part).map(Vec::as_slice).unwrap_or_default();
    let mut events = Vec::with_capacity(of(CALLS).len() + of(OUTCOMES).len());
    for row in of(CALLS) {
        events.push((Event::Judged(Box::new(CallRow::read(row, opener)?)), row));
    }
    for row in of(OUTCOMES) {
        events.push((Event::Settled(Box::new(opener.open_report(OutcomeRow::read(row)?)?)), row));
    }
    events.iter_mut().try_for_each(|(event, row)| whole(event, row, opener))?;
    events.sort_by_key(|(event, _)| event.seq());
    Ok(events.into_iter().map(|(event, _)| event).collect())
}
