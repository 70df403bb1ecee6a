//! Estimate of a retry's success probability: decayed counts, shrunk from the cell of one tool, kind, wait and state
//! towards the average tool's curve (docs/learning.md#the-estimate). Counts are dense arrays, and every sum of the
//! formulas is a sum over one or two of them, so that they are consistent.

mod chance;
mod counts;

use std::collections::BTreeMap;

pub(super) use self::chance::{logit, sigmoid};
use self::{
    chance::{shift_probability, shrink},
    counts::{Cells, NO_CELLS, Recent, half_lives},
};
use crate::domain::{
    failure::FailureKind,
    ids::ToolName,
    outcome::Basis,
    profile::{
        CELLS, CellCount, FollowUpKind, HALF_LIFE_MS, ProfileCounts, RecentCount, RetryState, Trial, WAITS_MS, bucket,
    },
    time::Timestamp,
};

/// Weight of the prior, in trials.
pub const M_KIND: f64 = 4.0;
/// Weight of the level above on the average tool's curve, in trials.
pub const M_CURVE: f64 = 8.0;
/// Weight of the average tool for a tool's deviation, in trials.
pub const M_TOOL: f64 = 4.0;
/// Weight of the level above in a cell of one tool, in trials.
pub const M_CELL: f64 = 16.0;
/// Weight of the slow level for the recent one, in trials.
pub const M_RECENT: f64 = 8.0;

const WAITS: usize = WAITS_MS.len();
const STATES: usize = CELLS / WAITS;
/// Minimum distance of expected scores of the average tool from 0 and 1.
pub const EXPECTED_EDGE: f64 = 0.01;
/// The same for the recent level.
pub const RECENT_EDGE: f64 = 0.02;
/// Minimum trials of a recent level; fewer are ignored.
pub const RECENT_MIN: f64 = 0.05;
/// Minimum distance from 0 and 1 of a probability in log odds.
pub const LOGIT_EDGE: f64 = 1e-3;
/// Half-lives after which all weights are rescaled, far from a double's limit.
const REBASE_HALF_LIVES: f64 = 256.0;

/// Success probability of a retry, by wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Odds {
    /// The probability after each of [`WAITS_MS`], 0 to 1.
    pub p: [f64; WAITS],
    /// `p` without the recent level.
    pub slow: [f64; WAITS],
    /// Trials (decayed) of this tool and kind with each wait.
    pub trials: [f64; WAITS],
    /// Trials (decayed) of this tool and kind with each wait in this state.
    pub cell: [f64; WAITS],
    /// Trials (decayed) of this tool and kind.
    pub of_tool: f64,
    /// Trials (decayed) of this kind.
    pub of_kind: f64,
}

/// Snapshot of the estimate for one tool and failure kind.
#[derive(Debug)]
pub struct View<'a> {
    /// The average tool's probability, by cell.
    curve: [f64; CELLS],
    cells: &'a Cells,
    /// The tool's log odds relative to the average tool.
    shift: f64,
    /// The recent log odds relative to the earlier ones.
    lately: f64,
    of_tool: f64,
    of_kind: f64,
    fade: f64,
}

/// Success of follow-ups with other arguments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Corrections {
    /// Trials (decayed).
    pub n: f64,
    /// Successes (decayed).
    pub k: f64,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Profile {
    cells: Cells,
    recent: Recent,
    corrections: Corrections,
}

/// Retry counts of one tenant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Estimate {
    /// Time at which a weight of 1 is one trial.
    reference: Timestamp,
    as_of: Option<Timestamp>,
    kinds: [Cells; FailureKind::ALL.len()],
    tools: BTreeMap<ToolName, BTreeMap<FailureKind, Box<Profile>>>,
}

/// The prior probability. `other` is below break-even on purpose: of about 1,010 recorded identical retries right after
/// an error of a deterministic tool, one succeeded.
#[must_use]
pub const fn prior(kind: FailureKind) -> f64 {
    match kind {
        FailureKind::Timeout => 0.50,
        FailureKind::RateLimited | FailureKind::Conflict => 0.60,
        FailureKind::Unavailable | FailureKind::Network | FailureKind::Internal => 0.55,
        FailureKind::NotFound => 0.08,
        FailureKind::Auth | FailureKind::Permission => 0.03,
        FailureKind::InvalidArgument => 0.01,
        FailureKind::QuotaExhausted => 0.02,
        FailureKind::Other => 0.12,
    }
}

