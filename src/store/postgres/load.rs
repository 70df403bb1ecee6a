//! A cold tree, read back. The version is read first: whatever is committed while the rest is read leaves the tree with
//! an old version, so that nothing decided on the mixture can be accepted.

use std::{collections::BTreeMap, sync::LazyLock};

use sqlx::{Executor as _, PgConnection, Row as _, postgres::PgRow};

use super::{
    columns, controls,
    decode::{Loaded, at, corrupt, count, hash, judged, maybe_at, name, settled},
    look_up,
    row::{CallColumns, OutcomeColumns},
};
use crate::domain::{
    budget::Spent,
    event::Event,
    fingerprint::{Fingerprint, ResultDigest},
    ids::{CallId, SessionId, TenantId, ToolName},
    shard::Shard,
    tree::{CallTree, FAILED_ARGUMENTS_MAX, HELD_MAX, RunTotals, SEEN_MAX, SESSIONS_MAX, Totals},
};

/// Rows of judgements read a session: more than a tree remembers, since one call may have several.
const ROWS_MAX: i64 = 160;

/// The columns of a judgement that a tree is made from; the arguments only as long as a tree remembers them.
static CALL: LazyLock<String> = LazyLock::new(|| {
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
    format!(
        "{},
         case when c.attempt is not null and not exists (select from outcome o where o.shard = c.shard
           and o.tenant_id = c.tenant_id
           and o.epoch = c.epoch and o.session_id = c.session_id and o.permit_seq = c.seq and o.status > 0
           and (o.failure is null or octet_length(c.arguments) > {FAILED_ARGUMENTS_MAX}))
           then c.arguments end as arguments,
         case when octet_length(c.arguments) <= {FAILED_ARGUMENTS_MAX} then c.arguments end as looks,
         s.parent_id, s.depth",
        columns::read(CallColumns::LIST, "c", &left_out),
    )
});

static OUTCOME: LazyLock<String> = LazyLock::new(|| {
    columns::read(
        OutcomeColumns::LIST,
        "o",
        &["shard", "tenant_id", "epoch", "root_id", "result", "error_message", "gist", "made"],
    )
});

/// The last judgements of every session of the tree, all that are still open, and the last that a person is asked about
/// or has approved; `$3` is a day since 1970.
const RECENT: &str = "select c.* from session s cross join lateral (
      select c.* from call c where c.shard = s.shard and c.tenant_id = s.tenant_id
        and c.epoch = date '1970-01-01' + $3::int4
        and c.session_id = s.session_id order by c.seq desc limit $4) c
    where s.shard = $7 and s.tenant_id = $1 and s.root_id = $2
    union
    select c.* from session s join call c on c.shard = s.shard and c.tenant_id = s.tenant_id
      and c.session_id = s.session_id
    where s.shard = $7 and s.tenant_id = $1 and s.root_id = $2 and c.epoch = date '1970-01-01' + $3::int4
      and c.attempt is not null
      and $5 > 0 and not exists (select from outcome o where o.shard = c.shard and o.tenant_id = c.tenant_id
      and o.epoch = c.epoch
        and o.session_id = c.session_id and o.permit_seq = c.seq and o.status > 0)
    union
    select c.* from session s cross join lateral (
      select h.* from call h where h.shard = s.shard and h.tenant_id = s.tenant_id
        and h.epoch = date '1970-01-01' + $3::int4
        and h.session_id = s.session_id and h.approval_id is not null
        and not exists (select from call n where n.shard = h.shard and n.tenant_id = h.tenant_id and n.epoch = h.epoch
          and n.session_id = h.session_id and n.seq > h.seq
          and (n.call_id = h.call_id or (n.fingerprint = h.fingerprint and n.attempt is not null)))
        and not exists (select from session_event e where e.shard = h.shard and e.tenant_id = h.tenant_id
        and e.root_id = $2
          and e.epoch = h.epoch and e.kind in ('answered', 'withdrawn')
          and e.detail ->> 'approval_id' = h.approval_id and e.detail ->> 'approved' is distinct from 'true')
      order by h.seq desc limit $6) c
    where s.shard = $7 and s.tenant_id = $1 and s.root_id = $2";

/// A tree as it was at one moment: what its totals count is what it knows, so that later events can be put on top.
const SNAPSHOT: &str = "begin isolation level repeatable read, read only";

/// Reads a tree; none when it has no event yet.
pub(super) async fn tree(conn: &mut PgConnection, tenant: TenantId, root: &SessionId) -> Loaded<Option<CallTree>> {
    conn.execute(SNAPSHOT).await?;
    let read = at_one_moment(conn, tenant, root).await;
    let ended = conn.execute(if read.is_ok() { "commit" } else { "rollback" }).await;
    let tree = read?;
    ended?;
    Ok(tree)
}

