//! Cache of shared counters. A stale value can only cause a reservation that the store rejects, and a repeated
//! judgment.
//!
//! Agents return after seconds, so cached values are mostly old, and a read per answer would cost a round trip each.
//! Far from its limit a counter need not be exact: the old value is used, and refreshed in the background, in batches.

use std::{collections::BTreeMap, sync::Weak, time::Duration};

use parking_lot::Mutex;
use sqlx::AssertSqlSafe;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::{batch_reader::tenants, decode::LoadedRow, load::ShardSplit, read::Readers};
use callgate_core::domain::{
    budget::CounterKey,
    ids::{AgentId, TenantId},
    shard::Shard,
};

/// Maximum number of cached counters; beyond it the cache is cleared.
const COUNTERS_MAX: usize = 50_000;
/// Maximum age of an exact value; other replicas' returns are visible after it.
const FRESH: Duration = Duration::from_millis(500);
/// Maximum age of a value under half of its limit, while it is refreshed.
const USABLE: Duration = Duration::from_secs(60);
/// Delay that gathers refreshes into a batch.
const GATHER: Duration = Duration::from_millis(50);
/// Maximum batch size.
const AT_ONCE: usize = 512;

/// A counter of a tenant.
pub(super) type Counter = (TenantId, CounterKey);

#[derive(Debug)]
struct CachedCounter {
    used: u64,
    at: Instant,
    /// Time of the last refresh request.
    asked: Instant,
}

#[derive(Debug)]
pub(super) struct Counters {
    seen: Mutex<BTreeMap<Counter, CachedCounter>>,
    old: mpsc::Sender<Counter>,
}

impl Counters {
    /// An empty cache, with the receiver of refresh requests: see [`refresh`].
    pub(super) fn new() -> (Self, mpsc::Receiver<Counter>) {
        let (old, to_read) = mpsc::channel(COUNTERS_MAX);
        (Self { seen: Mutex::default(), old }, to_read)
    }

    /// The cached values of `keys`, each with its limit; none when one must be read first. The first caller with an old
    /// value requests its refresh; all continue with it.
    pub(super) fn cached_values(
        &self,
        tenant: TenantId,
        keys: &BTreeMap<CounterKey, u64>,
    ) -> Option<BTreeMap<CounterKey, u64>> {
        let mut known = self.seen.lock();
        let mut found = BTreeMap::new();
        let (mut is_usable, now) = (true, Instant::now());
        for (key, limit) in keys {
            let counter = (tenant, key.clone());
            let seen = known.get_mut(&counter)?;
            let age = now - seen.at;
            found.insert(counter.1.clone(), seen.used);
            if age >= FRESH && now - seen.asked >= FRESH {
                seen.asked = now;
                let is_far = seen.used < limit / 2 && age < USABLE;
                is_usable &= is_far && self.old.try_send(counter).is_ok();
            }
        }
        is_usable.then_some(found)
    }

    /// Removes the counters of agents that `is_gone`.
    pub(super) fn forget(&self, is_gone: impl Fn(TenantId, &AgentId) -> bool) {
        let mut known = self.seen.lock();
        known.retain(|(tenant, key), _| !key.agent.as_ref().is_some_and(|agent| is_gone(*tenant, agent)));
    }

    /// Stores the database's values of `keys`.
    pub(super) fn learn(&self, keys: &[Counter], used: &[i64]) {
        if keys.is_empty() {
            return;
        }
        let mut known = self.seen.lock();
        if known.len() + keys.len() > COUNTERS_MAX {
            known.clear();
        }
        let now = Instant::now();
        for (key, used) in keys.iter().zip(used) {
            let seen = CachedCounter { used: u64::try_from(*used).unwrap_or(0), at: now, asked: now };
            known.insert(key.clone(), seen);
        }
    }
}

/// Refreshes requested counters until the cache is dropped. A failed one is requested again by the next caller.
pub(super) async fn refresh(
    counters: Weak<Counters>,
    readers: Readers,
    cut: ShardSplit,
    mut old: mpsc::Receiver<Counter>,
) {
    let mut keys = Vec::new();
    while old.recv_many(&mut keys, AT_ONCE).await > 0 {
        sleep(GATHER).await;
        while keys.len() < AT_ONCE
            && let Ok(key) = old.try_recv()
        {
            keys.push(key);
        }
        let used = readers.read_of(&tenants(&keys), async |conn| read(conn, &keys, cut).await).await;
        let Some(counters) = counters.upgrade() else { return };
        if let Ok(used) = used {
            counters.learn(&keys, &used);
        }
        keys.clear();
    }
}

/// The stored values of `keys`, in order; 0 without a row.
pub(super) async fn read(conn: &mut sqlx::PgConnection, keys: &[Counter], cut: ShardSplit) -> LoadedRow<Vec<i64>> {
    let agents: Vec<&str> = keys.iter().map(|(_, key)| key.agent.as_ref().map_or("", AgentId::as_str)).collect();
    let days: Vec<i32> = keys.iter().map(|(_, key)| key.day).collect();
    let dimensions: Vec<i16> = keys.iter().map(|(_, key)| super::append::dimension(key.dimension)).collect();
    let tiers: Vec<&str> = keys.iter().map(|(_, key)| key.tier.as_ref().map_or("", |(tier, _)| &**tier)).collect();
    let windows: Vec<i64> = keys.iter().map(|(_, key)| key.tier.as_ref().map_or(0, |(_, window)| *window)).collect();
    let shards: Vec<i16> = keys.iter().map(|(tenant, key)| Shard::of_counters(*tenant, key.agent.as_ref()).0).collect();
    let tenants: Vec<i64> = keys.iter().map(|(tenant, _)| tenant.0).collect();
    // Only those that are there: over many nodes, a join that keeps the others reads the whole table.
    let query = sqlx::query_as(AssertSqlSafe(format!(
        "select k.no, c.used
         from unnest($1::int8[], $2::text[], $3::int4[], $4::int2[], $5::text[], $6::int8[], $7::int2[])
           with ordinality as k(tenant_id, agent_id, day, dimension, tier, tier_window, shard, no)
         join counter c on c.shard = k.shard and c.tenant_id = k.tenant_id and c.agent_id = k.agent_id
           and c.day = date '1970-01-01' + k.day and c.dimension = k.dimension and c.tier = k.tier
           and c.tier_window = k.tier_window{}",
        cut.shard_condition("c", "$7")
    )))
    .bind(tenants)
    .bind(agents)
    .bind(days)
    .bind(dimensions)
    .bind(tiers)
    .bind(windows)
    .bind(shards);
    let rows: Vec<(i64, i64)> = query.fetch_all(conn).await?;
    let used: BTreeMap<i64, i64> = rows.into_iter().collect();
    Ok((1_i64..).zip(keys).map(|(no, _)| used.get(&no).copied().unwrap_or(0)).collect())
}
