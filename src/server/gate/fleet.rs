//! Fleet overview, at any rate of reads. Minutes that are over for good are counted once and kept; all reads within a
//! second share an answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use lru::LruCache;
use parking_lot::Mutex;

use super::{Insight, NoAnswer, minute_metrics::SHARED_BUDGETS, savings::Savings};
use callgate_core::domain::{
    budget::Budgets,
    fleet::{
        self, ApprovalLifetime, BudgetNearLimit, DecisionCounts, FleetOverview, MINUTE_MS, Minute, ReplicaMinute,
        TimeSpan,
    },
    ids::TenantId,
    time::Timestamp,
};
use callgate_net::clock::Tick;
use callgate_store::{DecisionsPerMinute, StoreLoad};

/// Time for which an answer is shared: a little less than the polling interval of a page, so that each poll is new.
const SHARED: Duration = Duration::from_millis(900);
/// Interval of reads that scan every call tree.
const TREES_EVERY: Duration = Duration::from_secs(5);
/// Minutes of an overview, the present one among them.
pub(super) const MINUTES: i64 = 60;
/// Longest delay after which a row may become visible: until then each read counts what is before it again.
pub(super) const LATE_MS: i64 = 10_000;
/// Tenants in the cache; the least recently read one is evicted, and counted again.
const TENANTS_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

type Shared = Arc<tokio::sync::Mutex<CachedFleet>>;

/// Cached fleet overviews of the tenants that are read.
#[derive(Debug)]
pub(super) struct Fleets(Mutex<LruCache<TenantId, Shared>>);

impl Default for Fleets {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(TENANTS_MAX)))
    }
}

/// Of one fleet.
#[derive(Debug, Default)]
struct CachedFleet {
    answer: Option<(Arc<FleetOverview>, Tick)>,
    /// Minutes that are over.
    minutes: BTreeMap<Timestamp, DecisionCounts>,
    /// From when on minutes are counted again.
    counted: Timestamp,
    /// Sessions that were stopped at the end of minutes that are over.
    stopped: BTreeMap<Timestamp, u64>,
    savings: Savings,
    trees: Option<(u64, Vec<BudgetNearLimit>, Tick)>,
}

/// Health of the responding replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneHealth {
    /// The activation that judges the tenant; 0 where none was ever active.
    pub revision: u64,
    /// Its lag behind the active one, in activations.
    pub behind: u64,
    /// Time since its last confirmation.
    pub unconfirmed: Duration,
    /// Evaluates that are judged, and that wait for their turn.
    pub judging: usize,
    pub waiting: usize,
    /// Changes that wait for a commit.
    pub uncommitted: usize,
}

pub(super) fn floor(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.as_millis().div_euclid(MINUTE_MS) * MINUTE_MS)
}

pub(super) fn earlier(at: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(at.as_millis() - ms)
}

/// End of the minute that began then.
fn end_of(minute: Timestamp) -> Timestamp {
    Timestamp::from_millis(minute.as_millis() + MINUTE_MS)
}

impl CachedFleet {
    /// From when on minutes have to be read.
    fn from(&self, now: Timestamp) -> Timestamp {
        self.counted.max(first(now))
    }

    /// Adds the decisions from then on; returns the last hour, and the last minute.
    fn add_decisions(
        &mut self,
        from: Timestamp,
        now: Timestamp,
        judged: &[DecisionsPerMinute],
    ) -> (BTreeMap<Timestamp, DecisionCounts>, DecisionCounts) {
        let (first, over) = (first(now), floor(earlier(now, LATE_MS)));
        self.minutes.retain(|minute, _| *minute >= first && *minute < from);
        let (mut all, mut lately) = (self.minutes.clone(), DecisionCounts::default());
        for one in judged {
            all.entry(one.minute).or_default().add(one.decision, one.count);
            lately.add(one.decision, one.lately);
        }
        self.minutes = all.range(..over).map(|(minute, decided)| (*minute, *decided)).collect();
        // A whole minute before this one stays open, so that the last minute is read whole.
        self.counted = over.min(floor(earlier(now, MINUTE_MS)));
        self.minutes.retain(|minute, _| *minute < self.counted);
        (all, lately)
    }
}

/// The start of the oldest minute of an overview.
pub(super) fn first(now: Timestamp) -> Timestamp {
    earlier(floor(now), (MINUTES - 1) * MINUTE_MS)
}

/// Sources of the minutes.
struct MinuteSources<'a> {
    judged: &'a BTreeMap<Timestamp, DecisionCounts>,
    asked: &'a [ApprovalLifetime],
    halted: &'a [TimeSpan],
    stopped: &'a BTreeMap<Timestamp, u64>,
    saved: &'a Savings,
    seen: &'a dyn Fn(Timestamp) -> ReplicaMinute,
}

