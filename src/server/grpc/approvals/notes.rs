//! Claims and comments on approval requests.

use tonic::Status;

use super::{ApprovalService, encode_approval};
use crate::grpc::{
    decode::{note, require_field, required_text},
    service,
    time::timestamp,
};
use callgate_core::domain::{
    approval_notes::{ApprovalNote, find_claim},
    audit::{Actor, AuditOperation},
    ids::TenantId,
    inbox::Question,
};
use callgate_proto::v1::{self, ApprovalState};

impl ApprovalService {
    pub(super) async fn claim(
        &self,
        tenant: TenantId,
        by: Actor,
        message: v1::ClaimApprovalRequest,
    ) -> Result<v1::Approval, Status> {
        let id = required_text("approval_id", &message.approval_id)?;
        let claimed = self.approvals.claim(tenant, &id, by, message.release);
        let question = service::answer_in_time(Box::pin(claimed)).await?;
        self.encode_with_stored_notes(tenant, question).await
    }

    pub(super) async fn comment(
        &self,
        tenant: TenantId,
        by: Actor,
        message: v1::CommentApprovalRequest,
    ) -> Result<v1::Approval, Status> {
        let id = required_text("approval_id", &message.approval_id)?;
        let text = require_field("text", note("text", message.text.trim())?)?;
        let commented = Box::pin(self.approvals.comment(tenant, &id, by, &text));
        let (question, notes) = service::answer_in_time(commented).await?;
        Ok(self.encode_with_notes(tenant, question, notes))
    }

    /// A request with its claim and comments, as they are stored.
    pub(super) async fn encode_with_stored_notes(
        &self,
        tenant: TenantId,
        question: Question,
    ) -> Result<v1::Approval, Status> {
        let id = question.approval_id.clone();
        let mut notes = service::answer_in_time(self.approvals.notes(tenant, std::slice::from_ref(&id))).await?;
        Ok(self.encode_with_notes(tenant, question, notes.remove(&id).unwrap_or_default()))
    }

    fn encode_with_notes(&self, tenant: TenantId, question: Question, notes: Vec<ApprovalNote>) -> v1::Approval {
        let mut approval = encode_approval(question, &self.approvals, tenant);
        self.set_claim(&mut approval, &notes);
        let comments = notes.into_iter().filter(|note| note.kind == AuditOperation::ApprovalCommented);
        let comment = |note: ApprovalNote| v1::ApprovalComment {
            by: note.by,
            create_time: Some(timestamp(note.at)),
            text: note.text.unwrap_or_default(),
        };
        approval.comments = comments.map(comment).collect();
        approval
    }

    /// The claims of the open requests on a page.
    pub(super) async fn set_claims(&self, tenant: TenantId, page: &mut [v1::Approval]) -> Result<(), Status> {
        let open = page.iter().filter(|approval| approval.state() == ApprovalState::Pending);
        let ids: Vec<String> = open.map(|approval| approval.approval_id.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let notes = service::answer_in_time(self.approvals.notes(tenant, &ids)).await?;
        for approval in page {
            if let Some(notes) = notes.get(&approval.approval_id) {
                self.set_claim(approval, notes);
            }
        }
        Ok(())
    }

    fn set_claim(&self, approval: &mut v1::Approval, notes: &[ApprovalNote]) {
        let claim =
            find_claim(notes, self.approvals.store.now()).filter(|_| approval.state() == ApprovalState::Pending);
        if let Some(claim) = claim {
            approval.claim_expire_time = Some(timestamp(claim.until));
            approval.claimed_by = claim.by;
        }
    }
}
