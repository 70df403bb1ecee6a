//! The grant service: decode, ask the gate, encode.

use std::sync::Arc;

use tonic::{Request, Response};

use super::{
    MethodResult,
    decode::{DecodeResult, command, decode_in_range, page_size, required_text, session},
    identity,
    limits::{CEILING_MAX, DAY_MS, PAGE_DEFAULT, TTL_DAYS_MAX, TTL_MS_DEFAULT},
    page, service,
    time::{span, timestamp},
};
use crate::gate::{Decisions, new_id};
use callgate_core::domain::{
    audit::Actor,
    control::{Command, Control, Operation},
    grant::Grant,
    pattern::Pattern,
};
use callgate_proto::v1;

/// The service.
#[derive(Debug, Clone)]
pub(super) struct GrantService {
    decisions: Arc<Decisions>,
}

impl GrantService {
    pub(super) fn new(decisions: Arc<Decisions>) -> Self {
        Self { decisions }
    }
}

fn encode_grant(grant: &Grant, used: u64) -> v1::Grant {
    v1::Grant {
        grant_id: grant.id.clone(),
        session_id: grant.session.to_string(),
        tool_pattern: grant.tools.as_str().to_owned(),
        ceiling: grant.ceiling,
        used,
        expire_time: Some(timestamp(grant.expires_at)),
        by: grant.by.clone(),
    }
}

fn creation(message: &v1::CreateGrantRequest, by: Actor) -> DecodeResult<Command> {
    let operation = Operation::Grant {
        id: new_id("grn"),
        tools: Pattern::parse("tool_pattern", &message.tool_pattern)?,
        ceiling: decode_in_range("ceiling", message.ceiling, 1..=CEILING_MAX)?,
        ttl_ms: span("ttl", message.ttl.as_ref(), 1..=TTL_DAYS_MAX * DAY_MS)?.unwrap_or(TTL_MS_DEFAULT),
    };
    command(&message.session_id, by, &message.reason, operation)
}

#[tonic::async_trait]
impl v1::grant_service_server::GrantService for GrantService {
    async fn create_grant(&self, request: Request<v1::CreateGrantRequest>) -> MethodResult<v1::CreateGrantResponse> {
        let tenant = identity::tenant(&request)?;
        let by = identity::actor(&request)?;
        let command = creation(&request.into_inner(), by)?;
        let grant = match service::answer_in_time(Box::pin(self.decisions.control(tenant, &command))).await?.control {
            Control::Granted(grant) => Some(encode_grant(&grant, 0)),
            _ => None,
        };
        Ok(Response::new(v1::CreateGrantResponse { grant }))
    }

    async fn revoke_grant(&self, request: Request<v1::RevokeGrantRequest>) -> MethodResult<v1::RevokeGrantResponse> {
        let tenant = identity::tenant(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let operation = Operation::Revoke { id: required_text("grant_id", &message.grant_id)? };
        let command = command(&message.session_id, by, &message.reason, operation)?;
        service::answer_in_time(Box::pin(self.decisions.control(tenant, &command))).await?;
        Ok(Response::new(v1::RevokeGrantResponse {}))
    }

    async fn list_grants(&self, request: Request<v1::ListGrantsRequest>) -> MethodResult<v1::ListGrantsResponse> {
        let tenant = identity::tenant(&request)?;
        let message = request.into_inner();
        let (session, size) = (session(&message.session_id)?, page_size(message.page_size, PAGE_DEFAULT)?);
        let after = page::after(&message.page_token, |[id]| Some(id.to_owned()))?;
        let mut grants = service::answer_in_time(Box::pin(self.decisions.grants(tenant, &session))).await?;
        // By its id a grant is as old as it is.
        grants.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
        grants.retain(|(grant, _)| after.as_ref().is_none_or(|after| *after < grant.id));
        let (grants, next_page_token) = page::split_page(grants, size, |(last, _)| page::token([&last.id]));
        let grants = grants.iter().map(|(grant, used)| encode_grant(grant, *used)).collect();
        Ok(Response::new(v1::ListGrantsResponse { grants, next_page_token }))
    }
}
