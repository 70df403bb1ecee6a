//! Usage of a period: the counted hours of the rollup, and the calls since.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Insight, NoAnswer, part::CachedPart};
use callgate_core::domain::{
    ids::TenantId,
    time::Timestamp,
    usage_report::{HOURS_MAX, UsageReport},
};
use callgate_store::UsagePeriod;

/// Periods of a tenant in the cache; the least recently read one is evicted.
const PERIODS_MAX: NonZeroUsize = NonZeroUsize::new(16).unwrap();
/// Time for which a report is shared.
const SHARED: Duration = Duration::from_secs(5);
/// Time that a request waits for the counted hours, and after that for the calls since.
const COUNTED_BUDGET: Duration = Duration::from_millis(500);
const RECENT_BUDGET: Duration = Duration::from_millis(400);
const HOUR_MS: i64 = 3_600_000;

/// The first hour of a period, and the end that was asked for; none is now.
type PeriodKey = (Timestamp, Option<Timestamp>);

/// Reports of a tenant, by their periods.
#[derive(Debug)]
pub(super) struct UsageParts {
    periods: Mutex<LruCache<PeriodKey, Arc<PeriodParts>>>,
    /// One read at a time: a period's read outlives its request.
    turn: tokio::sync::Mutex<()>,
}

/// A period: its counted hours, and the calls since.
#[derive(Debug, Default)]
struct PeriodParts {
    counted: CachedPart<UsageReport>,
    recent: CachedPart<UsageReport>,
}

impl Default for UsageParts {
    fn default() -> Self {
        Self { periods: Mutex::new(LruCache::new(PERIODS_MAX)), turn: tokio::sync::Mutex::default() }
    }
}

impl UsageParts {
    async fn turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, NoAnswer> {
        let turn = timeout(COUNTED_BUDGET, self.turn.lock()).await;
        turn.map_err(|_| NoAnswer::Overloaded("the usage of another period is being counted".to_owned()))
    }
}

impl Insight {
    /// Usage from a full hour on, until a time or now. The end is earlier where the calls since the last counted hour
    /// cannot be counted in time; the report says why.
    ///
    /// # Errors
    /// [`NoAnswer`] when the counted hours cannot be read, or there are none and the calls cannot be counted.
    pub async fn usage(
        self: &Arc<Self>,
        tenant: TenantId,
        from: Timestamp,
        until: Option<Timestamp>,
    ) -> Result<UsageReport, NoAnswer> {
        let fleet = self.fleets.of(tenant);
        let parts = Arc::clone(fleet.usage.periods.lock().get_or_insert_mut((from, until), Arc::default));
        let (clock, end) = (&self.server.clock, until.unwrap_or_else(|| self.store.now().plus_ms(1)));
        let is_hourly = end.as_millis() - from.as_millis() <= HOURS_MAX * HOUR_MS;
        let (insight, of_counted) = (Arc::clone(self), Arc::clone(&fleet));
        let read = async move {
            let _turn = of_counted.usage.turn().await?;
            let counted = insight.operators.uncounted_hour(tenant).await?.unwrap_or(from).clamp(from, end.max(from));
            let counted = Timestamp::from_millis(counted.as_millis().div_euclid(HOUR_MS) * HOUR_MS);
            let period = UsagePeriod { from, until: counted, is_hourly };
            match counted > from {
                true => Ok(insight.operators.counted_usage(tenant, period).await?),
                false => Ok(UsageReport { from, until: from, ..UsageReport::default() }),
            }
        };
        let (counted, _) = parts.counted.read(clock, (SHARED, COUNTED_BUDGET), read).await?;
        if counted.until >= end {
            return Ok((*counted).clone());
        }
        let (insight, period) = (Arc::clone(self), UsagePeriod { from: counted.until, until: end, is_hourly });
        let read = async move {
            let _turn = fleet.usage.turn().await?;
            Ok(insight.operators.stored_usage(tenant, period).await?)
        };
        let mut report = (*counted).clone();
        match parts.recent.read(clock, (SHARED, RECENT_BUDGET), read).await {
            // An answer from before the rollup went on, or from before it was counted again, has another begin.
            Ok((recent, _)) if recent.from == counted.until => report.extend((*recent).clone()),
            Ok(_) => report.incomplete = Some("an hour was counted meanwhile".to_owned()),
            Err(problem) if counted.until == from => return Err(problem),
            Err(NoAnswer::Overloaded(why)) => report.incomplete = Some(why),
            Err(problem) => report.incomplete = Some(problem.to_string()),
        }
        Ok(report)
    }
}
