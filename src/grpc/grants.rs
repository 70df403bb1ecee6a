//! The grant service: decode, ask the gate, encode.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    decode::{self, Decoded, note, required_text, sound, wrong},
    service, v1,
};
use crate::{
    domain::{control::Control, grant::Grant, ids::SessionId, pattern::Pattern},
    gate::{Command, Gate, Operation, new_id},
};

/// Most calls of one grant.
const CEILING_MAX: u64 = 1_000_000;
const TTL_MS_DEFAULT: u64 = 3_600_000;
/// 31 days.
const TTL_MS_MAX: u64 = 31 * 86_400_000;

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

#[tonic::async_trait]
impl v1::grant_service_server::GrantService for GrantService {
    async fn create_grant(
        &self,
        request: Request<v1::CreateGrantRequest>,
    ) -> Result<Response<v1::CreateGrantResponse>, Status> {
        let message = request.into_inner();
        let decoded = || -> Decoded<_> {
            if !(1..=CEILING_MAX).contains(&message.ceiling) {
                return wrong("ceiling", format!("is {}; it must lie between 1 and {CEILING_MAX}", message.ceiling));
            }
            if message.ttl_ms > TTL_MS_MAX {
                return wrong("ttl_ms", format!("is {}; at most {TTL_MS_MAX} (31 days) is allowed", message.ttl_ms));
            }
            let operation = Operation::Grant {
                id: new_id("grn"),
                tools: sound(Pattern::parse("tool_pattern", &message.tool_pattern))?,
                ceiling: message.ceiling,
                ttl_ms: if message.ttl_ms == 0 { TTL_MS_DEFAULT } else { message.ttl_ms },
            };
            let session = sound(SessionId::parse("session_id", &message.session_id))?;
            let by = required_text("by", &message.by)?;
            Ok(Command { session, by, reason: note("reason", &message.reason)?, operation })
        };
        let command = decoded().map_err(|status| *status)?;
        let grant = match service::within(self.gate.control(decode::tenant(), &command)).await? {
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
        let decoded = || -> Decoded<_> {
            let operation = Operation::Revoke { id: required_text("grant_id", &message.grant_id)? };
            let session = sound(SessionId::parse("session_id", &message.session_id))?;
            let by = required_text("by", &message.by)?;
            Ok(Command { session, by, reason: note("reason", &message.reason)?, operation })
        };
        let command = decoded().map_err(|status| *status)?;
        service::within(self.gate.control(decode::tenant(), &command)).await?;
        Ok(Response::new(v1::RevokeGrantResponse {}))
    }

    async fn list_grants(
        &self,
        request: Request<v1::ListGrantsRequest>,
    ) -> Result<Response<v1::ListGrantsResponse>, Status> {
        let session = sound(SessionId::parse("session_id", &request.into_inner().session_id));
        let session = session.map_err(|status| *status)?;
        let grants = service::within(self.gate.grants(decode::tenant(), &session)).await?;
        let grants = grants.iter().map(|(grant, used)| encoded(grant, *used)).collect();
        Ok(Response::new(v1::ListGrantsResponse { grants }))
    }
}
