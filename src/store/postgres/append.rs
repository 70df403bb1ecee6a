//! One batch of changes, in one short transaction: missing rows first, as vacant ones that harm nobody if their change
//! loses; then one statement that locks trees, counters and ledger rows in sorted order, decides, and applies the
//! winners. Most batches touch neither ledger nor counters nor new sessions: they take the light form, which is one
//! statement on its own.

use std::{collections::BTreeMap, sync::LazyLock};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};

use super::row::{
    AddColumns, AddRow, CallColumns, CallRow, CounterColumns, CounterRow, LedgerColumns, LedgerRowOut, OutcomeColumns,
    OutcomeRow, SessionColumns, SessionRow, TreeColumns, TreeRow, big, code,
};
use crate::{
    domain::{
        budget::{CounterKey, Dimension},
        event::{Append, Event},
        ids::TenantId,
        time::Timestamp,
    },
    store::error::Lost,
};

/// A batch, as arrays. Chain `no` (from 1) is all changes of one tree, in order: they win or lose together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    trees: TreeColumns,
    sessions: SessionColumns,
    calls: CallColumns,
    outcomes: OutcomeColumns,
    ledger: LedgerColumns,
    counters: CounterColumns,
    adds: AddColumns,
    chains: usize,
    has_new_rows: bool,
    /// The shared counters it touches, in the order of their rows.
    pub(super) counter_keys: Vec<(TenantId, CounterKey)>,
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Appended {
    /// Why a chain lost, by its place (from 0); none for a winner.
    pub(super) lost: Vec<Option<Lost>>,
    /// What every counter of the batch holds now.
    pub(super) used: Vec<i64>,
    /// The database's time.
    pub(super) now: Timestamp,
}

impl Batch {
    /// The batch of these chains, which are sorted by tenant and root and not empty.
    pub(super) fn of(chains: &[Vec<&Append>]) -> Self {
        let mut batch = Self { chains: chains.len(), ..Self::default() };
        let mut ledger = Vec::new();
        let mut counters: BTreeMap<(TenantId, CounterKey), i32> = BTreeMap::new();
        for (i, chain) in chains.iter().enumerate() {
            let no = i as i32 + 1;
            batch.tree(no, chain);
            for append in chain {
                batch.events(no, append);
                ledger.extend(append.change.ledger.iter().map(|change| LedgerRowOut::of(no, append, change)));
                for add in &append.change.counters {
                    counters.insert((append.tenant, add.key.clone()), 0);
                }
            }
        }
        ledger.sort_by(|a, b| (a.tenant_id, &a.ledger_key).cmp(&(b.tenant_id, &b.ledger_key)));
        batch.has_new_rows |= !ledger.is_empty() || !counters.is_empty();
        ledger.into_iter().for_each(|row| batch.ledger.push(row));
        for (k, ((tenant, key), place)) in counters.iter_mut().enumerate() {
            *place = k as i32 + 1;
            batch.counters.push(CounterRow {
                k: *place,
                tenant_id: tenant.0,
                agent_id: key.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
                day: key.day,
                dimension: dimension(key.dimension),
            });
        }
        for (i, append) in chains.iter().enumerate().flat_map(|(i, chain)| chain.iter().map(move |append| (i, append)))
        {
            for add in &append.change.counters {
                let k = counters.get(&(append.tenant, add.key.clone())).copied().unwrap_or(0);
                batch.adds.push(AddRow { no: i as i32 + 1, k, amount: add.amount, most: add.limit.map(big) });
            }
        }
        batch.counter_keys = counters.into_keys().collect();
        batch
    }

    fn tree(&mut self, no: i32, chain: &[&Append]) {
        let (Some(first), Some(last)) = (chain.first(), chain.last()) else {
            return;
        };
        let Some(event) = last.change.events.last() else { return };
        self.has_new_rows |= first.expected == 0;
        self.trees.push(TreeRow {
            no,
            tenant_id: last.tenant.0,
            root_id: last.root.to_string(),
            epoch: last.epoch,
            expected: big(first.expected),
            next: big(event.seq()),
            started_ms: last.started_at.as_millis(),
            last_ms: event.at().as_millis(),
            steps: big(last.totals.steps),
            calls: big(last.totals.calls),
            open_calls: i32::try_from(last.open_calls).unwrap_or(i32::MAX),
            cost_micros: big(last.totals.cost_micros),
            reserved_micros: big(last.totals.reserved_micros),
            tokens: big(last.totals.tokens),
        });
    }

    fn events(&mut self, no: i32, append: &Append) {
        for (session, parent, depth) in &append.new_sessions {
            self.has_new_rows = true;
            self.sessions.push(SessionRow {
                no,
                tenant_id: append.tenant.0,
                session_id: session.to_string(),
                root_id: append.root.to_string(),
                parent_id: parent.as_ref().map(ToString::to_string),
                depth: i32::try_from(*depth).unwrap_or(i32::MAX),
            });
        }
        for event in &append.change.events {
            match event {
                Event::Judged(event) => self.calls.push(CallRow::of(no, append, event)),
                Event::Settled(event) => self.outcomes.push(OutcomeRow::of(no, append, event)),
            }
        }
    }

