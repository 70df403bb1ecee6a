//! The tenant service: decode, ask the gate, encode. For admins of the tenant `default` alone.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    MethodResult,
    decode::{DecodeResult, decode_in_range, note, page_size, wrong},
    identity,
    limits::{AMOUNT_MAX, PAGE_DEFAULT},
    page, service, status,
    time::timestamp,
};
use crate::{
    gate::{Identities, TenantChange},
    grpc::ToWire,
};
use callgate_core::domain::{
    audit::Actor,
    identity::Role,
    ids::DEFAULT_TENANT,
    tenant::{DEFAULT_TENANT_NAME, MONTHS_DAYS_MIN, Quotas, TERM_DAYS_MAX, Tenant, TenantState, Terms, tenant_name},
};
use callgate_proto::v1;

/// The service.
#[derive(Debug, Clone)]
pub(super) struct TenantService {
    identities: Arc<Identities>,
}

impl TenantService {
    pub(super) const fn new(identities: Arc<Identities>) -> Self {
        Self { identities }
    }

    async fn set_state(&self, by: Actor, name: &str, reason: &str, state: TenantState) -> Result<v1::Tenant, Status> {
        let name = decode_name(name)?;
        let reason = note("reason", reason)?.unwrap_or_default();
        encode_change(service::answer_in_time(self.identities.set_tenant_state(&name, state, &by, &reason)).await?)
    }
}

/// Only callers of the tenant `default` see the other tenants.
pub(super) fn of_the_plane<T>(request: &Request<T>) -> Result<(), Status> {
    let identity = identity::of(request)?;
    if identity.tenant == DEFAULT_TENANT && identity.is_one_of(&[Role::Admin]) {
        return Ok(());
    }
    Err(status::not_of_the_plane())
}

fn decode_name(name: &str) -> DecodeResult<String> {
    Ok(tenant_name("name", name)?)
}

fn encode_change(change: TenantChange) -> Result<v1::Tenant, Status> {
    match change {
        TenantChange::Done(tenant) => Ok(encode_tenant(&tenant)),
        refused => Err(status::tenant_change_status(&refused)),
    }
}

fn encode_tenant(tenant: &Tenant) -> v1::Tenant {
    let (since, by, reason) = &tenant.since;
    let Quotas { calls_per_second, sessions, stored_bytes, approvals_open } = tenant.quotas;
    let Terms { words, calls, months } = tenant.terms;
    v1::Tenant {
        name: tenant.name.clone(),
        tenant_id: tenant.id.0,
        state: tenant.state.to_wire().into(),
        state_time: Some(timestamp(*since)),
        state_by: by.clone(),
        state_reason: reason.clone(),
        quotas: Some(v1::TenantQuotas { calls_per_second, sessions, stored_bytes, approvals_open }),
        used_sessions: tenant.used.sessions,
        used_bytes: tenant.used.stored_bytes,
        create_time: Some(timestamp(tenant.created_at)),
        retention: Some(v1::TenantRetention { texts_days: words, calls_days: calls, months_days: months }),
    }
}

fn quotas(given: Option<&v1::TenantQuotas>) -> DecodeResult<Quotas> {
    let Some(given) = given else { return Ok(Quotas::default()) };
    let limit = |field: &str, limit: Option<u64>| limit.map(|n| decode_in_range(field, n, 0..=AMOUNT_MAX)).transpose();
    Ok(Quotas {
        calls_per_second: limit("quotas.calls_per_second", given.calls_per_second)?,
        sessions: limit("quotas.sessions", given.sessions)?,
        stored_bytes: limit("quotas.stored_bytes", given.stored_bytes)?,
        approvals_open: limit("quotas.approvals_open", given.approvals_open)?,
    })
}

/// Months belong to the deployment, and to no other tenant.
fn terms(name: &str, given: Option<&v1::TenantRetention>) -> DecodeResult<Terms> {
    let Some(given) = given else { return Ok(Terms::default()) };
    let days = |field: &str, days: Option<u32>, least: u32| {
        let days =
            days.map(|days| decode_in_range(field, days.into(), least.into()..=TERM_DAYS_MAX.into())).transpose()?;
        DecodeResult::Ok(days.and_then(|days| u32::try_from(days).ok()))
    };
    let months = days("retention.months_days", given.months_days, MONTHS_DAYS_MIN)?;
    if months.is_some() && name != DEFAULT_TENANT_NAME {
        return wrong("retention.months_days", "must be absent: months are those of the tenant `default`");
    }
    Ok(Terms {
        words: days("retention.texts_days", given.texts_days, 1)?,
        calls: days("retention.calls_days", given.calls_days, 1)?,
        months,
    })
}

