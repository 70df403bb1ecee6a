//! Simulated tools and their failures. Outages, windows, locks and hard failures are independent of retries, so that
//! the outcome of every possible retry is known.
//!
//! The processes and their figures are those of the study that the estimate was chosen by
//! (docs/learning.md#the-simulated-fleet). Times are in seconds since the start.

use super::dice::Dice;
use callgate_core::domain::failure::FailureKind;

/// Failure kinds of the simulation, in the order of [`RATES`].
pub(crate) const KINDS: [FailureKind; 7] = [
    FailureKind::Timeout,
    FailureKind::RateLimited,
    FailureKind::Internal,
    FailureKind::Auth,
    FailureKind::InvalidArgument,
    FailureKind::NotFound,
    FailureKind::Conflict,
];
/// Base failure rate of each of [`KINDS`]; rate limits have a process of their own.
const RATES: [f64; KINDS.len()] = [0.012, 0.0, 0.02, 0.006, 0.02, 0.015, 0.008];
/// Spread of those rates over tools, as the deviation of their logarithm.
const RATES_SPREAD: f64 = 0.8;
pub(crate) const DAY_S: f64 = 86_400.0;
const HOUR_S: f64 = 3_600.0;
/// Start of the drift, as a share of the time.
const DRIFT_AT: f64 = 0.55;
/// Number of late tools, and their start.
const LATE_TOOLS: usize = 5;
const LATE_AT: f64 = 0.6;
/// Number of tools whose credentials refresh before the drift, after it, or both.
const REFRESHING: usize = 4;
/// The two kinds of outages.
pub(super) const SHORT: OutageKind = OutageKind { share: 0.8, scale: 0.3 };
pub(super) const LONG: OutageKind = OutageKind { share: 0.2, scale: 3.8 };
/// Probability that a call times out during an outage.
pub(super) const OUTAGE_FAILS: f64 = 0.95;
/// Success probability of a retry once the fault is mended: of an outage, another timeout, a quota, a rate window, a
/// lock, a missing thing, refreshed credentials.
pub(super) const OUTAGE_MENDED: f64 = 0.96;
pub(super) const TIMEOUT_MENDED: f64 = 0.85;
pub(super) const QUOTA_MENDED: f64 = 0.95;
pub(super) const WINDOW_MENDED: f64 = 0.9;
pub(super) const LOCK_MENDED: f64 = 0.9;
pub(super) const APPEARED: f64 = 0.97;
pub(super) const REFRESHED: f64 = 0.95;
/// Time until refreshed credentials are in use.
pub(super) const REFRESH_S: f64 = 2.0;
/// Mean time until a quota is renewed.
pub(super) const QUOTA_MEAN_S: f64 = 2.0 * HOUR_S;
/// Minimum number of tools for the processes.
pub(crate) const TOOLS_MIN: usize = 8;

/// Size and duration of a simulated fleet.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct Setting {
    /// Simulated days.
    pub(crate) days: u32,
    /// Sessions that start per day.
    pub(crate) sessions_per_day: u32,
    /// Number of tools, at least [`TOOLS_MIN`].
    pub(crate) tools: usize,
    /// Share of undeclared acting tools, 0 to 1: after a failure with an open effect the model decides, not the
    /// program.
    pub(crate) undeclared: f64,
}

/// A failure with its hidden state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SimulatedFault {
    pub(crate) kind: FailureKind,
    /// Time from which a retry may succeed.
    pub(crate) mends_at: f64,
    /// Success probability from then on.
    pub(crate) chance: f64,
}

/// A kind of outages: its share of all, and its mean duration as a multiple of the tool's.
pub(super) struct OutageKind {
    pub(super) share: f64,
    pub(super) scale: f64,
}

/// A value before and after the drift.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriftingValue {
    before: f64,
    after: f64,
}

/// Parameters of a tool's processes, and its outages.
#[derive(Debug)]
pub(super) struct Tool {
    popularity: f64,
    born_at: f64,
    /// Outage periods, in order.
    outages: Vec<(f64, f64)>,
    /// Mean duration of an outage, before its kind, and of the time between outages.
    pub(super) down_mean_s: DriftingValue,
    pub(super) up_mean_s: f64,
    limit_rate: f64,
    pub(super) limit_window_s: f64,
    /// Share of rate limits that are quotas, which last for hours.
    pub(super) quota_share: f64,
    pub(super) rates: [f64; KINDS.len()],
    /// Probability that an internal failure recurs.
    pub(super) fails_again: DriftingValue,
    /// Probability that a missing thing appears later.
    pub(super) appears: f64,
    pub(super) appears_mean_s: f64,
    pub(super) lock_mean_s: f64,
    /// Probability that credentials are refreshed by the next call.
    pub(super) refreshes: DriftingValue,
}

/// Tools of a fleet.
#[derive(Debug)]
pub(crate) struct SimulatedFleet {
    pub(crate) setting: Setting,
    tools: Vec<Tool>,
    drift_at: f64,
}

impl Setting {
    /// Duration, in seconds.
    pub(crate) fn span_s(&self) -> f64 {
        f64::from(self.days) * DAY_S
    }

