//! Tool quality reports. Calls are counted by the hour, the newest first, and a closed hour is counted once and kept. A
//! report holds the hours that are counted by then, and how far back they reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Arc, Weak},
    time::Duration,
};

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Insight, NoAnswer};
use callgate_core::domain::{
    finding::Level,
    ids::{TenantId, ToolName},
    quality::{
        COERCED_MAX, DAYS_MAX, Flaw, NearPair, QualityHour, StoredName, TOLD_MAX, ToolHour, ToolQuality, UnknownTool,
    },
    time::Timestamp,
};
use callgate_net::clock::Tick;
use callgate_store::StoreError;

const HOUR_MS: i64 = 3_600_000;
const HOURS: i64 = 24;
/// Time after an hour's end in which each read counts its calls again: later reports count nowhere.
const LATE_MS: i64 = HOUR_MS;
/// Longest wait of a reader for a running count.
const WAIT: Duration = Duration::from_millis(200);
/// A count that took longer is not made again at once,
const CHEAP: Duration = Duration::from_millis(50);
/// but once so many times as long has passed.
const REST: u32 = 20;
/// Tenants in the cache; the least recently read one is evicted, and counted again.
const TENANTS_MAX: NonZeroUsize = NonZeroUsize::new(100).unwrap();
/// Names that are no tools.
pub const UNKNOWN_TOOLS_MAX: usize = 100;

/// Report of tool quality.
#[derive(Debug, Clone, PartialEq)]
pub struct QualityReport {
    /// The tools, the worst first.
    pub tools: Vec<ToolQuality>,
    /// Pairs that canonicalization should have joined, the most frequent first.
    pub near_pairs: Vec<NearPair>,
    /// Loops that ended at each level.
    pub loop_ends: Vec<(Level, u64)>,
    /// Names that agents called and that are no tools, the most called first.
    pub unknown_tools: Vec<UnknownTool>,
    /// Time of the last count; none before the first.
    pub as_of: Option<Timestamp>,
    /// Back to when all are counted, while not all are that were asked for.
    pub counted_from: Option<Timestamp>,
}

/// Cached counts of the tenants that are read.
#[derive(Debug)]
pub(super) struct Qualities(Mutex<LruCache<TenantId, Arc<Shared>>>);

impl Default for Qualities {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(TENANTS_MAX)))
    }
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<CachedHours>,
    /// The turn to count: one reader at a time.
    turn: tokio::sync::Mutex<()>,
}

/// By their numbers since the Unix epoch.
#[derive(Debug, Default)]
struct CachedHours {
    /// Days whose hours are all over.
    days: BTreeMap<i64, QualityHour>,
    hours: BTreeMap<i64, QualityHour>,
    /// The first hour that has to be counted again.
    open: i64,
    counted: Option<OpenHours>,
}

/// A count of the open hours.
#[derive(Debug, Clone, Copy)]
struct OpenHours {
    /// Time of the request that caused it.
    at: Timestamp,
    began: Tick,
    took: Duration,
}

fn hour(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(HOUR_MS)
}

/// Start of an hour.
fn begin(hour: i64) -> Timestamp {
    Timestamp::from_millis(hour * HOUR_MS)
}

impl CachedHours {
    /// The newest of some hours that has to be counted, with those before it; none where all are.
    fn missing(&self, (first, behind): (i64, i64)) -> Option<i64> {
        let is_known = |hour: &i64| self.hours.contains_key(hour) || self.days.contains_key(&hour.div_euclid(HOURS));
        (first..behind).rev().find(|hour| !is_known(hour))
    }

    /// Merges the hours of closed days; drops those beyond the longest report.
    fn fold(&mut self, today: i64) {
        let days: BTreeSet<i64> = self.hours.range(..self.open).map(|(hour, _)| hour.div_euclid(HOURS)).collect();
        for day in days {
            let (first, next) = (day * HOURS, (day + 1) * HOURS);
            if next > self.open || self.hours.range(first..next).count() as i64 != HOURS {
                continue;
            }
            let mut all = QualityHour::default();
            (first..next).rev().filter_map(|hour| self.hours.remove(&hour)).for_each(|hour| all.add(&hour));
            self.days.insert(day, all);
        }
        let oldest = today - i64::from(DAYS_MAX);
        self.days.retain(|day, _| *day > oldest);
        self.hours.retain(|hour, _| *hour > oldest * HOURS);
    }