async fn at_one_moment(conn: &mut PgConnection, tenant: TenantId, root: &SessionId) -> Loaded<Option<CallTree>> {
    let head = sqlx::query(
        "select epoch - date '1970-01-01' as day, version, (extract(epoch from started_at) * 1000)::bigint as
        started_ms,
           (extract(epoch from last_at) * 1000)::bigint as last_ms,
           (extract(epoch from due) * 1000)::bigint as due_ms, steps, calls, open_calls, cost_micros,
           reserved_micros, tokens
         from call_tree where shard = $3 and tenant_id = $1 and root_id = $2 and version > 0",
    )
    .bind(tenant.0)
    .bind(root.as_str())
    .bind(Shard::of(tenant, root).0)
    .fetch_optional(&mut *conn)
    .await?;
    let Some(head) = head else { return Ok(None) };
    let mut tree = CallTree::new(tenant, root.clone(), at(&head, "started_ms")?);
    tree.epoch = head.try_get("day")?;
    let open_calls = open_calls(&head)?;
    let key = Key { tenant, root, epoch: tree.epoch };
    let events = events(conn, key, i32::try_from(open_calls).unwrap_or(i32::MAX)).await?;
    let totals = Totals {
        version: count(&head, "version")?,
        last_at: at(&head, "last_ms")?,
        spent: spent(&head)?,
        by_tool: by_tool(conn, key).await?,
        open_calls,
        due: maybe_at(&head, "due_ms")?,
        sessions: sessions(conn, key).await?,
        seen: seen(conn, key).await?,
        forgotten_change: forgotten_change(conn, key, &events).await?,
        controls: controls::events(conn, key, 0).await?,
        uses: controls::uses(conn, key).await?,
        changes: controls::changes(conn, key).await?,
        kept: controls::kept(conn, key).await?,
    };
    Ok(Some(tree.restore(&events, totals)))
}

/// What a tree has spent, from its row.
pub(super) fn spent(head: &PgRow) -> Loaded<Spent> {
    Ok(Spent {
        steps: count(head, "steps")?,
        calls: count(head, "calls")?,
        cost_micros: count(head, "cost_micros")?,
        reserved_micros: count(head, "reserved_micros")?,
        tokens: count(head, "tokens")?,
    })
}

/// Calls of a tree that have a permit and no outcome, from its row.
pub(super) fn open_calls(head: &PgRow) -> Loaded<u32> {
    Ok(u32::try_from(head.try_get::<i32, _>("open_calls")?).unwrap_or(0))
}

#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) tenant: TenantId,
    pub(super) root: &'a SessionId,
    pub(super) epoch: i32,
}

impl Key<'_> {
    /// The tree's shard.
    pub(super) fn shard(self) -> i16 {
        Shard::of(self.tenant, self.root).0
    }
}

async fn events(conn: &mut PgConnection, key: Key<'_>, open: i32) -> Loaded<Vec<Event>> {
    let calls = format!(
        "select {} from ({RECENT}) c join session s on s.shard = c.shard and s.tenant_id = c.tenant_id
          and s.root_id = c.root_id
           and s.session_id = c.session_id",
        *CALL
    );
    let outcomes = format!(
        "select {} from ({RECENT}) c cross join lateral (
           select o.* from outcome o where o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
             and o.session_id = c.session_id and o.permit_seq = c.seq order by o.seq desc limit 4) o
         where c.attempt is not null",
        *OUTCOME
    );
    let bound = |sql: String| {
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(key.tenant.0).bind(key.root.as_str());
        query.bind(key.epoch).bind(ROWS_MAX).bind(open).bind(HELD_MAX as i64).bind(key.shard())
    };
    let calls = bound(calls).fetch_all(&mut *conn).await?;
    in_order(&calls, &bound(outcomes).fetch_all(&mut *conn).await?)
}

/// All events of one call_id, oldest first: for a call that its tree no longer remembers.
pub(super) async fn call(
    conn: &mut PgConnection,
    tenant: TenantId,
    epoch: i32,
    session: &SessionId,
    call_id: &CallId,
) -> Loaded<Vec<Event>> {
    let Some(root) = look_up::root(&mut *conn, tenant, session).await? else { return Ok(Vec::new()) };
    let calls = format!(
        "select {} from session s join call c on c.shard = s.shard and c.tenant_id = s.tenant_id
          and c.session_id = s.session_id
         where s.shard = $5 and s.tenant_id = $1 and c.epoch = date '1970-01-01' + $2::int4
           and c.session_id = $3 and c.call_id = $4",
        *CALL
    );
    let outcomes = format!(
        "select {} from session s join call c on c.shard = s.shard and c.tenant_id = s.tenant_id
          and c.session_id = s.session_id
         join outcome o on o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
           and o.session_id = c.session_id and o.permit_seq = c.seq
         where s.shard = $5 and s.tenant_id = $1 and c.epoch = date '1970-01-01' + $2::int4
           and c.session_id = $3 and c.call_id = $4",
        *OUTCOME
    );
    let bound = |sql: String| {
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(tenant.0).bind(epoch);
        query.bind(session.as_str()).bind(call_id.as_str()).bind(Shard::of(tenant, &root).0)
    };
    let calls = bound(calls).fetch_all(&mut *conn).await?;
    in_order(&calls, &bound(outcomes).fetch_all(&mut *conn).await?)
}

