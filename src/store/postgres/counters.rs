//! Shared counters as last seen. A stale one can only cause a reservation to be refused by the store, and judged again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::domain::{budget::CounterKey, ids::TenantId};

/// Counters kept in memory; past that all are read again.
const COUNTERS_MAX: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<BTreeMap<(TenantId, CounterKey), u64>>);

impl Counters {
    /// What is known of `keys`; none when one of them has to be read.
    pub(super) fn known(&self, tenant: TenantId, keys: &[CounterKey]) -> Option<BTreeMap<CounterKey, u64>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(|key| known.get(&(tenant, key.clone())).map(|used| (key.clone(), *used))).collect()
    }

    /// Takes in what the database says of `keys`.
    pub(super) fn learn(&self, keys: &[(TenantId, CounterKey)], used: &[i64]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + keys.len() > COUNTERS_MAX {
            known.clear();
        }
        for (key, used) in keys.iter().zip(used) {
            known.insert(key.clone(), u64::try_from(*used).unwrap_or(0));
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
    let used = sqlx::query_scalar(
        "select coalesce(c.used, 0) from unnest($2::text[], $3::int4[], $4::int2[]) with ordinality
           as k(agent_id, day, dimension, no)
         left join counter c on c.tenant_id = $1 and c.agent_id = k.agent_id
           and c.day = date '1970-01-01' + k.day and c.dimension = k.dimension order by k.no",
    );
    Ok(used.bind(tenant.0).bind(agents).bind(days).bind(dimensions).fetch_all(conn).await?)
}
