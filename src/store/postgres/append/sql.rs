//! The statements of an append.

use std::sync::LazyLock;

use super::super::{
    columns::{insert, set, unnest},
    controls::ControlColumns,
    row::{AddColumns, CallColumns, CounterColumns, LedgerColumns, OutcomeColumns, SessionColumns, TreeColumns},
};
use crate::store::error::Lost;

const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms";

pub(super) static NEW_TREES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into call_tree (shard, tenant_id, root_id, epoch, version, started_at, last_at)
         select shard, tenant_id, root_id, date '1970-01-01' + epoch, 0, to_timestamp(started_ms / 1000.0),
           to_timestamp(last_ms / 1000.0) from {} where expected = 0 on conflict do nothing",
        unnest(TreeColumns::LIST, 1)
    )
});
pub(super) static NEW_SESSIONS: LazyLock<String> = LazyLock::new(|| {
    let (insert, from) = (insert(SessionColumns::LIST, "session"), unnest(SessionColumns::LIST, 1));
    format!("{insert} from {from} order by tenant_id, session_id on conflict do nothing")
});
pub(super) static NEW_LEDGER: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into ledger (shard, tenant_id, ledger_key, revision, state)
         select shard, tenant_id, ledger_key, 0, 0 from {} where expected = 0 on conflict do nothing",
        unnest(LedgerColumns::LIST, 1)
    )
});
pub(super) static NEW_COUNTERS: LazyLock<String> = LazyLock::new(|| {
    let (insert, from) = (insert(CounterColumns::LIST, "counter"), unnest(CounterColumns::LIST, 1));
    let insert = insert.replacen(") select ", ", used) select ", 1);
    format!("{insert}, 0 from {from} on conflict do nothing")
});

fn insert_calls(first: usize, winners: &str) -> String {
    let (insert, from) = (insert(CallColumns::LIST, "call"), unnest(CallColumns::LIST, first));
    format!("{insert} from {from} where {winners} returning 1")
}

fn insert_outcomes(first: usize, winners: &str) -> String {
    let (insert, from) = (insert(OutcomeColumns::LIST, "outcome"), unnest(OutcomeColumns::LIST, first));
    format!(
        "{insert} from {from} where {winners} returning shard, tenant_id, epoch, session_id, permit_seq, seq,
         follow_up_ok"
    )
}

fn insert_controls(first: usize, winners: &str) -> String {
    let (insert, from) = (insert(ControlColumns::LIST, "session_event"), unnest(ControlColumns::LIST, first));
    format!("{insert} from {from} where {winners} returning 1")
}

fn set_tree() -> String {
    set(TreeColumns::LIST, &["shard", "tenant_id", "root_id"])
}

/// A division by zero, which undoes the whole append, unless as many rows were changed as it was decided: anything else
/// would acknowledge what is not there.
fn all_applied(pairs: &[(&str, &str)]) -> String {
    let equal: Vec<String> = pairs
        .iter()
        .map(|(decided, applied)| format!("(select count(*) from {decided}) = (select count(*) from {applied})"))
        .collect();
    format!("1 / (case when {} then 1 else 0 end) as applied", equal.join(" and "))
}

/// What the rollups are to count.
const TRIALS: &str = "insert into retry_trial (shard, tenant_id, epoch, session_id, permit_seq, seq) \
    select shard, tenant_id, epoch, session_id, permit_seq, seq from io where follow_up_ok is not null returning 1";

/// Finds, checks and locks the trees of the batch in array order, and keeps where their rows are. `LATERAL … FOR
/// UPDATE` goes row by row through the primary key, whatever the planner believed about the table's size when it made
/// its generic plan; the updates then go by `ctid`. A row that somebody else has moved has another version and does
/// not get that far.
fn locked_trees(first: usize) -> String {
    format!(
        "ch as materialized (select x.*, l.ok, l.tid from {} left join lateral (
           select true as ok, t.ctid as tid from call_tree t where t.shard = x.shard
             and t.tenant_id = x.tenant_id and t.root_id = x.root_id
             and t.version = x.expected for update) l on true),
         s as materialized (select array_agg(coalesce(ok, false)) as m from ch)",
        unnest(TreeColumns::LIST, first)
    )
}

pub(super) static LIGHT: LazyLock<String> = LazyLock::new(|| {
    let calls = 1 + TreeColumns::LIST.len();
    let winners = "(select m from s)[no]";
    format!(
        "with {trees},
         ut as (update call_tree t set {set_tree} from ch x where x.ok and t.ctid = x.tid returning 1),
         ic as ({calls}),
         io as ({outcomes}),
         it as ({TRIALS})
         select (select array_agg(no) from ch where ok) as won, null::int4[] as losers, null::int4[] as reasons,
           null::int8[] as used, {applied}, {NOW}",
        trees = locked_trees(1),
        set_tree = set_tree(),
        applied = all_applied(&[("ch where ok", "ut")]),
        calls = insert_calls(calls, winners),
        outcomes = insert_outcomes(calls + CallColumns::LIST.len(), winners),
    )
});