    /// True where a failure of that kind leaves the effect open.
    pub(crate) fn effect_open(&self, tool: usize, kind: FailureKind) -> bool {
        let acts = (tool as f64) < self.undeclared * self.tools as f64;
        acts && matches!(kind, FailureKind::Timeout | FailureKind::Internal)
    }
}

impl DriftingValue {
    const fn steady(value: f64) -> Self {
        Self { before: value, after: value }
    }

    pub(super) const fn value(self, has_drifted: bool) -> f64 {
        if has_drifted { self.after } else { self.before }
    }
}

impl SimulatedFleet {
    /// The fleet of that seed.
    pub(crate) fn new(seed: u64, setting: Setting) -> Self {
        let dice = &mut Dice::new(seed, 0);
        let drift_at = DRIFT_AT * setting.span_s();
        let n = setting.tools;
        let ranks = dice.some_of(n, n);
        let (outages_drift, faults_drift) = (dice.some_of(n, n / 4), dice.some_of(n, n / 4));
        let refreshing = dice.some_of(n, REFRESHING);
        let tool = |(i, rank): (usize, usize)| {
            let mut tool = Tool::draw(dice, rank);
            if i >= n.saturating_sub(LATE_TOOLS) {
                tool.born_at = LATE_AT * setting.span_s();
            }
            let refreshes = |share, places: &[usize]| if places.contains(&i) { share } else { 0.0 };
            tool.refreshes.before = refreshes(0.7, &refreshing[..2]);
            tool.refreshes.after = refreshes(0.7, &refreshing[..1]) + refreshes(0.75, &refreshing[2..]);
            if faults_drift.contains(&i) {
                tool.fails_again.after = if tool.fails_again.before < 0.5 { 0.97 } else { 0.1 };
            }
            tool.draw_outages(dice, &setting, drift_at, outages_drift.contains(&i));
            tool
        };
        let tools = ranks.into_iter().enumerate().map(tool).collect();
        Self { setting, tools, drift_at }
    }

    /// Call rate of each tool at `at`; 0 for tools that do not exist yet.
    pub(crate) fn popularity(&self, at: f64) -> Vec<f64> {
        let of = |tool: &Tool| if tool.born_at <= at { tool.popularity } else { 0.0 };
        self.tools.iter().map(of).collect()
    }

    pub(super) fn tool(&self, tool: usize) -> &Tool {
        &self.tools[tool]
    }

    pub(super) fn has_drifted(&self, at: f64) -> bool {
        at >= self.drift_at
    }

    /// The failure of a call, if any.
    pub(crate) fn call(&self, tool: usize, at: f64, bad_credentials: bool, dice: &mut Dice) -> Option<SimulatedFault> {
        let tool = &self.tools[tool];
        if bad_credentials {
            return Some(SimulatedFault::final_of(FailureKind::Auth));
        }
        if let Some(end) = tool.outage_end(at)
            && dice.is(OUTAGE_FAILS)
        {
            return Some(SimulatedFault { kind: FailureKind::Timeout, mends_at: end, chance: OUTAGE_MENDED });
        }
        if dice.is(tool.limit_rate) {
            return Some(tool.rate_limit_fault(at, dice));
        }
        let mut left = dice.share();
        let hit = tool.rates.iter().position(|rate| {
            left -= rate;
            left < 0.0
        })?;
        Some(tool.fails(KINDS[hit], at, self.has_drifted(at), dice))
    }
}

impl SimulatedFault {
    /// A failure that no retry fixes.
    const fn final_of(kind: FailureKind) -> Self {
        Self { kind, mends_at: f64::INFINITY, chance: 0.0 }
    }
}

impl Tool {
    fn draw(dice: &mut Dice, rank: usize) -> Self {
        Self {
            popularity: (rank as f64 + 1.0).powf(-0.9),
            born_at: 0.0,
            outages: Vec::new(),
            down_mean_s: DriftingValue::steady(0.0),
            up_mean_s: 0.0,
            limit_rate: dice.log_between(0.002, 0.03),
            limit_window_s: dice.one_of(&[2.0, 10.0, 60.0, 60.0, HOUR_S]),
            quota_share: dice.draw_between(0.0, 0.5),
            rates: RATES.map(|rate| rate * (dice.normal() * RATES_SPREAD).exp()),
            fails_again: DriftingValue::steady(dice.beta(1.2, 2.0)),
            appears: if dice.is(0.25) { dice.draw_between(0.5, 0.95) } else { 0.02 },
            appears_mean_s: dice.log_between(1.0, 20.0),
            lock_mean_s: dice.log_between(1.0, 60.0),
            refreshes: DriftingValue::steady(0.0),
        }
    }

