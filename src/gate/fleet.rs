//! A fleet at a glance, as often as anybody looks. What is over for good is counted once and kept; an answer is shared
//! by all who ask within a second of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use lru::LruCache;

use super::{Gate, NoAnswer, lock};
use crate::{
    clock::Tick,
    domain::{
        budget::{Budgets, Scope},
        fleet::{self, Asked, BudgetUsed, Decided, Fleet, MINUTE_MS, Minute, Saved},
        ids::TenantId,
        time::Timestamp,
    },
    store::{Judged, Load, Refusals},
};

/// How long an answer is shared. A little less than a page waits before it asks again, so that each sees the next one.
const SHARED: Duration = Duration::from_millis(900);
/// How often it is read what takes a look at every call tree.
const TREES_EVERY: Duration = Duration::from_secs(5);
/// Minutes that are told of, the one that has only begun among them.
const MINUTES: i64 = 60;
/// How late a row may be seen: until then what is before it is counted again with each look.
const LATE_MS: i64 = 10_000;
/// Tenants of which something is kept; the one that nobody looked at for longest is counted anew.
const TENANTS_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

type Shared = Arc<tokio::sync::Mutex<Kept>>;

/// What is known of the fleets that somebody looks at.
#[derive(Debug)]
pub(super) struct Fleets(Mutex<LruCache<TenantId, Shared>>);

impl Default for Fleets {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(TENANTS_MAX)))
    }
}

/// Of one fleet.
#[derive(Debug, Default)]
struct Kept {
    answer: Option<(Arc<Fleet>, Tick)>,
    /// Minutes that are over.
    minutes: BTreeMap<Timestamp, Decided>,
    /// From when on minutes are counted again.
    counted: Timestamp,
    saved: Saved,
    /// From when on refusals are counted again.
    saved_until: Timestamp,
    trees: Option<(u64, Vec<BudgetUsed>, Tick)>,
}

/// How the server is that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneHealth {
    /// The activation that judges the tenant; 0 where none was ever active.
    pub revision: u64,
    /// By how many activations that is older than the active one.
    pub behind: u64,
    /// For how long nobody has confirmed it.
    pub unconfirmed: Duration,
    /// Evaluates that are judged, and that wait for their turn.
    pub judging: usize,
    pub waiting: usize,
    /// Changes that wait for a commit.
    pub uncommitted: usize,
}

fn floor(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.as_millis().div_euclid(MINUTE_MS) * MINUTE_MS)
}

fn earlier(at: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(at.as_millis() - ms)
}

impl Kept {
    /// From when on minutes have to be read.
    fn from(&self, now: Timestamp) -> Timestamp {
        self.counted.max(earlier(floor(now), (MINUTES - 1) * MINUTE_MS))
    }

