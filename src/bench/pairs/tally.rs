//! Tally of call results in a period.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

/// Counts and latencies.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) evaluate: Times,
    pub(super) record: Times,
    /// From the intended start of the Evaluate to the response to the Record; in a closed loop the actual start.
    pub(super) pair: Times,
    /// Refused calls by decision, and errors by code and reason.
    pub(super) refused: BTreeMap<String, u64>,
}

/// How often each number of microseconds was taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Times(BTreeMap<u64, u64>);

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
    pub(super) fn note(&mut self, took: Duration) {
        *self.0.entry(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)).or_default() += 1;
    }

    fn add(&mut self, other: &Self) {
        for (micros, times) in &other.0 {
            *self.0.entry(*micros).or_default() += times;
        }
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        let count: u64 = self.0.values().sum();
        let at = |share: f64| {
            let place = (share * count as f64).ceil() as u64;
            let mut seen = 0;
            let reached = self.0.iter().find(|(_, times)| {
                seen += **times;
                seen >= place
            });
            reached.map_or(0, |(micros, _)| *micros)
        };
        Percentiles { count, p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_told_and_none_is_lost() {
        let mut tally = Tally::default();
        (1..=1_000).for_each(|ms| tally.pair.note(Duration::from_millis(ms)));
        tally.pair.note(Duration::from_secs(3_600));
        let mut all = Tally::default();
        all.add(&tally);
        all.add(&tally);
        let told = all.pair.percentiles();
        assert_eq!(told.count, 2_002);
        assert_eq!((told.p50, told.p99, told.max), (501_000, 991_000, 3_600_000_000), "{told:?}");
    }
}