fn in_order(calls: &[PgRow], outcomes: &[PgRow]) -> Loaded<Vec<Event>> {
    let calls = calls.iter().map(|row| Ok(Event::Judged(Box::new(judged(row)?))));
    let outcomes = outcomes.iter().map(|row| Ok(Event::Settled(Box::new(settled(row)?))));
    let mut events: Vec<Event> = calls.chain(outcomes).collect::<Loaded<_>>()?;
    events.sort_by_key(Event::seq);
    Ok(events)
}

async fn by_tool(conn: &mut PgConnection, key: Key<'_>) -> Loaded<BTreeMap<ToolName, u64>> {
    let rows = sqlx::query(
        "select c.tool, count(*) as calls from session s join call c on c.shard = s.shard
          and c.tenant_id = s.tenant_id
           and c.session_id = s.session_id and c.epoch = date '1970-01-01' + $3::int4
         where s.shard = $4 and s.tenant_id = $1 and s.root_id = $2 and c.attempt is not null group by 1",
    );
    let rows =
        rows.bind(key.tenant.0).bind(key.root.as_str()).bind(key.epoch).bind(key.shard()).fetch_all(conn).await?;
    rows.iter().map(|row| Ok((name(ToolName::parse, row.try_get("tool")?)?, count(row, "calls")?))).collect()
}

type SessionTotals = (SessionId, Option<SessionId>, u32, RunTotals);

/// Every session, with what its current run has spent: the rows since the run's first event.
async fn sessions(conn: &mut PgConnection, key: Key<'_>) -> Loaded<Vec<SessionTotals>> {
    let rows = sqlx::query(
        "select s.session_id, s.parent_id, s.depth, r.*, o.cost_micros as outcome_cost, o.tokens as outcome_tokens,
           o.unsettled, (select jsonb_object_agg(x.tool, x.calls)::text from (
             select tool, count(*) as calls from call c where c.shard = s.shard and c.tenant_id = s.tenant_id
               and c.epoch = date '1970-01-01' + $3::int4 and c.session_id = s.session_id and c.seq >= r.run_from
               and c.attempt is not null group by 1) x) as by_tool
         from session s
         left join lateral (select run_from from call c where c.shard = s.shard and c.tenant_id = s.tenant_id
           and c.epoch = date '1970-01-01' + $3::int4 and c.session_id = s.session_id order by seq desc limit 1) l
           on true
         left join lateral (
           select l.run_from, (extract(epoch from min(c.at)) * 1000)::bigint as started_ms,
             count(*) filter (where c.round = 1 and not c.terminal) as steps,
             count(c.attempt) filter (where not c.terminal) as calls,
             coalesce(sum(c.cost_micros), 0)::bigint as cost_micros,
             (coalesce(sum(c.input_tokens), 0) + coalesce(sum(c.output_tokens), 0) +
             coalesce(sum(c.cache_read_tokens), 0)
               + coalesce(sum(c.cache_write_tokens), 0))::bigint as tokens
           from call c where c.shard = s.shard and c.tenant_id = s.tenant_id
             and c.epoch = date '1970-01-01' + $3::int4
             and c.session_id = s.session_id and c.seq >= l.run_from) r on true
         left join lateral (
           select coalesce(sum(x.cost), 0)::bigint as cost_micros, coalesce(sum(x.tokens), 0)::bigint as tokens,
             coalesce(sum(c.reserved_micros) filter (where not coalesce(x.is_settled, false)), 0)::bigint as unsettled
           from call c left join lateral (
             select sum(o.cost_micros) as cost, bool_or(o.status in (1, 2, 3)) as is_settled,
               sum(coalesce(o.input_tokens, 0) + coalesce(o.output_tokens, 0) + coalesce(o.cache_read_tokens, 0)
                 + coalesce(o.cache_write_tokens, 0)) as tokens
             from outcome o where o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
               and o.session_id = c.session_id
               and o.permit_seq = c.seq) x on true
           where c.shard = s.shard and c.tenant_id = s.tenant_id
             and c.epoch = date '1970-01-01' + $3::int4 and c.session_id = s.session_id
             and c.seq >= l.run_from and c.attempt is not null) o on true
         where s.shard = $5 and s.tenant_id = $1 and s.root_id = $2 limit $4",
    );
    let most = i64::try_from(SESSIONS_MAX).unwrap_or(i64::MAX);
    let rows = rows
        .bind(key.tenant.0)
        .bind(key.root.as_str())
        .bind(key.epoch)
        .bind(most)
        .bind(key.shard())
        .fetch_all(conn)
        .await?;
    rows.iter().map(session_totals).collect()
}

