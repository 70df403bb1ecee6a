//! Answers to several approval requests in one act: each is an answer of its own, with its own result.

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{ApprovalService, list::RequestFilter};
use crate::{
    gate::ApproverReply,
    grpc::{
        ToWire,
        decode::{DecodeResult, note, required_text, wrong},
        limits::{BULK_DENY_MAX, BULK_MAX},
        service,
        status::StatusSource as _,
        time::point_in_time,
    },
};
use callgate_core::domain::{
    audit::Actor, fingerprint::ArgsDigest, ids::TenantId, inbox::Question, rejection::BulkRejection,
};
use callgate_proto::v1::{self, ApprovalState};

/// One answer of the act.
enum BulkAnswer {
    Approve { approval_id: String, seen: ArgsDigest },
    Deny { approval_id: String },
}

impl BulkAnswer {
    fn approval_id(&self) -> &str {
        match self {
            Self::Approve { approval_id, .. } | Self::Deny { approval_id } => approval_id,
        }
    }
}

impl ApprovalService {
    /// Gives each answer. Once the server cannot store one, it tries no further.
    pub(super) async fn resolve_all(
        &self,
        tenant: TenantId,
        by: Actor,
        message: v1::ResolveApprovalsRequest,
    ) -> Result<v1::ResolveApprovalsResponse, Status> {
        let reason = note("reason", &message.reason)?;
        let (answers, remaining_size) = match &message.matching {
            None => (selected(&message)?, 0),
            Some(_) if message.approve || !message.approvals.is_empty() => {
                return Ok(wrong(
                    "matching",
                    "is for a denial without `approvals`: approve requests that you have seen",
                )?);
            }
            Some(matching) => self.matching(tenant, &by, matching, message.create_time_max.as_ref()).await?,
        };
        let (mut results, mut failed) = (Vec::with_capacity(answers.len()), None);
        for answer in answers {
            let approval_id = answer.approval_id().to_owned();
            let answered = match &failed {
                Some(status) => Err(Status::clone(status)),
                None => self.answer(tenant, &by, reason.clone(), answer).await,
            };
            let is_lasting =
                |code| matches!(code, Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded);
            failed = answered.as_ref().err().filter(|status| is_lasting(status.code())).cloned();
            results.push(encode_result(approval_id, answered, |question| {
                question.state(self.approvals.store.now()).to_wire()
            }));
        }
        Ok(v1::ResolveApprovalsResponse { results, remaining_size })
    }

    async fn answer(
        &self,
        tenant: TenantId,
        by: &Actor,
        reason: Option<String>,
        answer: BulkAnswer,
    ) -> Result<Question, Status> {
        let by = by.clone();
        match answer {
            BulkAnswer::Approve { approval_id, seen } => {
                let approved = self.approvals.approve_in_bulk(tenant, (approval_id, seen), by, reason);
                service::answer_in_time(Box::pin(approved)).await
            }
            BulkAnswer::Deny { approval_id } => {
                let reply = ApproverReply { approval_id, approve: false, by, reason, clears: None, edited: None };
                service::answer_in_time(Box::pin(self.approvals.resolve(tenant, &reply))).await
            }
        }
    }

    /// Denials of the open requests of a list, the oldest first, and the number of those beyond the limit.
    async fn matching(
        &self,
        tenant: TenantId,
        by: &Actor,
        matching: &v1::ListApprovalsRequest,
        create_time_max: Option<&prost_types::Timestamp>,
    ) -> Result<(Vec<BulkAnswer>, u32), Status> {
        if !matches!(matching.state(), ApprovalState::Unspecified | ApprovalState::Pending) {
            return Ok(wrong("matching.state", "must be PENDING: others are answered")?);
        }
        let until = create_time_max.map(|at| point_in_time("create_time_max", Some(at))).transpose()?;
        let filter = RequestFilter::decode(matching, matching.mine.then(|| by.clone()))?;
        let mut found = self.open_requests(tenant, &filter).await?;
        found.retain(|question| until.is_none_or(|until| question.asked_at <= until));
        found.sort_by_key(|question| question.asked_at);
        let remaining = u32::try_from(found.len().saturating_sub(BULK_DENY_MAX)).unwrap_or(u32::MAX);
        found.truncate(BULK_DENY_MAX);
        let denials = found.into_iter().map(|question| BulkAnswer::Deny { approval_id: question.approval_id });
        Ok((denials.collect(), remaining))
    }
}

/// The reason of a rejection, as an error of the service has it.
pub(super) fn reason(rejection: BulkRejection) -> String {
    let info = rejection.into_status().get_details_error_info();
    info.map(|info| info.reason).unwrap_or_default()
}

/// The selected requests with the approver's answer.
fn selected(message: &v1::ResolveApprovalsRequest) -> DecodeResult<Vec<BulkAnswer>> {
    let count = message.approvals.len();
    if !(1..=BULK_MAX).contains(&count) {
        return wrong("approvals", format!("has {count} requests; 1 to {BULK_MAX} are allowed"));
    }
    let one = |(at, selection): (usize, &v1::ApprovalSelection)| {
        let approval_id = required_text(&format!("approvals[{at}].approval_id"), &selection.approval_id)?;
        if !message.approve {
            return Ok(BulkAnswer::Deny { approval_id });
        }
        let mut digest = [0; 32];
        match hex::decode_to_slice(&selection.args_digest, &mut digest) {
            Ok(()) => Ok(BulkAnswer::Approve { approval_id, seen: ArgsDigest(digest) }),
            Err(_) => wrong(&format!("approvals[{at}].args_digest"), "is no digest: 64 hexadecimal digits"),
        }
    };
    message.approvals.iter().enumerate().map(one).collect()
}

fn encode_result(
    approval_id: String,
    answered: Result<Question, Status>,
    state: impl FnOnce(&Question) -> ApprovalState,
) -> v1::ApprovalResult {
    match answered {
        Ok(question) => {
            let state = state(&question).into();
            v1::ApprovalResult { approval_id, tool: question.tool, state, ..v1::ApprovalResult::default() }
        }
        Err(status) => v1::ApprovalResult {
            approval_id,
            error_reason: status.get_details_error_info().map(|info| info.reason).unwrap_or_default(),
            error_message: status.message().to_owned(),
            ..v1::ApprovalResult::default()
        },
    }
}
