//! The grant service: decode, ask the gate, encode.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    decode::{self, Decoded, between, command, required_text, session, wrong},
    limits::{CEILING_MAX, DAY_MS, TTL_DAYS_MAX, TTL_MS_DEFAULT},
    service, v1,
};
use crate::{
    domain::{
        control::{Command, Control, Operation},
        grant::Grant,
        pattern::Pattern,
    },
    gate::{Gate, new_id},
};

/// The service over a gate.
#[derive(Debug, Clone)]
pub(super) struct GrantService {
    gate: Arc<Gate>,
}

impl GrantService {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self { gate }
    }
}

fn encoded(grant: &Grant, used: u64) -> v1::Grant {
    v1::Grant {
        grant_id: grant.id.clone(),
        session_id: grant.session.to_string(),
        tool_pattern: grant.tools.as_str().to_owned(),
        ceiling: grant.ceiling,
        used,
        expires_unix_ms: grant.expires_at.as_millis(),
    }
}

fn creation(message: &v1::CreateGrantRequest) -> Decoded<Command> {
    let ttl_ms_max = TTL_DAYS_MAX * DAY_MS;
    if message.ttl_ms > ttl_ms_max {
        let problem = format!("is {}; at most {ttl_ms_max} ({TTL_DAYS_MAX} days) is allowed", message.ttl_ms);
        return wrong("ttl_ms", problem);
    }
    let operation = Operation::Grant {
        id: new_id("grn"),
        tools: Pattern::parse("tool_pattern", &message.tool_pattern)?,
        ceiling: between("ceiling", message.ceiling, 1..=CEILING_MAX)?,
        ttl_ms: if message.ttl_ms == 0 { TTL_MS_DEFAULT } else { message.ttl_ms },
    };
    command(&message.session_id, &message.by, &message.reason, operation)
}

#[tonic::async_trait]
impl v1::grant_service_server::GrantService for GrantService {
    async fn create_grant(
        &self,
        request: Request<v1::CreateGrantRequest>,
    ) -> Result<Response<v1::CreateGrantResponse>, Status> {
        let command = creation(&request.into_inner())?;
        let grant = match service::within(self.gate.control(decode::tenant(), &command)).await?.control {
            Control::Granted(grant) => Some(encoded(&grant, 0)),
            _ => None,
        };
        Ok(Response::new(v1::CreateGrantResponse { grant }))
    }

    async fn revoke_grant(
        &self,
        request: Request<v1::RevokeGrantRequest>,
    ) -> Result<Response<v1::RevokeGrantResponse>, Status> {
        let message = request.into_inner();
        let operation = Operation::Revoke { id: required_text("grant_id", &message.grant_id)? };
        let command = command(&message.session_id, &message.by, &message.reason, operation)?;
        service::within(self.gate.control(decode::tenant(), &command)).await?;
        Ok(Response::new(v1::RevokeGrantResponse {}))
    }

    async fn list_grants(
        &self,
        request: Request<v1::ListGrantsRequest>,
    ) -> Result<Response<v1::ListGrantsResponse>, Status> {
        let session = session(&request.into_inner().session_id)?;
        let grants = service::within(self.gate.grants(decode::tenant(), &session)).await?;
        let grants = grants.iter().map(|(grant, used)| encoded(grant, *used)).collect();
        Ok(Response::new(v1::ListGrantsResponse { grants }))
    }
}