    /// Appends the batch. `probe` asks for the full form, which survives a long-forgotten call_id.
    pub(super) async fn append(&self, conn: &mut PgConnection, probe: bool) -> Result<Appended, sqlx::Error> {
        if !self.has_new_rows && !probe {
            let query =
                self.outcomes.bind(self.calls.bind(self.trees.bind(sqlx::query(AssertSqlSafe(LIGHT.as_str())))));
            let row = query.fetch_one(conn).await?;
            return self.appended(&row);
        }
        // Only the writer's own task runs this: a transaction that nobody can cancel half-way.
        let mut tx = conn.begin().await?;
        if !self.sessions.is_empty() {
            tx.execute(self.trees.bind(sqlx::query(AssertSqlSafe(NEW_TREES.as_str())))).await?;
            tx.execute(self.sessions.bind(sqlx::query(AssertSqlSafe(NEW_SESSIONS.as_str())))).await?;
        }
        if !self.ledger.is_empty() {
            tx.execute(self.ledger.bind(sqlx::query(AssertSqlSafe(NEW_LEDGER.as_str())))).await?;
        }
        if !self.counters.is_empty() {
            tx.execute(self.counters.bind(sqlx::query(AssertSqlSafe(NEW_COUNTERS.as_str())))).await?;
        }
        let query = sqlx::query(AssertSqlSafe(FULL.as_str()));
        let query = self.outcomes.bind(self.calls.bind(self.sessions.bind(self.trees.bind(query))));
        let query = self.adds.bind(self.counters.bind(self.ledger.bind(query)));
        let row = query.fetch_one(&mut *tx).await?;
        tx.commit().await?;
        self.appended(&row)
    }

    fn appended(&self, row: &sqlx::postgres::PgRow) -> Result<Appended, sqlx::Error> {
        let won: Vec<i32> = row.try_get::<Option<_>, _>("won")?.unwrap_or_default();
        let losers: Vec<i32> = row.try_get::<Option<_>, _>("losers")?.unwrap_or_default();
        let reasons: Vec<i32> = row.try_get::<Option<_>, _>("reasons")?.unwrap_or_default();
        // What won was applied, row by row: anything else would acknowledge what is not there.
        let applied: i64 = row.try_get("applied")?;
        if applied != won.len() as i64 {
            return Err(sqlx::Error::Protocol(format!("{} trees won, {applied} were updated", won.len())));
        }
        let lost = (1..=self.chains as i32).map(|no| {
            let reason =
                losers.iter().zip(&reasons).filter(|(loser, _)| **loser == no).map(|(_, reason)| *reason).min();
            match reason {
                _ if won.contains(&no) => None,
                Some(2) => Some(Lost::Session),
                Some(3) => Some(Lost::Ledger),
                Some(4) => Some(Lost::CallId),
                Some(5) => Some(Lost::Counter),
                _ => Some(Lost::Version),
            }
        });
        Ok(Appended {
            lost: lost.collect(),
            used: row.try_get::<Option<_>, _>("used")?.unwrap_or_default(),
            now: Timestamp::from_millis(row.try_get("now_ms")?),
        })
    }
}

/// The stored code of a counter's dimension; only the shared ones have counters.
pub(super) fn dimension(dimension: Dimension) -> i16 {
    code(&[Dimension::Steps, Dimension::ToolCalls, Dimension::Cost, Dimension::Tokens], &dimension)
}

const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms";
const TREE_SET: &str = "version = x.next, epoch = date '1970-01-01' + x.epoch, \
    started_at = to_timestamp(x.started_ms / 1000.0), last_at = to_timestamp(x.last_ms / 1000.0), steps = x.steps, \
    calls = x.calls, open_calls = x.open_calls, cost_micros = x.cost_micros, reserved_micros = x.reserved_micros, \
    tokens = x.tokens";

static NEW_TREES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into call_tree (tenant_id, root_id, epoch, started_at, last_at)
         select tenant_id, root_id, date '1970-01-01' + epoch, to_timestamp(started_ms / 1000.0),
           to_timestamp(last_ms / 1000.0) from {} where expected = 0 on conflict do nothing",
        TreeColumns::unnest(1)
    )
});
static NEW_SESSIONS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into session (tenant_id, session_id, root_id, parent_id, depth)
         select tenant_id, session_id, root_id, parent_id, depth from {} order by 1, 2 on conflict do nothing",
        SessionColumns::unnest(1)
    )
});
static NEW_LEDGER: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into ledger (tenant_id, ledger_key) select tenant_id, ledger_key from {} where expected = 0
         on conflict do nothing",
        LedgerColumns::unnest(1)
    )
});
static NEW_COUNTERS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into counter (tenant_id, agent_id, day, dimension)
         select tenant_id, agent_id, date '1970-01-01' + day, dimension from {} on conflict do nothing",
        CounterColumns::unnest(1)
    )
});

