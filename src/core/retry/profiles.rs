//! Retry profiles of one tenant: the estimate, and the optional logistic layer on top.

use super::{
    advice::{self, FailedAttempt, Params, wilson},
    estimate::{Corrections, Estimate, Odds, prior_of},
    layer::{Layer, Residual, Traits},
    self_correction::SelfCorrections,
};
use crate::domain::{
    failure::FailureKind,
    ids::ToolName,
    outcome::{Advice, Confidence},
    profile::{RetryState, Trial, WAITS_MS},
    time::Timestamp,
};

/// Retry profiles of one tenant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles {
    /// The counts.
    pub estimate: Estimate,
    /// The residual on top of them.
    pub layer: Layer,
    /// Self-correction counts after refusals for arguments.
    pub self_corrections: SelfCorrections,
}

/// Profile of one tool and failure kind in one state, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub tool: ToolName,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The state of the probabilities.
    pub state: RetryState,
    /// The probabilities, and their evidence.
    pub odds: Odds,
    /// The current advice, without guards.
    pub advice: Advice,
    /// Success of follow-ups with other arguments.
    pub corrections: Corrections,
    /// The logistic layer of that kind.
    pub layer: Option<Residual>,
    /// The prior probability.
    pub prior: f64,
    /// Declared retryability of the tool.
    pub hint: Option<bool>,
}

impl Profile {
    /// A 90 % interval of the probability after the wait of that bucket.
    #[must_use]
    pub fn interval(&self, wait: usize) -> (f64, f64) {
        wilson(self.odds.p[wait], self.odds.trials[wait])
    }

    /// The confidence of the probability after the wait of that bucket.
    #[must_use]
    pub fn confidence(&self, wait: usize) -> Confidence {
        Confidence::of(self.odds.trials[wait])
    }

    /// The waits, in milliseconds, with their probabilities, the shortest first.
    pub fn chances(&self) -> impl Iterator<Item = (u64, f64)> {
        WAITS_MS.into_iter().zip(self.odds.p)
    }
}

impl Profiles {
    /// Learns one trial. Trials come in the order of their outcomes.
    pub fn learn(&mut self, trial: &Trial) {
        self.estimate.learn(trial);
        self.layer.learn(trial);
    }

    /// The profile of one tool and failure kind, with or without counts; `hint` is the tool's declared retryability.
    #[must_use]
    pub fn profile(
        &self,
        params: &Params,
        (tool, hint): (&ToolName, Option<bool>),
        kind: FailureKind,
        state: RetryState,
        now: Timestamp,
    ) -> Profile {
        let case = FailedAttempt {
            effect_open: false,
            tool,
            kind,
            attempt: state.attempt,
            tool_state: state.tool,
            hint,
            asked_ms: None,
            is_unsafe: false,
            rate_limit_run: 0,
            may_retry: true,
            may_probe: false,
            traits: Traits { attempt: state.attempt, previous_ok: true, same_errors: 1, ..Traits::default() },
            seed: 0,
            now,
        };
        Profile {
            tool: tool.clone(),
            kind,
            state,
            odds: self.estimate.view((tool, kind), prior_of(kind, hint), hint.is_some(), now).odds(state),
            advice: advice::advise(params, self, &case).advice,
            corrections: self.estimate.corrections(tool, kind, now),
            layer: self.layer.of(kind).cloned(),
            prior: prior_of(kind, hint),
            hint,
        }
    }
}