/// The prior of a tool; `hint` is its declared retryability. Evidence overrides both.
#[must_use]
pub const fn prior_of(kind: FailureKind, hint: Option<bool>) -> f64 {
    match hint {
        Some(true) => 0.8,
        Some(false) => 0.1,
        None => prior(kind),
    }
}

impl Estimate {
    /// The estimate of these counts.
    #[must_use]
    pub fn restore(counts: &ProfileCounts) -> Self {
        let mut estimate = Self { reference: counts.as_of, as_of: Some(counts.as_of), ..Self::default() };
        for cell in &counts.cells {
            let at = cell.wait.min(WAITS - 1) * STATES + cell.state.index();
            match cell.kind {
                FollowUpKind::Same => estimate.add(&cell.tool, cell.failure, at, cell.n, cell.k),
                FollowUpKind::Near | FollowUpKind::Changed => {
                    estimate.profile(&cell.tool, cell.failure).corrections.add(cell.n, cell.k);
                }
            }
        }
        for recent in &counts.recent {
            let level = Recent { n: recent.n, k: recent.k, expected: recent.expected, at: counts.as_of };
            estimate.profile(&recent.tool, recent.failure).recent = level;
        }
        estimate
    }

    /// The counts as of `now`.
    #[must_use]
    pub fn counts(&self, now: Timestamp) -> ProfileCounts {
        let fade = self.fade(now);
        let (mut cells, mut recent) = (Vec::new(), Vec::new());
        let profiles = self.tools.iter().flat_map(|(tool, kinds)| kinds.iter().map(move |(kind, p)| (tool, *kind, p)));
        for (tool, failure, profile) in profiles {
            for (at, (n, k)) in profile.cells.n.iter().zip(&profile.cells.k).enumerate().filter(|(_, (n, _))| **n > 0.0)
            {
                let (wait, state) = (at / STATES, RetryState::of_index(at % STATES));
                let (kind, n, k) = (FollowUpKind::Same, n * fade, k * fade);
                cells.push(CellCount { tool: tool.clone(), failure, kind, wait, state, n, k });
            }
            let level = profile.recent;
            if level.n > 0.0 {
                let fade = level.fade(now);
                let (n, k, expected) = (level.n * fade, level.k * fade, level.expected * fade);
                recent.push(RecentCount { tool: tool.clone(), failure, n, k, expected });
            }
        }
        ProfileCounts { as_of: now, cells, recent }
    }

    /// Time of the counts' load or of the last trial; none without trials.
    #[must_use]
    pub const fn as_of(&self) -> Option<Timestamp> {
        self.as_of
    }

