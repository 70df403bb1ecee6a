//! Reports that have lost, and go first from then on. A report loses by what others of its tree want at the same time:
//! each of theirs that is refused takes with it what was decided after it. When a thousand want the same thing, they
//! would keep the one report from being stored that all of them wait for.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Key;
use callgate_core::domain::ids::{SessionId, TenantId};

/// The trees in which reports go first: how many, and who waits for the end of that.
#[derive(Debug, Default)]
pub struct Reports(Arc<Mutex<First>>);

type First = BTreeMap<Key, (usize, Arc<Notify>)>;

/// A report goes first in its tree, until this is dropped.
#[derive(Debug)]
pub struct GoesFirst {
    all: Arc<Mutex<First>>,
    key: Key,
}

impl Reports {
    /// A report of this tree has lost.
    #[must_use]
    pub fn first(&self, tenant: TenantId, root: &SessionId) -> GoesFirst {
        let key = (tenant, root.clone());
        self.0.lock().entry(key.clone()).or_default().0 += 1;
        GoesFirst { all: Arc::clone(&self.0), key }
    }

    /// True while one of the tree goes first.
    #[must_use]
    pub fn is_first(&self, tenant: TenantId, root: &SessionId) -> bool {
        let all = self.0.lock();
        !all.is_empty() && all.contains_key(&(tenant, root.clone()))
    }

    /// Waits until none of the tree does.
    pub async fn give_way(&self, tenant: TenantId, root: &SessionId) {
        let over = |all: &First| all.get(&(tenant, root.clone())).map(|(_, over)| Arc::clone(over).notified_owned());
        loop {
            let Some(over) = over(&self.0.lock()) else { return };
            over.await;
        }
    }
}

impl Drop for GoesFirst {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let Some((reports, over)) = all.get_mut(&self.key) else { return };
        *reports -= 1;
        if *reports == 0 {
            over.notify_waiters();
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_core::domain::ids::DEFAULT_TENANT;

    #[tokio::test]
    async fn others_of_the_tree_wait_until_the_last_report_is_through() {
        let root = |name| SessionId::parse("session", name).expect("valid");
        let reports = Arc::new(Reports::default());
        reports.give_way(DEFAULT_TENANT, &root("s")).await;
        let (one, other) = (reports.first(DEFAULT_TENANT, &root("s")), reports.first(DEFAULT_TENANT, &root("s")));
        assert!(reports.is_first(DEFAULT_TENANT, &root("s")) && !reports.is_first(DEFAULT_TENANT, &root("another")));
        let waits = tokio::spawn({
            let reports = Arc::clone(&reports);
            async move { reports.give_way(DEFAULT_TENANT, &root("s")).await }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(other);
        waits.await.expect("no panic");
        assert!(reports.0.lock().is_empty(), "nothing stays behind");
    }
}
