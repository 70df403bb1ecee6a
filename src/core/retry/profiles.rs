//! What was learned of one tenant's retries: the counted estimate, and the logistic layer that may stand on it.

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

/// What was learned of one tenant's retries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles {
    /// The counts.
    pub estimate: Estimate,
    /// The residual on top of them.
    pub layer: Layer,
    /// What refusals for arguments came to.
    pub self_corrections: SelfCorrections,
}

/// What retries of one tool after one kind of failure come to, in one state, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub tool: ToolName,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The state that the chances hold for.
    pub state: RetryState,
    /// The chances, and what they rest on.
    pub odds: Odds,
    /// What would be advised now, without any guard.
    pub advice: Advice,
    /// How follow-ups with other arguments fared.
    pub corrections: Corrections,
    /// The logistic layer of that kind.
    pub layer: Option<Residual>,
    /// The chance that it begins with, before any trial.
    pub prior: f64,
    /// What the tool's owner says of its failures.
    pub hint: Option<bool>,
}

impl Profile {
    /// A 90 % interval around the chance after the wait of that bucket.
    #[must_use]
    pub fn interval(&self, wait: usize) -> (f64, f64) {
        wilson(self.odds.p[wait], self.odds.trials[wait])
    }

    /// The evidence behind the chance after the wait of that bucket.
    #[must_use]
    pub fn confidence(&self, wait: usize) -> Confidence {
        Confidence::of(self.odds.trials[wait])
    }

    /// The chances with their waits, in milliseconds, the shortest first.
    pub fn chances(&self) -> impl Iterator<Item = (u64, f64)> {
        WAITS_MS.into_iter().zip(self.odds.p)
    }
}

impl Profiles {
    /// Learns one trial. Trials come in the order in which they were known.
    pub fn learn(&mut self, trial: &Trial) {
        self.estimate.learn(trial);
        self.layer.learn(trial);
    }

    /// What is known of one tool and kind of failure, whether a follow-up was counted for it or not; `hint` is what the
    /// tool's owner says of its failures.
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
