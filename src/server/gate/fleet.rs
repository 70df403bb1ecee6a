//! Fleet overview, at any rate of reads. Minutes that are over for good are counted once and kept; all reads within a
//! second share the answers of its parts.

mod minutes;

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use lru::LruCache;
use parking_lot::Mutex;

use self::minutes::{CountedMinutes, MinuteSources, end_of, oldest, open};
pub(super) use self::minutes::{LATE_MS, MINUTES, earlier, first, floor};
use super::{
    Insight, NoAnswer,
    minute_metrics::SHARED_BUDGETS,
    part::{CachedPart, PART_BUDGET},
    savings::Savings,
    usage_report::UsageParts,
};
use callgate_core::domain::{
    budget::Budgets,
    fleet::{
        self, ApprovalLifetime, BudgetNearLimit, Calling, DecisionCounts, FleetOverview, FleetPart, MINUTE_MS,
        TimeSpan, ToolTrouble,
    },
    ids::TenantId,
    time::Timestamp,
};
use callgate_store::StoreLoad;

/// Time for which an answer is shared: a little less than the polling interval of a page, so that each poll is new.
const SHARED: Duration = Duration::from_millis(900);
/// Interval of reads that scan every call tree.
const TREES_EVERY: Duration = Duration::from_secs(5);
/// Tenants in the cache; the least recently read one is evicted, and counted again.
const TENANTS_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();

/// Cached fleet overviews of the tenants that are read.
#[derive(Debug)]
pub(super) struct Fleets(Mutex<LruCache<TenantId, Arc<CachedFleet>>>);

impl Default for Fleets {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(TENANTS_MAX)))
    }
}

impl Fleets {
    pub(super) fn of(&self, tenant: TenantId) -> Arc<CachedFleet> {
        Arc::clone(self.0.lock().get_or_insert_mut(tenant, Arc::default))
    }
}

/// A value with the time at which its read began.
type Dated<T> = (T, Timestamp);

/// Parts of a tenant's overview, and what their next reads continue from.
#[derive(Debug, Default)]
pub(super) struct CachedFleet {
    decisions: CachedPart<Dated<(BTreeMap<Timestamp, DecisionCounts>, DecisionCounts)>>,
    counted: tokio::sync::Mutex<CountedMinutes>,
    approvals: CachedPart<Dated<Vec<ApprovalLifetime>>>,
    halts: CachedPart<Dated<Vec<TimeSpan>>>,
    running: CachedPart<Dated<Calling>>,
    stopped: CachedPart<Dated<u64>>,
    stopped_minutes: CachedPart<Dated<BTreeMap<Timestamp, u64>>>,
    /// Sessions that were stopped at the end of minutes that are over.
    stopped_before: tokio::sync::Mutex<BTreeMap<Timestamp, u64>>,
    tools: CachedPart<Dated<Vec<ToolTrouble>>>,
    /// Active call trees, and budgets near their limit.
    budgets: CachedPart<Dated<(u64, Vec<BudgetNearLimit>)>>,
    savings: CachedPart<Dated<Savings>>,
    saved: tokio::sync::Mutex<Savings>,
    pub(super) usage: UsageParts,
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

/// A part, with the duration of its read.
type PartResult<T> = (FleetPart, Result<(Arc<Dated<T>>, Duration), NoAnswer>);

/// The requested parts as they are read.
struct PartReads<'a> {
    insight: &'a Insight,
    wanted: &'a [FleetPart],
    read: usize,
    /// When the newest of them was read.
    newest: Timestamp,
    slowest: Duration,
    failed: Vec<(FleetPart, NoAnswer)>,
}

impl PartReads<'_> {
    /// A part, if it is wanted.
    async fn read<T: Send + Sync + 'static>(
        &self,
        name: FleetPart,
        part: &CachedPart<Dated<T>>,
        read: impl Future<Output = Result<T, NoAnswer>> + Send + 'static,
    ) -> Option<PartResult<T>> {
        let began = self.insight.store.now();
        let read = async move { Ok((read.await?, began)) };
        let shared = if name == FleetPart::Budgets { TREES_EVERY } else { SHARED };
        let is_wanted = self.wanted.is_empty() || self.wanted.contains(&name);
        match is_wanted {
            true => Some((name, part.read(&self.insight.server.clock, (shared, PART_BUDGET), read).await)),
            false => None,
        }
    }

    fn note<T>(&mut self, part: Option<PartResult<T>>) -> Option<Arc<Dated<T>>> {
        match part? {
            (_, Ok((value, took))) => {
                self.read += 1;
                self.newest = self.newest.max(value.1);
                self.slowest = self.slowest.max(took);
                Some(value)
            }
            (name, Err(problem)) => {
                self.failed.push((name, problem));
                None
            }
        }
    }
}