fn insert_calls(first: usize, winners: &str) -> String {
    format!(
        "insert into call (tenant_id, epoch, session_id, seq, root_id, call_id, round, at, run_id, run_from, batch,
           agent_id, tool, fingerprint, args_digest, effect, resource, once, idempotent, decision, would, rule, reason,
           level, findings, attempt, occurrence, idempotency_key, lease_until, reserved_micros, approval_id,
           approval_expires_at, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros,
           observed, policy_version, arguments, justification)
         select tenant_id, date '1970-01-01' + epoch, session_id, seq, root_id, call_id, round,
           to_timestamp(at_ms / 1000.0), run_id, run_from, batch, agent_id, tool, fingerprint, args_digest, effect,
           resource, once, idempotent, decision, would, rule, reason, level, findings::jsonb, attempt, occurrence,
           idempotency_key, to_timestamp(lease_ms / 1000.0), reserved_micros, approval_id,
           to_timestamp(approval_ms / 1000.0), input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
           cost_micros, observed, policy_version, arguments, justification
         from {} where {winners} returning 1",
        CallColumns::unnest(first)
    )
}

fn insert_outcomes(first: usize, winners: &str) -> String {
    format!(
        "insert into outcome (tenant_id, epoch, session_id, permit_seq, seq, root_id, call_id, at, status, failure,
           error_signature, digest, progress, retryable, retry_after_ms, retries_remaining, p_success, p_low, p_high,
           confidence, basis, guard, lease_until, by_lease, input_tokens, output_tokens, cache_read_tokens,
           cache_write_tokens, cost_micros, duration_ms, is_complete, total_matches, progress_note, result,
           result_bytes, error_message)
         select tenant_id, date '1970-01-01' + epoch, session_id, permit_seq, seq, root_id, call_id,
           to_timestamp(at_ms / 1000.0), status, failure, error_signature, digest, progress, retryable, retry_after_ms,
           retries_remaining, p_success, p_low, p_high, confidence, basis, guard, to_timestamp(lease_ms / 1000.0),
           by_lease, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_micros, duration_ms,
           is_complete, total_matches, progress_note, result, result_bytes, error_message
         from {} where {winners} returning 1",
        OutcomeColumns::unnest(first)
    )
}

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

static LIGHT: LazyLock<String> = LazyLock::new(|| {
    let calls = 1 + TreeColumns::WIDTH;
    let winners = "(select m from s)[no]";
    format!(
        "with {trees},
         ut as (update call_tree t set {TREE_SET} from ch x where x.ok and t.ctid = x.tid returning 1),
         ic as ({calls}),
         io as ({outcomes})
         select (select array_agg(no) from ch where ok) as won, null::int4[] as losers, null::int4[] as reasons,
           null::int8[] as used, (select count(*) from ut) as applied, {NOW}",
        trees = locked_trees(1),
        calls = insert_calls(calls, winners),
        outcomes = insert_outcomes(calls + CallColumns::WIDTH, winners),
    )
});

/// The full form: each stage reads the one before it, so that trees are locked before counters and counters before the
/// ledger. A running sum over the counters refuses too much rather than too little.
static FULL: LazyLock<String> = LazyLock::new(|| {
    let sessions = 1 + TreeColumns::WIDTH;
    let calls = sessions + SessionColumns::WIDTH;
    let outcomes = calls + CallColumns::WIDTH;
    let ledger = outcomes + OutcomeColumns::WIDTH;
    let counters = ledger + LedgerColumns::WIDTH;
    let adds = counters + CounterColumns::WIDTH;
    let winners = "(select m from ok)[no]";
    format!(
        "with {trees},
         co as materialized (select * from {counters}),
         c as materialized (select array_agg(l.used) as used from co left join lateral (
           select used from counter k where k.tenant_id = co.tenant_id and k.agent_id = co.agent_id
             and k.day = date '1970-01-01' + co.day and k.dimension = co.dimension and (select m from s) is not null
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
             and k.dimension = co.dimension returning co.k as k, k.used as used),
         ul as (update ledger l set revision = x.expected + 1, state = x.state, root_id = x.root_id,
             session_id = x.session_id, call_id = x.call_id, epoch = date '1970-01-01' + x.epoch,
             fingerprint = x.fingerprint, seq = x.seq, occurrence = x.occurrence, attempt = x.attempt,
             permitted_at = to_timestamp(x.permitted_ms / 1000.0), lease_until = to_timestamp(x.lease_ms / 1000.0),
             settled_at = to_timestamp(x.settled_ms / 1000.0), digest = x.digest, retryable = x.retryable,
             retry_after_ms = x.retry_after_ms, retries_remaining = x.retries_remaining, guard = x.guard
           from li x where (select m from ok)[x.no] and l.ctid = x.tid returning 1),
         ic as ({insert_calls}),
         io as ({insert_outcomes})
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
    )
});