    /// All that is counted from an hour on, the newest first.
    fn since(&self, first: i64) -> QualityHour {
        let mut all = QualityHour::default();
        self.hours.range(first..).rev().for_each(|(_, hour)| all.add(hour));
        self.days.range(first.div_euclid(HOURS)..).rev().for_each(|(_, day)| all.add(day));
        all
    }
}

impl Insight {
    /// Report of tool quality over the last days; one tool, or all. Counting continues after the answer.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn quality(
        self: &Arc<Self>,
        tenant: TenantId,
        tool: Option<&ToolName>,
        days: i32,
    ) -> Result<QualityReport, NoAnswer> {
        let now = self.store.now();
        let first = (i64::from(now.day()) + 1 - i64::from(days)) * HOURS;
        let shared = Arc::clone(self.qualities.0.lock().get_or_insert_mut(tenant, Arc::default));
        let counting = tokio::spawn(count(Arc::downgrade(self), Arc::clone(&shared), tenant, (first, now)));
        if let Ok(Ok(counted)) = timeout(WAIT, counting).await {
            counted?;
        }
        let mut told = {
            let kept = shared.kept.lock();
            let as_of = kept.counted.map(|counted| counted.at);
            let missing = kept.missing((first, hour(as_of.unwrap_or(now)) + 1));
            let counted_from = missing.map(|hour| begin(hour + 1).min(now));
            ReportDraft::new(&kept.since(first), tool, (as_of, counted_from))
        };
        self.drop_forgotten_calls(tenant, &mut told).await?;
        Ok(told.report)
    }

    /// Calls may have been forgotten since they were counted.
    async fn drop_forgotten_calls(&self, tenant: TenantId, told: &mut ReportDraft) -> Result<(), NoAnswer> {
        let pairs = told.report.near_pairs.iter().flat_map(|pair| [&pair.example.0, &pair.example.1]);
        let shown: Vec<&StoredName> = told.shown.iter().flatten().chain(pairs).collect();
        let stored = match shown.is_empty() {
            true => Vec::new(),
            false => self.operators.check_stored(tenant, &shown).await?,
        };
        let mut stored = stored.into_iter();
        for (tool, shown) in told.report.tools.iter_mut().zip(&told.shown) {
            let left = shown.iter().filter(|_| stored.next() == Some(true));
            tool.evidence = left.map(|call| call.name.clone()).collect();
        }
        told.report.near_pairs.retain(|_| {
            let (first, second) = (stored.next(), stored.next());
            first == Some(true) && second == Some(true)
        });
        Ok(())
    }
}

/// A report, and the calls that would show it.
struct ReportDraft {
    report: QualityReport,
    /// Of each tool.
    shown: Vec<Vec<StoredName>>,
}

impl ReportDraft {
    fn new(
        counted: &QualityHour,
        only: Option<&ToolName>,
        (as_of, counted_from): (Option<Timestamp>, Option<Timestamp>),
    ) -> Self {
        let is_meant = |tool: &ToolName| only.is_none_or(|only| only == tool);
        let mut tools: Vec<ToolQuality> =
            counted.tools.iter().filter(|(tool, _)| is_meant(tool)).map(|(tool, hour)| quality(tool, hour)).collect();
        let badness = |quality: &ToolQuality| {
            quality.worst().map_or((false, 0.0), |flaw| (flaw != Flaw::MissingIsComplete, quality.rate(flaw)))
        };
        tools.sort_by(|a, b| {
            let ((a_counts, a_rate), (b_counts, b_rate)) = (badness(a), badness(b));
            b_counts.cmp(&a_counts).then(b_rate.total_cmp(&a_rate)).then_with(|| a.tool.cmp(&b.tool))
        });
        tools.truncate(TOLD_MAX);
        let mut near_pairs: Vec<NearPair> =
            counted.near_pairs.values().filter(|pair| is_meant(&pair.tool)).cloned().collect();
        near_pairs.sort_by_key(|pair| std::cmp::Reverse(pair.pairs));
        near_pairs.truncate(TOLD_MAX);
        let unknown = counted.unknown.iter().filter(|(tool, _)| is_meant(tool));
        let mut unknown_tools: Vec<UnknownTool> = unknown
            .map(|(tool, (calls, sessions))| UnknownTool { tool: tool.clone(), calls: *calls, sessions: *sessions })
            .collect();
        unknown_tools.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.tool.cmp(&b.tool)));
        unknown_tools.truncate(UNKNOWN_TOOLS_MAX);
        let loop_ends = counted.loop_ends.iter().map(|(level, loops)| (*level, *loops)).collect();
        let shown = tools.iter().map(|quality| counted.evidence(&quality.tool).to_vec()).collect();
        Self { report: QualityReport { tools, near_pairs, loop_ends, unknown_tools, as_of, counted_from }, shown }
    }
}

