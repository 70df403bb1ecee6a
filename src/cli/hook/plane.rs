//! A server, as a hook asks it.

use tonic::{Request, Status};

use crate::{
    cli::remote::Wire,
    grpc::{BY, hooks::Plane},
};
use callgate_proto::v1::{
    EvaluateRequest, EvaluateResponse, GetSessionStateRequest, GetSessionStateResponse, MarkCompactedRequest,
    MarkCompactedResponse, RecordRequest, RecordResponse, WithdrawApprovalRequest,
    approval_service_client::ApprovalServiceClient, gate_service_client::GateServiceClient,
    session_service_client::SessionServiceClient,
};

/// A connection to it.
pub(super) struct Server(pub(super) Wire);

impl Server {
    fn gate(&self) -> GateServiceClient<Wire> {
        // A whole result may be handed back.
        GateServiceClient::new(self.0.clone())
    }
}

impl Plane for Server {
    async fn evaluate(&self, ask: EvaluateRequest) -> Result<EvaluateResponse, Status> {
        self.gate().evaluate(ask).await.map(tonic::Response::into_inner)
    }

    async fn record(&self, report: RecordRequest) -> Result<RecordResponse, Status> {
        self.gate().record(report).await.map(tonic::Response::into_inner)
    }

    async fn session_state(&self, ask: GetSessionStateRequest) -> Result<GetSessionStateResponse, Status> {
        self.gate().get_session_state(ask).await.map(tonic::Response::into_inner)
    }

    async fn withdraw(&self, session: &str, approval_id: String) -> Result<(), Status> {
        let reason = "no yes at the host's prompt".to_owned();
        let mut message = Request::new(WithdrawApprovalRequest { approval_id, reason });
        // Where nobody has a credential, whose question it is is said by the session's name.
        if let Ok(by) = session.parse() {
            message.metadata_mut().insert(BY, by);
        }
        ApprovalServiceClient::new(self.0.clone()).withdraw_approval(message).await.map(drop)
    }

    async fn mark_compacted(&self, told: MarkCompactedRequest) -> Result<MarkCompactedResponse, Status> {
        let mut client = SessionServiceClient::new(self.0.clone());
        client.mark_compacted(told).await.map(tonic::Response::into_inner)
    }
}