    /// The snapshot for retries of a tool after a kind of failure. `prior_p` is the probability without trials; a
    /// declared one excludes other tools' trials.
    #[must_use]
    pub fn view(
        &self,
        (tool, kind): (&ToolName, FailureKind),
        prior_p: f64,
        by_owner: bool,
        now: Timestamp,
    ) -> View<'_> {
        let fade = self.fade(now);
        let of_kind = if by_owner { &NO_CELLS } else { &self.kinds[kind as usize] };
        let curve = of_kind.curve(prior_p, fade);
        let profile = self.tools.get(tool).and_then(|kinds| kinds.get(&kind));
        let cells = profile.map_or(&NO_CELLS, |profile| &profile.cells);
        View {
            shift: cells.shift(&curve, fade).exp(),
            lately: profile.map_or(0.0, |profile| profile.recent.level(now)).exp(),
            of_tool: cells.n.iter().sum::<f64>() * fade,
            of_kind: of_kind.n.iter().sum::<f64>() * fade,
            curve,
            cells,
            fade,
        }
    }

    /// Every tool and kind of failure with counts, in order.
    pub fn counted_failures(&self) -> impl Iterator<Item = (&ToolName, FailureKind)> {
        self.tools.iter().flat_map(|(tool, kinds)| kinds.keys().map(move |kind| (tool, *kind)))
    }

    /// Success of follow-ups with other arguments after such a failure.
    #[must_use]
    pub fn corrections(&self, tool: &ToolName, kind: FailureKind, now: Timestamp) -> Corrections {
        let profile = self.tools.get(tool).and_then(|kinds| kinds.get(&kind));
        let fade = self.fade(now);
        profile.map_or_else(Corrections::default, |profile| Corrections {
            n: profile.corrections.n * fade,
            k: profile.corrections.k * fade,
        })
    }

    /// Adds one trial. Trials come in the order of their outcomes.
    pub fn learn(&mut self, trial: &Trial) {
        let follow_up = &trial.follow_up;
        let ok = f64::from(u8::from(trial.ok));
        let weight = self.weight(trial.at);
        match follow_up.kind {
            FollowUpKind::Same => {
                let at = bucket(follow_up.waited_ms) * STATES + follow_up.state.index();
                self.add(&trial.tool, follow_up.failure, at, weight, ok * weight);
                let recent = &mut self.profile(&trial.tool, follow_up.failure).recent;
                recent.add(ok, follow_up.p_slow, trial.at);
            }
            FollowUpKind::Near | FollowUpKind::Changed => {
                self.profile(&trial.tool, follow_up.failure).corrections.add(weight, ok * weight);
            }
        }
        self.as_of = self.as_of.max(Some(trial.at));
    }

    fn add(&mut self, tool: &ToolName, kind: FailureKind, at: usize, n: f64, k: f64) {
        self.kinds[kind as usize].add(at, n, k);
        self.profile(tool, kind).cells.add(at, n, k);
    }

    fn profile(&mut self, tool: &ToolName, kind: FailureKind) -> &mut Profile {
        if !self.tools.contains_key(tool) {
            self.tools.insert(tool.clone(), BTreeMap::new());
        }
        self.tools.entry(tool.clone()).or_default().entry(kind).or_default()
    }

    /// Decay factor of stored weights.
    fn fade(&self, now: Timestamp) -> f64 {
        (-half_lives(now, self.reference, HALF_LIFE_MS)).exp2()
    }

    /// The weight of a trial at `at`; may move the reference time.
    fn weight(&mut self, at: Timestamp) -> f64 {
        if half_lives(at, self.reference, HALF_LIFE_MS) > REBASE_HALF_LIVES {
            let fade = self.fade(at);
            let profiles = self.tools.values_mut().flat_map(BTreeMap::values_mut);
            for profile in profiles {
                profile.cells.scale(fade);
                profile.corrections = Corrections { n: profile.corrections.n * fade, k: profile.corrections.k * fade };
            }
            self.kinds.iter_mut().for_each(|cells| cells.scale(fade));
            self.reference = at;
        }
        half_lives(at, self.reference, HALF_LIFE_MS).exp2()
    }
}

impl View<'_> {
    /// The probabilities of a retry in that state.
    #[must_use]
    pub fn odds(&self, state: RetryState) -> Odds {
        let mut odds = Odds {
            p: [0.0; WAITS],
            slow: [0.0; WAITS],
            trials: [0.0; WAITS],
            cell: [0.0; WAITS],
            of_tool: self.of_tool,
            of_kind: self.of_kind,
        };
        for wait in 0..WAITS {
            let at = wait * STATES + state.index();
            let (n, k) = self.cells.of_wait(wait);
            let (cell_n, cell_k) = (self.cells.n[at] * self.fade, self.cells.k[at] * self.fade);
            let p1 = shift_probability(self.curve[at], self.shift);
            let p2 = shrink(n * self.fade, k * self.fade, M_CELL, p1);
            odds.slow[wait] = shrink(cell_n, cell_k, M_CELL, p2);
            odds.p[wait] = shift_probability(odds.slow[wait], self.lately);
            odds.trials[wait] = n * self.fade;
            odds.cell[wait] = cell_n;
        }
        odds
    }
}

impl Odds {
    /// The basis of the probability for that wait: the nearest level with a trial.
    #[must_use]
    pub fn basis(&self, wait: usize) -> Basis {
        match () {
            () if self.cell[wait] >= 1.0 => Basis::Cell,
            () if self.of_tool >= 1.0 => Basis::Tool,
            () if self.of_kind >= 1.0 => Basis::Kind,
            () => Basis::Prior,
        }
    }
}

#[cfg(test)]
mod tests;
