//! Turns at work that one server does one at a time: tenants alternate, however much one of them asks for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use callgate_core::domain::ids::TenantId;

/// Tenants that are remembered before those without anybody waiting are forgotten.
const TENANTS_MAX: usize = 1_000;

/// The turns. Of each tenant at most one caller waits among the tenants, first come, first served.
#[derive(Debug)]
pub(super) struct Turns {
    of_tenants: Mutex<BTreeMap<TenantId, Arc<Semaphore>>>,
    all: Arc<Semaphore>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    // Dropped first: the next tenant goes on before the next caller of this one asks.
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        Self { of_tenants: Mutex::default(), all: Arc::new(Semaphore::new(1)) }
    }
}

impl Turns {
    /// Waits for a turn.
    pub(super) async fn take(&self, tenant: TenantId) -> Option<Turn> {
        let own = self.of(tenant).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Turn { _all: all, _own: own })
    }

    fn of(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut tenants = self.of_tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= TENANTS_MAX {
            tenants.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        Arc::clone(tenants.entry(tenant).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn a_tenant_that_asks_for_much_holds_up_another_once() {
        let turns = Arc::new(Turns::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = turns.take(TenantId(1)).await;
        let mut waiting = JoinSet::new();
        for tenant in [1, 1, 1, 1, 2, 2] {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            waiting.spawn(async move {
                let _turn = turns.take(TenantId(tenant)).await.expect("a turn");
                order.lock().expect("no panic").push(tenant);
                tokio::task::yield_now().await;
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        while waiting.join_next().await.is_some() {}
        let order = order.lock().expect("no panic").clone();
        assert_eq!(order[..4], [2, 1, 2, 1], "{order:?}");
    }
}
