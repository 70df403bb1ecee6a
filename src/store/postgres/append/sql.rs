//! The statements of an append.

use std::sync::LazyLock;

use super::super::{
    controls::ControlColumns,
    follow_up,
    row::{AddColumns, CallColumns, CounterColumns, LedgerColumns, OutcomeColumns, SessionColumns, TreeColumns},
};

const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms";
const TREE_SET: &str = "version = x.next, epoch = date '1970-01-01' + x.epoch, \
    started_at = to_timestamp(x.started_ms / 1000.0), last_at = to_timestamp(x.last_ms / 1000.0), steps = x.steps, \
    calls = x.calls, open_calls = x.open_calls, cost_micros = x.cost_micros, reserved_micros = x.reserved_micros, \
    tokens = x.tokens";

pub(super) static NEW_TREES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into call_tree (tenant_id, root_id, epoch, started_at, last_at)
         select tenant_id, root_id, date '1970-01-01' + epoch, to_timestamp(started_ms / 1000.0),
           to_timestamp(last_ms / 1000.0) from {} where expected = 0 on conflict do nothing",
        TreeColumns::unnest(1)
    )
});
pub(super) static NEW_SESSIONS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into session (tenant_id, session_id, root_id, parent_id, depth)
         select tenant_id, session_id, root_id, parent_id, depth from {} order by 1, 2 on conflict do nothing",
        SessionColumns::unnest(1)
    )
});
pub(super) static NEW_LEDGER: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into ledger (tenant_id, ledger_key) select tenant_id, ledger_key from {} where expected = 0
         on conflict do nothing",
        LedgerColumns::unnest(1)
    )
});
pub(super) static NEW_COUNTERS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into counter (tenant_id, agent_id, day, dimension, tier, stretch)
         select tenant_id, agent_id, date '1970-01-01' + day, dimension, tier, stretch from {} on conflict do nothing",
        CounterColumns::unnest(1)
    )
});

fn insert_calls(first: usize, winners: &str) -> String {
    format!(
        "insert into call (tenant_id, epoch, session_id, seq, root_id, call_id, round, at, run_id, run_from, batch,
           agent_id, tool, fingerprint, args_digest, effect, resource, once, idempotent, decision, would, rule, reason,
           level, findings, attempt, occurrence, idempotency_key, lease_until, reserved_micros, approval_id,
           approval_expires_at, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros,
           observed, policy_version, arguments, justification, uses, terminal, share, coerced, self_corrections,
           {follow_up})
         select tenant_id, date '1970-01-01' + epoch, session_id, seq, root_id, call_id, round,
           to_timestamp(at_ms / 1000.0), run_id, run_from, batch, agent_id, tool, fingerprint, args_digest, effect,
           resource, once, idempotent, decision, would, rule, reason, level, findings::jsonb, attempt, occurrence,
           idempotency_key, to_timestamp(lease_ms / 1000.0), reserved_micros, approval_id,
           to_timestamp(approval_ms / 1000.0), input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
           cost_micros, observed, policy_version, arguments, justification, uses::jsonb, terminal, share,
           coerced::jsonb, self_corrections::jsonb, {values}
         from {calls} where {winners} returning 1",
        follow_up = follow_up::columns(""),
        values = follow_up::values(),
        calls = CallColumns::unnest(first),
    )
}

fn insert_outcomes(first: usize, winners: &str) -> String {
    format!(
        "insert into outcome (tenant_id, epoch, session_id, permit_seq, seq, root_id, call_id, at, status, failure,
           error_signature, digest, progress, retryable, retry_after_ms, retries_remaining, p_success, p_low, p_high,
           confidence, basis, guard, lease_until, by_lease, input_tokens, output_tokens, cache_read_tokens,
           cache_write_tokens, cost_micros, duration_ms, is_complete, total_matches, progress_note, result,
           result_bytes, error_message, follow_up_ok, trials, as_of, probe,
           tool_state, failure_share, failures, failing_ms, sketch, kept)
         select tenant_id, date '1970-01-01' + epoch, session_id, permit_seq, seq, root_id, call_id,
           to_timestamp(at_ms / 1000.0), status, failure, error_signature, digest, progress, retryable, retry_after_ms,
           retries_remaining, p_success, p_low, p_high, confidence, basis, guard, to_timestamp(lease_ms / 1000.0),
           by_lease, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros, duration_ms,
           is_complete, total_matches, progress_note, result, result_bytes, error_message,
           follow_up_ok, trials, to_timestamp(as_of_ms / 1000.0), probe, tool_state, failure_share, failures,
           failing_ms, sketch, kept
         from {} where {winners} returning tenant_id, epoch, session_id, permit_seq, seq, follow_up_ok",
        OutcomeColumns::unnest(first)
    )
}

fn insert_controls(first: usize, winners: &str) -> String {
    format!(
        "insert into session_event (tenant_id, root_id, epoch, seq, session_id, at, kind, actor, reason, detail)
         select tenant_id, root_id, date '1970-01-01' + epoch, seq, session_id, to_timestamp(at_ms / 1000.0), kind,
           actor, reason, detail::jsonb from {} where {winners} returning 1",
        ControlColumns::unnest(first)
    )
}

/// What the rollups are to count.
const TRIALS: &str = "insert into retry_trial (tenant_id, epoch, session_id, permit_seq, seq) \
    select tenant_id, epoch, session_id, permit_seq, seq from io where follow_up_ok is not null returning 1";