impl MinuteSources<'_> {
    fn minutes(&self, now: Timestamp) -> Vec<Minute> {
        let minute = |n: i64| {
            let start = Timestamp::from_millis(first(now).as_millis() + n * MINUTE_MS);
            let end = now.min(end_of(start));
            let (open_approvals, held) = open(self.asked, end);
            Minute {
                start,
                end,
                decided: self.judged.get(&start).copied().unwrap_or_default(),
                open_approvals,
                held,
                oldest_approval: oldest(self.asked, end),
                stopped: self.stopped.get(&start).copied().unwrap_or(0),
                halts: self.halted.iter().filter(|halt| halt.covers(end)).count() as u64,
                saved: self.saved.savings_of_minute(start, end),
                seen: (self.seen)(start),
            }
        };
        (0..MINUTES).map(minute).collect()
    }
}

/// Counts of approval requests that were open then, and of their sessions.
fn open(asked: &[ApprovalLifetime], at: Timestamp) -> (u64, u64) {
    let open: Vec<&ApprovalLifetime> = asked.iter().filter(|one| one.is_open(at)).collect();
    let sessions: BTreeSet<&str> = open.iter().map(|one| one.session.as_str()).collect();
    (open.len() as u64, sessions.len() as u64)
}

/// Creation time of the oldest approval request that was open then.
fn oldest(asked: &[ApprovalLifetime], at: Timestamp) -> Option<Timestamp> {
    asked.iter().filter(|one| one.is_open(at)).map(|one| one.at).min()
}

impl Insight {
    /// Overview of the tenant's fleet.
    ///
    /// # Errors
    /// [`NoAnswer`] when that cannot be read.
    pub async fn fleet(&self, tenant: TenantId) -> Result<Arc<FleetOverview>, NoAnswer> {
        let shared = Arc::clone(self.fleets.0.lock().get_or_insert_mut(tenant, Shared::default));
        // Single-flight: readers during a read wait for it, and start none.
        let mut kept = shared.lock().await;
        if let Some((fleet, read)) = &kept.answer
            && self.server.clock.elapsed_since(*read) < SHARED
        {
            return Ok(Arc::clone(fleet));
        }
        let read = self.server.clock.tick();
        let fleet = Arc::new(self.read_fleet(tenant, &mut kept).await?);
        kept.answer = Some((Arc::clone(&fleet), read));
        Ok(fleet)
    }

