//! Invariants of stored rows, independent of their writers. Each check returns its violations, so that a canary can
//! show that it detects them.

use std::collections::BTreeSet;

use callgate_core::domain::{
    event::Event,
    ids::{DEFAULT_TENANT, TenantId},
    tree::CallTree,
};
use callgate_server::gate::EvaluateAnswer;
use callgate_store::{DecisionStore as _, Store};
use sqlx::Row as _;

use super::{
    gates::{call_id, session},
    postgres::Postgres,
};

pub(crate) type Check = Result<(), String>;

/// At most one permit: it is new at most once (not at all when that answer was lost), and replays of it are equal.
pub(crate) fn one_permit(answers: &[EvaluateAnswer]) -> Check {
    let permits = answers.iter().filter_map(|answer| Some((answer.verdict.permit.as_ref()?, answer.verdict.replayed)));
    let fresh = permits.clone().filter(|(_, replayed)| !replayed).count();
    let keys: BTreeSet<_> = permits.map(|(permit, _)| (&permit.idempotency_key, permit.seq, permit.attempt)).collect();
    match (fresh, keys.len()) {
        (0 | 1, 1) => Ok(()),
        (fresh, keys) => Err(format!("{fresh} new permits, {keys} different ones")),
    }
}

/// At most one permit of a fingerprint is open or succeeded, in the whole tenant for `once`, else in its tree; by SQL.
pub(crate) async fn one_open_permit(postgres: &Postgres) -> Check {
    let twice = postgres
        .rows(
            "select c.tool, encode(c.fingerprint, 'hex'), count(*) from call c where c.attempt is not null and c.once
               and not exists (select from outcome o where o.tenant_id = c.tenant_id and o.epoch = c.epoch
                 and o.session_id = c.session_id and o.permit_seq = c.seq and o.status in (2, 3, 4))
             group by c.tenant_id, c.tool, c.fingerprint having count(*) > 1",
        )
        .await;
    if twice.is_empty() { Ok(()) } else { Err(format!("permitted more than once: {twice:?}")) }
}

/// Every event of the tree has its own place, none is missing, and the last one is the tree's version.
pub(crate) async fn gapless(postgres: &Postgres, root: &str) -> Check {
    gapless_of(postgres, DEFAULT_TENANT, root).await
}

pub(crate) async fn gapless_of(postgres: &Postgres, tenant: TenantId, root: &str) -> Check {
    let mine = format!("where tenant_id = {} and root_id = '{root}'", tenant.0);
    let events = format!("(select seq from call {mine} union all select seq from outcome {mine}) e");
    let said = postgres
        .rows(&format!(
            "select count(*), count(distinct e.seq), coalesce(min(e.seq), 1), coalesce(max(e.seq), 0),
               (select version from call_tree {mine}) from {events}"
        ))
        .await;
    let version = postgres.number(&format!("select version from call_tree {mine}")).await;
    let expected = format!("({version},{version},1,{version},{version})");
    if said == [expected.as_str()] { Ok(()) } else { Err(format!("{root}: events {said:?}, expected {expected}")) }
}

/// The totals of the tree's row are what its rows add up to.
pub(crate) async fn sums(postgres: &Postgres, root: &str) -> Check {
    sums_of(postgres, DEFAULT_TENANT, root).await
}

pub(crate) async fn sums_of(postgres: &Postgres, tenant: TenantId, root: &str) -> Check {
    let of = |table: &str| format!("{table}tenant_id = {} and {table}root_id = '{root}'", tenant.0);
    let totals = postgres
        .rows(&format!(
            "select steps, calls, open_calls, cost_micros, reserved_micros, tokens from call_tree where {}",
            of("")
        ))
        .await;
    let tokens = |row: &str| {
        let columns = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"];
        columns.map(|column| format!("coalesce({row}.{column}, 0)")).join(" + ")
    };
    let settled_by = |statuses: &str| {
        format!(
            "exists (select from outcome o where o.tenant_id = c.tenant_id and o.epoch = c.epoch
               and o.session_id = c.session_id and o.permit_seq = c.seq and o.status in ({statuses}))"
        )
    };
    let added = postgres
        .rows(&format!(
            "select count(*) filter (where c.round = 1 and not c.waited) as steps, count(c.attempt) as calls,
               count(*) filter (where c.attempt is not null and not {any}) as open_calls,
               coalesce(sum(c.cost_micros), 0) + (select coalesce(sum(o.cost_micros), 0) from outcome o
                 where {outcomes}) as cost_micros,
               coalesce(sum(c.reserved_micros) filter (where c.attempt is not null and not {known}), 0)
                 as reserved_micros,
               coalesce(sum({of_calls}), 0) + (select coalesce(sum({of_outcomes}), 0) from outcome o
                 where {outcomes}) as tokens
             from call c where {calls}",
            outcomes = of("o."),
            calls = of("c."),
            any = settled_by("1, 2, 3, 4"),
            known = settled_by("1, 2, 3"),
            of_calls = tokens("c"),
            of_outcomes = tokens("o"),
        ))
        .await;
    if totals == added { Ok(()) } else { Err(format!("{root}: totals {totals:?}, rows {added:?}")) }
}

/// The fold of all stored events is the tree as the store loads it.
pub(crate) async fn fold(postgres: &Postgres, store: &Store, root: &str) -> Check {
    let loaded = store.tree(DEFAULT_TENANT, &session(root), None).await.expect("readable").ok_or("no such tree")?;
    let sql = "select distinct session_id, call_id from call where root_id = $1";
    let calls = sqlx::query(sql).bind(root).fetch_all(&mut postgres.connect().await).await.expect("rows");
    let mut events = Vec::new();
    for row in calls {
        let (in_session, call) = (row.get::<String, _>(0), row.get::<String, _>(1));
        let of_call = store.call(DEFAULT_TENANT, &session(&in_session), &call_id(&call)).await;
        events.extend(of_call.expect("readable"));
    }
    events.sort_by_key(Event::seq);
    let mut folded = CallTree::new(DEFAULT_TENANT, session(root), loaded.started_at);
    events.iter().for_each(|event| folded.apply(event));
    if folded == loaded {
        return Ok(());
    }
    Err(format!("{root}: the fold of {} events is not the tree:\n{folded:#?}\n{loaded:#?}", events.len()))
}

/// All of it, for one tree.
#[track_caller]
pub(crate) fn good(checks: impl IntoIterator<Item = Check>) {
    let complaints: Vec<String> = checks.into_iter().filter_map(Result::err).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
