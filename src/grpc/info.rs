//! The server service: what this server is, told from memory.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    identity,
    limits::{ERROR_BYTES_MAX, MESSAGE_BYTES_MAX, METADATA_BYTES_MAX, NOTE_BYTES_MAX, PAGE_MAX, WAIT_MS_MAX},
    v1,
};
use crate::{
    domain::{
        ids::NAME_BYTES_MAX,
        json::{BYTES_MAX, DEPTH_MAX},
        tree::{OPEN_MAX, SESSIONS_MAX},
    },
    gate::{BATCH_MAX, Gate},
};

/// What came after the first contract.
const FEATURES: [&str; 2] = ["connect", "describe_tools"];

/// The service over a gate.
#[derive(Debug, Clone)]
pub(super) struct ServerService {
    gate: Arc<Gate>,
}

impl ServerService {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }
}

fn limits() -> v1::ServerLimits {
    v1::ServerLimits {
        message_bytes: MESSAGE_BYTES_MAX as u64,
        metadata_bytes: METADATA_BYTES_MAX.into(),
        json_bytes: BYTES_MAX as u64,
        json_depth: DEPTH_MAX as u32,
        error_bytes: ERROR_BYTES_MAX as u64,
        name_bytes: NAME_BYTES_MAX as u32,
        note_bytes: NOTE_BYTES_MAX as u32,
        batch_calls: BATCH_MAX as u32,
        open_calls: OPEN_MAX,
        sessions: SESSIONS_MAX as u32,
        page_size: PAGE_MAX,
        wait_seconds: (WAIT_MS_MAX / 1_000) as u32,
    }
}

#[tonic::async_trait]
impl v1::server_service_server::ServerService for ServerService {
    async fn get_server_info(
        &self,
        request: Request<v1::GetServerInfoRequest>,
    ) -> Result<Response<v1::GetServerInfoResponse>, Status> {
        let policy = self.gate.policy(identity::tenant(&request)?);
        let server = v1::ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy_version: policy.version.to_string(),
            enforced: policy.is_enforced(),
            features: FEATURES.map(str::to_owned).to_vec(),
            limits: Some(limits()),
        };
        Ok(Response::new(v1::GetServerInfoResponse { server: Some(server) }))
    }
}
