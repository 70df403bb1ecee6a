//! Client of a server for hooks, with short timeouts: an unresponsive server delays the agent by seconds at most.

use std::time::Duration;

use tokio::time::timeout;
use tonic::{Request, Response, Status};

use crate::hooks::HookServer;
use callgate_client::remote::AuthenticatedChannel;
use callgate_proto::{
    BY,
    v1::{
        EvaluateRequest, EvaluateResponse, GetSessionStateRequest, GetSessionStateResponse, MarkCompactedRequest,
        MarkCompactedResponse, RecordRequest, RecordResponse, WithdrawApprovalRequest,
        approval_service_client::ApprovalServiceClient, gate_service_client::GateServiceClient,
        session_service_client::SessionServiceClient,
    },
};

/// Timeout of an answer, in addition to the requested wait.
const ANSWER: Duration = Duration::from_secs(8);
/// Timeout of an outcome's report, whose loss blocks nobody.
const OUTCOME: Duration = Duration::from_secs(5);

/// A connection.
pub(super) struct GateConnection(pub(super) AuthenticatedChannel);

/// The answer within the timeout.
async fn call_within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded(format!("the server did not answer within {} s", limit.as_secs()));
    Ok(timeout(limit, answer).await.map_err(late)??.into_inner())
}

impl GateConnection {
    fn gate(&self) -> GateServiceClient<AuthenticatedChannel> {
        // A whole result may be handed back.
        GateServiceClient::new(self.0.clone())
    }
}

impl HookServer for GateConnection {
    async fn evaluate(&self, ask: EvaluateRequest) -> Result<EvaluateResponse, Status> {
        let asked = ask.max_wait.as_ref().and_then(|wait| Duration::try_from(*wait).ok()).unwrap_or_default();
        call_within(asked + ANSWER, self.gate().evaluate(ask)).await
    }

    async fn record(&self, report: RecordRequest) -> Result<RecordResponse, Status> {
        call_within(OUTCOME, self.gate().record(report)).await
    }

    async fn session_state(&self, ask: GetSessionStateRequest) -> Result<GetSessionStateResponse, Status> {
        call_within(ANSWER, self.gate().get_session_state(ask)).await
    }

    async fn withdraw(&self, session: &str, approval_id: String) -> Result<(), Status> {
        let reason = "no yes at the host's prompt".to_owned();
        let mut message = Request::new(WithdrawApprovalRequest { approval_id, reason });
        // Without authentication the session's name identifies the requester.
        if let Ok(by) = session.parse() {
            message.metadata_mut().insert(BY, by);
        }
        call_within(OUTCOME, ApprovalServiceClient::new(self.0.clone()).withdraw_approval(message)).await.map(drop)
    }

    async fn mark_compacted(&self, told: MarkCompactedRequest) -> Result<MarkCompactedResponse, Status> {
        let mut client = SessionServiceClient::new(self.0.clone());
        call_within(ANSWER, client.mark_compacted(told)).await
    }
}
