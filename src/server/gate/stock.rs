//! Gauges of this replica and the deployment: queues, connection pools, cache, halts, and open approval requests.

use std::{collections::BTreeMap, time::Duration};

use super::{Insight, NoAnswer};
use callgate_core::domain::{halt::HaltTarget, ids::TenantId};
use callgate_store::{Pool, Questions, StoreLoad};

impl Insight {
    /// Records this replica's gauges. To be called each second, whether or not the database answers.
    pub fn tell_load(&self) {
        let load = self.store.load();
        self.note_standing(&load);
        let StoreLoad { queued, pools } = load;
        self.server.metrics.record_queue(queued);
        for Pool { name, used, idle, max } in pools {
            self.server.metrics.record_connections(name, (used, idle, max));
        }
        self.server.metrics.record_cache(self.server.slots.size());
        self.server.metrics.record_admission(self.server.admission.load());
        self.server.metrics.profiles(self.decisions.learned.age(&self.server.clock));
        let mut halts: BTreeMap<&str, u64> = HaltTarget::KINDS.into_iter().map(|kind| (kind, 0)).collect();
        for kind in self.server.halts.kinds() {
            *halts.entry(kind).or_default() += 1;
        }
        self.server.metrics.record_halts(halts);
    }

    /// Records the open approval requests and the stopped sessions of all tenants, and reads the tokens near
    /// their end. Counts changed descriptions of tools, and the budgets near their limit, those once a minute.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read: the former values stand.
    pub async fn take_stock(&self) -> Result<(), NoAnswer> {
        let tenants: Vec<TenantId> = self.server.tenants().iter().map(|tenant| tenant.id).collect();
        let Questions { open, sessions, oldest } = self.store.open_questions(&tenants).await?;
        let oldest = oldest.map_or(0, |asked| self.store.now().since_ms(asked));
        self.server.metrics.asked_of_people(open, sessions, Duration::from_millis(oldest));
        self.server.metrics.record_stopped_sessions(self.store.stopped_sessions(&tenants).await?);
        self.read_token_ends().await?;
        self.count_changed_tools(&tenants).await?;
        self.count_near_budgets().await
    }
}
