//! Forecast metrics: log loss, AUC, Brier score, calibration.

use serde::Serialize;

use callgate_core::retry::layer::log_loss;

/// Number of calibration bins.
pub(crate) const PARTS: usize = 10;

/// Score of a forecaster; of several runs the mean, and the sum of their bins.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Score {
    /// Number of forecasts.
    pub(crate) n: u64,
    /// Mean log loss, in nats.
    pub(crate) log_loss: f64,
    /// Probability that a success had a higher forecast than a failure.
    pub(crate) auc: f64,
    /// Mean squared error.
    pub(crate) brier: f64,
    /// Calibration bins.
    pub(crate) calibration: [ForecastBin; PARTS],
}

/// Calibration bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct ForecastBin {
    /// Number of forecasts.
    pub(crate) n: u64,
    /// Mean forecast; 0 without any.
    pub(crate) predicted: f64,
    /// Share of successes; 0 without any.
    pub(crate) observed: f64,
}

impl Score {
    /// Compares forecasts with outcomes.
    pub(crate) fn of(forecasts: &[(f64, bool)]) -> Self {
        let n = forecasts.len().max(1) as f64;
        let mean = |of: fn(&(f64, bool)) -> f64| forecasts.iter().map(of).sum::<f64>() / n;
        Self {
            n: forecasts.len() as u64,
            log_loss: mean(|(p, ok)| log_loss(*p, *ok)),
            auc: auc(forecasts),
            brier: mean(|(p, ok)| (p - f64::from(u8::from(*ok))).powi(2)),
            calibration: calibration(forecasts),
        }
    }

    /// The mean of several runs.
    pub(crate) fn mean_of(runs: &[Self]) -> Self {
        let n = runs.len().max(1) as f64;
        let of = |field: fn(&Self) -> f64| runs.iter().map(field).sum::<f64>() / n;
        Self {
            n: runs.iter().map(|run| run.n).sum(),
            log_loss: of(|run| run.log_loss),
            auc: of(|run| run.auc),
            brier: of(|run| run.brier),
            calibration: std::array::from_fn(|at| ForecastBin::sum(runs.iter().map(|run| run.calibration[at]))),
        }
    }
}

impl ForecastBin {
    fn sum(parts: impl Iterator<Item = Self>) -> Self {
        let (mut n, mut predicted, mut observed) = (0, 0.0, 0.0);
        for part in parts {
            n += part.n;
            predicted += part.n as f64 * part.predicted;
            observed += part.n as f64 * part.observed;
        }
        let all = n.max(1) as f64;
        Self { n, predicted: predicted / all, observed: observed / all }
    }
}

/// AUC by ranks; ties share theirs. One half without a success or a failure.
fn auc(forecasts: &[(f64, bool)]) -> f64 {
    let mut sorted = forecasts.to_vec();
    sorted.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (mut below, mut won, mut successes) = (0.0, 0.0, 0.0);
    for equal in sorted.chunk_by(|(a, _), (b, _)| a.total_cmp(b).is_eq()) {
        let ok = equal.iter().filter(|(_, ok)| *ok).count() as f64;
        let failed = equal.len() as f64 - ok;
        won += ok * (below + failed / 2.0);
        below += failed;
        successes += ok;
    }
    let pairs = successes * below;
    if pairs > 0.0 { won / pairs } else { 0.5 }
}

fn calibration(forecasts: &[(f64, bool)]) -> [ForecastBin; PARTS] {
    let within = |p: f64| ((p * PARTS as f64) as usize).min(PARTS - 1);
    std::array::from_fn(|at| {
        let part = forecasts.iter().filter(|(p, _)| within(*p) == at);
        ForecastBin::sum(part.map(|(p, ok)| ForecastBin { n: 1, predicted: *p, observed: f64::from(u8::from(*ok)) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn scores_are_those_worked_out_by_hand() {
        let score = Score::of(&[(0.8, true), (0.4, false), (0.4, true), (0.1, false)]);
        assert_eq!(score.n, 4);
        assert_near(score.brier, (0.04 + 0.16 + 0.36 + 0.01) / 4.0);
        assert_near(score.log_loss, -(0.8_f64.ln() + 0.6_f64.ln() + 0.4_f64.ln() + 0.9_f64.ln()) / 4.0);
        // Of four pairs three are in order, and one is even.
        assert_near(score.auc, 3.5 / 4.0);
        assert_eq!(score.calibration[4], ForecastBin { n: 2, predicted: 0.4, observed: 0.5 });
        assert_eq!(score.calibration[0].n + score.calibration[9].n, 0);
    }

    #[test]
    fn certainty_falls_into_the_last_part_and_one_outcome_alone_has_no_order() {
        let score = Score::of(&[(1.0, true)]);
        assert_eq!((score.calibration[9].n, score.auc), (1, 0.5));
        assert_eq!(Score::of(&[]).n, 0);
    }

    #[test]
    fn runs_are_averaged_and_their_parts_added() {
        let mean = Score::mean_of(&[Score::of(&[(0.25, true), (0.25, false)]), Score::of(&[(0.21, false)])]);
        assert_near(mean.brier, ((0.5625 + 0.0625) / 2.0 + 0.0441) / 2.0);
        let part = mean.calibration[2];
        assert_eq!(part.n, 3);
        assert_near(part.predicted, 0.71 / 3.0);
        assert_near(part.observed, 1.0 / 3.0);
    }
}
