//! Reports of retry profiles and of the retry history.

use super::{Insight, NoAnswer};
use callgate_core::{
    domain::{
        failure::FailureKind,
        ids::{TenantId, ToolName},
        profile::RetryState,
        retries::{RetryFilter, RetryHistory},
    },
    retry::profiles::Profile,
};

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
    ) -> Result<Vec<Profile>, NoAnswer> {
        let profiles = self.decisions.read_profiles(&*self.operators.decisions(), tenant).await?;
        let now = self.store.now();
        let wanted = |(known, of): &(&ToolName, FailureKind)| {
            tool.is_none_or(|tool| tool == *known)
                && kind.is_none_or(|kind| kind == *of)
                && after.is_none_or(|(tool, kind)| (*known, of) > (tool, kind))
        };
        let known = profiles.estimate.counted_failures().filter(wanted);
        let (policy, state) = (self.server.policy(tenant), RetryState::default());
        let profile = |(tool, kind): (&ToolName, FailureKind)| {
            profiles.profile(&policy.retry, (tool, policy.tool(tool).retryable), kind, state, now)
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
    ) -> Result<Option<Profile>, NoAnswer> {
        let profiles = self.decisions.read_profiles(&*self.operators.decisions(), tenant).await?;
        let is_known = profiles.estimate.counted_failures().any(|known| known == (tool, kind));
        let (policy, now) = (self.server.policy(tenant), self.store.now());
        let hinted = (tool, policy.tool(tool).retryable);
        Ok(is_known.then(|| profiles.profile(&policy.retry, hinted, kind, state, now)))
    }

    /// Outcomes of retries over the last days.
    ///
    /// # Errors
    /// [`NoAnswer`] when it cannot be read.
    pub async fn retry_history(&self, tenant: TenantId, of: RetryFilter<'_>) -> Result<RetryHistory, NoAnswer> {
        let known = self.decisions.read_profiles(&*self.operators.decisions(), tenant).await?;
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