/// The full form: each stage reads the one before it, so that trees are locked before counters and counters before the
/// ledger. A running sum over the counters refuses too much rather than too little.
pub(super) static FULL: LazyLock<String> = LazyLock::new(|| {
    let sessions = 1 + TreeColumns::LIST.len();
    let calls = sessions + SessionColumns::LIST.len();
    let outcomes = calls + CallColumns::LIST.len();
    let ledger = outcomes + OutcomeColumns::LIST.len();
    let counters = ledger + LedgerColumns::LIST.len();
    let adds = counters + CounterColumns::LIST.len();
    let controls = adds + AddColumns::LIST.len();
    let winners = "(select m from ok)[no]";
    format!(
        "with {trees},
         co as materialized (select * from {counters}),
         c as materialized (select array_agg(l.used) as used from co left join lateral (
           select used from counter k where k.shard = co.shard and k.tenant_id = co.tenant_id
             and k.agent_id = co.agent_id
             and k.day = date '1970-01-01' + co.day and k.dimension = co.dimension and k.tier = co.tier
             and k.tier_window = co.tier_window and (select m from s) is not null
           for update) l on true),
         li as materialized (select x.*, l.ok, l.tid from {ledger} left join lateral (
           select true as ok, l.ctid as tid from ledger l where l.shard = x.shard and l.tenant_id = x.tenant_id
             and l.ledger_key = x.ledger_key and l.revision = x.expected
             and (select used from c) is distinct from '{{}}' for update) l on true),
         bad as materialized (
           select ch.no, {version} as why from ch where ok is null
           union all
           select x.no, {session} from {sessions} cross join lateral (select 1 from session q
             where q.shard = x.shard and q.tenant_id = x.tenant_id and q.session_id = x.session_id
               and q.root_id <> x.root_id limit 1) d
           union all
           select no, {ledger_moved} from li where ok is null
           union all
           select e.no, {call_id} from (select no, shard, tenant_id, epoch, session_id, call_id, round from {calls}) e
             cross join lateral (select 1 from call k where k.shard = e.shard and k.tenant_id = e.tenant_id
               and k.epoch = date '1970-01-01' + e.epoch and k.session_id = e.session_id and k.call_id = e.call_id
               and k.round = e.round limit 1) d),
         ci as materialized (select no, k, amount, max, (select used from c)[k] as used from {adds}
           where no not in (select no from bad)),
         run as materialized (
           select no, max is not null
             and used + sum(greatest(amount, 0)) over (partition by k order by no, amount) > max as over from ci),
         lost as materialized (select no, why from bad union all select no, {counter} from run where over),
         ok as materialized (select array_agg(ch.no not in (select no from lost)) as m from ch),
         ut as (update call_tree t set {set_tree} from ch x
           where (select m from ok)[x.no] and t.ctid = x.tid returning 1),
         uc as (update counter k set used = k.used + d.amount
           from (select k, sum(amount)::bigint as amount from ci where {winners} group by k) d join co on co.k = d.k
           where k.shard = co.shard and k.tenant_id = co.tenant_id and k.agent_id = co.agent_id
             and k.day = date '1970-01-01' + co.day
             and k.dimension = co.dimension and k.tier = co.tier and k.tier_window = co.tier_window
           returning co.k as k, k.used as used),
         ul as (update ledger l set revision = x.expected + 1, {set_ledger}
           from li x where (select m from ok)[x.no] and l.ctid = x.tid returning 1),
         ic as ({insert_calls}),
         io as ({insert_outcomes}),
         it as ({TRIALS}),
         ie as ({insert_controls})
         select (select array_agg(ch.no) from ch where (select m from ok)[ch.no]) as won,
           (select array_agg(no) from lost) as losers, (select array_agg(why) from lost) as reasons,
           (select array_agg(coalesce(uc.used, (select used from c)[co.k]) order by co.k) from co left join uc on
           uc.k = co.k)
             as used,
           {applied}, {NOW}",
        trees = locked_trees(1),
        set_tree = set_tree(),
        set_ledger = set(LedgerColumns::LIST, &["shard", "tenant_id", "ledger_key"]),
        version = Lost::Version.code(),
        session = Lost::Session.code(),
        ledger_moved = Lost::Ledger.code(),
        call_id = Lost::CallId.code(),
        counter = Lost::Counter.code(),
        applied = all_applied(&[("ch where (select m from ok)[no]", "ut"), ("li where (select m from ok)[no]", "ul"),]),
        counters = unnest(CounterColumns::LIST, counters),
        ledger = unnest(LedgerColumns::LIST, ledger),
        sessions = unnest(SessionColumns::LIST, sessions),
        calls = unnest(CallColumns::LIST, calls),
        adds = unnest(AddColumns::LIST, adds),
        insert_calls = insert_calls(calls, winners),
        insert_outcomes = insert_outcomes(outcomes, winners),
        insert_controls = insert_controls(controls, winners),
    )
});