    /// Outages of two kinds: mostly short, some long.
    fn draw_outages(&mut self, dice: &mut Dice, setting: &Setting, drift_at: f64, drifts: bool) {
        let down = dice.log_between(3.0, 900.0);
        let up = dice.log_between(HOUR_S / 2.0, 6.0 * HOUR_S);
        let drifted = if down < 60.0 { down * 60.0 } else { down / 60.0 };
        (self.down_mean_s, self.up_mean_s) =
            (DriftingValue { before: down, after: if drifts { drifted } else { down } }, up);
        let mut at = self.born_at;
        while at < setting.span_s() {
            at += dice.exponential(up);
            let mean = self.down_mean_s.value(at >= drift_at);
            let end = at + dice.exponential(mean) * if dice.is(SHORT.share) { SHORT.scale } else { LONG.scale };
            self.outages.push((at, end));
            at = end;
        }
    }

    fn outage_end(&self, at: f64) -> Option<f64> {
        let next = self.outages.partition_point(|(start, _)| *start <= at);
        let (_, end) = *self.outages.get(next.checked_sub(1)?)?;
        (at < end).then_some(end)
    }

    fn rate_limit_fault(&self, at: f64, dice: &mut Dice) -> SimulatedFault {
        let kind = FailureKind::RateLimited;
        if dice.is(self.quota_share) {
            return SimulatedFault { kind, mends_at: at + dice.exponential(QUOTA_MEAN_S), chance: QUOTA_MENDED };
        }
        SimulatedFault { kind, mends_at: self.window_end(at), chance: WINDOW_MENDED }
    }

    /// End of the rate window at `at`.
    pub(super) fn window_end(&self, at: f64) -> f64 {
        ((at / self.limit_window_s).floor() + 1.0) * self.limit_window_s
    }

    fn fails(&self, kind: FailureKind, at: f64, drifted: bool, dice: &mut Dice) -> SimulatedFault {
        let of = |value: DriftingValue| value.value(drifted);
        match kind {
            FailureKind::Timeout => SimulatedFault { kind, mends_at: at, chance: TIMEOUT_MENDED },
            FailureKind::Internal => SimulatedFault { kind, mends_at: at, chance: 1.0 - of(self.fails_again) },
            FailureKind::Auth if dice.is(of(self.refreshes)) => {
                SimulatedFault { kind, mends_at: at + REFRESH_S, chance: REFRESHED }
            }
            FailureKind::NotFound if dice.is(self.appears) => {
                SimulatedFault { kind, mends_at: at + dice.exponential(self.appears_mean_s), chance: APPEARED }
            }
            FailureKind::Conflict => {
                SimulatedFault { kind, mends_at: at + dice.exponential(self.lock_mean_s), chance: LOCK_MENDED }
            }
            _ => SimulatedFault::final_of(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting { days: 14, sessions_per_day: 100, tools: 24, undeclared: 0.0 };

    #[test]
    fn five_tools_appear_late() {
        let fleet = SimulatedFleet::new(1, SETTING);
        let there = |day: f64| fleet.popularity(day * DAY_S).iter().filter(|share| **share > 0.0).count();
        assert_eq!((there(0.0), there(8.3), there(8.5)), (19, 19, 24));
    }

    #[test]
    fn a_quarter_of_the_tools_changes_its_faults_at_the_drift() {
        let fleet = SimulatedFleet::new(2, SETTING);
        let drifts = |tool: &&Tool| (tool.fails_again.before - tool.fails_again.after).abs() > 1e-9;
        assert_eq!(fleet.tools.iter().filter(drifts).count(), 6);
        let refreshing = |tool: &&Tool| tool.refreshes.before + tool.refreshes.after > 0.0;
        assert_eq!(fleet.tools.iter().filter(refreshing).count(), REFRESHING);
    }

    #[test]
    fn calls_fail_by_time_outs_in_an_outage_until_it_ends() {
        let fleet = SimulatedFleet::new(3, SETTING);
        let (start, end) = *fleet.tools[0].outages.iter().find(|(start, end)| end - start > 10.0).expect("one is long");
        assert_eq!(fleet.tools[0].outage_end(start - 1e-3), None);
        assert_eq!(fleet.tools[0].outage_end(end), None);
        let dice = &mut Dice::new(3, 1);
        let of_outage = SimulatedFault { kind: FailureKind::Timeout, mends_at: end, chance: 0.96 };
        let hits = (0..1_000).filter(|_| fleet.call(0, start + 1.0, false, dice) == Some(of_outage)).count();
        assert!((930..970).contains(&hits), "{hits}");
        let refused = Some(SimulatedFault::final_of(FailureKind::Auth));
        assert_eq!(fleet.call(0, start + 1.0, true, dice), refused);
    }

    #[test]
    fn windows_end_on_whole_multiples() {
        let fleet = SimulatedFleet::new(4, SETTING);
        let tool = fleet.tools.iter().find(|tool| tool.quota_share < 0.4).expect("one is hardly limited by quotas");
        let dice = &mut Dice::new(4, 1);
        let faults: Vec<SimulatedFault> = (0..50).map(|_| tool.rate_limit_fault(1_234.5, dice)).collect();
        let windows: Vec<f64> = faults.iter().filter(|fault| fault.chance < 0.92).map(|fault| fault.mends_at).collect();
        assert!(windows.len() > 20);
        for end in windows {
            assert!((end % tool.limit_window_s).abs() < 1e-9 && end > 1_234.5 && end <= 1_234.5 + tool.limit_window_s);
        }
    }
}
