//! Candidate for the estimate: the fault behind a failure as a mixture of mending times, whose weights are learned per
//! kind, per tool, and for timeouts by how long the tool has been failing. Unlike a table of waits it keeps what was
//! never tried apart from what failed, so that failures after short waits do not speak against long ones.

use std::collections::BTreeMap;

use super::{
    belief::{Belief, HYPOTHESES, Hypothesis, Mending, PlannedRetry},
    environment::DAY_S,
    learner::SimulatedFailure,
    policies::RETRIES_MAX,
};
use callgate_core::{
    domain::{
        failure::FailureKind,
        profile::{WAITS_MS, bucket},
    },
    retry::estimate::prior,
};

/// Mean mending times in seconds, between a fault that is over at once and one that stays.
const MEANS_S: [f64; HYPOTHESES - 2] = [2.5, 10.0, 40.0, 150.0, 900.0, 7_200.0];
/// Success probability of a retry once a fault that took time is mended.
const MENDED: f64 = 0.93;
const HALF_LIFE_S: f64 = 4.0 * DAY_S;
/// Weights of the prior on a kind, of the kind on a tool, of the kind and of the tool on a state, in failed calls.
const M_KIND: f64 = 6.0;
const M_TOOL: f64 = 2.0;
const M_STATE: f64 = 8.0;
const M_TOOL_STATE: f64 = 6.0;
/// Weight of a fault that is over at once, while the tool is failing.
const ISOLATED: f64 = 0.2;
/// Retries planned ahead.
const DEPTH: u32 = 3;
const PROBE_SHARE: f64 = 0.05;
const PROBE_ATTEMPT_MAX: u32 = 2;

/// Decayed weights of the hypotheses, and of the retries of faults that were over at once.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    at: f64,
    weights: [f64; HYPOTHESES],
    retries: f64,
    successes: f64,
}

/// Probabilities of the hypotheses, and the chance of a retry where the fault is over at once.
#[derive(Debug, Clone, Copy)]
struct Mixture {
    weights: [f64; HYPOTHESES],
    chance: f64,
}

/// What is known of a failed call and its retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) belief: Belief,
    state: usize,
    retries: f64,
    successes: f64,
}

/// The learned counts; by tool, and for tools and all of them by state.
#[derive(Debug, Default)]
pub(crate) struct MendingTimes {
    kinds: BTreeMap<FailureKind, Counts>,
    tools: BTreeMap<(FailureKind, usize), Counts>,
    states: BTreeMap<(FailureKind, usize), Counts>,
    tool_states: BTreeMap<(FailureKind, usize, usize), Counts>,
}

impl Counts {
    fn fade(&self, at: f64) -> f64 {
        0.5_f64.powf((at - self.at).max(0.0) / HALF_LIFE_S)
    }

    fn add(&mut self, at: f64, shares: &[f64; HYPOTHESES], chain: &Chain) {
        let fade = self.fade(at);
        self.weights.iter_mut().zip(shares).for_each(|(weight, share)| *weight = *weight * fade + share);
        self.retries = self.retries * fade + shares[0] * chain.retries;
        self.successes = self.successes * fade + shares[0] * chain.successes;
        self.at = at;
    }
}

impl Mixture {
    fn of(kind: FailureKind) -> Self {
        let p = prior(kind);
        let (at_once, later): (f64, [f64; MEANS_S.len()]) = match kind {
            FailureKind::Internal => {
                return Self { weights: [0.9, 0.0, 0.01, 0.01, 0.01, 0.0, 0.0, 0.07], chance: 0.5 };
            }
            FailureKind::RateLimited => (0.1, [0.2, 0.2, 0.2, 0.15, 0.1, 0.05]),
            FailureKind::Conflict => (0.2, [0.25, 0.2, 0.2, 0.1, 0.05, 0.0]),
            FailureKind::Timeout => (0.5, [0.1, 0.1, 0.1, 0.1, 0.08, 0.02]),
            _ => (0.2, [0.2, 0.2, 0.2, 0.1, 0.1, 0.0]),
        };
        let mut weights = [0.0; HYPOTHESES];
        weights[0] = at_once * p;
        weights[1..=MEANS_S.len()].iter_mut().zip(later).for_each(|(weight, share)| *weight = share * p);
        weights[HYPOTHESES - 1] = 1.0 - p;
        Self { weights, chance: 0.9 }
    }

    /// Towards these counts; this one weighs as much as `m` failed calls.
    fn learned(mut self, counts: Option<&Counts>, m: f64, at: f64) -> Self {
        let Some(counts) = counts else { return self };
        let fade = counts.fade(at);
        let n = counts.weights.iter().sum::<f64>() * fade;
        for (weight, count) in self.weights.iter_mut().zip(counts.weights) {
            *weight = (count * fade + m * *weight) / (n + m);
        }
        self.chance = (counts.successes * fade + m * self.chance) / (counts.retries * fade + m);
        self
    }