#[tonic::async_trait]
impl v1::tenant_service_server::TenantService for TenantService {
    async fn create_tenant(&self, request: Request<v1::CreateTenantRequest>) -> MethodResult<v1::CreateTenantResponse> {
        of_the_plane(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let name = decode_name(&message.name)?;
        let quotas = quotas(message.quotas.as_ref())?;
        let tenant = encode_change(service::answer_in_time(self.identities.create_tenant(&name, &quotas, &by)).await?)?;
        Ok(Response::new(v1::CreateTenantResponse { tenant: Some(tenant) }))
    }

    async fn list_tenants(&self, request: Request<v1::ListTenantsRequest>) -> MethodResult<v1::ListTenantsResponse> {
        of_the_plane(&request)?;
        let message = request.into_inner();
        let size = page_size(message.page_size, PAGE_DEFAULT)?;
        let after = page::after(&message.page_token, |[id]| id.parse::<i64>().ok())?;
        service::answer_in_time(Box::pin(self.identities.read_tenants_for_operator())).await?;
        let mut tenants = self.identities.server.tenants();
        tenants.retain(|tenant| after.is_none_or(|after| after < tenant.id.0));
        let (tenants, next_page_token) = page::split_page(tenants, size, |last| page::token([&last.id.0.to_string()]));
        let tenants = tenants.iter().map(|tenant| encode_tenant(tenant)).collect();
        Ok(Response::new(v1::ListTenantsResponse { tenants, next_page_token }))
    }

    async fn set_tenant_quotas(
        &self,
        request: Request<v1::SetTenantQuotasRequest>,
    ) -> MethodResult<v1::SetTenantQuotasResponse> {
        of_the_plane(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let name = decode_name(&message.name)?;
        let quotas = quotas(message.quotas.as_ref())?;
        let tenant =
            encode_change(service::answer_in_time(self.identities.set_tenant_quotas(&name, &quotas, &by)).await?)?;
        Ok(Response::new(v1::SetTenantQuotasResponse { tenant: Some(tenant) }))
    }

    async fn set_tenant_retention(
        &self,
        request: Request<v1::SetTenantRetentionRequest>,
    ) -> MethodResult<v1::SetTenantRetentionResponse> {
        of_the_plane(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let name = decode_name(&message.name)?;
        let terms = terms(&name, message.retention.as_ref())?;
        let tenant =
            encode_change(service::answer_in_time(self.identities.set_tenant_terms(&name, &terms, &by)).await?)?;
        Ok(Response::new(v1::SetTenantRetentionResponse { tenant: Some(tenant) }))
    }

    async fn suspend_tenant(
        &self,
        request: Request<v1::SuspendTenantRequest>,
    ) -> MethodResult<v1::SuspendTenantResponse> {
        of_the_plane(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let tenant = self.set_state(by, &message.name, &message.reason, TenantState::Suspended).await?;
        Ok(Response::new(v1::SuspendTenantResponse { tenant: Some(tenant) }))
    }

    async fn resume_tenant(&self, request: Request<v1::ResumeTenantRequest>) -> MethodResult<v1::ResumeTenantResponse> {
        of_the_plane(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let tenant = self.set_state(by, &message.name, &message.reason, TenantState::Active).await?;
        Ok(Response::new(v1::ResumeTenantResponse { tenant: Some(tenant) }))
    }

    async fn delete_tenant(&self, request: Request<v1::DeleteTenantRequest>) -> MethodResult<v1::DeleteTenantResponse> {
        of_the_plane(&request)?;
        let by = identity::actor(&request)?;
        let message = request.into_inner();
        let tenant = self.set_state(by, &message.name, &message.reason, TenantState::Deleted).await?;
        Ok(Response::new(v1::DeleteTenantResponse { tenant: Some(tenant) }))
    }
}
