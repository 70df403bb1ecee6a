//! Recently active sessions, filtered.

use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{
    super::{
        Store,
        codes::{RUNNING, STOP},
        decode::{LoadedRow, at, count, decode},
        row::code,
        sealed::Opener,
    },
    filter::{SearchedTree, TREES_MAX, Trees, bind_filter, condition, is_sealed},
};
use crate::error::StoreError;
use callgate_core::domain::{
    calls::{HaltedNames, SearchPage, SessionQuery, SessionStatus},
    ids::TenantId,
    inbox::{SessionLine, SessionPlace},
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
        let read = async |conn: &mut PgConnection| sessions(conn, &opener, wanted, halted).await;
        self.readers.read_of(&[tenant], read).await
    }
}

async fn sessions(
    conn: &mut PgConnection,
    opener: &Opener,
    wanted: &SessionQuery,
    halted: &HaltedNames,
) -> LoadedRow<SearchPage<SessionLine, SessionPlace>> {
    let tenant = opener.tenant();
    let halted = with_those_below(conn, tenant, halted).await?;
    let roots = match wanted.standing {
        Some(SessionStatus::Held) => Some(read_waiting_roots(conn, tenant).await?),
        Some(SessionStatus::Halted) if !halted.all && halted.agents.is_empty() => Some(halted.roots.clone()),
        _ => None,
    };
    let trees = Trees {
        after: wanted.after.as_ref().map(|after| (after.last_us, after.root.as_str())),
        since_ms: wanted.calls.since.map(|at| at.as_millis()),
        until_ms: wanted.calls.until.map(|at| at.as_millis()),
        roots,
        open: wanted.standing == Some(SessionStatus::Calling),
    };
    let is_plain = wanted.calls.is_all() && wanted.standing.is_none();
    let most = if is_plain { wanted.max + 1 } else { TREES_MAX };
    let (trees, mut is_more) = trees.find(conn, tenant, most).await?;
    let (mut found, mut looked): (Vec<SessionLine>, usize) = (Vec::new(), 0);
    while looked < trees.len() && found.len() <= wanted.max {
        let some = &trees[looked..trees.len().min(looked.max(FEW) * 2)];
        let left = wanted.max + 1 - found.len();
        found.extend(of_trees(conn, tenant, some, (wanted, left), &halted).await?);
        looked += some.len();
    }
    is_more |= looked < trees.len() || found.len() > wanted.max;
    let is_full = found.len() > wanted.max;
    found.truncate(wanted.max);
    let last = match found.last() {
        Some(line) if is_full => Some(line.place.clone()),
        _ => trees.last().map(|tree| SessionPlace {
            last_us: tree.last_us,
            root: tree.root.clone(),
            depth: i32::MAX,
            session: String::new(),
        }),
    };
    let next = last.filter(|_| is_more);
    Ok(SearchPage {
        since_us: next.as_ref().map(|next| next.last_us),
        found,
        next,
        is_sealed: is_sealed(&wanted.calls, opener),
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
        .filter_map(|name| callgate_core::domain::ids::SessionId::parse("session", name).ok())
        .map(|session| callgate_core::domain::shard::Shard::of(tenant, &session).0)
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
    (wanted, most): (&SessionQuery, usize),
    halted: &HaltedTrees,
) -> LoadedRow<Vec<SessionLine>> {
    let of_session = "c.shard = t.shard and c.tenant_id = t.tenant_id and c.epoch = t.epoch
        and c.session_id = s.session_id";
    let has_call = match wanted.calls.is_all() {
        // The values are bound, and so have to be named.
        true => condition_of_all(),
        false => format!("exists (select from call c where {of_session} and {})", condition()),
    };
    let sql = format!(
        "select s.session_id, s.root_id, s.parent_id, s.depth, k.last_us,
           (extract(epoch from s.created_at) * 1000)::bigint as created_ms,
           t.steps, t.calls, t.open_calls, t.cost_micros, l.agent_id, l.tool, l.decision, l.reason, z.standing
         from unnest($12::int2[], $13::text[], $14::int8[]) with ordinality as k(shard, root_id, last_us, no)
         join call_tree t on t.shard = k.shard and t.tenant_id = $1 and t.root_id = k.root_id
         join session s on s.shard = t.shard and s.tenant_id = t.tenant_id and s.root_id = t.root_id
         left join lateral (
           select c.agent_id, c.tool, c.decision, c.reason from call c where {of_session}
           order by c.seq desc limit 1) l on true
         cross join lateral (select (case
           when $15 or s.session_id = any($16) or l.agent_id = any($17) then 0
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
         where ($18::text is null or s.root_id <> $18 or (s.depth, s.session_id) > ($19, $20))
           and ($21::int2 is null or z.standing = $21 or ($21 = 3 and l.decision = {STOP})) and {has_call}
         order by k.no, s.depth, s.session_id limit $22"
    );
    let shards: Vec<i16> = trees.iter().map(|tree| tree.shard).collect();
    let roots: Vec<&str> = trees.iter().map(|tree| tree.root.as_str()).collect();
    let heard: Vec<i64> = trees.iter().map(|tree| tree.last_us).collect();
    let query = bind_filter(sql, tenant, &wanted.calls).bind(shards).bind(roots).bind(heard);
    let query = query.bind(halted.all).bind(&halted.sessions).bind(&halted.agents);
    let after = wanted.after.as_ref();
    let query = query
        .bind(after.map(|after| after.root.as_str()))
        .bind(after.map(|after| after.depth))
        .bind(after.map(|after| after.session.as_str()))
        .bind(wanted.standing.map(|standing| code(&SessionStatus::ALL, &standing)));
    let rows = query.bind(i64::try_from(most).unwrap_or(i64::MAX)).fetch_all(conn).await?;
    rows.iter().map(decode_session).collect()
}

/// Condition without a restriction.
fn condition_of_all() -> String {
    let unused = [("2", "text"), ("3", "text"), ("4", "int2"), ("5", "text"), ("6", "text"), ("7", "int2")];
    let more = [("8", "int2"), ("9", "text"), ("10", "bigint"), ("11", "bigint")];
    let all = unused.into_iter().chain(more).map(|(no, kind)| format!("${no}::{kind} is null"));
    all.collect::<Vec<_>>().join(" and ")
}

fn decode_session(row: &PgRow) -> LoadedRow<SessionLine> {
    Ok(SessionLine {
        place: SessionPlace {
            last_us: row.try_get("last_us")?,
            root: row.try_get("root_id")?,
            depth: row.try_get("depth")?,
            session: row.try_get("session_id")?,
        },
        created_at: at(row, "created_ms")?,
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