    /// After the tool has been failing for that long: short faults would be over.
    fn aged(mut self, failing_s: f64) -> Self {
        self.weights[0] *= ISOLATED;
        let later = self.weights[1..].iter_mut().zip(MEANS_S);
        later.for_each(|(weight, mean)| *weight *= (-failing_s / mean).exp());
        let all = self.weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        self.weights.iter_mut().for_each(|weight| *weight /= all);
        self
    }

    fn belief(&self, at: f64) -> Belief {
        Belief::new(
            at,
            &std::array::from_fn::<_, HYPOTHESES, _>(|i| match i {
                0 => Hypothesis::new(self.weights[0], Mending::At(at), self.chance),
                i if i <= MEANS_S.len() => Hypothesis::new(self.weights[i], Mending::After(MEANS_S[i - 1]), MENDED),
                i => Hypothesis::new(self.weights[i], Mending::Never, 0.0),
            }),
        )
    }
}

impl MendingTimes {
    fn mixture(&self, tool: usize, failed: &SimulatedFailure, state: usize, at: f64) -> Mixture {
        let kind = failed.kind;
        let of_kind = Mixture::of(kind).learned(self.kinds.get(&kind), M_KIND, at);
        let of_tool = of_kind.learned(self.tools.get(&(kind, tool)), M_TOOL, at);
        if kind != FailureKind::Timeout {
            return of_tool;
        }
        let aged = if state == 0 { of_tool } else { of_tool.aged(failing_s(failed)) };
        let chance = of_tool.chance;
        let in_state = aged.learned(self.states.get(&(kind, state)), M_STATE, at);
        let learned = in_state.learned(self.tool_states.get(&(kind, state, tool)), M_TOOL_STATE, at);
        Mixture { chance, ..learned }
    }

    /// The next retry, if there is one, and whether it is a probe.
    pub(crate) fn decide(
        &mut self,
        tool: usize,
        failed: &SimulatedFailure,
        at: f64,
        chain: &mut Option<Chain>,
    ) -> Option<(PlannedRetry, bool)> {
        let state = match failed.circumstances.failures {
            0 | 1 => 0,
            _ => 1 + bucket(failed.circumstances.failing_ms),
        };
        let new = || {
            let belief = self.mixture(tool, failed, state, at).belief(at);
            Chain { belief, state, retries: 0.0, successes: 0.0 }
        };
        let chain = chain.get_or_insert_with(new);
        chain.belief.pass(at);
        let planned = chain.belief.plan(DEPTH);
        if planned.worth > 0.0 && failed.attempt <= RETRIES_MAX {
            return Some((planned, false));
        }
        let is_hopeless = matches!(failed.kind, FailureKind::InvalidArgument | FailureKind::Auth);
        let is_drawn = ((failed.seed >> 20) % 10_000) as f64 / 10_000.0 < PROBE_SHARE;
        if failed.attempt <= PROBE_ATTEMPT_MAX && !is_hopeless && is_drawn {
            let wait = (failed.seed >> 40) as usize % WAITS_MS.len();
            return Some((PlannedRetry { wait, ..planned }, true));
        }
        let ended = *chain;
        self.learn_chain(tool, failed.kind, at, &ended);
        None
    }

    /// Learns the outcome of a retry.
    pub(crate) fn learn_retry(&mut self, tool: usize, kind: FailureKind, at: f64, chain: &mut Chain, ok: bool) {
        chain.belief.pass(at);
        chain.belief.learn(ok);
        chain.retries += 1.0;
        if ok {
            chain.successes += 1.0;
            let ended = *chain;
            self.learn_chain(tool, kind, at, &ended);
        }
    }

    /// Counts a call that succeeded or was given up: each hypothesis by its probability (online expectation
    /// maximization).
    fn learn_chain(&mut self, tool: usize, kind: FailureKind, at: f64, chain: &Chain) {
        if chain.retries == 0.0 {
            return;
        }
        let shares = chain.belief.shares();
        self.kinds.entry(kind).or_default().add(at, &shares, chain);
        self.tools.entry((kind, tool)).or_default().add(at, &shares, chain);
        self.states.entry((kind, chain.state)).or_default().add(at, &shares, chain);
        self.tool_states.entry((kind, chain.state, tool)).or_default().add(at, &shares, chain);
    }
}

fn failing_s(failed: &SimulatedFailure) -> f64 {
    failed.circumstances.failing_ms as f64 / 1_000.0
}
