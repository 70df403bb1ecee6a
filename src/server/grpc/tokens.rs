//! The token service: decode, ask the gate, encode.

use std::sync::Arc;

use tonic::{
    Request, Response,
    service::{Interceptor, interceptor::InterceptedService},
};

use super::{
    MethodResult,
    decode::{DecodeResult, page_size, required_text},
    identity,
    limits::{DAY_MS, PAGE_DEFAULT, TTL_DAYS_MAX},
    malformed::MalformedField,
    page, service, status,
    time::{span, timestamp},
};
use crate::{
    auth::file::mapped_identity,
    gate::Identities,
    grpc::{FromWire, ToWire},
};
use callgate_core::domain::{
    identity::{MappedIdentity, Role},
    ids::TenantId,
    pattern::Pattern,
    token::StoredToken,
};
use callgate_proto::v1::{self, token_service_client::TokenServiceClient, token_service_server::TokenServiceServer};

/// Longest lifetime of a token that ends.
const TTL_MS_MAX: u64 = 3_650 * DAY_MS;

/// The token service.
#[derive(Debug, Clone)]
pub struct TokenService {
    identities: Arc<Identities>,
}

impl TokenService {
    pub(super) fn new(identities: Arc<Identities>) -> Self {
        Self { identities }
    }
}

/// The service without a server, for holders of the database: as an admin of this tenant.
#[must_use]
pub fn tokens_of(
    identities: Arc<Identities>,
    tenant: TenantId,
) -> TokenServiceClient<InterceptedService<TokenServiceServer<TokenService>, impl Interceptor + Clone>> {
    TokenServiceClient::new(TokenServiceServer::with_interceptor(
        TokenService::new(identities),
        identity::admin_of(tenant),
    ))
}

fn encode_token(token: StoredToken) -> v1::Token {
    let MappedIdentity { name, roles, groups, agents, any_session, .. } = token.is;
    v1::Token {
        token_id: token.id,
        name,
        roles: roles.into_iter().map(|role| role.to_wire().into()).collect(),
        groups,
        agent_pattern: agents.as_ref().map(|agents| Pattern::as_str(agents).to_owned()).unwrap_or_default(),
        any_session,
        create_time: Some(timestamp(token.created_at)),
        created_by: token.created_by,
        expire_time: token.expires_at.map(timestamp),
        last_use_time: token.used_at.map(timestamp),
        revoke_time: token.revoked_at.map(timestamp),
    }
}

fn roles(codes: &[i32]) -> DecodeResult<Vec<String>> {
    let role = |code: &i32| -> DecodeResult<String> {
        let known = v1::Role::try_from(*code).ok().and_then(|role| Role::from_wire(role).ok());
        let known = known.ok_or_else(|| MalformedField::no_member::<v1::Role>("roles", *code))?;
        Ok(known.as_str().to_owned())
    };
    codes.iter().map(role).collect()
}

fn creation(message: &v1::CreateTokenRequest) -> DecodeResult<MappedIdentity> {
    let name = required_text("name", &message.name)?;
    let agents = (!message.agent_pattern.is_empty()).then_some(message.agent_pattern.as_str());
    let groups = message.groups.clone();
    Ok(mapped_identity("", String::new(), name, &roles(&message.roles)?, groups, agents, message.any_session)?)
}

fn ttl(field: &str, given: Option<&prost_types::Duration>) -> DecodeResult<Option<u64>> {
    span(field, given, 1..=TTL_MS_MAX)
}

#[tonic::async_trait]
impl v1::token_service_server::TokenService for TokenService {
    async fn create_token(&self, request: Request<v1::CreateTokenRequest>) -> MethodResult<v1::CreateTokenResponse> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let message = request.into_inner();
        let (is, ttl_ms) = (creation(&message)?, ttl("ttl", message.ttl.as_ref())?);
        if !self.identities.wants_credentials() && (!is.roles.contains(&Role::Admin) || ttl_ms.is_some()) {
            return Err(status::first_token());
        }
        let (secret, token) =
            service::answer_in_time(Box::pin(self.identities.create_token(tenant, is, ttl_ms, &by))).await?;
        Ok(Response::new(v1::CreateTokenResponse { token: Some(encode_token(token)), secret }))
    }

    async fn list_tokens(&self, request: Request<v1::ListTokensRequest>) -> MethodResult<v1::ListTokensResponse> {
        let tenant = identity::tenant(&request)?;
        let message = request.into_inner();
        let size = page_size(message.page_size, PAGE_DEFAULT)?;
        let after = page::after(&message.page_token, |[id]| Some(id.to_owned()))?.unwrap_or_default();
        let tokens = service::answer_in_time(self.identities.operators.tokens(tenant, &after, size + 1)).await?;
        let (tokens, next_page_token) = page::split_page(tokens, size, |last| page::token([&last.id]));
        Ok(Response::new(v1::ListTokensResponse {
            tokens: tokens.into_iter().map(encode_token).collect(),
            next_page_token,
        }))
    }

    async fn revoke_token(&self, request: Request<v1::RevokeTokenRequest>) -> MethodResult<v1::RevokeTokenResponse> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let id = required_text("token_id", &request.get_ref().token_id)?;
        let token = service::answer_in_time(Box::pin(self.identities.revoke_token(tenant, &id, &by))).await?;
        Ok(Response::new(v1::RevokeTokenResponse { token: Some(encode_token(token)) }))
    }

    async fn rotate_token(&self, request: Request<v1::RotateTokenRequest>) -> MethodResult<v1::RotateTokenResponse> {
        let (tenant, by) = (identity::tenant(&request)?, identity::actor(&request)?);
        let message = request.into_inner();
        let id = required_text("token_id", &message.token_id)?;
        let ttl_ms = ttl("ttl", message.ttl.as_ref())?;
        let overlap_ms = span("overlap", message.overlap.as_ref(), 0..=TTL_DAYS_MAX * DAY_MS)?.unwrap_or(DAY_MS);
        let rotated = self.identities.rotate_token(tenant, &id, (ttl_ms, overlap_ms), &by);
        let (secret, token) = service::answer_in_time(Box::pin(rotated)).await?;
        Ok(Response::new(v1::RotateTokenResponse { token: Some(encode_token(token)), secret }))
    }
}
