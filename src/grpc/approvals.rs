//! The approval service: decode, ask the gate, encode.

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status};

use super::{
    decode::{self, Decoded, note, optional, required_text},
    profiles::between,
    service, status, v1,
};
use crate::{
    domain::{
        ids::{SessionId, TenantId},
        inbox::Question,
        time::Timestamp,
    },
    gate::{Command, Gate, GateError, Operation, Wanted},
};

const PAGE_DEFAULT: u32 = 100;
const PAGE_MAX: u32 = 500;
/// How often a watch looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Answers that a slow watcher may leave untaken before its watch waits for it.
const UNTAKEN_MAX: usize = 64;

/// The service over a gate.
#[derive(Debug, Clone)]
pub(super) struct ApprovalService {
    gate: Arc<Gate>,
}

impl ApprovalService {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }

    async fn question(&self, approval_id: &str) -> Result<Question, Status> {
        let wanted = Wanted { approval_id: Some(approval_id.to_owned()), most: 1, ..Wanted::default() };
        let found = service::within(self.gate.questions(decode::tenant(), &wanted)).await?.pop();
        found.ok_or_else(status::approval_unknown)
    }
}

fn state(question: &Question, now: Timestamp) -> v1::ApprovalState {
    match &question.resolution {
        Some(resolution) if resolution.approved => v1::ApprovalState::Approved,
        Some(_) => v1::ApprovalState::Denied,
        None if now >= question.expires_at => v1::ApprovalState::Expired,
        None => v1::ApprovalState::Pending,
    }
}

fn encoded(question: Question, now: Timestamp) -> v1::Approval {
    let resolution = question.resolution.as_ref();
    v1::Approval {
        state: state(&question, now).into(),
        resolved_by: resolution.map(|resolution| resolution.by.clone()).unwrap_or_default(),
        resolution_reason: resolution.and_then(|resolution| resolution.reason.clone()).unwrap_or_default(),
        resolved_unix_ms: resolution.map_or(0, |resolution| resolution.at.as_millis()),
        reasons: question.findings.iter().map(|finding| finding.message.clone()).collect(),
        approval_id: question.approval_id,
        session_id: question.session,
        root_session_id: question.root,
        agent_id: question.agent.unwrap_or_default(),
        call_id: question.call_id,
        tool: question.tool,
        arguments_json: question.arguments,
        justification: question.justification.unwrap_or_default(),
        asked_unix_ms: question.asked_at.as_millis(),
        expires_unix_ms: question.expires_at.as_millis(),
        policy_version: question.policy,
    }
}

/// Tells of questions as they come up, and again when they stand otherwise, until nobody listens.
async fn watch(gate: Arc<Gate>, tenant: TenantId, session: Option<SessionId>, to: mpsc::Sender<Watched>) {
    let mut open: BTreeMap<String, ()> = BTreeMap::new();
    loop {
        let wanted = Wanted { session: session.clone(), pending: true, most: PAGE_MAX as usize, ..Wanted::default() };
        let found = match gate.questions(tenant, &wanted).await {
            Ok(found) => found,
            Err(error) => {
                let _ = to.send(Err(status::gate(error))).await;
                return;
            }
        };
        let now = gate.now();
        let gone: Vec<String> =
            open.keys().filter(|id| !found.iter().any(|question| question.approval_id == **id)).cloned().collect();
        let mut told = Vec::new();
        for id in gone {
            open.remove(&id);
            let wanted = Wanted { approval_id: Some(id), most: 1, ..Wanted::default() };
            told.extend(gate.questions(tenant, &wanted).await.unwrap_or_default());
        }
        told.extend(found.into_iter().filter(|question| open.insert(question.approval_id.clone(), ()).is_none()));
        for question in told {
            let approval = Some(encoded(question, now));
            if to.send(Ok(v1::WatchApprovalsResponse { approval })).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = to.closed() => return,
        }
    }
}

type Watched = Result<v1::WatchApprovalsResponse, Status>;

#[tonic::async_trait]
impl v1::approval_service_server::ApprovalService for ApprovalService {
    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        let message = request.into_inner();
        let decoded = || -> Decoded<_> {
            let session = optional(&message.session_id, |id| SessionId::parse("session_id", id))?;
            Ok((session, between("page_size", message.page_size, PAGE_DEFAULT, PAGE_MAX)? as usize))
        };
        let (session, size) = decoded().map_err(|status| *status)?;
        let pending = message.state() == v1::ApprovalState::Pending;
        // Of the others the state is told by time and answer, so enough are read to choose from.
        let any = pending || message.state() == v1::ApprovalState::Unspecified;
        let most = if any { size } else { PAGE_MAX as usize };
        let wanted = Wanted { approval_id: None, session, pending, most };
        let found = service::within(self.gate.questions(decode::tenant(), &wanted)).await?;
        let now = self.gate.now();
        let approvals = found.into_iter().map(|question| encoded(question, now));
        let approvals = approvals.filter(|approval| any || approval.state() == message.state()).take(size).collect();
        Ok(Response::new(v1::ListApprovalsResponse { approvals }))
    }

    async fn get_approval(
        &self,
        request: Request<v1::GetApprovalRequest>,
    ) -> Result<Response<v1::GetApprovalResponse>, Status> {
        let id = required_text("approval_id", &request.into_inner().approval_id).map_err(|status| *status)?;
        let approval = Some(encoded(self.question(&id).await?, self.gate.now()));
        Ok(Response::new(v1::GetApprovalResponse { approval }))
    }

    async fn resolve_approval(
        &self,
        request: Request<v1::ResolveApprovalRequest>,
    ) -> Result<Response<v1::ResolveApprovalResponse>, Status> {
        let message = request.into_inner();
        let decoded = || -> Decoded<_> {
            let id = required_text("approval_id", &message.approval_id)?;
            Ok((id, required_text("by", &message.by)?, note("reason", &message.reason)?))
        };
        let (approval_id, by, reason) = decoded().map_err(|status| *status)?;
        let question = self.question(&approval_id).await?;
        let session = decode::sound(SessionId::parse("session_id", &question.session)).map_err(|status| *status)?;
        let operation = Operation::Answer { approval_id: approval_id.clone(), approve: message.approve };
        let command = Command { session, by, reason, operation };
        let caller_error = service::within(async {
            match self.gate.control(decode::tenant(), &command).await {
                Ok(_) => Ok(None),
                Err(GateError::CallerError(caller_error)) => Ok(Some(caller_error)),
                Err(error) => Err(error),
            }
        });
        let caller_error = caller_error.await?;
        let question = self.question(&approval_id).await?;
        if let Some(caller_error) = caller_error {
            // The call tree remembers a call only as it stands; who answered it is in its past.
            let answered = question.resolution.as_ref().map(status::answered);
            return Err(answered.unwrap_or_else(|| status::gate(caller_error.into())));
        }
        let approval = Some(encoded(question, self.gate.now()));
        Ok(Response::new(v1::ResolveApprovalResponse { approval }))
    }

    type WatchApprovalsStream = Pin<Box<dyn Stream<Item = Watched> + Send>>;

    async fn watch_approvals(
        &self,
        request: Request<v1::WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchApprovalsStream>, Status> {
        let message = request.into_inner();
        let session = optional(&message.session_id, |id| SessionId::parse("session_id", id));
        let session = session.map_err(|status| *status)?;
        let (to, from) = mpsc::channel(UNTAKEN_MAX);
        tokio::spawn(watch(Arc::clone(&self.gate), decode::tenant(), session, to));
        Ok(Response::new(Box::pin(ReceiverStream::new(from))))
    }
}
