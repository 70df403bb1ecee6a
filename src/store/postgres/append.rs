//! One batch of changes, in one short transaction: missing rows first, as vacant ones that harm nobody if their change
//! loses; then one statement that locks trees, counters and ledger rows in sorted order, decides, and applies the
//! winners. Most batches touch neither ledger nor counters nor new sessions: they take the light form, which is one
//! statement on its own.

mod sql;

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};

use self::sql::{FULL, LIGHT, NEW_COUNTERS, NEW_LEDGER, NEW_SESSIONS, NEW_TREES};
use super::controls::{ControlColumns, ControlRow};
use super::row::{
    AddColumns, AddRow, CallColumns, CallRow, CounterColumns, CounterRow, LedgerColumns, LedgerRowOut, OutcomeColumns,
    OutcomeRow, SessionColumns, SessionRow, TreeColumns, TreeRow, big, code,
};
use crate::{
    domain::{
        budget::{CounterKey, Dimension},
        event::{Append, Event},
        ids::TenantId,
        shard::Shard,
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
    controls: ControlColumns,
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
    /// Why a chain lost, by its position (from 0); none for a winner.
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
        ledger.sort_by(|a, b| (a.shard, a.tenant_id, &a.ledger_key).cmp(&(b.shard, b.tenant_id, &b.ledger_key)));
        batch.has_new_rows |= !ledger.is_empty() || !counters.is_empty();
        ledger.into_iter().for_each(|row| batch.ledger.push(row));
        for (k, ((tenant, key), k_of)) in counters.iter_mut().enumerate() {
            *k_of = k as i32 + 1;
            batch.counters.push(CounterRow {
                k: *k_of,
                shard: Shard::of_counters(*tenant, key.agent.as_ref()).0,
                tenant_id: tenant.0,
                agent_id: key.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
                day: key.day,
                dimension: dimension(key.dimension),
                tier: key.tier.as_ref().map(|(tier, _)| tier.to_string()).unwrap_or_default(),
                tier_window: key.tier.as_ref().map_or(0, |(_, window)| *window),
            });
        }
        for (i, append) in chains.iter().enumerate().flat_map(|(i, chain)| chain.iter().map(move |append| (i, append)))
        {
            for add in &append.change.counters {
                let k = counters.get(&(append.tenant, add.key.clone())).copied().unwrap_or(0);
                batch.adds.push(AddRow { no: i as i32 + 1, k, amount: add.amount, max: add.limit.map(big) });
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
            shard: last.shard().0,
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
            due_ms: last.due.map(Timestamp::as_millis),
        });
    }

    fn events(&mut self, no: i32, append: &Append) {
        for (session, parent, depth) in &append.new_sessions {
            self.has_new_rows = true;
            // One where it is looked for by its name, and one with its tree.
            let shards = BTreeSet::from([Shard::of(append.tenant, session), append.shard()]);
            for shard in shards {
                self.sessions.push(SessionRow {
                    no,
                    shard: shard.0,
                    tenant_id: append.tenant.0,
                    session_id: session.to_string(),
                    root_id: append.root.to_string(),
                    parent_id: parent.as_ref().map(ToString::to_string),
                    depth: i32::try_from(*depth).unwrap_or(i32::MAX),
                });
            }
        }
        for event in &append.change.events {
            match event {
                Event::Judged(event) => self.calls.push(CallRow::of(no, append, event)),
                Event::Settled(event) => self.outcomes.push(OutcomeRow::of(no, append, event)),
                Event::Controlled(event) => {
                    self.has_new_rows = true;
                    self.controls.push(ControlRow::of(no, append, event));
                }
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
        let query = self.controls.bind(self.adds.bind(self.counters.bind(self.ledger.bind(query))));
        let row = query.fetch_one(&mut *tx).await?;
        tx.commit().await?;
        self.appended(&row)
    }

    fn appended(&self, row: &sqlx::postgres::PgRow) -> Result<Appended, sqlx::Error> {
        let won: Vec<i32> = row.try_get::<Option<_>, _>("won")?.unwrap_or_default();
        let losers: Vec<i32> = row.try_get::<Option<_>, _>("losers")?.unwrap_or_default();
        let reasons: Vec<i32> = row.try_get::<Option<_>, _>("reasons")?.unwrap_or_default();
        let lost = (1..=self.chains as i32).map(|no| {
            let reasons = losers.iter().zip(&reasons).filter(|(loser, _)| **loser == no).map(|(_, reason)| *reason);
            let reason = reasons.min().and_then(|reason| Lost::decided(reason as usize));
            (!won.contains(&no)).then(|| reason.unwrap_or(Lost::Version))
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
