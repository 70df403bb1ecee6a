//! Tally of call results in a period.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Maximum distinguished latency.
const LONGEST: Duration = Duration::from_secs(60);

/// Counts and latencies.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) evaluate: Times,
    pub(super) record: Times,
    /// From the intended start of the Evaluate to the response to the Record; in a closed loop the actual start.
    pub(super) pair: Times,
    /// Refused calls by decision, and errors by code and reason.
    pub(super) refused: BTreeMap<String, u64>,
}

/// A histogram of microseconds.
#[derive(Debug, Clone)]
pub(super) struct Times(Histogram<u64>);

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Percentiles {
    pub(super) count: u64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { evaluate: Times::new(), record: Times::new(), pair: Times::new(), refused: BTreeMap::new() }
    }

    pub(super) fn count_refusal(&mut self, what: String) {
        *self.refused.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.evaluate.add(&other.evaluate);
        self.record.add(&other.record);
        self.pair.add(&other.pair);
        for (what, count) in &other.refused {
            *self.refused.entry(what.clone()).or_default() += count;
        }
    }
}

impl Times {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the test below tries")]
    pub(super) fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
        Self(Histogram::new_with_max(longest, 3).expect("bounds that a histogram can have"))
    }

    pub(super) fn note(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    fn add(&mut self, other: &Self) {
        // Both have the same bounds, so that everything finds its place.
        let _ = self.0.add(&other.0);
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        let at = |share| self.0.value_at_quantile(share);
        Percentiles {
            count: self.0.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_three_digits_and_none_is_lost() {
        let mut tally = Tally::new();
        (1..=1_000).for_each(|ms| tally.pair.note(Duration::from_millis(ms)));
        tally.pair.note(Duration::from_secs(3_600));
        let mut all = Tally::new();
        all.add(&tally);
        all.add(&tally);
        let told = all.pair.percentiles();
        assert_eq!(told.count, 2_002);
        assert!(told.p50.abs_diff(501_000) < 1_000 && told.p99.abs_diff(991_000) < 1_000, "{told:?}");
        assert!(told.max >= 60_000_000, "{told:?}");
    }
}
