//! Recently active sessions, filtered.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};
use tokio::time::Instant;

use super::{
    super::{
        Store,
        codes::{REUSE, RUNNING, STOP},
        decode::{LoadedRow, at, count, decode},
        point_queries,
        row::code,
        sealed::Opener,
    },
    filter::{SearchedTree, TREES_MAX, Trees, bind_filter, condition, is_sealed, searchable},
    names::NameSearch,
};
use crate::error::StoreError;
use callgate_core::domain::{
    calls::{HaltedNames, JUDGMENTS_COUNTED_MAX, SearchPage, SessionOrder, SessionQuery, SessionStatus},
    ids::{SessionId, TenantId},
    inbox::{SessionLine, SessionPlace, TreeTotals},
    shard::Shard,
};

/// Number of trees in the first statement, which often suffice.
const FEW: usize = 64;

impl Store {
    /// The matching sessions, by activity of their call trees.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn sessions(
        &self,
        tenant: TenantId,
        wanted: &SessionQuery,
        halted: &HaltedNames,
    ) -> Result<SearchPage<SessionLine, SessionPlace>, StoreError> {
        let opener = self.opener(tenant);
        let names = self.name_search(tenant, &wanted.calls).await?;
        let read = async |conn: &mut PgConnection| sessions(conn, &opener, wanted, halted, &names).await;
        self.readers.read_of(&[tenant], read).await
    }

    /// A session by its id, with the totals of its call tree; none for an unknown one.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn session(
        &self,
        tenant: TenantId,
        id: &SessionId,
        halted: &HaltedNames,
    ) -> Result<Option<(SessionLine, TreeTotals)>, StoreError> {
        self.readers.read_of(&[tenant], async |conn| session(conn, tenant, id, halted).await).await
    }
}

async fn session(
    conn: &mut PgConnection,
    tenant: TenantId,
    id: &SessionId,
    halted: &HaltedNames,
) -> LoadedRow<Option<(SessionLine, TreeTotals)>> {
    let Some(root) = point_queries::root(conn, tenant, id).await? else { return Ok(None) };
    let halted = with_those_below(conn, tenant, halted).await?;
    let tree = [SearchedTree::alone(Shard::of(tenant, &root), &root)];
    let wanted = SessionQuery { id: Some(id.clone()), ..SessionQuery::default() };
    let line = of_trees(conn, tenant, &tree, (&wanted, None, 1), (&halted, &NameSearch::default())).await?.pop();
    let totals = sqlx::query(AssertSqlSafe(format!(
        "select t.tokens, count(*) > $4 as is_more,
           count(distinct (c.session_id, c.call_id)) filter (where c.decision >= {REUSE}) as refused
         from call_tree t left join lateral (
           select c.session_id, c.call_id, c.decision from session s
           join call c on c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
             and c.session_id = s.session_id
           where s.shard = t.shard and s.tenant_id = t.tenant_id and s.root_id = t.root_id limit $4 + 1) c on true
         where t.shard = $1 and t.tenant_id = $2 and t.root_id = $3 group by t.tokens"
    )));
    let totals = totals.bind(Shard::of(tenant, &root).0).bind(tenant.0).bind(root.as_str());
    let row = totals.bind(i64::from(JUDGMENTS_COUNTED_MAX)).fetch_optional(conn).await?;
    let Some((line, row)) = line.zip(row) else { return Ok(None) };
    let refused_calls = if row.try_get("is_more")? { None } else { Some(count(&row, "refused")?) };
    Ok(Some((line, TreeTotals { tokens: count(&row, "tokens")?, refused_calls })))
}

