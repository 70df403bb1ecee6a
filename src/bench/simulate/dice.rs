//! Random draws of the simulation, deterministic by seed and stream.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};

/// Random source.
#[derive(Debug, Clone)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// Draws of that seed; each stream is independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut source = ChaCha8Rng::seed_from_u64(seed);
        source.set_stream(stream);
        Self(source)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1).
    pub(crate) fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn is(&mut self, chance: f64) -> bool {
        self.share() < chance
    }

    /// Uniform in [low, high).
    pub(crate) fn draw_between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// Log-uniform in [low, high).
    pub(crate) fn log_between(&mut self, low: f64, high: f64) -> f64 {
        self.draw_between(low.ln(), high.ln()).exp()
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    /// Trials until the first success, from 1.
    pub(crate) fn geometric(&mut self, chance: f64) -> u32 {
        1 + ((1.0 - self.share()).ln() / (1.0 - chance).ln()) as u32
    }

    /// Standard normal (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
    }

    /// For shapes of at least 1.
    pub(crate) fn beta(&mut self, a: f64, b: f64) -> f64 {
        let (x, y) = (self.gamma(a), self.gamma(b));
        x / (x + y)
    }

    /// Marsaglia and Tsang's method, for shapes of at least 1, with rare rejections.
    fn gamma(&mut self, shape: f64) -> f64 {
        debug_assert!(shape >= 1.0, "the method holds from 1 on");
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.share()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v;
            }
        }
    }

    /// Uniform in `0..n`, `n` above 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.share() * n as f64) as usize).min(n - 1)
    }

    /// Uniform choice of an item, `items` not empty.
    pub(crate) fn one_of(&mut self, items: &[f64]) -> f64 {
        items[self.below(items.len())]
    }

    /// `k` distinct numbers of `0..n`, in drawn order.
    pub(crate) fn some_of(&mut self, n: usize, k: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for at in 0..k.min(n) {
            let other = at + self.below(n - at);
            all.swap(at, other);
        }
        all.truncate(k);
        all
    }

    /// An index of `weights`, by weight.
    pub(crate) fn draw_weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.share() * weights.iter().sum::<f64>();
        let hit = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        hit.unwrap_or(weights.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of_draws(mut draw: impl FnMut(&mut Dice) -> f64) -> f64 {
        let mut dice = Dice::new(7, 0);
        (0..20_000).map(|_| draw(&mut dice)).sum::<f64>() / 20_000.0
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.03, "{found} is not near {expected}");
    }

    #[test]
    fn distributions_have_their_means() {
        assert_near(mean_of_draws(|dice| dice.draw_between(2.0, 4.0)), 3.0);
        assert_near(mean_of_draws(|dice| dice.exponential(8.0)), 8.0);
        assert_near(mean_of_draws(|dice| f64::from(dice.geometric(0.12))), 1.0 / 0.12);
        assert_near(mean_of_draws(|dice| dice.normal().powi(2)), 1.0);
        assert_near(mean_of_draws(|dice| dice.beta(1.2, 2.0)), 1.2 / 3.2);
        assert_near(mean_of_draws(|dice| dice.log_between(3.0, 900.0).ln()), (3.0_f64.ln() + 900.0_f64.ln()) / 2.0);
        assert_near(mean_of_draws(|dice| dice.draw_weighted(&[1.0, 0.0, 3.0]) as f64), 1.5);
        assert_near(mean_of_draws(|dice| f64::from(u8::from(dice.is(0.3)))), 0.3);
    }

    #[test]
    fn draws_repeat_and_streams_differ() {
        let first = |seed, stream| Dice::new(seed, stream).bits();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
    }

    #[test]
    fn no_item_is_drawn_twice() {
        let mut drawn = Dice::new(3, 0).some_of(9, 9);
        drawn.sort_unstable();
        assert_eq!(drawn, (0..9).collect::<Vec<_>>());
        assert_eq!(Dice::new(3, 0).some_of(9, 2).len(), 2);
    }
}
