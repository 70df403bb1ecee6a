//! What is told of the plane beside its answers: how much waits, what it is reached by, what is halted, what people
//! were asked.

use std::{collections::BTreeMap, time::Duration};

use super::{Gate, NoAnswer};
use callgate_core::domain::{halt::Halted, ids::TenantId};
use callgate_store::{Load, Pool, Questions};

impl Gate {
    /// Tells how this replica stands. To be called each second, whether or not the database answers.
    pub fn tell_load(&self) {
        let load = self.store.load();
        self.note_standing(&load);
        let Load { queued, pools } = load;
        self.metrics.queued(queued);
        for Pool { name, used, idle, max } in pools {
            self.metrics.connected(name, (used, idle, max));
        }
        self.metrics.cached(self.slots.size());
        self.metrics.admitted(self.door.load());
        self.metrics.profiles(self.learned.age(&self.clock));
        let mut halts: BTreeMap<&str, u64> = Halted::KINDS.into_iter().map(|kind| (kind, 0)).collect();
        for kind in self.halts.kinds() {
            *halts.entry(kind).or_default() += 1;
        }
        self.metrics.halted(halts);
    }

    /// Tells what people were asked and have not answered, and how many sessions were stopped, of all tenants. Counts
    /// which budgets are near their end, once a minute.
    ///
    /// # Errors
    /// [`NoAnswer`] when that cannot be read: what was told before stands.
    pub async fn take_stock(&self) -> Result<(), NoAnswer> {
        let tenants: Vec<TenantId> = self.tenants().iter().map(|tenant| tenant.id).collect();
        let Questions { open, sessions, oldest } = self.store.open_questions(&tenants).await?;
        let oldest = oldest.map_or(0, |asked| self.now().since_ms(asked));
        self.metrics.asked_of_people(open, sessions, Duration::from_millis(oldest));
        self.metrics.stopped(self.store.stopped_sessions(&tenants).await?);
        self.count_near_budgets().await
    }
}
