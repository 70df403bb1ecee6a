//! What happened to a tree since it was last known: for a replica that has lost a race, and knows all the rest.

use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use super::{
    columns, controls,
    decode::{Loaded, count, judged, maybe_at, settled},
    load::{self, Key},
    row::{CallColumns, OutcomeColumns, big},
};
use crate::domain::{
    event::{Event, Judged, Settled},
    tree::CallTree,
};

/// Events that are read one by one; after more of them the tree is read anew.
const EVENTS_MAX: u64 = 256;

/// Judgements after `$4` up to `$5`, of the tree's sessions; `$3` is a day since 1970.
static CALLS: LazyLock<String> = LazyLock::new(|| {
    let left_out =
        ["shard", "tenant_id", "epoch", "root_id", "rule", "level", "justification", "coerced", "self_corrections"];
    format!(
        "select {}, c.arguments as looks, s.parent_id, s.depth from session s cross join lateral (
           select * from call c where c.shard = s.shard and c.tenant_id = s.tenant_id
             and c.epoch = date '1970-01-01' + $3::int4
             and c.session_id = s.session_id and c.seq > $4 and c.seq <= $5) c
         where s.shard = $6 and s.tenant_id = $1 and s.root_id = $2",
        columns::read(CallColumns::LIST, "c", &left_out)
    )
});

/// Reports likewise. The results only of what a tree keeps.
static OUTCOMES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "select {}, case when o.kept then o.result end as result from session s cross join lateral (
           select * from outcome o where o.shard = s.shard and o.tenant_id = s.tenant_id
             and o.epoch = date '1970-01-01' + $3::int4
             and o.session_id = s.session_id and o.seq > $4 and o.seq <= $5) o
         where s.shard = $6 and s.tenant_id = $1 and s.root_id = $2",
        columns::read(
            OutcomeColumns::LIST,
            "o",
            &["shard", "tenant_id", "epoch", "root_id", "result", "error_message"]
        )
    )
});

/// The tree as it is stored now; none when it has to be read anew.
pub(super) async fn catch_up(conn: &mut PgConnection, tree: CallTree) -> Loaded<Option<CallTree>> {
    let key = Key { tenant: tree.tenant, root: &tree.root.clone(), epoch: tree.epoch };
    // The version first: what is committed while the rest is read is left for the next time.
    let head = sqlx::query(
        "select version, epoch - date '1970-01-01' as day, steps, calls, open_calls, cost_micros, reserved_micros,
           tokens, (extract(epoch from due) * 1000)::bigint as due_ms
         from call_tree where shard = $3 and tenant_id = $1 and root_id = $2",
    );
    let head = head.bind(key.tenant.0).bind(key.root.as_str()).bind(key.shard()).fetch_optional(&mut *conn).await?;
    let Some(head) = head else { return Ok(None) };
    let (stored, day) = (count(&head, "version")?, head.try_get::<i32, _>("day")?);
    if day != key.epoch || !(tree.version..=tree.version + EVENTS_MAX).contains(&stored) {
        return Ok(None);
    }
    let events = since(conn, key, tree.version, stored).await?;
    // Whoever looks after a tree moves that time without an event.
    let due = maybe_at(&head, "due_ms")?;
    let tree = tree.caught_up(&events).map(|tree| CallTree { due, ..tree });
    // Another replica may have settled a call that this tree has forgotten, and so counts otherwise.
    let (spent, open_calls) = (load::spent(&head)?, load::open_calls(&head)?);
    Ok(tree.filter(|tree| tree.version == stored && tree.spent == spent && tree.open_calls == open_calls))
}

async fn since(conn: &mut PgConnection, key: Key<'_>, known: u64, stored: u64) -> Loaded<Vec<Event>> {
    if known == stored {
        return Ok(Vec::new());
    }
    let bound = |sql: &'static str| {
        let query = sqlx::query(AssertSqlSafe(sql)).bind(key.tenant.0).bind(key.root.as_str()).bind(key.epoch);
        query.bind(big(known)).bind(big(stored)).bind(key.shard())
    };
    let mut calls = Vec::new();
    for row in bound(&CALLS).fetch_all(&mut *conn).await? {
        let uses = controls::uses_of(row.try_get("uses")?)?;
        calls.push(Event::Judged(Box::new(Judged { uses, ..judged(&row)? })));
    }
    let mut outcomes = Vec::new();
    for row in bound(&OUTCOMES).fetch_all(&mut *conn).await? {
        outcomes.push(Event::Settled(Box::new(Settled { result: row.try_get("result")?, ..settled(&row)? })));
    }
    let controls = controls::events(conn, key, known).await?.into_iter();
    let mut events: Vec<Event> = calls
        .into_iter()
        .chain(outcomes)
        .chain(controls.filter(|event| event.seq <= stored).map(|event| Event::Controlled(Box::new(event))))
        .collect();
    events.sort_by_key(Event::seq);
    Ok(events)
}