    /// Takes in what was judged from then on; gives the last hour, and the last minute.
    fn judged(
        &mut self,
        from: Timestamp,
        now: Timestamp,
        judged: &[Judged],
    ) -> (BTreeMap<Timestamp, Decided>, Decided) {
        let (first, over) = (earlier(floor(now), (MINUTES - 1) * MINUTE_MS), floor(earlier(now, LATE_MS)));
        self.minutes.retain(|minute, _| *minute >= first && *minute < from);
        let (mut all, mut lately) = (self.minutes.clone(), Decided::default());
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

fn minutes(now: Timestamp, judged: &BTreeMap<Timestamp, Decided>, asked: &[Asked]) -> Vec<Minute> {
    let first = earlier(floor(now), (MINUTES - 1) * MINUTE_MS);
    let minute = |n: i64| {
        let start = Timestamp::from_millis(first.as_millis() + n * MINUTE_MS);
        let end = now.min(Timestamp::from_millis(start.as_millis() + MINUTE_MS));
        let (open_approvals, held) = open(asked, end);
        Minute { start, decided: judged.get(&start).copied().unwrap_or_default(), open_approvals, held }
    };
    (0..MINUTES).map(minute).collect()
}

/// Questions that were open then, and the sessions that waited for them.
fn open(asked: &[Asked], at: Timestamp) -> (u64, u64) {
    let open: Vec<&Asked> = asked.iter().filter(|one| one.is_open(at)).collect();
    let sessions: BTreeSet<&str> = open.iter().map(|one| one.session.as_str()).collect();
    (open.len() as u64, sessions.len() as u64)
}

impl Gate {
    /// How the tenant's fleet is.
    ///
    /// # Errors
    /// [`NoAnswer`] when that cannot be read.
    pub async fn fleet(&self, tenant: TenantId) -> Result<Arc<Fleet>, NoAnswer> {
        let shared = Arc::clone(lock(&self.fleets.0).get_or_insert_mut(tenant, Shared::default));
        // Whoever comes while it is read waits for that, and asks nobody.
        let mut kept = shared.lock().await;
        if let Some((fleet, read)) = &kept.answer
            && self.clock.elapsed(*read) < SHARED
        {
            return Ok(Arc::clone(fleet));
        }
        let read = self.clock.tick();
        let fleet = Arc::new(self.read_fleet(tenant, &mut kept).await?);
        kept.answer = Some((Arc::clone(&fleet), read));
        Ok(fleet)
    }

    async fn read_fleet(&self, tenant: TenantId, kept: &mut Kept) -> Result<Fleet, NoAnswer> {
        let (began, now) = (self.clock.tick(), self.store.now());
        let from = kept.from(now);
        let judged = self.store.judged(tenant, from, now).await?;
        let (judged, lately) = kept.judged(from, now, &judged);
        let asked = self.store.asked_since(tenant, earlier(now, MINUTES * MINUTE_MS)).await?;
        let (mut calling, stopped, tools) = self.store.standing(tenant).await?;
        let (saved, saved_from, saved_until) = self.saved(tenant, kept, now).await?;
        let is_old = |read: Tick| self.clock.elapsed(read) >= TREES_EVERY;
        if kept.trees.as_ref().is_none_or(|(.., read)| is_old(*read)) {
            let scopes = [Scope::CallTree, Scope::Agent, Scope::Tenant];
            let limits = fleet::shared_limits(self.policy(tenant).rules.get::<Budgets>(), &scopes);
            let (active, near) = self.store.near_their_end(tenant, &limits, now.day()).await?;
            kept.trees = Some((active, near, self.clock.tick()));
        }
        let (active, budgets) =
            kept.trees.as_ref().map(|(active, near, _)| (*active, near.clone())).unwrap_or_default();
        calling.active_trees = active;
        let (open_approvals, held) = open(&asked, now);
        Ok(Fleet {
            at: now,
            minutes: minutes(now, &judged, &asked),
            lately,
            calling,
            held,
            stopped,
            open_approvals,
            oldest_approval: asked.iter().filter(|one| one.is_open(now)).map(|one| one.at).min(),
            tools,
            budgets,
            saved,
            saved_from,
            saved_until,
            database_ms: u64::try_from(self.clock.elapsed(began).as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// What refusals saved today, from when, until when.
    async fn saved(
        &self,
        tenant: TenantId,
        kept: &mut Kept,
        now: Timestamp,
    ) -> Result<(Saved, Timestamp, Timestamp), NoAnswer> {
        let today = earlier(now.next_day(), 86_400_000);
        if kept.saved_until < today {
            (kept.saved, kept.saved_until) = (Saved::default(), today);
        }
        let over = earlier(now, LATE_MS);
        if kept.saved_until < over {
            let Refusals { saved, until } = self.store.refusals(tenant, kept.saved_until, over).await?;
            (kept.saved, kept.saved_until) = (kept.saved.and(saved), until);
            if until < over {
                return Ok((kept.saved, today, until));
            }
        }
        let lately = self.store.refusals(tenant, kept.saved_until, now.plus_ms(1)).await?;
        Ok((kept.saved.and(lately.saved), today, lately.until.min(now)))
    }

    /// How this server is, told from memory.
    #[must_use]
    pub fn plane_health(&self, tenant: TenantId) -> PlaneHealth {
        let Load { queued, .. } = self.store.load();
        let (judging, waiting) = self.door.load();
        let (revision, behind) = self.policy.standing(tenant);
        PlaneHealth {
            revision,
            behind,
            unconfirmed: self.tenants.age(&self.clock),
            judging,
            waiting,
            uncommitted: queued,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::finding::Decision;

    fn at(minute: i64, second: i64) -> Timestamp {
        Timestamp::from_millis(minute * MINUTE_MS + second * 1_000)
    }

    fn one(minute: i64, count: u64) -> Judged {
        Judged { minute: at(minute, 0), decision: Decision::Allow, count, lately: count }
    }

    #[test]
    fn minutes_that_are_over_are_counted_once_and_open_ones_with_each_look() {
        let mut kept = Kept::default();
        let now = at(1_000, 30);
        assert_eq!(kept.from(now), at(941, 0));
        let (all, _) = kept.judged(at(941, 0), now, &[one(950, 7), one(999, 3), one(1_000, 1)]);
        assert_eq!(all.values().map(|one| one.of(Decision::Allow)).collect::<Vec<_>>(), [7, 3, 1]);
        let now = at(1_000, 31);
        assert_eq!(kept.from(now), at(999, 0), "the last minute reaches into the one before");
        let (all, lately) = kept.judged(at(999, 0), now, &[one(999, 3), one(1_000, 2)]);
        assert_eq!(all.values().map(|one| one.of(Decision::Allow)).collect::<Vec<_>>(), [7, 3, 2]);
        assert_eq!(lately.of(Decision::Allow), 5);
        let now = at(1_010, 5);
        let (all, _) = kept.judged(kept.from(now), now, &[one(1_010, 4)]);
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [at(1_010, 0)], "what left the hour is forgotten");
        let told = minutes(now, &all, &[]);
        assert_eq!((told.len(), told[59].start, told[0].start), (60, at(1_010, 0), at(951, 0)));
    }

    #[test]
    fn a_question_counts_while_it_is_open() {
        let asked = |session: &str, from, until| Asked { session: session.into(), at: from, until };
        let all = [asked("a", at(1, 0), at(3, 0)), asked("a", at(2, 0), at(9, 0)), asked("b", at(2, 0), at(2, 30))];
        let open: Vec<(u64, u64)> = [at(0, 0), at(1, 0), at(2, 0), at(2, 30), at(3, 0)].map(|t| open(&all, t)).into();
        assert_eq!(open, [(0, 0), (1, 1), (3, 2), (2, 1), (1, 1)]);
    }
}
