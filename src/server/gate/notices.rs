//! Questions to people that a webhook is to be told: each by one replica.

use std::time::Duration;

use super::{Approvals, NoAnswer};
use callgate_core::domain::{ids::TenantId, inbox::Question, risk, tool::Risk};
use callgate_store::Claims;

impl Approvals {
    /// Claims the first `max` of these open questions that nobody has told, for so long.
    ///
    /// # Errors
    /// [`NoAnswer`]: none was claimed, or nobody knows.
    pub async fn claim_notices(
        &self,
        tenant: TenantId,
        questions: &[Question],
        within: (usize, Duration),
    ) -> Result<Claims, NoAnswer> {
        let ends: Vec<_> = questions.iter().map(|one| (one.approval_id.clone(), one.expires_at)).collect();
        Ok(self.store.claim_notices(tenant, &ends, within).await?)
    }

    /// Notes that a question was told, or after how long it is to be tried again.
    ///
    /// # Errors
    /// [`NoAnswer`]: it may be told once more.
    pub async fn note_notice(
        &self,
        tenant: TenantId,
        approval_id: &str,
        again: Option<Duration>,
    ) -> Result<(), NoAnswer> {
        Ok(self.store.note_notice(tenant, approval_id, again).await?)
    }

    /// How much a yes may do harm, by the policy that judges now, and why.
    #[must_use]
    pub fn risk(&self, tenant: TenantId, question: &Question) -> (Risk, Vec<&'static str>) {
        risk::of(question, self.declared(tenant, question).0, &self.route(tenant, question))
    }
}
