//! A semaphore that is fair among tenants, for long operations: tenants alternate, however much one of them asks for.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::block_in_place,
};

use super::NoAnswer;
use callgate_core::domain::ids::TenantId;

/// Foreign text of more bytes than this waits for a turn, and is read beside the threads that answer.
pub(super) const INLINE_BYTES_MAX: usize = 16 * 1024;
/// Most calls of one tenant with long texts that wait for a turn: more are shed.
const WAITING_MAX: usize = 256;
/// Tenants that are remembered before those without anybody at work or waiting are forgotten.
const TENANTS_MAX: usize = 1_000;

/// So many permits. A tenant's requests beyond them wait behind its own alone.
#[derive(Debug)]
pub(super) struct FairSemaphore {
    threads: usize,
    of_tenants: Mutex<BTreeMap<TenantId, Arc<TenantWaiters>>>,
    all: Arc<Semaphore>,
}

#[derive(Debug)]
struct TenantWaiters {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A permit, until it is dropped.
#[derive(Debug)]
pub(super) struct FairPermit {
    // Dropped first: the next tenant goes on before the next caller of this one asks.
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _of: Arc<TenantWaiters>,
}

/// Leave for work in parts, one at a time of each tenant, until it is dropped. Each part waits for a turn at `all`: so
/// tenants alternate, however long the work of one of them is.
#[derive(Debug)]
pub(super) struct FairSlot {
    pub(super) all: Arc<Semaphore>,
    _own: OwnedSemaphorePermit,
    _of: Arc<TenantWaiters>,
}

/// A waiter, until it is dropped.
struct WaiterCount<'a>(&'a AtomicUsize);

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FairSemaphore {
    /// As many permits as there are threads.
    pub(super) fn new(threads: usize) -> Self {
        Self { threads, of_tenants: Mutex::default(), all: Arc::new(Semaphore::new(threads)) }
    }

    /// As many permits as the machine has cores.
    pub(super) fn of_cores() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// Waits for a turn, however many wait.
    pub(super) async fn take(&self, tenant: TenantId) -> Option<FairPermit> {
        let of = self.of(tenant);
        let own = Arc::clone(&of.turns).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(FairPermit { _all: all, _own: own, _of: of })
    }

    /// Waits for a turn where not too many of the tenant's wait.
    ///
    /// # Errors
    /// [`NoAnswer::Overloaded`]: they do.
    pub(super) async fn take_or_refuse(&self, tenant: TenantId) -> Result<Option<FairPermit>, NoAnswer> {
        let of = self.of(tenant);
        let waiting = WaiterCount(&of.waiting);
        if waiting.0.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            return Err(NoAnswer::Overloaded(format!(
                "{WAITING_MAX} calls of this tenant with more than {INLINE_BYTES_MAX} bytes wait to be read"
            )));
        }
        Ok(self.take(tenant).await)
    }

    /// Leave for work in parts; none while as many of the tenant's have it as there are permits.
    pub(super) fn slot(&self, tenant: TenantId) -> Option<FairSlot> {
        let of = self.of(tenant);
        let own = Arc::clone(&of.turns).try_acquire_owned().ok()?;
        Some(FairSlot { all: Arc::clone(&self.all), _own: own, _of: of })
    }

    fn of(&self, tenant: TenantId) -> Arc<TenantWaiters> {
        let mut tenants = self.of_tenants.lock();
        if tenants.len() >= TENANTS_MAX {
            tenants.retain(|_, of| Arc::strong_count(of) > 1);
        }
        let new =
            || Arc::new(TenantWaiters { turns: Arc::new(Semaphore::new(self.threads)), waiting: AtomicUsize::new(0) });
        Arc::clone(tenants.entry(tenant).or_insert_with(new))
    }
}

/// Does long work off the threads that answer others, and short work at once.
pub(crate) fn offload<R>(is_long: bool, work: impl FnOnce() -> R) -> R {
    let others_wait = is_long && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if others_wait { block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinSet, yield_now};

    #[tokio::test]
    async fn a_tenant_that_asks_for_much_holds_up_another_once() {
        let turns = Arc::new(FairSemaphore::new(1));
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = turns.take(TenantId(1)).await;
        let mut waiting = JoinSet::new();
        for tenant in [1, 1, 1, 1, 2, 2] {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            waiting.spawn(async move {
                let _turn = turns.take(TenantId(tenant)).await.expect("a turn");
                order.lock().push(tenant);
                yield_now().await;
            });
            yield_now().await;
        }
        drop(first);
        while waiting.join_next().await.is_some() {}
        let order = order.lock().clone();
        assert_eq!(order[..4], [2, 1, 2, 1], "{order:?}");
    }

    #[tokio::test]
    async fn work_in_parts_is_done_once_at_a_time_of_a_tenant_and_alternates_with_others() {
        let turns = FairSemaphore::new(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut working = JoinSet::new();
        for (tenant, parts) in [(1, 9), (2, 3)] {
            let slot = turns.slot(TenantId(tenant)).expect("a slot");
            assert!(turns.slot(TenantId(tenant)).is_none(), "one at a time");
            let order = Arc::clone(&order);
            working.spawn(async move {
                for _ in 0..parts {
                    let _turn = slot.all.acquire().await.expect("a turn");
                    order.lock().push(tenant);
                    yield_now().await;
                }
            });
        }
        while working.join_next().await.is_some() {}
        let order = order.lock().clone();
        assert_eq!(order[..6], [1, 2, 1, 2, 1, 2], "{order:?}");
        assert!(turns.slot(TenantId(1)).is_some());
    }

    #[tokio::test]
    async fn too_many_of_one_tenant_are_refused_and_nobody_else() {
        let turns = Arc::new(FairSemaphore::new(1));
        let first = turns.take(TenantId(1)).await;
        let mut waiting = JoinSet::new();
        for _ in 0..WAITING_MAX {
            let turns = Arc::clone(&turns);
            waiting.spawn(async move { turns.take_or_refuse(TenantId(1)).await.map(drop) });
        }
        while turns.of(TenantId(1)).waiting.load(Ordering::Relaxed) < WAITING_MAX {
            yield_now().await;
        }
        let refused = turns.take_or_refuse(TenantId(1)).await;
        assert!(matches!(refused, Err(NoAnswer::Overloaded(_))), "{refused:?}");
        let other = Arc::clone(&turns);
        waiting.spawn(async move { other.take_or_refuse(TenantId(2)).await.map(drop) });
        drop(first);
        while let Some(ended) = waiting.join_next().await {
            ended.expect("no panic").expect("a turn");
        }
        assert!(turns.take_or_refuse(TenantId(1)).await.is_ok(), "those who waited are counted no more");
    }
}
