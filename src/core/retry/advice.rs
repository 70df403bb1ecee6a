//! Whether to retry, when, and how often: the smallest good wait, under guards (docs/learning.md#the-decision).

use super::{
    estimate::{Odds, View, prior_of},
    layer::{FailureFeatures, Residual, Traits},
    profiles::Profiles,
};
use crate::domain::{
    failure::FailureKind,
    health::RetryAllowance,
    ids::ToolName,
    outcome::{Advice, Confidence, Guard, Repeat},
    profile::{RetryState, ToolState, WAITS_MS, bucket},
    time::Timestamp,
};

/// z of a 90 % interval.
pub const INTERVAL_Z: f64 = 1.645;
/// Waits are lengthened by up to this share, so that a fleet does not come back in one wave.
const JITTER_MAX: f64 = 0.2;
/// Longest wait advised, in milliseconds: a provider that asks for more has to be asked again by a person.
pub const RETRY_AFTER_MS_MAX: u64 = 3_600_000;
/// Later attempts are not made to learn.
const PROBE_ATTEMPT_MAX: u32 = 2;

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
    /// Rate-limit errors after a wait that was honoured do not make the next one final.
    pub unless_wait_honoured: bool,
    /// The share of suppressed retries that is allowed, to learn.
    pub explore: f64,
    /// How many retries a tool may be given, over all sessions.
    pub allowance: RetryAllowance,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            value: 1.0,
            cost_retry: 0.15,
            cost_wait: 0.0008,
            tolerance: 0.03,
            attempts: 5,
            rate_limit_run: 3,
            unless_wait_honoured: false,
            explore: 0.05,
            allowance: RetryAllowance::default(),
        }
    }
}

/// A failure to advise on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailedAttempt<'a> {
    pub tool: &'a ToolName,
    /// What went wrong.
    pub kind: FailureKind,
    /// Which attempt failed, from 1.
    pub attempt: u32,
    /// How the tool fares, this failure included.
    pub tool_state: ToolState,
    /// What the tool's owner says of its failures.
    pub hint: Option<bool>,
    /// How long the provider asks to wait, in milliseconds.
    pub asked_ms: Option<u64>,
    /// The call may have taken effect.
    pub effect_open: bool,
    /// It may have taken effect, and its repetition harms.
    pub is_unsafe: bool,
    /// Rate-limit errors in a row, this one included.
    pub rate_limit_run: u32,
    /// The tool has allowance for another retry.
    pub may_retry: bool,
    /// A retry may be made to learn: its repetition harms nobody, and none is on its way.
    pub may_probe: bool,
    /// For the logistic layer; its wait is filled in for each.
    pub traits: Traits,
    /// A hash of the call: where the jitter comes from, so that a replay gives the same bytes.
    pub seed: u64,
    /// When it failed.
    pub now: Timestamp,
}

/// The advice on a failure, and the wait it rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advised {
    pub advice: Advice,
    /// How long the tool should be left alone, whether a retry is worth it or not, in milliseconds: what the provider
    /// asks for, else the smallest good wait. Without jitter, since one call at a time finds out how the tool fares.
    pub leave_alone_ms: u64,
}

/// The advice on a failure.
#[must_use]
pub fn advise(params: &Params, profiles: &Profiles, case: &FailedAttempt<'_>) -> Advised {
    let prior_p = prior_of(case.kind, case.hint);
    let view = profiles.estimate.view((case.tool, case.kind), prior_p, case.hint.is_some(), case.now);
    let state = |attempt| RetryState { attempt, tool: case.tool_state };
    let layer = profiles.layer.speaks_for(case.kind).map(|residual| (residual, case.traits.known()));
    let weigh = |attempt| Weighed::of(params, layer.as_ref(), case, &view, state(attempt));
    let weighed = weigh(case.attempt);
    let worth_it = weighed.best >= 0.0;
    let guard = guard(params, case, worth_it);
    let probe = guard.is_none() && !worth_it && is_probe(params, case);
    let retryable = guard.is_none() && (worth_it || probe);
    let (at, wait_ms) = (weighed.bucket, wait_ms(WAITS_MS[weighed.wait], case));
    let trials = weighed.odds.trials[at];
    let advice = Advice {
        retryable,
        retry_after_ms: if retryable { wait_ms } else { 0 },
        max_retries_remaining: match () {
            () if probe => 1,
            () if retryable => 1 + further(params, case, |attempt| weigh(attempt).best >= 0.0),
            () => 0,
        },
        p_success: weighed.p,
        interval: wilson(weighed.p, trials),
        confidence: Confidence::of(trials),
        basis: weighed.odds.basis(at),
        trials,
        as_of: profiles.estimate.as_of(),
        guard,
        probe,
        repeat: repeat(case, retryable),
    };
    Advised { advice, leave_alone_ms: case.asked_ms.unwrap_or(WAITS_MS[weighed.wait]) }
}

