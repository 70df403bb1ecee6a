//! Minutes of a fleet overview: counts of those that are over, and their composition from all sources.

use std::collections::{BTreeMap, BTreeSet};

use crate::gate::savings::Savings;
use callgate_core::domain::{
    fleet::{ApprovalLifetime, DecisionCounts, MINUTE_MS, Minute, ReplicaMinute, TimeSpan},
    time::Timestamp,
};
use callgate_store::DecisionsPerMinute;

/// Minutes of an overview, the present one among them.
pub(in crate::gate) const MINUTES: i64 = 60;
/// Longest delay after which a row may become visible: until then each read counts what is before it again.
pub(in crate::gate) const LATE_MS: i64 = 10_000;

/// Minutes that are over.
#[derive(Debug, Default)]
pub(super) struct CountedMinutes {
    minutes: BTreeMap<Timestamp, DecisionCounts>,
    /// From when on minutes are counted again.
    counted: Timestamp,
}

pub(in crate::gate) fn floor(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.as_millis().div_euclid(MINUTE_MS) * MINUTE_MS)
}

pub(in crate::gate) fn earlier(at: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(at.as_millis() - ms)
}

/// End of the minute that began then.
pub(super) fn end_of(minute: Timestamp) -> Timestamp {
    Timestamp::from_millis(minute.as_millis() + MINUTE_MS)
}

impl CountedMinutes {
    /// From when on minutes have to be read.
    pub(super) fn from(&self, now: Timestamp) -> Timestamp {
        self.counted.max(first(now))
    }

    /// Adds the decisions from then on; returns the last hour, and the last minute.
    pub(super) fn add_decisions(
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
pub(in crate::gate) fn first(now: Timestamp) -> Timestamp {
    earlier(floor(now), (MINUTES - 1) * MINUTE_MS)
}

/// Sources of the minutes.
pub(super) struct MinuteSources<'a> {
    pub(super) judged: &'a BTreeMap<Timestamp, DecisionCounts>,
    pub(super) asked: &'a [ApprovalLifetime],
    pub(super) halted: &'a [TimeSpan],
    pub(super) stopped: &'a BTreeMap<Timestamp, u64>,
    /// With the time of their read: by then the present minute is counted.
    pub(super) saved: Option<(&'a Savings, Timestamp)>,
    pub(super) seen: &'a dyn Fn(Timestamp) -> ReplicaMinute,
}

impl MinuteSources<'_> {
    pub(super) fn minutes(&self, now: Timestamp) -> Vec<Minute> {
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
                saved: self.saved.and_then(|(saved, read)| saved.savings_of_minute(start, end.min(read))),
                seen: (self.seen)(start),
            }
        };
        (0..MINUTES).map(minute).collect()
    }
}

/// Counts of approval requests that were open then, and of their sessions.
pub(super) fn open(asked: &[ApprovalLifetime], at: Timestamp) -> (u64, u64) {
    let open: Vec<&ApprovalLifetime> = asked.iter().filter(|one| one.is_open(at)).collect();
    let sessions: BTreeSet<&str> = open.iter().map(|one| one.session.as_str()).collect();
    (open.len() as u64, sessions.len() as u64)
}

/// Creation time of the oldest approval request that was open then.
pub(super) fn oldest(asked: &[ApprovalLifetime], at: Timestamp) -> Option<Timestamp> {
    asked.iter().filter(|one| one.is_open(at)).map(|one| one.at).min()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use callgate_core::domain::finding::Decision;

    fn at(minute: i64, second: i64) -> Timestamp {
        Timestamp::from_millis(minute * MINUTE_MS + second * 1_000)
    }

    static NOTHING: LazyLock<BTreeMap<Timestamp, u64>> = LazyLock::new(Default::default);

    fn past<'a>(
        judged: &'a BTreeMap<Timestamp, DecisionCounts>,
        asked: &'a [ApprovalLifetime],
        halted: &'a [TimeSpan],
    ) -> MinuteSources<'a> {
        MinuteSources { judged, asked, halted, stopped: &NOTHING, saved: None, seen: &|_| ReplicaMinute::default() }
    }

    fn decisions_of_minute(minute: i64, count: u64) -> DecisionsPerMinute {
        DecisionsPerMinute { minute: at(minute, 0), decision: Decision::Allow, count, lately: count }
    }

    #[test]
    fn minutes_that_are_over_are_counted_once_and_open_ones_with_each_look() {
        let mut kept = CountedMinutes::default();
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
