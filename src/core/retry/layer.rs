//! Logistic layer (docs/learning.md#the-logistic-layer): an optional residual on the estimate per failure kind, with
//! features beyond its table. It learns in shadow, and is used for a kind only after it predicted that kind's outcomes
//! better than the estimate.

use std::collections::{BTreeMap, VecDeque};

use super::estimate::{logit, sigmoid};
use crate::domain::{
    failure::FailureKind,
    profile::{FEATURES, FollowUpKind, ResidualState, Trial, WEIGHTS},
};

/// Number of last outcomes for the comparison.
pub const LOSSES: usize = 500;
/// Maximum ratio of its log loss to the estimate's for promotion.
const PROMOTED_BELOW: f64 = 0.98;
const STEP: f64 = 0.1;
const L2: f64 = 1e-3;
/// Minimum distance of a probability from 0 and 1 in a log loss.
const LOSS_EDGE: f64 = 1e-3;
/// Mean and spread of each feature in the simulated fleet.
const MEAN: [f64; FEATURES] = [2.0, 2.0, 1.0, 1.0, 4.0, 0.5, 0.3, 1.0, 3.0, 0.0];
const SPREAD: [f64; FEATURES] = [1.7, 1.1, 0.6, 0.5, 1.5, 0.5, 0.3, 1.0, 2.5, 2.0];
/// Maximum distinguished attempt.
const ATTEMPT_MAX: u32 = 4;

/// Features of a failure, beside its kind and the wait.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traits {
    /// Number of the failed attempt, from 1.
    pub attempt: u32,
    /// Failures of that tool and kind in the session, this one included.
    pub same_errors: u32,
    /// Consecutive calls of that tool in the session.
    pub same_tool_run: u32,
    /// Age of the session, in milliseconds.
    pub session_ms: u64,
    /// True when the call before it did not fail.
    pub previous_ok: bool,
    /// Share of failed calls of the tool in the last minutes.
    pub failure_share: f64,
    /// Failure streak of the tool, across all sessions.
    pub failures: u32,
    /// Duration of the streak, in milliseconds.
    pub failing_ms: u64,
}

/// The residuals of all kinds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    kinds: BTreeMap<FailureKind, Residual>,
}

/// One kind's residual.
#[derive(Debug, Clone, PartialEq)]
pub struct Residual {
    weights: [f64; WEIGHTS],
    /// Sums of squared gradients (AdaGrad).
    squares: [f64; WEIGHTS],
    /// Log losses of the estimate and of the layer, oldest first; at most [`LOSSES`].
    losses: VecDeque<(f32, f32)>,
    sums: (f64, f64),
}

impl Default for Residual {
    /// The identity.
    fn default() -> Self {
        Self { weights: identity(), squares: [1.0; WEIGHTS], losses: VecDeque::new(), sums: (0.0, 0.0) }
    }
}

/// Features of a failure, except those of the wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailureFeatures {
    features: [f32; FEATURES],
    failing_s: f64,
    is_streak: bool,
}

impl Traits {
    /// The features of a retry after that wait.
    #[must_use]
    pub fn features(&self, wait_ms: u64) -> [f32; FEATURES] {
        self.common_features().features(self.attempt, wait_ms)
    }

    /// The features that are common to all waits.
    #[must_use]
    pub fn common_features(&self) -> FailureFeatures {
        let failing_s = seconds(self.failing_ms);
        let features = [
            0.0,
            0.0,
            f64::from(self.same_errors).ln_1p(),
            f64::from(self.same_tool_run).ln_1p(),
            seconds(self.session_ms).ln_1p(),
            f64::from(u8::from(self.previous_ok)),
            self.failure_share,
            f64::from(self.failures).ln_1p(),
            failing_s.ln_1p(),
            0.0,
        ];
        FailureFeatures { features: features.map(|feature| feature as f32), failing_s, is_streak: self.failures > 1 }
    }
}