fn quality(tool: &ToolName, hour: &ToolHour) -> ToolQuality {
    let mut coerced: Vec<(String, u64)> = hour.coerced.iter().map(|(field, calls)| (field.clone(), *calls)).collect();
    coerced.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    coerced.truncate(COERCED_MAX);
    ToolQuality { tool: tool.clone(), counts: hour.counts, evidence: Vec::new(), coerced }
}

/// Counts the open hours, where that was not done since `now`; then the missing hours since `first`.
async fn count(
    insight: Weak<Insight>,
    shared: Arc<Shared>,
    tenant: TenantId,
    (first, now): (i64, Timestamp),
) -> Result<(), StoreError> {
    let _turn = shared.turn.lock().await;
    let today = i64::from(now.day());
    if let Some(insight) = insight.upgrade() {
        insight.count_open(&shared, tenant, now).await?;
    }
    loop {
        let Some(insight) = insight.upgrade() else { return Ok(()) };
        let missing = {
            let kept = shared.kept.lock();
            kept.missing((first, kept.open))
        };
        let Some(hour) = missing else { return Ok(()) };
        let day = hour.div_euclid(HOURS) * HOURS;
        // A day without calls needs no count.
        let is_empty = !insight.store.has_calls(tenant, (begin(day), begin(hour + 1))).await?;
        let counted = match is_empty {
            true => QualityHour::default(),
            false => insight.store.quality_hour(tenant, (begin(hour), begin(hour + 1))).await?,
        };
        let mut kept = shared.kept.lock();
        if is_empty {
            let before = (day..hour).map(|hour| (hour, QualityHour::default()));
            kept.hours.extend(before);
        }
        kept.hours.insert(hour, counted);
        kept.fold(today);
    }
}

impl Insight {
    /// Counts the open hours, and those that were open when it was done last, if it is time.
    async fn count_open(&self, shared: &Shared, tenant: TenantId, now: Timestamp) -> Result<(), StoreError> {
        let (was_open, counted) = {
            let kept = shared.kept.lock();
            (kept.open, kept.counted)
        };
        let rests =
            |last: OpenHours| last.took > CHEAP && self.server.clock.elapsed_since(last.began) < last.took * REST;
        if counted.is_some_and(|last| last.at >= now || rests(last)) {
            return Ok(());
        }
        let open = hour(Timestamp::from_millis(now.as_millis() - LATE_MS));
        let last = counted.map(|last| was_open..=hour(last.at));
        let hours: BTreeSet<i64> = last.into_iter().flatten().chain(open..=hour(now)).collect();
        let (began, mut anew) = (self.server.clock.tick(), Vec::new());
        for hour in hours.into_iter().rev() {
            anew.push((hour, self.store.quality_hour(tenant, (begin(hour), begin(hour + 1))).await?));
        }
        let mut kept = shared.kept.lock();
        kept.hours.extend(anew);
        kept.open = open;
        kept.counted = Some(OpenHours { at: now, began, took: self.server.clock.elapsed_since(began) });
        kept.fold(i64::from(now.day()));
        Ok(())
    }
}
