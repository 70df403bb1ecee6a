//! The server service: identity and features of this server, from memory.

use std::sync::Arc;

use tonic::{Request, Response};

use super::{
    MethodResult, identity,
    limits::{ERROR_BYTES_MAX, MESSAGE_BYTES_MAX, METADATA_BYTES_MAX, NOTE_BYTES_MAX, PAGE_MAX, WAIT_MS_MAX},
};
use crate::{
    gate::{BATCH_MAX, ServerState},
    grpc::ToWire,
};
use callgate_core::domain::{
    identity::CredentialId,
    ids::NAME_BYTES_MAX,
    json::{BYTES_MAX, DEPTH_MAX},
    tree::{OPEN_MAX, SESSIONS_MAX},
};
use callgate_proto::{BY, v1};

/// Features since the first contract.
const FEATURES: [&str; 3] = ["connect", "describe_tools", "get_caller"];

/// Feature of a server without a database: everything is lost at its end.
const IN_MEMORY: &str = "in_memory";

/// The service.
#[derive(Debug, Clone)]
pub(super) struct ServerService {
    server: Arc<ServerState>,
    is_in_memory: bool,
}

impl ServerService {
    pub(super) fn new(server: Arc<ServerState>, is_in_memory: bool) -> Self {
        Self { server, is_in_memory }
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
    ) -> MethodResult<v1::GetServerInfoResponse> {
        let policy = self.server.policy(identity::tenant(&request)?);
        let server = v1::ServerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy_version: policy.version.to_string(),
            enforced: policy.is_enforced(),
            features: FEATURES.into_iter().chain(self.is_in_memory.then_some(IN_MEMORY)).map(str::to_owned).collect(),
            limits: Some(limits()),
        };
        Ok(Response::new(v1::GetServerInfoResponse { server: Some(server) }))
    }

    async fn get_caller(&self, request: Request<v1::GetCallerRequest>) -> MethodResult<v1::GetCallerResponse> {
        let identity = identity::of(&request)?;
        let credential = match identity.credential {
            CredentialId::Local => v1::CredentialKind::None,
            CredentialId::Token(_) => v1::CredentialKind::Token,
            CredentialId::Certificate(_) => v1::CredentialKind::Certificate,
            CredentialId::Jwt(_) => v1::CredentialKind::Jwt,
            // No request has it: it is of answers alone.
            CredentialId::Slack(_) => v1::CredentialKind::Unspecified,
        };
        let is_named = identity.credential != CredentialId::Local || request.metadata().contains_key(BY);
        let caller = v1::CallerIdentity {
            name: if is_named { identity::by(&request)? } else { String::new() },
            roles: identity.roles.iter().map(|role| role.to_wire().into()).collect(),
            groups: identity.groups.clone(),
            tenant: self.server.tenant(identity.tenant).map(|tenant| tenant.name.clone()).unwrap_or_default(),
            credential: credential.into(),
        };
        let mut response = Response::new(v1::GetCallerResponse { caller: Some(caller) });
        // For callers in the same process; it is not sent.
        response.extensions_mut().insert(identity);
        Ok(response)
    }
}
