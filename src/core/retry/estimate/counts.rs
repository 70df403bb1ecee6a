//! Weighted sums behind an estimate.

use super::{
    Corrections, EXPECTED_EDGE, M_CURVE, M_KIND, M_RECENT, M_TOOL, RECENT_EDGE, RECENT_MIN, STATES, WAITS,
    chance::{logit, shrink},
};
use crate::domain::{
    profile::{CELLS, RECENT_HALF_LIFE_MS},
    time::Timestamp,
};

/// Trials and successes by cell, in weights at the estimate's reference time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cells {
    pub(super) n: [f64; CELLS],
    pub(super) k: [f64; CELLS],
}

pub(super) static NO_CELLS: Cells = Cells { n: [0.0; CELLS], k: [0.0; CELLS] };

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Recent {
    pub(super) n: f64,
    pub(super) k: f64,
    pub(super) expected: f64,
    pub(super) at: Timestamp,
}

impl Default for Cells {
    fn default() -> Self {
        NO_CELLS.clone()
    }
}

impl Cells {
    pub(super) fn add(&mut self, at: usize, n: f64, k: f64) {
        self.n[at] += n;
        self.k[at] += k;
    }

    pub(super) fn scale(&mut self, by: f64) {
        self.n.iter_mut().chain(&mut self.k).for_each(|count| *count *= by);
    }

    pub(super) fn of_wait(&self, wait: usize) -> (f64, f64) {
        let cells = wait * STATES..(wait + 1) * STATES;
        (self.n[cells.clone()].iter().sum(), self.k[cells].iter().sum())
    }

    /// g2: the average tool's probability, by cell.
    pub(super) fn curve(&self, prior_p: f64, fade: f64) -> [f64; CELLS] {
        let (n, k) = (self.n.iter().sum::<f64>(), self.k.iter().sum::<f64>());
        let of_kind = shrink(n * fade, k * fade, M_KIND, prior_p);
        let mut curve = [0.0; CELLS];
        for wait in 0..WAITS {
            let (n, k) = self.of_wait(wait);
            let of_wait = shrink(n * fade, k * fade, M_CURVE, of_kind);
            let cells = wait * STATES..(wait + 1) * STATES;
            for (g2, (n, k)) in curve[cells.clone()].iter_mut().zip(self.n[cells.clone()].iter().zip(&self.k[cells])) {
                *g2 = shrink(n * fade, k * fade, M_CURVE, of_wait);
            }
        }
        curve
    }

    /// The tool's deviation from the average tool on the same mix of waits and states, in log odds.
    pub(super) fn shift(&self, curve: &[f64; CELLS], fade: f64) -> f64 {
        let (n, k) = (self.n.iter().sum::<f64>(), self.k.iter().sum::<f64>());
        if n <= 0.0 {
            return 0.0;
        }
        let expected: f64 = self.n.iter().zip(curve).map(|(n, p)| n * p).sum();
        let expected = (expected / n).clamp(EXPECTED_EDGE, 1.0 - EXPECTED_EDGE);
        logit(shrink(n * fade, k * fade, M_TOOL, expected)) - logit(expected)
    }
}

impl Corrections {
    pub(super) fn add(&mut self, n: f64, k: f64) {
        self.n += n;
        self.k += k;
    }
}

impl Recent {
    pub(super) fn add(&mut self, ok: f64, expected: f64, at: Timestamp) {
        let fade = self.fade(at);
        let sum = |sum: f64, more: f64| sum * fade + more;
        let (n, k, expected) = (sum(self.n, 1.0), sum(self.k, ok), sum(self.expected, expected));
        *self = Self { n, k, expected, at: self.at.max(at) };
    }

    pub(super) fn fade(&self, now: Timestamp) -> f64 {
        // A future trial counts as fresh: reading never increases weights.
        (-half_lives(now, self.at, RECENT_HALF_LIFE_MS).max(0.0)).exp2()
    }

    /// The recent deviation from the slow level's expectation, in log odds.
    pub(super) fn level(&self, now: Timestamp) -> f64 {
        let fade = self.fade(now);
        let n = self.n * fade;
        if n <= RECENT_MIN {
            return 0.0;
        }
        let expected = (self.expected / self.n).clamp(RECENT_EDGE, 1.0 - RECENT_EDGE);
        logit(shrink(n, self.k * fade, M_RECENT, expected)) - logit(expected)
    }
}

pub(super) fn half_lives(later: Timestamp, earlier: Timestamp, half_life_ms: u64) -> f64 {
    later.as_millis().saturating_sub(earlier.as_millis()) as f64 / half_life_ms as f64
}
