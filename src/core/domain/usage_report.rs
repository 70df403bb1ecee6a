//! Usage of a period: calls, durations, tokens and costs, in total and by hour, tool, agent or model.

use super::{closed_set::closed_set, time::Timestamp};

closed_set! {
    /// Property of calls by which usage is grouped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum UsageDimension {
        /// UTC hour of the judgment, of a period of up to [`HOURS_MAX`] hours; else the UTC day.
        Time = "time",
        Tool = "tool",
        Agent = "agent",
        Model = "model",
    }
}

/// Longest period whose times are hours, in hours.
pub const HOURS_MAX: i64 = 48;

/// Sums over calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Calls, each counted at its first judgment.
    pub calls: u64,
    /// Calls that a refusal kept from running.
    pub not_run: u64,
    /// Outcomes with the status error.
    pub failed: u64,
    /// Cost as callers reported it.
    pub cost_micros: u64,
    /// Expected cost of the calls that did not run, where it is known.
    pub saved_micros: u64,
    /// Tokens of every kind.
    pub tokens: u64,
    /// Those of models that have no price on their day.
    pub unpriced_tokens: u64,
    /// Cost of the others at the prices of their days.
    pub priced_micros: u64,
    /// Sum and number of the reported durations.
    pub duration_ms: u64,
    pub durations: u64,
}

impl UsageTotals {
    /// Adds other calls.
    pub const fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.not_run += other.not_run;
        self.failed += other.failed;
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
        self.saved_micros = self.saved_micros.saturating_add(other.saved_micros);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.unpriced_tokens = self.unpriced_tokens.saturating_add(other.unpriced_tokens);
        self.priced_micros = self.priced_micros.saturating_add(other.priced_micros);
        self.duration_ms = self.duration_ms.saturating_add(other.duration_ms);
        self.durations += other.durations;
    }

    /// Mean of the reported durations, in milliseconds; none without one.
    #[must_use]
    pub const fn mean_ms(&self) -> Option<u64> {
        self.duration_ms.checked_div(self.durations)
    }
}

/// Usage of one tool, agent, model or time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageGroup {
    pub dimension: UsageDimension,
    /// The tool, agent or model; empty for calls that name none, and for a time.
    pub name: String,
    /// Begin of the hour or day; none for a name.
    pub start: Option<Timestamp>,
    pub totals: UsageTotals,
}

/// Usage of a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// Begin of the period, a full hour.
    pub from: Timestamp,
    /// Calls judged before this time are counted.
    pub until: Timestamp,
    /// Why later calls of the period are not; none where all are.
    pub incomplete: Option<String>,
    pub total: UsageTotals,
    pub groups: Vec<UsageGroup>,
}

impl UsageReport {
    /// Adds the calls of a later period.
    pub fn extend(&mut self, later: Self) {
        self.total.add(&later.total);
        self.until = later.until;
        for group in later.groups {
            let is_same = |known: &&mut UsageGroup| {
                (known.dimension, &known.name, known.start) == (group.dimension, &group.name, group.start)
            };
            match self.groups.iter_mut().find(is_same) {
                Some(known) => known.totals.add(&group.totals),
                None => self.groups.push(group),
            }
        }
    }

    /// Sorts by dimension: times by age, names by cost and then by calls, of which `max` stay in each.
    pub fn sort(&mut self, max: usize) {
        let cost = |totals: &UsageTotals| totals.cost_micros.saturating_add(totals.priced_micros);
        self.groups.sort_by(|a, b| {
            let by_size = (cost(&b.totals), b.totals.calls).cmp(&(cost(&a.totals), a.totals.calls));
            a.dimension.cmp(&b.dimension).then(a.start.cmp(&b.start)).then(by_size).then_with(|| a.name.cmp(&b.name))
        });
        let mut listed = [0_usize; UsageDimension::ALL.len()];
        self.groups.retain(|group| {
            let listed = &mut listed[group.dimension as usize];
            *listed += 1;
            group.dimension == UsageDimension::Time || *listed <= max
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, cost_micros: u64) -> UsageGroup {
        let totals = UsageTotals { calls: 1, cost_micros, ..UsageTotals::default() };
        UsageGroup { dimension: UsageDimension::Tool, name: name.to_owned(), start: None, totals }
    }

    #[test]
    fn later_calls_are_added_to_their_group_and_the_largest_groups_stay() {
        let mut report = UsageReport { groups: vec![group("a", 5), group("b", 6)], ..UsageReport::default() };
        let until = Timestamp::from_millis(7);
        report.extend(UsageReport { until, groups: vec![group("a", 5), group("c", 1)], ..UsageReport::default() });
        report.sort(2);
        let told: Vec<_> = report.groups.iter().map(|one| (one.name.as_str(), one.totals.cost_micros)).collect();
        assert_eq!((told, report.until), (vec![("a", 10), ("b", 6)], until));
    }

    #[test]
    fn mean_duration_is_unknown_without_a_duration() {
        let mut totals = UsageTotals::default();
        assert_eq!(totals.mean_ms(), None);
        totals.add(&UsageTotals { duration_ms: 30, durations: 2, ..UsageTotals::default() });
        assert_eq!(totals.mean_ms(), Some(15));
    }
}
