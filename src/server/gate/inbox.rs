//! Lists for operators: stored calls and sessions, and one call in full.

use std::sync::Arc;

use super::{Insight, NoAnswer, RecordError, SessionError, edits::reused_call};
use callgate_core::{
    domain::{
        call::{Approval, ApprovalStatus},
        calls::{
            CallJudgment, CallLine, CallPlace, CallQuery, HaltedNames, NameKind, NamePage, SearchPage, SessionQuery,
            WholeCall,
        },
        finding::Decision,
        fingerprint::Fingerprint,
        halt::HaltTarget,
        ids::{CallId, SessionId, TenantId},
        inbox::{SessionLine, SessionPlace, StoredCall, TreeTotals},
        rejection::{RecordRejection, SessionUnknown},
        time::Timestamp,
        verdict::Verdict,
    },
    engine::{self, envelope::RefusalContext},
};

impl Insight {
    /// Stored calls since a time, of one session's call tree or of all, of one id or of any, by tree and in order.
    ///
    /// # Errors
    /// [`SessionError`] when the session is unknown or they cannot be read.
    pub async fn stored_calls(
        &self,
        tenant: TenantId,
        since: Timestamp,
        session: Option<&SessionId>,
        call_id: Option<&CallId>,
    ) -> Result<Vec<StoredCall>, SessionError> {
        let root = match session {
            Some(session) => {
                Some(self.decisions.known_root(tenant, session).await?.ok_or(SessionError::Rejected(SessionUnknown))?)
            }
            None => None,
        };
        Ok(self.operators.stored_calls(tenant, since, root.as_ref(), call_id).await?)
    }

    /// The sessions of a query, by the last activity of their call trees.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn sessions(
        &self,
        tenant: TenantId,
        wanted: &SessionQuery,
    ) -> Result<SearchPage<SessionLine, SessionPlace>, NoAnswer> {
        Ok(self.operators.sessions(tenant, wanted, &self.halted_names(tenant)).await?)
    }

    /// A session by its id, with the totals of its call tree.
    ///
    /// # Errors
    /// [`SessionError`] when it is unknown or cannot be read.
    pub async fn session(
        &self,
        tenant: TenantId,
        session: &SessionId,
    ) -> Result<(SessionLine, TreeTotals), SessionError> {
        let found = self.operators.session(tenant, session, &self.halted_names(tenant)).await?;
        found.ok_or(SessionError::Rejected(SessionUnknown))
    }

    /// Names with a text, those with the latest calls first.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn names(
        &self,
        tenant: TenantId,
        kind: Option<NameKind>,
        text: &str,
        max: usize,
    ) -> Result<NamePage, NoAnswer> {
        Ok(self.operators.names(tenant, kind, text, max).await?)
    }

    fn halted_names(&self, tenant: TenantId) -> HaltedNames {
        let mut halted = HaltedNames::default();
        for halt in self.server.halts(tenant).iter() {
            match &halt.what {
                HaltTarget::Tenant => halted.all = true,
                HaltTarget::Session(session) => halted.sessions.push(session.to_string()),
                HaltTarget::Agent(agent) => halted.agents.push(agent.to_string()),
                // Its sessions go on with other tools.
                HaltTarget::Tool(_) => {}
            }
        }
        halted
    }

    /// The calls of a query, in short.
    ///
    /// # Errors
    /// [`SessionError`] when the session is unknown or they cannot be read.
    pub async fn calls(
        &self,
        tenant: TenantId,
        wanted: &CallQuery,
    ) -> Result<SearchPage<CallLine, CallPlace>, SessionError> {
        self.operators.calls(tenant, wanted).await?.ok_or(SessionError::Rejected(SessionUnknown))
    }

    /// A call with all stored data, and the model's response to its last judgement.
    ///
    /// # Errors
    /// [`RecordError`] when there is no such call or it cannot be read.
    pub async fn whole_call(
        &self,
        tenant: TenantId,
        session: &SessionId,
        call_id: &CallId,
        with_rows: bool,
    ) -> Result<(WholeCall, ModelResponse), RecordError> {
        let call = self.operators.whole_call(tenant, session, call_id, with_rows).await?;
        let call = call.ok_or(RecordError::Rejected(RecordRejection::UnknownCall))?;
        let Some(last) = call.judgements.last() else { return Ok((call, ModelResponse::default())) };
        let verdict = verdict_of_judgment(last);
        let edited = self.decisions.approved_instead(&*self.operators, tenant, &verdict).await;
        let previous = match reused_call(&verdict) {
            Some(reused) => self.operators.result(tenant, &reused.session, &reused.call_id).await?,
            None => None,
        };
        let beside = RefusalContext {
            suggested_next: &[],
            previous: previous.as_ref(),
            previous_max: self.server.policy(tenant).previous_result_bytes(),
            edited: edited.as_ref(),
        };
        let instead = engine::envelope::refusal(&verdict, &beside).map(|text| text.json);
        let hint = verdict.context_hint().filter(|_| verdict.decision == Decision::Allow);
        Ok((call, ModelResponse { instead, hint }))
    }
}

/// The response that a model got to a call, regenerated from what is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelResponse {
    /// Instead of a result, when it was refused.
    pub instead: Option<String>,
    /// With a permit.
    pub hint: Option<String>,
}

/// The verdict of a stored judgement.
fn verdict_of_judgment(judgement: &CallJudgment) -> Verdict {
    let policy: Arc<str> = judgement.policy.as_str().into();
    let approval = judgement.approval.clone().zip(judgement.approval_until).map(|(id, expires_at)| {
        Box::new(Approval {
            id,
            answer: ApprovalStatus::Pending,
            expires_at,
            policy: Arc::clone(&policy),
            reason: None,
            asked_by: None,
            seconded_by: Vec::new(),
        })
    });
    Verdict {
        decision: judgement.decision,
        would: judgement.would,
        findings: judgement.findings.clone(),
        permit: None,
        approval,
        policy,
        left: Vec::new(),
        tools_disabled: judgement.decision == Decision::Stop,
        replayed: true,
        fingerprint: Fingerprint([0; 32]),
        seq: judgement.seq,
        at: judgement.at,
    }
}