fn session_totals(row: &PgRow) -> Loaded<SessionTotals> {
    let by_tool: Option<String> = row.try_get("by_tool")?;
    let by_tool: BTreeMap<String, u64> = by_tool
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|e| corrupt(&e.to_string()))?
        .unwrap_or_default();
    let parent: Option<String> = row.try_get("parent_id")?;
    let run = RunTotals {
        started_at: at(row, "started_ms")?,
        spent: Spent {
            steps: count(row, "steps")?,
            calls: count(row, "calls")?,
            cost_micros: count(row, "cost_micros")? + count(row, "outcome_cost")?,
            reserved_micros: count(row, "unsettled")?,
            tokens: count(row, "tokens")? + count(row, "outcome_tokens")?,
        },
        by_tool: by_tool.into_iter().map(|(tool, n)| Ok((name(ToolName::parse, &tool)?, n))).collect::<Loaded<_>>()?,
    };
    Ok((
        name(SessionId::parse, row.try_get("session_id")?)?,
        parent.map(|parent| name(SessionId::parse, &parent)).transpose()?,
        u32::try_from(row.try_get::<i32, _>("depth")?).unwrap_or(0),
        run,
    ))
}

async fn seen(conn: &mut PgConnection, key: Key<'_>) -> Loaded<Vec<(SessionId, Fingerprint, ResultDigest)>> {
    let rows = sqlx::query(
        "select s.session_id, x.fingerprint, x.digest from session s cross join lateral (
           select o.seq, c.fingerprint, o.digest from call c join outcome o on o.shard = c.shard
             and o.tenant_id = c.tenant_id
             and o.epoch = c.epoch and o.session_id = c.session_id and o.permit_seq = c.seq
           where c.shard = s.shard and c.tenant_id = s.tenant_id
             and c.epoch = date '1970-01-01' + $3::int4 and c.session_id = s.session_id
             and o.status = 1 and o.digest is not null
           order by c.seq desc limit $4) x
         where s.shard = $5 and s.tenant_id = $1 and s.root_id = $2 order by x.seq",
    );
    let most = i64::try_from(SEEN_MAX).unwrap_or(i64::MAX);
    let rows = rows
        .bind(key.tenant.0)
        .bind(key.root.as_str())
        .bind(key.epoch)
        .bind(most)
        .bind(key.shard())
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| {
            let session = name(SessionId::parse, row.try_get("session_id")?)?;
            let fingerprint = Fingerprint(hash(row.try_get("fingerprint")?)?);
            Ok((session, fingerprint, ResultDigest(hash(row.try_get("digest")?)?)))
        })
        .collect()
}

/// The latest event, among the rows that were not read, that may have changed the world. It is read too wide rather
/// than too narrow: a change that is no longer remembered only lets a call run again.
async fn forgotten_change(conn: &mut PgConnection, key: Key<'_>, events: &[Event]) -> Loaded<u64> {
    let mut read: BTreeMap<&SessionId, Vec<i64>> = BTreeMap::new();
    for event in events {
        if let Event::Judged(judged) = event {
            read.entry(&judged.session).or_default().push(super::row::big(judged.seq));
        }
    }
    let mut latest = 0;
    for (session, seqs) in &read {
        // Only a session with more rows than were read has forgotten any; older ones were read for what they are owed.
        let Some(window) = seqs.len().checked_sub(ROWS_MAX as usize) else { continue };
        let row = sqlx::query(
            "select coalesce(max(greatest(o.seq, c.seq)), 0)::bigint as seq from call c left join outcome o
               on o.shard = c.shard and o.tenant_id = c.tenant_id and o.epoch = c.epoch
                 and o.session_id = c.session_id and o.permit_seq
               = c.seq
             where c.shard = $6 and c.tenant_id = $1 and c.epoch = date '1970-01-01' + $2::int4 and c.session_id = $3
               and c.seq < $4
               and c.seq <> all($5)
               and c.attempt is not null
               and ((o.status = 1 and c.effect not in (1, 4))
                 or (c.effect = 2 and coalesce(o.status, 0) not in (2, 3)))",
        );
        let row =
            row.bind(key.tenant.0).bind(key.epoch).bind(session.as_str()).bind(seqs[window]).bind(&seqs[..window]);
        let row = row.bind(key.shard());
        latest = latest.max(count(&row.fetch_one(&mut *conn).await?, "seq")?);
    }
    Ok(latest)
}
