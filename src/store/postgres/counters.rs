//! Shared counters as last seen. A stale one can only cause a reservation to be refused by the store, and judged again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::domain::{budget::CounterKey, ids::TenantId, shard::Shard};

/// Counters kept in memory; past that all are read again.
const COUNTERS_MAX: usize = 50_000;
/// How long a counter is believed: what another replica gives back can be spent here after that.
const FRESH: Duration = Duration::from_millis(500);

type Cached = BTreeMap<(TenantId, CounterKey), (u64, Instant)>;

#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Cached>);

impl Counters {
    /// What is known of `keys`; none when one of them has to be read. Of those who find one old, the first is sent to
    /// read, and the others go on with what is known.
    pub(super) fn known(&self, tenant: TenantId, keys: &[CounterKey]) -> Option<BTreeMap<CounterKey, u64>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = BTreeMap::new();
        let mut is_old = false;
        for key in keys {
            let (used, seen) = known.get_mut(&(tenant, key.clone()))?;
            if seen.elapsed() >= FRESH {
                (*seen, is_old) = (Instant::now(), true);
            }
            found.insert(key.clone(), *used);
        }
        (!is_old).then_some(found)
    }

    /// Takes in what the database says of `keys`.
    pub(super) fn learn(&self, keys: &[(TenantId, CounterKey)], used: &[i64]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + keys.len() > COUNTERS_MAX {
            known.clear();
        }
        for (key, used) in keys.iter().zip(used) {
            known.insert(key.clone(), (u64::try_from(*used).unwrap_or(0), Instant::now()));
        }
    }
}

/// What `keys` hold in the database, in their order; 0 for one without a row.
pub(super) async fn read(
    conn: &mut sqlx::PgConnection,
    tenant: TenantId,
    keys: &[CounterKey],
) -> Result<Vec<i64>, crate::store::StoreError> {
    let agents: Vec<String> =
        keys.iter().map(|key| key.agent.as_ref().map(ToString::to_string).unwrap_or_default()).collect();
    let days: Vec<i32> = keys.iter().map(|key| key.day).collect();
    let dimensions: Vec<i16> = keys.iter().map(|key| super::append::dimension(key.dimension)).collect();
    let tiers: Vec<String> =
        keys.iter().map(|key| key.tier.as_ref().map(|(tier, _)| tier.to_string()).unwrap_or_default()).collect();
    let windows: Vec<i64> = keys.iter().map(|key| key.tier.as_ref().map_or(0, |(_, window)| *window)).collect();
    let shards: Vec<i16> = keys.iter().map(|key| Shard::of_counters(tenant, key.agent.as_ref()).0).collect();
    let used = sqlx::query_scalar(
        "select coalesce(c.used, 0) from unnest($2::text[], $3::int4[], $4::int2[], $5::text[], $6::int8[], $7::int2[])
           with ordinality as k(agent_id, day, dimension, tier, tier_window, shard, no)
         left join counter c on c.shard = k.shard and c.tenant_id = $1 and c.agent_id = k.agent_id
           and c.day = date '1970-01-01' + k.day and c.dimension = k.dimension and c.tier = k.tier
           and c.tier_window = k.tier_window order by k.no",
    );
    let used = used.bind(tenant.0).bind(agents).bind(days).bind(dimensions).bind(tiers).bind(windows).bind(shards);
    Ok(used.fetch_all(conn).await?)
}
