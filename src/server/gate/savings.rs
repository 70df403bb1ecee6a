//! Savings by refusals, by minute and since the day began. Counting continues from its last position.

use std::collections::BTreeMap;

use super::{
    Insight, NoAnswer,
    fleet::{LATE_MS, earlier, first},
};
use callgate_core::domain::{fleet::RefusalSavings, ids::TenantId, time::Timestamp};
use callgate_store::Refusals;

/// Of one fleet.
#[derive(Debug, Clone, Default)]
pub(super) struct Savings {
    /// Start of the day.
    pub(super) day: Timestamp,
    pub(super) today: RefusalSavings,
    /// Those of the last hour.
    minutes: BTreeMap<Timestamp, RefusalSavings>,
    /// Up to when it is counted.
    until: Timestamp,
}

impl Savings {
    fn begin(&mut self, now: Timestamp) {
        let (first, day) = (first(now), earlier(now.next_day(), 86_400_000));
        if self.day != day {
            let of_day = self.minutes.range(day..).map(|(_, saved)| *saved);
            (self.day, self.today) = (day, of_day.fold(RefusalSavings::default(), RefusalSavings::and));
        }
        // The last hour may have begun yesterday.
        self.until = self.until.max(day.min(first));
        self.minutes.retain(|minute, _| *minute >= first);
    }

    fn add(&mut self, Refusals { saved, until }: Refusals) {
        for (minute, saved) in saved {
            if minute >= self.day {
                self.today = self.today.and(saved);
            }
            let known = self.minutes.entry(minute).or_default();
            *known = known.and(saved);
        }
        self.until = until;
    }

    /// Up to when that of the day is counted.
    pub(super) fn until(&self) -> Timestamp {
        self.until.max(self.day)
    }

    /// Savings of the minute that began and ended then; none where it is not counted yet.
    pub(super) fn savings_of_minute(&self, start: Timestamp, end: Timestamp) -> Option<RefusalSavings> {
        (end <= self.until).then(|| self.minutes.get(&start).copied().unwrap_or_default())
    }
}

impl Insight {
    /// Savings by refusals in the last hour, and today.
    pub(super) async fn savings(
        &self,
        tenant: TenantId,
        kept: &mut Savings,
        now: Timestamp,
    ) -> Result<Savings, NoAnswer> {
        kept.begin(now);
        let over = earlier(now, LATE_MS);
        if kept.until < over {
            kept.add(self.operators.refusals(tenant, kept.until, over).await?);
            if kept.until < over {
                return Ok(kept.clone());
            }
        }
        let mut all = kept.clone();
        all.add(self.operators.refusals(tenant, kept.until, now.plus_ms(1)).await?);
        all.until = all.until.min(now);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_core::domain::fleet::MINUTE_MS;

    const DAY: i64 = 20_000 * 1_440;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_millis(minute * MINUTE_MS)
    }

    fn denied_savings(denied: u64) -> RefusalSavings {
        RefusalSavings { denied, ..RefusalSavings::default() }
    }

    fn count_refusals(minutes: &[(i64, u64)], until: i64) -> Refusals {
        Refusals {
            saved: minutes.iter().map(|(minute, count)| (at(*minute), denied_savings(*count))).collect(),
            until: at(until),
        }
    }

    #[test]
    fn a_minute_is_known_once_all_of_it_is_counted() {
        let mut savings = Savings::default();
        savings.begin(at(DAY + 600));
        assert_eq!(savings.until, at(DAY), "from the beginning of the day");
        savings.add(count_refusals(&[(DAY + 10, 2), (DAY + 590, 3)], DAY + 595));
        assert_eq!(savings.today, denied_savings(5));
        assert_eq!(savings.savings_of_minute(at(DAY + 590), at(DAY + 591)), Some(denied_savings(3)));
        assert_eq!(
            savings.savings_of_minute(at(DAY + 591), at(DAY + 592)),
            Some(RefusalSavings::default()),
            "counted, and none"
        );
        assert_eq!(savings.savings_of_minute(at(DAY + 595), at(DAY + 596)), None, "nobody knows yet");
    }

    #[test]
    fn at_midnight_the_day_begins_anew_and_the_hour_does_not() {
        let mut savings = Savings::default();
        savings.begin(at(DAY - 10));
        savings.add(count_refusals(&[(DAY - 20, 4)], DAY - 10));
        savings.begin(at(DAY + 5));
        savings.add(count_refusals(&[(DAY - 5, 2), (DAY + 1, 1)], DAY + 5));
        assert_eq!(savings.today, denied_savings(1));
        assert_eq!(savings.savings_of_minute(at(DAY - 20), at(DAY - 19)), Some(denied_savings(4)));
        assert_eq!(savings.savings_of_minute(at(DAY - 5), at(DAY - 4)), Some(denied_savings(2)));
        let mut late = Savings::default();
        late.begin(at(DAY + 5));
        assert_eq!((late.until, late.until()), (at(DAY - 54), at(DAY)), "the hour before is counted first");
    }
}
