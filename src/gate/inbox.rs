//! What operators look at, and waiting for them.

use std::time::Duration;

use tokio::time::sleep;

use super::{EvaluateAnswer, Gate, GateError, decide::nothing};
use crate::{
    domain::{
        call::{self, Request},
        finding::Decision,
        grant::Grant,
        ids::{CallId, SessionId, TenantId},
        inbox::{Question, SessionLine, StoredCall},
        time::Timestamp,
    },
    store::Wanted,
};

/// How often a question is looked at while its caller waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Gate {
    /// May this call run? When a person must approve, waits for the answer, `most` at the longest, and judges again.
    ///
    /// # Errors
    /// [`GateError`]: nothing was decided, or not again.
    pub async fn evaluate_and_wait(&self, request: Request, most: Duration) -> Result<Vec<EvaluateAnswer>, GateError> {
        let started = self.clock.tick();
        let answers = self.evaluate(vec![request.clone()]).await?;
        let held = |answers: &[EvaluateAnswer]| {
            let verdict = &answers.first()?.verdict;
            verdict.approval.clone().filter(|_| verdict.decision == Decision::Ask)
        };
        let Some(approval) = held(&answers) else { return Ok(answers) };
        while self.clock.elapsed(started) < most {
            sleep(LOOK_EVERY).await;
            let now = self.now();
            let open = self.approval(request.tenant, &request.session, &approval.id).await?;
            if open.is_none_or(|open| open.answer != call::ApprovalStatus::Pending || now >= open.expires_at) {
                return self.evaluate(vec![request]).await;
            }
        }
        Ok(answers)
    }

    /// Questions to people, the newest first.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when they cannot be read.
    pub async fn questions(&self, tenant: TenantId, wanted: &Wanted) -> Result<Vec<Question>, GateError> {
        Ok(self.store.questions(tenant, wanted).await?)
    }

    /// Stored calls since a time, of one session's call tree or of all, of one id or of any, by tree and in order.
    ///
    /// # Errors
    /// [`GateError`] when the session is unknown or they cannot be read.
    pub async fn stored_calls(
        &self,
        tenant: TenantId,
        since: Timestamp,
        session: Option<&SessionId>,
        call_id: Option<&CallId>,
    ) -> Result<Vec<StoredCall>, GateError> {
        let root = match session {
            Some(session) => Some(self.known_root(tenant, session).await?.ok_or(GateError::SessionUnknown)?),
            None => None,
        };
        Ok(self.store.stored_calls(tenant, since, root.as_ref(), call_id).await?)
    }

    /// The sessions whose call trees were heard of last.
    ///
    /// # Errors
    /// [`GateError::StoreUnavailable`] when they cannot be read.
    pub async fn sessions(&self, tenant: TenantId, most: usize) -> Result<Vec<SessionLine>, GateError> {
        Ok(self.store.sessions(tenant, most).await?)
    }

    /// The grants of a session's call tree that are not over, oldest first, with how often each was used.
    ///
    /// # Errors
    /// [`GateError`] when the session is unknown or cannot be read.
    pub async fn grants(&self, tenant: TenantId, session: &SessionId) -> Result<Vec<(Grant, u64)>, GateError> {
        let now = self.now();
        self.look(tenant, session, nothing, |tree, (), _| {
            let used = |grant: &Grant| tree.uses.get(&grant.key()).map_or(0, |used| used.used);
            let open = tree.grants.iter().filter(|grant| now < grant.expires_at);
            open.map(|grant| (grant.clone(), used(grant))).collect()
        })
        .await
    }
}