/// Finds, checks and locks the trees of the batch in array order, and keeps where their rows are. `LATERAL … FOR
/// UPDATE` goes row by row through the primary key, whatever the planner believed about the table's size when it made
/// its generic plan; the updates then go by `ctid`. A row that somebody else has moved has another version and does
/// not get that far.
fn locked_trees(first: usize) -> String {
    format!(
        "ch as materialized (select x.*, l.ok, l.tid from {} left join lateral (
           select true as ok, t.ctid as tid from call_tree t where t.tenant_id = x.tenant_id and t.root_id = x.root_id
             and t.version = x.expected for update) l on true),
         s as materialized (select array_agg(coalesce(ok, false)) as m from ch)",
        TreeColumns::unnest(first)
    )
}

pub(super) static LIGHT: LazyLock<String> = LazyLock::new(|| {
    let calls = 1 + TreeColumns::WIDTH;
    let winners = "(select m from s)[no]";
    format!(
        "with {trees},
         ut as (update call_tree t set {TREE_SET} from ch x where x.ok and t.ctid = x.tid returning 1),
         ic as ({calls}),
         io as ({outcomes}),
         it as ({TRIALS})
         select (select array_agg(no) from ch where ok) as won, null::int4[] as losers, null::int4[] as reasons,
           null::int8[] as used, (select count(*) from ut) as applied, {NOW}",
        trees = locked_trees(1),
        calls = insert_calls(calls, winners),
        outcomes = insert_outcomes(calls + CallColumns::WIDTH, winners),
    )
});

/// The full form: each stage reads the one before it, so that trees are locked before counters and counters before the
/// ledger. A running sum over the counters refuses too much rather than too little.
pub(super) static FULL: LazyLock<String> = LazyLock::new(|| {
    let sessions = 1 + TreeColumns::WIDTH;
    let calls = sessions + SessionColumns::WIDTH;
    let outcomes = calls + CallColumns::WIDTH;
    let ledger = outcomes + OutcomeColumns::WIDTH;
    let counters = ledger + LedgerColumns::WIDTH;
    let adds = counters + CounterColumns::WIDTH;
    let controls = adds + AddColumns::WIDTH;
    let winners = "(select m from ok)[no]";
    format!(
        "with {trees},
         co as materialized (select * from {counters}),
         c as materialized (select array_agg(l.used) as used from co left join lateral (
           select used from counter k where k.tenant_id = co.tenant_id and k.agent_id = co.agent_id
             and k.day = date '1970-01-01' + co.day and k.dimension = co.dimension and k.tier = co.tier
             and k.stretch = co.stretch and (select m from s) is not null
           for update) l on true),
         li as materialized (select x.*, l.ok, l.tid from {ledger} left join lateral (
           select true as ok, l.ctid as tid from ledger l where l.tenant_id = x.tenant_id
             and l.ledger_key = x.ledger_key and l.revision = x.expected
             and (select used from c) is distinct from '{{}}' for update) l on true),
         bad as materialized (
           select ch.no, 1 as why from ch where ok is null
           union all
           select x.no, 2 from {sessions} cross join lateral (select 1 from session q
             where q.tenant_id = x.tenant_id and q.session_id = x.session_id and q.root_id <> x.root_id limit 1) d
           union all
           select no, 3 from li where ok is null
           union all
           select e.no, 4 from (select no, tenant_id, epoch, session_id, call_id, round from {calls}) e
             cross join lateral (select 1 from call k where k.tenant_id = e.tenant_id
               and k.epoch = date '1970-01-01' + e.epoch and k.session_id = e.session_id and k.call_id = e.call_id
               and k.round = e.round limit 1) d),
         ci as materialized (select no, k, amount, most, (select used from c)[k] as used from {adds}
           where no not in (select no from bad)),
         run as materialized (
           select no, most is not null and used + sum(greatest(amount, 0)) over (partition by k order by no,
           amount) > most
             as over from ci),
         lost as materialized (select no, why from bad union all select no, 5 from run where over),
         ok as materialized (select array_agg(ch.no not in (select no from lost)) as m from ch),
         ut as (update call_tree t set {TREE_SET} from ch x
           where (select m from ok)[x.no] and t.ctid = x.tid returning 1),
         uc as (update counter k set used = k.used + d.amount
           from (select k, sum(amount)::bigint as amount from ci where {winners} group by k) d join co on co.k = d.k
           where k.tenant_id = co.tenant_id and k.agent_id = co.agent_id and k.day = date '1970-01-01' + co.day
             and k.dimension = co.dimension and k.tier = co.tier and k.stretch = co.stretch
           returning co.k as k, k.used as used),
         ul as (update ledger l set revision = x.expected + 1, state = x.state, root_id = x.root_id,
             session_id = x.session_id, call_id = x.call_id, epoch = date '1970-01-01' + x.epoch,
             fingerprint = x.fingerprint, seq = x.seq, occurrence = x.occurrence, attempt = x.attempt,
             permitted_at = to_timestamp(x.permitted_ms / 1000.0), lease_until = to_timestamp(x.lease_ms / 1000.0),
             settled_at = to_timestamp(x.settled_ms / 1000.0), digest = x.digest, retryable = x.retryable,
             retry_after_ms = x.retry_after_ms, retries_remaining = x.retries_remaining, guard = x.guard
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
           (select count(*) from ut) as applied, (select count(*) from ul) as ledger_applied, {NOW}",
        trees = locked_trees(1),
        counters = CounterColumns::unnest(counters),
        ledger = LedgerColumns::unnest(ledger),
        sessions = SessionColumns::unnest(sessions),
        calls = CallColumns::unnest(calls),
        adds = AddColumns::unnest(adds),
        insert_calls = insert_calls(calls, winners),
        insert_outcomes = insert_outcomes(outcomes, winners),
        insert_controls = insert_controls(controls, winners),
    )
});
