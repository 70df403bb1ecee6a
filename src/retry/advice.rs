//! Whether to retry, when, and how often: the smallest good wait, under guards (learning.md section 3).

use super::estimate::{Odds, WAITS_MS, odds};
use crate::domain::{
    failure::FailureKind,
    outcome::{Advice, Confidence, Guard},
};

/// z of a 90 % interval.
const Z: f64 = 1.645;
/// Waits are lengthened by up to this share, so that a fleet does not come back in one wave.
const JITTER_MAX: f64 = 0.2;
/// Longest wait advised, in milliseconds: a provider that asks for more has to be asked again by a person.
pub const RETRY_AFTER_MS_MAX: u64 = 3_600_000;

/// What a success is worth against a retry and a second of waiting, and how often is enough.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Worth of a success.
    pub value: f64,
    /// Cost of one retry.
    pub cost_retry: f64,
    /// Cost of one second of waiting.
    pub cost_wait: f64,
    /// Worth that may be given up for a shorter wait, as a share of `value`.
    pub tolerance: f64,
    /// Attempts of one occurrence, the first included.
    pub attempts: u32,
    /// Rate-limit errors in a row, in one session and of one tool, after which the next is final.
    pub rate_limit_run: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self { value: 1.0, cost_retry: 0.15, cost_wait: 0.0008, tolerance: 0.03, attempts: 5, rate_limit_run: 3 }
    }
}

/// A failure to advise on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// What went wrong.
    pub kind: FailureKind,
    /// Which attempt failed, from 1.
    pub attempt: u32,
    /// How long the provider asks to wait, in milliseconds.
    pub asked_ms: Option<u64>,
    /// The call may have taken effect, and its repetition harms.
    pub is_unsafe: bool,
    /// Rate-limit errors in a row, this one included.
    pub rate_limit_run: u32,
    /// A hash of the call: where the jitter comes from, so that a replay gives the same bytes.
    pub seed: u64,
}

/// The advice on a failure.
#[must_use]
pub fn advise(params: &Params, case: &Case) -> Advice {
    decide(params, case, &odds(case.kind))
}

fn decide(params: &Params, case: &Case, odds: &Odds) -> Advice {
    let worth = |i: usize| {
        let wait_s = WAITS_MS[i].max(case.asked_ms.unwrap_or(0)) as f64 / 1_000.0;
        params.value * odds.p[i] - params.cost_retry - params.cost_wait * wait_s
    };
    let best = (0..WAITS_MS.len()).map(worth).fold(f64::NEG_INFINITY, f64::max);
    let chosen = (0..WAITS_MS.len()).find(|i| worth(*i) >= best - params.tolerance * params.value).unwrap_or(0);
    let guard = guard(params, case);
    let retryable = best >= 0.0 && guard.is_none();
    Advice {
        retryable,
        retry_after_ms: if retryable { wait_ms(WAITS_MS[chosen], case) } else { 0 },
        max_retries_remaining: if retryable { params.attempts.saturating_sub(case.attempt) } else { 0 },
        p_success: odds.p[chosen],
        interval: wilson(odds.p[chosen], odds.trials[chosen]),
        confidence: Confidence::of(odds.trials[chosen]),
        basis: odds.basis,
        guard,
    }
}

fn guard(params: &Params, case: &Case) -> Option<Guard> {
    match () {
        () if case.is_unsafe => Some(Guard::Unsafe),
        () if case.rate_limit_run > params.rate_limit_run => Some(Guard::RateLimitEscalation),
        () if case.attempt >= params.attempts => Some(Guard::Attempts),
        () => None,
    }
}

/// Never before what the provider asked for, and only ever later than the chosen wait.
fn wait_ms(chosen_ms: u64, case: &Case) -> u64 {
    let base = chosen_ms.max(case.asked_ms.unwrap_or(0));
    let share = (case.seed % 1_024) as f64 / 1_024.0 * JITTER_MAX;
    (base + (base as f64 * share) as u64).min(RETRY_AFTER_MS_MAX.max(case.asked_ms.unwrap_or(0)))
}

/// The Wilson interval of a share `p` over `n` trials; everything is possible without a trial.
fn wilson(p: f64, n: f64) -> (f64, f64) {
    if n <= 0.0 {
        return (0.0, 1.0);
    }
    let (z2, centre) = (Z * Z, p + Z * Z / (2.0 * n));
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    (((centre - half) / (1.0 + z2 / n)).max(0.0), ((centre + half) / (1.0 + z2 / n)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(kind: FailureKind) -> Case {
        Case { kind, attempt: 1, asked_ms: None, is_unsafe: false, rate_limit_run: 0, seed: 0 }
    }

    #[test]
    fn priors_say_what_hard_coded_flags_said() {
        let params = Params::default();
        for kind in FailureKind::ALL {
            use FailureKind::{Conflict, Internal, Network, RateLimited, Timeout, Unavailable};
            let expected = matches!(kind, Timeout | RateLimited | Unavailable | Network | Internal | Conflict);
            assert_eq!(advise(&params, &case(kind)).retryable, expected, "{kind:?}");
        }
    }

    #[test]
    fn the_provider_is_never_undercut_and_jitter_only_lengthens() {
        for seed in [0, 1, 511, 1_023, u64::MAX] {
            let asked = Case { asked_ms: Some(7_000), seed, ..case(FailureKind::RateLimited) };
            let after = advise(&Params::default(), &asked).retry_after_ms;
            assert!((7_000..=8_400).contains(&after), "{after}");
        }
        assert_eq!(advise(&Params::default(), &case(FailureKind::Timeout)).retry_after_ms, 1_000);
    }

    #[test]
    fn guards_overrule_and_are_named() {
        let params = Params::default();
        let base = case(FailureKind::RateLimited);
        for (case, guard) in [
            (Case { is_unsafe: true, ..base }, Some(Guard::Unsafe)),
            (Case { rate_limit_run: 3, ..base }, None),
            (Case { rate_limit_run: 4, ..base }, Some(Guard::RateLimitEscalation)),
            (Case { attempt: 4, ..base }, None),
            (Case { attempt: 5, ..base }, Some(Guard::Attempts)),
        ] {
            let advice = advise(&params, &case);
            assert_eq!((advice.guard, advice.retryable), (guard, guard.is_none()), "{case:?}");
        }
    }

    #[test]
    fn a_wait_that_costs_more_than_a_success_is_worth_is_no_retry() {
        let asked = Case { asked_ms: Some(900_000), ..case(FailureKind::RateLimited) };
        assert!(!advise(&Params::default(), &asked).retryable);
    }

    #[test]
    fn the_interval_holds_the_estimate() {
        let (low, high) = wilson(0.25, 40.0);
        assert!(low > 0.15 && low < 0.25 && high > 0.25 && high < 0.39, "{low} {high}");
    }
}
