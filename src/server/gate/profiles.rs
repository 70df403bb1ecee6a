//! Reports of retry profiles and of the retry history.

use super::{Insight, NoAnswer};
use callgate_core::{
    domain::{
        failure::FailureKind,
        ids::{TenantId, ToolName},
        outcome::{Advice, Confidence},
        profile::RetryState,
        retries::{RetryFilter, RetryHistory},
    },
    retry::profiles::Profile,
};

/// Chances of retries of one tool after one kind of failure, in one state.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryProfile {
    /// The tool.
    pub tool: ToolName,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The state that the chances hold for.
    pub state: RetryState,
    /// The chances by wait, the shortest first.
    pub chances: Vec<RetryChance>,
    /// Trials (decayed) of this tool and kind.
    pub trials: f64,
    /// The present advice, without any guard.
    pub advice: Advice,
    /// Follow-ups with other arguments (decayed).
    pub corrections: f64,
    /// The share of them that succeeded, 0 to 1; 0 when there were none.
    pub corrected: f64,
    /// The logistic layer of that kind.
    pub layer: Option<RetryLayer>,
    /// The chance that it begins with, before any trial.
    pub prior: f64,
    /// The policy's hint on the tool's failures.
    pub hint: Option<bool>,
}

/// The chance of a retry after one wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryChance {
    /// The wait, in milliseconds.
    pub wait_ms: u64,
    /// The chance, 0 to 1.
    pub p: f64,
    /// A 90 % interval around it.
    pub interval: (f64, f64),
    /// Trials (decayed) with that wait.
    pub trials: f64,
    /// Confidence by the count of trials.
    pub confidence: Confidence,
}

/// Comparison of the logistic layer with the estimate below it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryLayer {
    /// Outcomes that both are compared on.
    pub outcomes: usize,
    /// Mean log loss of the estimate.
    pub loss_estimate: f64,
    /// Mean log loss of the layer.
    pub loss_layer: f64,
    /// True when advice rests on the layer.
    pub is_promoted: bool,
}

impl From<Profile> for RetryProfile {
    fn from(profile: Profile) -> Self {
        let chance = |(wait, (wait_ms, p)): (usize, (u64, f64))| RetryChance {
            wait_ms,
            p,
            interval: profile.interval(wait),
            trials: profile.odds.trials[wait],
            confidence: profile.confidence(wait),
        };
        let corrections = profile.corrections;
        Self {
            chances: profile.chances().enumerate().map(chance).collect(),
            trials: profile.odds.of_tool,
            corrections: corrections.n,
            corrected: if corrections.n > 0.0 { corrections.k / corrections.n } else { 0.0 },
            layer: profile.layer.as_ref().map(|layer| {
                let (loss_estimate, loss_layer) = layer.mean_losses();
                let (outcomes, is_promoted) = (layer.outcomes(), layer.is_promoted());
                RetryLayer { outcomes, loss_estimate, loss_layer, is_promoted }
            }),
            tool: profile.tool,
            kind: profile.kind,
            state: profile.state,
            advice: profile.advice,
            prior: profile.prior,
            hint: profile.hint,
        }
    }
}

impl Insight {
    /// The retry profiles of a tenant, by tool and kind of failure, those after `after`; of one tool or kind, or all.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn retry_profiles(
        &self,
        tenant: TenantId,
        tool: Option<&ToolName>,
        kind: Option<FailureKind>,
        after: Option<&(ToolName, FailureKind)>,
    ) -> Result<Vec<RetryProfile>, NoAnswer> {
        let profiles = self.decisions.read_profiles(&*self.operators, tenant).await?;
        let now = self.store.now();
        let wanted = |(known, of): &(&ToolName, FailureKind)| {
            tool.is_none_or(|tool| tool == *known)
                && kind.is_none_or(|kind| kind == *of)
                && after.is_none_or(|(tool, kind)| (*known, of) > (tool, kind))
        };
        let known = profiles.estimate.counted_failures().filter(wanted);
        let (policy, state) = (self.server.policy(tenant), RetryState::default());
        let profile = |(tool, kind): (&ToolName, FailureKind)| {
            profiles.profile(&policy.retry, (tool, policy.tool(tool).retryable), kind, state, now).into()
        };
        Ok(known.map(profile).collect())
    }

    /// One retry profile, in one state; none when no follow-up was counted for it.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn retry_profile(
        &self,
        tenant: TenantId,
        tool: &ToolName,
        kind: FailureKind,
        state: RetryState,
    ) -> Result<Option<RetryProfile>, NoAnswer> {
        let profiles = self.decisions.read_profiles(&*self.operators, tenant).await?;
        let is_known = profiles.estimate.counted_failures().any(|known| known == (tool, kind));
        let (policy, now) = (self.server.policy(tenant), self.store.now());
        let hinted = (tool, policy.tool(tool).retryable);
        Ok(is_known.then(|| profiles.profile(&policy.retry, hinted, kind, state, now).into()))
    }

    /// Outcomes of retries over the last days.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn retry_history(&self, tenant: TenantId, of: RetryFilter<'_>) -> Result<RetryHistory, NoAnswer> {
        let known = self.decisions.read_profiles(&*self.operators, tenant).await?;
        let mut self_corrections = known.self_corrections.counts();
        self_corrections.retain(|known| of.tool.is_none_or(|tool| known.count.tool == *tool));
        let days = self.operators.trial_days(tenant, of).await?;
        let (retries, back_to) = self.operators.retries(tenant, of).await?;
        Ok(RetryHistory { days, retries, back_to, self_corrections })
    }

    /// Rebuilds the rollups from the calls of the last forty days; returns the number of trials.
    ///
    /// # Errors
    /// [`NoAnswer`]: the rollups are as before.
    pub async fn rebuild_profiles(&self) -> Result<u64, NoAnswer> {
        // Pending trials go to the logistic layer too, which a recount does not touch.
        self.decisions.learn().await?;
        Ok(self.store.recount_trials().await?)
    }
}
