//! Who decides after a failure, and how: the behaviour that the logged data come from, the flag that frameworks
//! hard-code, the oracle, and the advice of the product.

use super::{
    dice::Dice,
    learner::{Failed, Learner, Told},
    predict::{FORECASTERS, Forecasts},
};
use callgate_core::domain::{
    failure::FailureKind,
    health::Health,
    ids::ToolName,
    profile::{FollowUp, Trial, WAITS_MS},
    time::Timestamp,
};

/// Retries of one call that the hard-coded flag allows.
const FLAG_RETRIES: u32 = 3;
/// Retries of one call that anybody is ever allowed here.
pub(crate) const RETRIES_MAX: u32 = 6;
/// How often the behaviour retries what the flag calls retryable, and what it does not.
const BEHAVED: (f64, f64) = (0.85, 0.4);
/// How often it chooses each of the waits.
const BEHAVED_WAITS: [f64; WAITS_MS.len()] = [0.35, 0.25, 0.2, 0.13, 0.07];

/// Who decides.
#[derive(Debug)]
pub(crate) enum Policy {
    /// Chance decides, whatever was learned; forecasts are made and held against what came of it.
    Behaviour(Box<Forecasts>),
    /// Knows what would become of each wait.
    Oracle,
    /// A flag for each kind, three retries, each wait longer.
    Flag,
    /// The product's advice, obeyed.
    Advice(Box<Learner>),
}

/// A failure to decide on.
#[derive(Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) tool: &'a ToolName,
    pub(crate) failed: &'a Failed,
    /// The tool's, with this failure.
    pub(crate) health: &'a Health,
    /// What a retry after each of the waits is worth, as only the environment knows.
    pub(crate) worth: [f64; WAITS_MS.len()],
}

/// A retry that was decided on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) wait_ms: u64,
    pub(crate) told: Told,
    /// What each forecaster said.
    pub(crate) forecasts: Option<[f64; FORECASTERS]>,
}

/// The hard-coded flag.
pub(crate) const fn flag(kind: FailureKind) -> bool {
    kind.may_pass()
}

impl Policy {
    /// The retry to make, if one is to be made.
    pub(crate) fn decide(&self, decision: &Decision<'_>, dice: &mut Dice) -> Option<Choice> {
        let Decision { tool, failed, health, worth } = decision;
        let after = |wait_ms: u64| {
            let told = Told { p: 0.0, retryable: true, probe: false };
            Choice { wait_ms, told, forecasts: None }
        };
        match self {
            Self::Behaviour(forecasts) => {
                let again = if flag(failed.kind) { BEHAVED.0 } else { BEHAVED.1 };
                let (retries, wait) = (dice.is(again), dice.weighted(&BEHAVED_WAITS));
                let said = forecasts.said(tool, failed, WAITS_MS[wait]);
                let choice = Choice { forecasts: Some(said), ..after(WAITS_MS[wait]) };
                (retries && failed.attempt <= RETRIES_MAX).then_some(choice)
            }
            Self::Oracle => {
                let best = (0..worth.len()).max_by(|a, b| worth[*a].total_cmp(&worth[*b]).then(b.cmp(a)))?;
                (worth[best] > 0.0 && failed.attempt <= RETRIES_MAX).then(|| after(WAITS_MS[best]))
            }
            Self::Flag => {
                let backoff = WAITS_MS[(failed.attempt as usize - 1).min(WAITS_MS.len() - 1)];
                (flag(failed.kind) && failed.attempt <= FLAG_RETRIES).then(|| after(backoff))
            }
            Self::Advice(learner) => {
                let advice = learner.advise(tool, failed, health).advice;
                let choice = Choice { told: Told::of(&advice), ..after(advice.retry_after_ms) };
                advice.retryable.then_some(choice)
            }
        }
    }

    /// What the product would store of a retry that is made now.
    pub(crate) fn follow_up(&self, tool: &ToolName, failed: &Failed, told: Told, now: Timestamp) -> Option<FollowUp> {
        Some(self.learner()?.follow_up(tool, failed, told, now))
    }

    /// Learns what came of a retry, and of what was forecast of it.
    pub(crate) fn learn(&mut self, trial: &Trial, failed_at: Timestamp, forecasts: Option<[f64; FORECASTERS]>) {
        match self {
            Self::Behaviour(log) => log.learn(trial, failed_at, forecasts),
            Self::Advice(learner) => learner.learn(trial),
            Self::Oracle | Self::Flag => {}
        }
    }

    fn learner(&self) -> Option<&Learner> {
        match self {
            Self::Behaviour(forecasts) => Some(&forecasts.learner),
            Self::Advice(learner) => Some(learner),
            Self::Oracle | Self::Flag => None,
        }
    }
}
