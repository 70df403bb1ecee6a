//! Comparison of two results of one call: receipt for the same effect, risen counter, or news.

use super::{Number, ResultMarkers};

/// Difference between a result and an earlier one of the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultDifference {
    /// No difference beside volatile parts.
    Equal,
    /// Different names, or numbers that the arguments account for, and no news.
    Receipt {
        /// An expiry differs: a lease, a lock, a quote.
        lapses: bool,
    },
    /// Only numbers differ, and they have risen.
    Risen,
    /// Different words, a number that fell or has a fraction, or a different list.
    News,
}

impl ResultMarkers {
    /// The difference from an `earlier` result of the same call, whose arguments hold these `amounts`.
    #[must_use]
    pub fn compared_with(&self, earlier: &Self, amounts: &[f64]) -> ResultDifference {
        let has_another_name = self.names != earlier.names;
        let is_told = has_another_name || self.made_now && earlier.made_now;
        let is_same_inside = self.inside == earlier.inside || is_told && self.inside_frame == earlier.inside_frame;
        let pairs = || self.numbers.iter().zip(&earlier.numbers);
        let is_same_frame = self.frame == earlier.frame
            && self.names.len() == earlier.names.len()
            && self.numbers.len() == earlier.numbers.len();
        if !is_same_frame || !is_same_inside {
            return ResultDifference::News;
        }
        let is_moved = |(now, then): (&Number, &Number)| is_among(now.value - then.value, amounts);
        if !pairs().all(|pair| pair.0 == pair.1 || has_counted(pair) || is_moved(pair)) {
            return ResultDifference::News;
        }
        let lapses = self.lapses.zip(earlier.lapses).is_some_and(|(now, then)| now != then);
        match () {
            () if has_another_name || pairs().any(is_moved) => ResultDifference::Receipt { lapses },
            () if self.numbers != earlier.numbers => ResultDifference::Risen,
            () if self.inside != earlier.inside => ResultDifference::Receipt { lapses },
            () => ResultDifference::Equal,
        }
    }

    /// The increase of each number since an `earlier` result, where nothing else differs.
    #[must_use]
    pub fn steps_from(&self, earlier: &Self) -> Option<Vec<f64>> {
        let is_same = self.frame == earlier.frame && self.inside == earlier.inside && self.names == earlier.names;
        let steps = || self.numbers.iter().zip(&earlier.numbers).map(|(now, then)| now.value - then.value);
        let rises = steps().all(|step| step >= 0.0) && steps().any(|step| step > 0.0);
        (is_same && self.numbers.len() == earlier.numbers.len() && rises).then(|| steps().collect())
    }
}

/// A counter that has risen: whole numbers.
fn has_counted((now, then): (&Number, &Number)) -> bool {
    now.counts && now.value > then.value && now.value.fract() == 0.0 && then.value.fract() == 0.0
}

/// An amount of the arguments, or a hundred of it (cents). One is no amount: counters rise by it.
fn is_among(step: f64, amounts: &[f64]) -> bool {
    let step = step.abs();
    let is = |amount: f64| (step - amount).abs() <= amount * 1e-9;
    step > 0.0 && amounts.iter().any(|amount| *amount != 1.0 && (is(*amount) || is(*amount * 100.0)))
}