async fn sessions(
    conn: &mut PgConnection,
    opener: &Opener,
    wanted: &SessionQuery,
    halted: &HaltedNames,
    names: &NameSearch,
) -> LoadedRow<SearchPage<SessionLine, SessionPlace>> {
    let tenant = opener.tenant();
    let halted = with_those_below(conn, tenant, halted).await?;
    let mut chosen = Trees { times: names.times.clone(), ..trees_of(conn, tenant, wanted, &halted).await? };
    let is_plain = wanted.calls.is_all() && wanted.standing.is_none();
    let until = Instant::now() + Duration::from_millis(wanted.time_ms);
    let (mut found, mut after): (Vec<SessionLine>, _) = (Vec::new(), wanted.after.clone());
    let next = 'search: loop {
        let most = if is_plain { wanted.max + 1 } else { TREES_MAX };
        let (trees, is_more) = chosen.find(conn, tenant, most).await?;
        let mut looked = 0;
        while let Some(rest) = trees.get(looked..).filter(|rest| !rest.is_empty()) {
            let some = &rest[..searchable(rest, looked.max(FEW))];
            let left = wanted.max + 1 - found.len();
            found.extend(of_trees(conn, tenant, some, (wanted, after.as_ref(), left), (&halted, names)).await?);
            looked += some.len();
            if found.len() > wanted.max {
                found.truncate(wanted.max);
                break 'search found.last().map(|line| line.place.clone());
            }
            after = some.last().map(SearchedTree::end);
            if looked < trees.len() && Instant::now() >= until {
                break 'search after;
            }
        }
        if !is_more {
            break None;
        }
        if Instant::now() >= until || is_plain {
            break after;
        }
        chosen.after = after.as_ref().map(SessionPlace::tree);
    };
    chosen.after = next.as_ref().map(SessionPlace::tree);
    Ok(SearchPage {
        found,
        since_us: next.as_ref().filter(|_| wanted.order == SessionOrder::Latest).map(|next| next.key),
        is_sealed: is_sealed(&wanted.calls, opener),
        is_name_prefix: names.is_prefix,
        trees_left: if next.is_some() && !is_plain { chosen.count(conn, tenant).await? } else { 0 },
        next,
    })
}

/// The trees that a query is about.
async fn trees_of(
    conn: &mut PgConnection,
    tenant: TenantId,
    wanted: &SessionQuery,
    halted: &HaltedTrees,
) -> LoadedRow<Trees> {
    let roots = match wanted.standing {
        Some(SessionStatus::Held) => Some(read_waiting_roots(conn, tenant).await?),
        Some(SessionStatus::Halted) if !halted.all && halted.agents.is_empty() => Some(halted.roots.clone()),
        _ => None,
    };
    Ok(Trees {
        order: wanted.order,
        after: wanted.after.as_ref().map(SessionPlace::tree),
        since_ms: wanted.calls.since.map(|at| at.as_millis()),
        until_ms: wanted.calls.until.map(|at| at.as_millis()),
        roots,
        open: wanted.standing == Some(SessionStatus::Calling),
        times: None,
    })
}

/// Halts, with the sessions below.
struct HaltedTrees {
    all: bool,
    sessions: Vec<String>,
    agents: Vec<String>,
    roots: Vec<String>,
}

async fn with_those_below(conn: &mut PgConnection, tenant: TenantId, halted: &HaltedNames) -> LoadedRow<HaltedTrees> {
    let HaltedNames { all, sessions, agents } = halted.clone();
    let mut halted = HaltedTrees { all, sessions: Vec::new(), agents, roots: Vec::new() };
    if sessions.is_empty() {
        return Ok(halted);
    }
    // Its row beside its tree is the one that those below it are found from.
    let rows = sqlx::query(
        "with recursive below as (
           select t.shard, t.root_id, s.session_id from session s
           join call_tree t on t.tenant_id = s.tenant_id and t.root_id = s.root_id
           where s.shard = any($3) and s.tenant_id = $1 and s.session_id = any($2)
           union
           select b.shard, b.root_id, s.session_id from below b
           join session s on s.shard = b.shard and s.tenant_id = $1 and s.root_id = b.root_id
             and s.parent_id = b.session_id)
         select distinct session_id, root_id from below",
    );
    let shards: Vec<i16> = sessions
        .iter()
        .filter_map(|name| SessionId::parse("session", name).ok())
        .map(|session| Shard::of(tenant, &session).0)
        .collect();
    for row in rows.bind(tenant.0).bind(&sessions).bind(shards).fetch_all(conn).await? {
        halted.sessions.push(row.try_get("session_id")?);
        halted.roots.push(row.try_get("root_id")?);
    }
    Ok(halted)
}

/// The roots of trees that wait for approval.
async fn read_waiting_roots(conn: &mut PgConnection, tenant: TenantId) -> LoadedRow<Vec<String>> {
    let roots = sqlx::query_scalar(
        "select distinct c.root_id from call c
         where c.tenant_id = $1 and c.approval_id is not null and c.approval_expires_at > now()",
    );
    Ok(roots.bind(tenant.0).fetch_all(conn).await?)
}