impl FailureFeatures {
    /// The features of a retry of that attempt after that wait.
    #[must_use]
    pub fn features(&self, attempt: u32, wait_ms: u64) -> [f32; FEATURES] {
        let wait = seconds(wait_ms);
        let mut features = self.features;
        features[0] = wait.ln_1p() as f32;
        features[1] = attempt.min(ATTEMPT_MAX) as f32;
        features[9] = if self.is_streak { ((wait + 1.0) / (self.failing_s + 1.0)).ln() as f32 } else { 0.0 };
        features
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

impl Layer {
    /// The layer of these residuals.
    #[must_use]
    pub fn restore(states: &[ResidualState]) -> Self {
        Self { kinds: states.iter().map(|state| (state.kind, Residual::restore(state))).collect() }
    }

    /// The residual of each kind with one.
    pub fn kinds(&self) -> impl Iterator<Item = (FailureKind, &Residual)> {
        self.kinds.iter().map(|(kind, residual)| (*kind, residual))
    }

    /// The residual of a kind, after its first outcome.
    #[must_use]
    pub fn of(&self, kind: FailureKind) -> Option<&Residual> {
        self.kinds.get(&kind)
    }

    /// The layer's probability if promoted, otherwise the estimate's `p`.
    #[must_use]
    pub fn promoted_probability(&self, kind: FailureKind, p: f64, features: impl FnOnce() -> [f32; FEATURES]) -> f64 {
        self.speaks_for(kind).map_or(p, |residual| residual.p(p, &features()))
    }

    /// The residual of a kind, if promoted.
    #[must_use]
    pub fn speaks_for(&self, kind: FailureKind) -> Option<&Residual> {
        self.kinds.get(&kind).filter(|residual| residual.is_promoted())
    }

    /// Learns one trial; corrections are ignored.
    pub fn learn(&mut self, trial: &Trial) {
        let follow_up = &trial.follow_up;
        if follow_up.kind == FollowUpKind::Same {
            self.kinds.entry(follow_up.failure).or_default().learn(follow_up.p, &follow_up.features, trial.ok);
        }
    }
}

impl Residual {
    /// The residual of that state, the inverse of [`Self::state`].
    #[must_use]
    pub fn restore(state: &ResidualState) -> Self {
        let mut residual = Self { weights: state.weights, squares: state.squares, ..Self::default() };
        state.losses.iter().for_each(|losses| residual.judge(*losses));
        residual
    }

    /// The stored state.
    #[must_use]
    pub fn state(&self, kind: FailureKind) -> ResidualState {
        let losses = self.losses.iter().copied().collect();
        ResidualState { kind, weights: self.weights, squares: self.squares, losses }
    }

    /// The layer's probability.
    #[must_use]
    pub fn p(&self, p: f64, features: &[f32; FEATURES]) -> f64 {
        sigmoid(self.weights.iter().zip(inputs(p, features)).map(|(weight, x)| weight * x).sum())
    }

    /// True when it predicted the last outcomes sufficiently better than the estimate, on enough of them.
    #[must_use]
    pub fn is_promoted(&self) -> bool {
        let (estimate, layer) = self.mean_losses();
        self.losses.len() == LOSSES && layer <= PROMOTED_BELOW * estimate
    }

    /// Number of compared outcomes.
    #[must_use]
    pub fn outcomes(&self) -> usize {
        self.losses.len()
    }

    /// Mean log losses over the last outcomes, of the estimate and of the layer; 0 before the first.
    #[must_use]
    pub fn mean_losses(&self) -> (f64, f64) {
        let n = self.losses.len().max(1) as f64;
        (self.sums.0 / n, self.sums.1 / n)
    }

    fn judge(&mut self, losses: (f32, f32)) {
        let mut count = |(estimate, layer): (f32, f32), sign: f64| {
            self.sums.0 += sign * f64::from(estimate);
            self.sums.1 += sign * f64::from(layer);
        };
        count(losses, 1.0);
        self.losses.push_back(losses);
        if self.losses.len() > LOSSES
            && let Some(oldest) = self.losses.pop_front()
        {
            count(oldest, -1.0);
        }
    }

    fn learn(&mut self, p: f64, features: &[f32; FEATURES], ok: bool) {
        let told = self.p(p, features);
        self.judge((log_loss(p, ok) as f32, log_loss(told, ok) as f32));
        let error = told - f64::from(u8::from(ok));
        let start = identity();
        for (i, x) in inputs(p, features).into_iter().enumerate() {
            let gradient = error * x + L2 * (self.weights[i] - start[i]);
            self.squares[i] += gradient * gradient;
            self.weights[i] -= STEP * gradient / self.squares[i].sqrt();
        }
    }
}

/// Log loss of a prediction.
#[must_use]
pub fn log_loss(p: f64, ok: bool) -> f64 {
    let p = p.clamp(LOSS_EDGE, 1.0 - LOSS_EDGE);
    -(if ok { p } else { 1.0 - p }).ln()
}

fn identity() -> [f64; WEIGHTS] {
    std::array::from_fn(|i| if i == 0 { 1.0 } else { 0.0 })
}

fn inputs(p: f64, features: &[f32; FEATURES]) -> [f64; WEIGHTS] {
    std::array::from_fn(|i| match i {
        0 => logit(p),
        1 => 1.0,
        i => (f64::from(features[i - 2]) - MEAN[i - 2]) / SPREAD[i - 2],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_is_the_identity_until_it_is_better() {
        let mut residual = Residual::default();
        let features =
            |failing: bool| Traits { failures: if failing { 9 } else { 0 }, ..Traits::default() }.features(1_000);
        assert!((residual.p(0.37, &features(true)) - 0.37).abs() < 1e-9);
        // The estimate cannot see what decides here.
        for n in 0..LOSSES {
            assert!(!residual.is_promoted(), "after {n}");
            residual.learn(0.5, &features(n % 2 == 0), n % 2 == 1);
        }
        assert!(residual.is_promoted(), "{:?}", residual.mean_losses());
        assert!(residual.p(0.5, &features(true)) < 0.2 && residual.p(0.5, &features(false)) > 0.8);
    }

    #[test]
    fn layer_is_not_promoted_where_the_estimate_is_right() {
        let mut layer = Layer::default();
        let mut residual = Residual::default();
        for n in 0..2 * LOSSES {
            residual.learn(0.25, &Traits::default().features(4_000), n % 4 == 0);
        }
        layer.kinds.insert(FailureKind::Timeout, residual);
        assert!((layer.promoted_probability(FailureKind::Timeout, 0.25, || [0.0; FEATURES]) - 0.25).abs() < 1e-12);
    }
}
