//! Probabilities, odds and shrinkage.

use super::LOGIT_EDGE;

/// The share `k` of `n`, shrunk towards `p` with the weight of `m` trials.
pub(super) fn shrink(n: f64, k: f64, m: f64, p: f64) -> f64 {
    (k + m * p) / (n + m)
}

/// The log odds of a probability, clamped [`LOGIT_EDGE`] from 0 and 1.
pub(in crate::retry) fn logit(p: f64) -> f64 {
    let p = clamp_probability(p);
    (p / (1.0 - p)).ln()
}

/// σ(logit p + ln by), without a logarithm per probability.
pub(super) fn shift_probability(p: f64, by: f64) -> f64 {
    let p = clamp_probability(p);
    p * by / (p * by + 1.0 - p)
}

fn clamp_probability(p: f64) -> f64 {
    p.clamp(LOGIT_EDGE, 1.0 - LOGIT_EDGE)
}

/// The probability of log odds.
pub(in crate::retry) fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z.clamp(-30.0, 30.0)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odds_are_shifted_as_their_logarithms_would_be() {
        for p in [0.0, 0.001, 0.2, 0.5, 0.97, 1.0] {
            for by in [-6.0, -0.3, 0.0, 2.5] {
                let (found, expected) = (shift_probability(p, f64::exp(by)), sigmoid(logit(p) + by));
                assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
            }
        }
    }
}