async fn of_trees(
    conn: &mut PgConnection,
    tenant: TenantId,
    trees: &[SearchedTree],
    (wanted, after, most): (&SessionQuery, Option<&SessionPlace>, usize),
    (halted, names): (&HaltedTrees, &NameSearch),
) -> LoadedRow<Vec<SessionLine>> {
    let of_session = "c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
        and c.session_id = s.session_id";
    let has_call = match wanted.calls.is_all() {
        // The values are bound, and so have to be named.
        true => condition_of_all(),
        false => format!("exists (select from call c where {of_session} and {})", condition()),
    };
    let sql = format!(
        "select s.session_id, s.root_id, s.parent_id, s.depth, k.key,
           (extract(epoch from s.created_at) * 1000)::bigint as created_ms,
           (extract(epoch from t.last_at) * 1000)::bigint as last_ms, t.steps, t.calls, t.open_calls,
           t.cost_micros, l.agent_id, l.tool, l.decision, l.reason, z.standing
         from unnest($15::int2[], $16::text[], $17::int8[]) with ordinality as k(shard, root_id, key, no)
         join call_tree t on t.shard = k.shard and t.tenant_id = $1 and t.root_id = k.root_id
         join session s on s.shard = t.shard and s.tenant_id = t.tenant_id and s.root_id = t.root_id
         left join lateral (
           select c.agent_id, c.tool, c.decision, c.reason from call c where {of_session}
           order by c.seq desc limit 1) l on true
         cross join lateral (select (case
           when $18 or s.session_id = any($19) or l.agent_id = any($20) then 0
           when exists (select from call c where {of_session} and c.approval_id is not null
             and c.approval_expires_at > now() and not exists (
               select from session_event e where e.shard = c.shard and e.tenant_id = c.tenant_id
                 and e.root_id = c.root_id and e.epoch = c.epoch and e.kind in ('answered', 'withdrawn')
                 and e.detail ->> 'approval_id' = c.approval_id)) then 1
           when t.open_calls > 0 and exists (select from call c where {of_session} and c.attempt is not null
             and not exists (
               select from outcome o where o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
                 and o.session_id = c.session_id and o.permit_seq = c.seq and o.status > {RUNNING})) then 2
           when l.decision = {STOP} then 3 else 4 end)::int2 as standing) z
         where ($21::text is null or s.root_id <> $21 or (s.depth, s.session_id) > ($22, $23))
           and ($24::int2 is null or z.standing = $24 or ($24 = 3 and l.decision = {STOP}))
           and ($26::text is null or s.session_id = $26) and {has_call}
         order by k.no, s.depth, s.session_id limit $25"
    );
    let shards: Vec<i16> = trees.iter().map(|tree| tree.shard).collect();
    let roots: Vec<&str> = trees.iter().map(|tree| tree.root.as_str()).collect();
    let keys: Vec<i64> = trees.iter().map(|tree| tree.key).collect();
    let query = bind_filter(sql, tenant, &wanted.calls, names).bind(shards).bind(roots).bind(keys);
    let query = query.bind(halted.all).bind(&halted.sessions).bind(&halted.agents);
    let query = query
        .bind(after.map(|after| after.root.as_str()))
        .bind(after.map(|after| after.depth))
        .bind(after.map(|after| after.session.as_str()))
        .bind(wanted.standing.map(|standing| code(&SessionStatus::ALL, &standing)));
    let query = query.bind(i64::try_from(most).unwrap_or(i64::MAX)).bind(wanted.id.as_ref().map(SessionId::as_str));
    let rows = query.fetch_all(conn).await?;
    rows.iter().map(decode_session).collect()
}

/// Condition without a restriction.
fn condition_of_all() -> String {
    let unused = [("2", "text"), ("3", "text"), ("4", "int2"), ("5", "text"), ("6", "text"), ("7", "int2")];
    let more = [("8", "int2"), ("9", "text"), ("10", "bigint"), ("11", "bigint"), ("12", "text"), ("14", "text")];
    let all = unused.into_iter().chain(more).map(|(no, kind)| format!("${no}::{kind} is null"));
    all.chain(["not $13".to_owned()]).collect::<Vec<_>>().join(" and ")
}

fn decode_session(row: &PgRow) -> LoadedRow<SessionLine> {
    Ok(SessionLine {
        place: SessionPlace {
            key: row.try_get("key")?,
            root: row.try_get("root_id")?,
            depth: row.try_get("depth")?,
            session: row.try_get("session_id")?,
        },
        created_at: at(row, "created_ms")?,
        last_at: at(row, "last_ms")?,
        steps: count(row, "steps")?,
        calls: count(row, "calls")?,
        open_calls: decode(row, "open_calls")?,
        cost_micros: count(row, "cost_micros")?,
        parent: row.try_get("parent_id")?,
        standing: decode(row, "standing")?,
        agent: row.try_get("agent_id")?,
        last_tool: row.try_get("tool")?,
        last_decision: decode(row, "decision")?,
        last_reason: row.try_get("reason")?,
    })
}