impl Insight {
    /// Overview of the tenant's fleet: these parts of it, or all.
    ///
    /// # Errors
    /// [`NoAnswer`] when none of the parts can be read.
    pub async fn fleet(self: &Arc<Self>, tenant: TenantId, wanted: &[FleetPart]) -> Result<FleetOverview, NoAnswer> {
        let fleet = self.fleets.of(tenant);
        let (newest, slowest) = (Timestamp::default(), Duration::ZERO);
        let mut reads = PartReads { insight: self, wanted, read: 0, newest, slowest, failed: Vec::new() };
        let by = |insight: &Arc<Self>| (Arc::clone(insight), Arc::clone(&fleet));
        let (decisions, approvals, halts, running, stopped, stopped_minutes, tools, budgets, savings) = tokio::join!(
            reads.read(FleetPart::Decisions, &fleet.decisions, read_decisions(by(self), tenant)),
            reads.read(FleetPart::Approvals, &fleet.approvals, read_approvals(by(self), tenant)),
            reads.read(FleetPart::Halts, &fleet.halts, read_halts(by(self), tenant)),
            reads.read(FleetPart::Running, &fleet.running, read_running(by(self), tenant)),
            reads.read(FleetPart::Stopped, &fleet.stopped, read_stopped(by(self), tenant)),
            reads.read(FleetPart::StoppedMinutes, &fleet.stopped_minutes, read_stopped_minutes(by(self), tenant)),
            reads.read(FleetPart::Tools, &fleet.tools, read_tools(by(self), tenant)),
            reads.read(FleetPart::Budgets, &fleet.budgets, read_budgets(by(self), tenant)),
            reads.read(FleetPart::Savings, &fleet.savings, read_savings(by(self), tenant)),
        );
        let decisions = reads.note(decisions).unwrap_or_default();
        let approvals = reads.note(approvals).unwrap_or_default();
        let halted = reads.note(halts).unwrap_or_default();
        let running = reads.note(running).unwrap_or_default();
        let stopped = reads.note(stopped).map_or(0, |stopped| stopped.0);
        let mut stopped_minutes = reads.note(stopped_minutes).map(|minutes| minutes.0.clone()).unwrap_or_default();
        let tools = reads.note(tools).unwrap_or_default();
        let budgets = reads.note(budgets).unwrap_or_default();
        let savings = reads.note(savings);
        if let (0, Some((_, problem))) = (reads.read, reads.failed.first()) {
            return Err(problem.clone());
        }
        let (now, asked) = (reads.newest, &approvals.0);
        stopped_minutes.insert(floor(now), stopped);
        let past = MinuteSources {
            judged: &decisions.0.0,
            asked,
            halted: &halted.0,
            stopped: &stopped_minutes,
            saved: savings.as_deref().map(|(savings, at)| (savings, *at)),
            seen: &|minute| self.server.minute_metrics.of(tenant, minute),
        };
        let (open_approvals, held) = open(asked, now);
        Ok(FleetOverview {
            at: now,
            minutes: past.minutes(now),
            lately: decisions.0.1,
            calling: Calling { active_trees: budgets.0.0, ..running.0 },
            held,
            stopped,
            open_approvals,
            oldest_approval: oldest(asked, now),
            tools: tools.0.clone(),
            budgets: budgets.0.1.clone(),
            saved: savings.map(|savings| (savings.0.today, savings.0.day, savings.0.until())),
            database_ms: u64::try_from(reads.slowest.as_millis()).unwrap_or(u64::MAX),
            unavailable: reads.failed.into_iter().map(|(part, problem)| (part, problem.to_string())).collect(),
        })
    }

    /// Sessions that were stopped when each minute of the last hour ended; those that are over for good are kept.
    async fn count_stopped_sessions(
        &self,
        tenant: TenantId,
        kept: &mut BTreeMap<Timestamp, u64>,
    ) -> Result<BTreeMap<Timestamp, u64>, NoAnswer> {
        let now = self.store.now();
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

/// The reads of a part: its sources, and what it continues from.
type PartSources = (Arc<Insight>, Arc<CachedFleet>);

async fn read_decisions(
    (insight, fleet): PartSources,
    tenant: TenantId,
) -> Result<(BTreeMap<Timestamp, DecisionCounts>, DecisionCounts), NoAnswer> {
    let mut counted = fleet.counted.lock().await;
    let now = insight.store.now();
    let from = counted.from(now);
    let judged = insight.operators.decisions_per_minute(tenant, from, now).await?;
    Ok(counted.add_decisions(from, now, &judged))
}

async fn read_approvals((insight, _): PartSources, tenant: TenantId) -> Result<Vec<ApprovalLifetime>, NoAnswer> {
    Ok(insight.operators.asked_since(tenant, earlier(insight.store.now(), MINUTES * MINUTE_MS)).await?)
}

async fn read_halts((insight, _): PartSources, tenant: TenantId) -> Result<Vec<TimeSpan>, NoAnswer> {
    Ok(insight.operators.halted_since(tenant, first(insight.store.now())).await?)
}

async fn read_running((insight, _): PartSources, tenant: TenantId) -> Result<Calling, NoAnswer> {
    Ok(insight.operators.calling(tenant).await?)
}

async fn read_stopped((insight, _): PartSources, tenant: TenantId) -> Result<u64, NoAnswer> {
    Ok(insight.operators.stopped_now(tenant).await?)
}

async fn read_stopped_minutes(
    (insight, fleet): PartSources,
    tenant: TenantId,
) -> Result<BTreeMap<Timestamp, u64>, NoAnswer> {
    insight.count_stopped_sessions(tenant, &mut *fleet.stopped_before.lock().await).await
}

async fn read_tools((insight, _): PartSources, tenant: TenantId) -> Result<Vec<ToolTrouble>, NoAnswer> {
    Ok(insight.operators.tool_troubles(tenant).await?)
}

async fn read_budgets((insight, _): PartSources, tenant: TenantId) -> Result<(u64, Vec<BudgetNearLimit>), NoAnswer> {
    let limits = fleet::shared_limits(insight.server.policy(tenant).rules.get::<Budgets>(), &SHARED_BUDGETS);
    Ok(insight.operators.near_their_end(tenant, &limits, insight.store.now().day()).await?)
}

async fn read_savings((insight, fleet): PartSources, tenant: TenantId) -> Result<Savings, NoAnswer> {
    insight.savings(tenant, &mut *fleet.saved.lock().await, insight.store.now()).await
}
