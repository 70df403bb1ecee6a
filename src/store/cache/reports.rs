//! Priority of reports that lost a conflict. A report conflicts with concurrent changes of its tree: each rejected one
//! takes the changes decided after it along. A thousand requests for one call would otherwise starve the report that
//! they wait for.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::SlotKey;
use callgate_core::domain::ids::{SessionId, TenantId};

/// Trees with priority reports: their number, and the waiters.
#[derive(Debug, Default)]
pub struct Reports(Arc<Mutex<FirstReports>>);

type FirstReports = BTreeMap<SlotKey, (usize, Arc<Notify>)>;

/// Priority of one report in its tree, until dropped.
#[derive(Debug)]
pub struct GoesFirst {
    all: Arc<Mutex<FirstReports>>,
    key: SlotKey,
}

impl Reports {
    /// Gives priority to a report of this tree.
    #[must_use]
    pub fn first(&self, tenant: TenantId, root: &SessionId) -> GoesFirst {
        let key = (tenant, root.clone());
        self.0.lock().entry(key.clone()).or_default().0 += 1;
        GoesFirst { all: Arc::clone(&self.0), key }
    }

    /// True while a report of the tree has priority.
    #[must_use]
    pub fn is_first(&self, tenant: TenantId, root: &SessionId) -> bool {
        let all = self.0.lock();
        !all.is_empty() && all.contains_key(&(tenant, root.clone()))
    }

    /// Waits until no report of the tree has priority.
    pub async fn give_way(&self, tenant: TenantId, root: &SessionId) {
        let over =
            |all: &FirstReports| all.get(&(tenant, root.clone())).map(|(_, over)| Arc::clone(over).notified_owned());
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