    async fn read_fleet(&self, tenant: TenantId, kept: &mut CachedFleet) -> Result<FleetOverview, NoAnswer> {
        let (began, now) = (self.server.clock.tick(), self.store.now());
        let from = kept.from(now);
        let judged = self.operators.decisions_per_minute(tenant, from, now).await?;
        let (judged, lately) = kept.add_decisions(from, now, &judged);
        let asked = self.operators.asked_since(tenant, earlier(now, MINUTES * MINUTE_MS)).await?;
        let halted = self.operators.halted_since(tenant, first(now)).await?;
        let (mut calling, stopped, tools) = self.operators.standing(tenant).await?;
        let mut stopped_before = self.count_stopped_sessions(tenant, &mut kept.stopped, now).await?;
        stopped_before.insert(floor(now), stopped);
        let saved = self.savings(tenant, &mut kept.savings, now).await?;
        let is_old = |read: Tick| self.server.clock.elapsed_since(read) >= TREES_EVERY;
        if kept.trees.as_ref().is_none_or(|(.., read)| is_old(*read)) {
            let limits = fleet::shared_limits(self.server.policy(tenant).rules.get::<Budgets>(), &SHARED_BUDGETS);
            let (active, near) = self.operators.near_their_end(tenant, &limits, now.day()).await?;
            kept.trees = Some((active, near, self.server.clock.tick()));
        }
        let (active, budgets) =
            kept.trees.as_ref().map(|(active, near, _)| (*active, near.clone())).unwrap_or_default();
        calling.active_trees = active;
        let (open_approvals, held) = open(&asked, now);
        let past = MinuteSources {
            judged: &judged,
            asked: &asked,
            halted: &halted,
            stopped: &stopped_before,
            saved: &saved,
            seen: &|minute| self.server.minute_metrics.of(tenant, minute),
        };
        Ok(FleetOverview {
            at: now,
            minutes: past.minutes(now),
            lately,
            calling,
            held,
            stopped,
            open_approvals,
            oldest_approval: oldest(&asked, now),
            tools,
            budgets,
            saved: saved.today,
            saved_from: saved.day,
            saved_until: saved.until(),
            database_ms: u64::try_from(self.server.clock.elapsed_since(began).as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Sessions that were stopped when each minute of the last hour ended; those that are over for good are kept.
    async fn count_stopped_sessions(
        &self,
        tenant: TenantId,
        kept: &mut BTreeMap<Timestamp, u64>,
        now: Timestamp,
    ) -> Result<BTreeMap<Timestamp, u64>, NoAnswer> {
        kept.retain(|minute, _| *minute >= first(now));
        let minutes = (0..MINUTES - 1).map(|n| Timestamp::from_millis(first(now).as_millis() + n * MINUTE_MS));
        let ends: Vec<Timestamp> = minutes.filter(|minute| !kept.contains_key(minute)).map(end_of).collect();
        let mut all = kept.clone();
        for (end, count) in self.operators.stopped_at(tenant, &ends).await? {
            all.insert(earlier(end, MINUTE_MS), count);
        }
        *kept = all.range(..floor(earlier(now, LATE_MS))).map(|(minute, count)| (*minute, *count)).collect();
        Ok(all)
    }

    /// Health of this replica, from memory.
    #[must_use]
    pub fn plane_health(&self, tenant: TenantId) -> PlaneHealth {
        let StoreLoad { queued, .. } = self.store.load();
        let (judging, waiting) = self.server.admission.load();
        let (revision, behind) = self.server.policy.standing(tenant);
        PlaneHealth {
            revision,
            behind,
            unconfirmed: self.server.tenants.age(&self.server.clock),
            judging,
            waiting,
            uncommitted: queued,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use callgate_core::domain::finding::Decision;

    fn at(minute: i64, second: i64) -> Timestamp {
        Timestamp::from_millis(minute * MINUTE_MS + second * 1_000)
    }

    static NOTHING: LazyLock<(BTreeMap<Timestamp, u64>, Savings)> = LazyLock::new(Default::default);

    fn past<'a>(
        judged: &'a BTreeMap<Timestamp, DecisionCounts>,
        asked: &'a [ApprovalLifetime],
        halted: &'a [TimeSpan],
    ) -> MinuteSources<'a> {
        MinuteSources {
            judged,
            asked,
            halted,
            stopped: &NOTHING.0,
            saved: &NOTHING.1,
            seen: &|_| ReplicaMinute::default(),
        }
    }

    fn decisions_of_minute(minute: i64, count: u64) -> DecisionsPerMinute {
        DecisionsPerMinute { minute: at(minute, 0), decision: Decision::Allow, count, lately: count }
    }

    #[test]
    fn minutes_that_are_over_are_counted_once_and_open_ones_with_each_look() {
        let mut kept = CachedFleet::default();
        let now = at(1_000, 30);
        assert_eq!(kept.from(now), at(941, 0));
        let (all, _) = kept.add_decisions(
            at(941, 0),
            now,
            &[decisions_of_minute(950, 7), decisions_of_minute(999, 3), decisions_of_minute(1_000, 1)],
        );
        assert_eq!(all.values().map(|one| one.of(Decision::Allow)).collect::<Vec<_>>(), [7, 3, 1]);
        let now = at(1_000, 31);
        assert_eq!(kept.from(now), at(999, 0), "the last minute reaches into the one before");
        let (all, lately) =
            kept.add_decisions(at(999, 0), now, &[decisions_of_minute(999, 3), decisions_of_minute(1_000, 2)]);
        assert_eq!(all.values().map(|one| one.of(Decision::Allow)).collect::<Vec<_>>(), [7, 3, 2]);
        assert_eq!(lately.of(Decision::Allow), 5);
        let now = at(1_010, 5);
        let (all, _) = kept.add_decisions(kept.from(now), now, &[decisions_of_minute(1_010, 4)]);
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [at(1_010, 0)], "what left the hour is forgotten");
        let told = past(&all, &[], &[]).minutes(now);
        assert_eq!((told.len(), told[59].start, told[0].start), (60, at(1_010, 0), at(951, 0)));
        assert_eq!((told[59].end, told[58].end), (now, at(1_010, 0)));
    }

    #[test]
    fn a_question_counts_while_it_is_open() {
        let asked = |session: &str, from, until| ApprovalLifetime { session: session.into(), at: from, until };
        let all = [asked("a", at(1, 0), at(3, 0)), asked("a", at(2, 0), at(9, 0)), asked("b", at(2, 0), at(2, 30))];
        let open: Vec<(u64, u64)> = [at(0, 0), at(1, 0), at(2, 0), at(2, 30), at(3, 0)].map(|t| open(&all, t)).into();
        assert_eq!(open, [(0, 0), (1, 1), (3, 2), (2, 1), (1, 1)]);
    }

    #[test]
    fn halts_and_the_oldest_question_are_those_of_the_end_of_the_minute() {
        let asked = |from, until| ApprovalLifetime { session: "a".into(), at: from, until };
        let asked = [asked(at(1_000, 10), at(1_003, 0)), asked(at(1_001, 5), at(1_009, 0))];
        let halted = [
            TimeSpan { from: at(900, 0), until: Some(at(1_002, 30)) },
            TimeSpan { from: at(1_001, 1), until: None },
            TimeSpan { from: at(1_003, 1), until: Some(at(1_003, 50)) },
        ];
        let told = past(&BTreeMap::new(), &asked, &halted).minutes(at(1_005, 30));
        let last: Vec<_> = told[53..].iter().map(|minute| (minute.oldest_approval, minute.halts)).collect();
        let (first, second) = (Some(at(1_000, 10)), Some(at(1_001, 5)));
        assert_eq!(last, [(None, 1), (first, 1), (first, 2), (second, 1), (second, 1), (second, 1), (second, 1)]);
    }
}
