//! In-memory per-minute metrics of this replica for the last hour: its load, tools whose circuit breaker is open,
//! budgets near their end. A replica that was not running has none, and reports a gap.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use super::{
    Insight, NoAnswer,
    fleet::{MINUTES, floor},
};
use callgate_core::domain::{
    budget::{BudgetScope, Budgets},
    fleet::{self, MINUTE_MS, PlaneMinute, ReplicaMinute},
    ids::TenantId,
    time::Timestamp,
};
use callgate_store::StoreLoad;

/// Metrics by the beginning of the minute.
#[derive(Debug, Default)]
pub(super) struct MinuteMetrics(Mutex<BTreeMap<Timestamp, Minute>>);

/// Of all tenants. One that is not named had nothing to count, and costs nothing.
#[derive(Debug, Default)]
struct Minute {
    plane: Option<PlaneMinute>,
    cooling: Option<BTreeMap<TenantId, u64>>,
    near_budgets: Option<BTreeMap<TenantId, u64>>,
}

impl MinuteMetrics {
    fn note(&self, now: Timestamp, note: impl FnOnce(&mut Minute)) {
        let (minute, first) = (floor(now), now.as_millis() - MINUTES * MINUTE_MS);
        let mut minutes = self.0.lock();
        minutes.retain(|minute, _| minute.as_millis() > first);
        note(minutes.entry(minute).or_default());
    }

    /// Records a small query of the database, with its duration; none for one without an answer.
    pub(super) fn record_query(&self, now: Timestamp, took: Option<Duration>) {
        self.note(now, |minute| {
            let plane = minute.plane.get_or_insert_default();
            let took = took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            plane.unanswered += u64::from(took.is_none());
            plane.database_ms = plane.database_ms.max(took);
        });
    }

    /// Records the load.
    pub(super) fn record_load(&self, now: Timestamp, (judging, waiting): (usize, usize), uncommitted: usize) {
        self.note(now, |minute| {
            let plane = minute.plane.get_or_insert_default();
            plane.judging = plane.judging.max(judging as u64);
            plane.waiting = plane.waiting.max(waiting as u64);
            plane.uncommitted = plane.uncommitted.max(uncommitted as u64);
        });
    }

    /// Records the count of tools with an open circuit breaker.
    pub(super) fn cooling(&self, now: Timestamp, tools: &BTreeMap<TenantId, u64>) {
        self.note(now, |minute| {
            let most = minute.cooling.get_or_insert_default();
            for (tenant, count) in tools {
                let most = most.entry(*tenant).or_default();
                *most = (*most).max(*count);
            }
        });
    }

    fn has_near_budgets(&self, now: Timestamp) -> bool {
        self.0.lock().get(&floor(now)).is_some_and(|minute| minute.near_budgets.is_some())
    }

    /// Metrics of a minute that a tenant may read.
    pub(super) fn of(&self, tenant: TenantId, minute: Timestamp) -> ReplicaMinute {
        let minutes = self.0.lock();
        let Some(minute) = minutes.get(&minute) else { return ReplicaMinute::default() };
        let of = |counts: &BTreeMap<TenantId, u64>| counts.get(&tenant).copied().unwrap_or(0);
        ReplicaMinute {
            cooling: minute.cooling.as_ref().map(of),
            near_budgets: minute.near_budgets.as_ref().map(of),
            plane: minute.plane,
        }
    }
}

impl Insight {
    /// Counts the budgets that are near their end, of all tenants, once a minute.
    pub(super) async fn count_near_budgets(&self) -> Result<(), NoAnswer> {
        let now = self.store.now();
        if self.server.minute_metrics.has_near_budgets(now) {
            return Ok(());
        }
        let (mut limits, tenants) = (Vec::new(), self.server.tenants());
        for tenant in &tenants {
            let policy = self.server.policy(tenant.id);
            let shared = fleet::shared_limits(policy.rules.get::<Budgets>(), &SHARED_BUDGETS);
            limits.extend(shared.into_iter().map(|limit| (tenant.id, limit)));
        }
        let counts = self.store.count_near_their_end(&limits, now.day()).await?;
        let tenants: Vec<TenantId> = tenants.iter().map(|tenant| tenant.id).collect();
        self.server.metrics.budgets(&tenants, &counts);
        let mut near = BTreeMap::new();
        for ((tenant, _), (all, _)) in counts {
            *near.entry(tenant).or_default() += all;
        }
        self.server.minute_metrics.note(now, |minute| minute.near_budgets = Some(near));
        Ok(())
    }

    /// Records this replica's load, and the count of open circuit breakers.
    pub(super) fn note_standing(&self, StoreLoad { queued, .. }: &StoreLoad) {
        let now = self.store.now();
        self.server.minute_metrics.record_load(now, self.server.admission.load(), *queued);
        self.server.minute_metrics.cooling(now, &self.decisions.tools.cooling(now));
    }
}

/// Budgets that many sessions share.
pub(super) const SHARED_BUDGETS: [BudgetScope; 3] = [BudgetScope::CallTree, BudgetScope::Agent, BudgetScope::Tenant];

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64, second: i64) -> Timestamp {
        Timestamp::from_millis(minute * MINUTE_MS + second * 1_000)
    }

    #[test]
    fn the_worst_of_a_minute_is_kept_and_what_was_not_seen_is_not_told() {
        let (metrics, ours, theirs) = (MinuteMetrics::default(), TenantId(1), TenantId(2));
        metrics.record_load(at(1_000, 1), (7, 2), 30);
        metrics.record_load(at(1_000, 2), (3, 9), 10);
        metrics.record_query(at(1_000, 1), Some(Duration::from_millis(4)));
        metrics.record_query(at(1_000, 2), Some(Duration::from_millis(90)));
        metrics.record_query(at(1_000, 3), None);
        metrics.cooling(at(1_000, 1), &[(ours, 2)].into());
        metrics.cooling(at(1_000, 2), &BTreeMap::new());
        let seen = metrics.of(ours, at(1_000, 0));
        let plane = PlaneMinute { judging: 7, waiting: 9, uncommitted: 30, database_ms: Some(90), unanswered: 1 };
        assert_eq!(seen, ReplicaMinute { cooling: Some(2), near_budgets: None, plane: Some(plane) });
        assert_eq!(metrics.of(theirs, at(1_000, 0)).cooling, Some(0), "it was looked at, and there was none");
        assert_eq!(metrics.of(ours, at(999, 0)), ReplicaMinute::default());
        metrics.record_query(at(1_002, 0), None);
        let plane = metrics.of(ours, at(1_002, 0)).plane.expect("seen");
        assert_eq!((plane.database_ms, plane.unanswered), (None, 1));
        assert_eq!(metrics.of(ours, at(1_001, 0)), ReplicaMinute::default(), "a minute without a look is a gap");
        metrics.cooling(at(1_060, 0), &BTreeMap::new());
        assert_eq!(metrics.0.lock().len(), 2, "what left the hour is forgotten");
    }
}