/// The odds of one attempt against what it costs.
struct Weighed {
    odds: Odds,
    /// The smallest good wait.
    wait: usize,
    /// The bucket of the wait that it comes to, which is the provider's when that is longer.
    bucket: usize,
    /// The chance after that wait.
    p: f64,
    /// The worth of the best wait; below 0 no retry is worth it.
    best: f64,
}

impl Weighed {
    fn of(
        params: &Params,
        layer: Option<&(&Residual, FailureFeatures)>,
        case: &FailedAttempt<'_>,
        view: &View<'_>,
        state: RetryState,
    ) -> Self {
        let odds = view.odds(state);
        let after_ms = |wait: usize| WAITS_MS[wait].max(case.asked_ms.unwrap_or(0));
        let chance = |wait: usize| {
            let p = odds.p[bucket(after_ms(wait))];
            layer.map_or(p, |(residual, known)| residual.p(p, &known.features(state.attempt, after_ms(wait))))
        };
        let p: [f64; WAITS_MS.len()] = std::array::from_fn(chance);
        let worth = |wait: usize| {
            params.value * p[wait] - params.cost_retry - params.cost_wait * after_ms(wait) as f64 / 1_000.0
        };
        let best = (0..WAITS_MS.len()).map(worth).fold(f64::NEG_INFINITY, f64::max);
        let good = |wait: &usize| worth(*wait) >= best - params.tolerance * params.value;
        let wait = (0..WAITS_MS.len()).find(good).unwrap_or(0);
        Self { odds, wait, bucket: bucket(after_ms(wait)), p: p[wait], best }
    }
}

/// An allowance that is used up only matters where a retry would be worth it.
fn guard(params: &Params, case: &FailedAttempt<'_>, worth_it: bool) -> Option<Guard> {
    match () {
        () if case.is_unsafe => Some(Guard::Unsafe),
        () if case.rate_limit_run > params.rate_limit_run => Some(Guard::RateLimitEscalation),
        () if case.attempt >= params.attempts => Some(Guard::Attempts),
        () if !case.may_retry && worth_it => Some(Guard::RetryBudget),
        () => None,
    }
}

/// By docs/semantics.md#permission-to-repeat: a client never does where the call may have taken effect, unless its provider
/// knows the repetition again.
fn repeat(case: &FailedAttempt<'_>, retryable: bool) -> Repeat {
    match () {
        () if case.is_unsafe => Repeat::ByPerson,
        () if !retryable => Repeat::Never,
        () if case.effect_open => Repeat::ByModel,
        () => Repeat::ByClient,
    }
}

/// How many attempts after the next are worth it in a row, within the policy's number of attempts and of rate limits in
/// a row.
fn further(params: &Params, case: &FailedAttempt<'_>, is_worth_it: impl Fn(u32) -> bool) -> u32 {
    let attempts = params.attempts.saturating_sub(case.attempt + 1);
    // A wait that is kept does not count where the policy says so.
    let counts = case.kind == FailureKind::RateLimited && !params.unless_wait_honoured;
    let most = if counts { attempts.min(params.rate_limit_run.saturating_sub(case.rate_limit_run)) } else { attempts };
    (1..=most).take_while(|more| is_worth_it(case.attempt + more)).count() as u32
}

/// Without some retries that the estimate advises against, nobody would ever learn that a tool has recovered.
fn is_probe(params: &Params, case: &FailedAttempt<'_>) -> bool {
    use FailureKind::{Auth, InvalidArgument, Permission, QuotaExhausted};
    let hopeless = matches!(case.kind, Auth | Permission | InvalidArgument | QuotaExhausted);
    // Other bits than the jitter's.
    let drawn = ((case.seed >> 20) % 10_000) as f64 / 10_000.0 < params.explore;
    case.may_probe && case.may_retry && case.attempt <= PROBE_ATTEMPT_MAX && !hopeless && drawn
}

/// Never before what the provider asked for, and only ever later than the chosen wait.
fn wait_ms(chosen_ms: u64, case: &FailedAttempt<'_>) -> u64 {
    let base = chosen_ms.max(case.asked_ms.unwrap_or(0));
    let share = (case.seed % 1_024) as f64 / 1_024.0 * JITTER_MAX;
    (base + (base as f64 * share) as u64).min(RETRY_AFTER_MS_MAX.max(case.asked_ms.unwrap_or(0)))
}

/// The Wilson interval of a share `p` over `n` trials; everything is possible without a trial.
#[must_use]
pub fn wilson(p: f64, n: f64) -> (f64, f64) {
    if n <= 0.0 {
        return (0.0, 1.0);
    }
    let z2 = INTERVAL_Z * INTERVAL_Z;
    let centre = p + z2 / (2.0 * n);
    let half = INTERVAL_Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    (((centre - half) / (1.0 + z2 / n)).max(0.0), ((centre + half) / (1.0 + z2 / n)).min(1.0))
}

#[cfg(test)]
mod tests;
