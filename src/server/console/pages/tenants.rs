//! `/tenants`: the tenants of the deployment, each with its usage, budgets near their limit, and halts.

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;

use super::now::is_outage;
use crate::console::{Console, fault::PageError, filters, frame::Frame, visitor::Visitor};
use callgate_proto::v1::{
    Fleet, FleetPart, GetFleetRequest, GetUsageRequest, ListTenantsRequest, Tenant, TenantState, UsageTotals,
    fleet_service_client::FleetServiceClient, tenant_service_client::TenantServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/tenants";
/// Tenants on a page, and those whose usage is read at once.
const PAGE: u32 = 20;
const AT_ONCE: usize = 4;

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(show))
}

#[derive(Deserialize)]
struct TenantsQuery {
    #[serde(default)]
    after: String,
}

#[derive(Template)]
#[template(path = "tenants.html")]
struct Page {
    frame: Frame,
    rows: Vec<TenantRow>,
    next: String,
}

/// A tenant. Its usage and state are missing where they could not be read.
struct TenantRow {
    tenant: Tenant,
    usage: Option<UsageTotals>,
    fleet: Option<Fleet>,
}

async fn show(visitor: Visitor, Query(asked): Query<TenantsQuery>) -> Result<Html<String>, PageError> {
    let asked = ListTenantsRequest { page_size: PAGE, page_token: asked.after };
    let found = TenantServiceClient::new(visitor.calls.clone()).list_tenants(asked).await?.into_inner();
    let rows = stream::iter(found.tenants).map(|tenant| read_row(&visitor, tenant)).buffered(AT_ONCE);
    let rows: Vec<Result<TenantRow, PageError>> = rows.collect().await;
    let rows = rows.into_iter().collect::<Result<_, _>>()?;
    let frame = Frame::new(&visitor, PATH, "Tenants");
    Ok(Html(Page { frame, rows, next: found.next_page_token }.render()?))
}

async fn read_row(visitor: &Visitor, tenant: Tenant) -> Result<TenantRow, PageError> {
    if tenant.state() == TenantState::Deleted {
        return Ok(TenantRow { tenant, usage: None, fleet: None });
    }
    let (mut fleets, mut usages) =
        (FleetServiceClient::new(visitor.calls.clone()), FleetServiceClient::new(visitor.calls.clone()));
    let parts = vec![FleetPart::Budgets.into()];
    let (fleet, usage) = tokio::join!(
        fleets.get_fleet(GetFleetRequest { parts, tenant: tenant.name.clone() }),
        usages.get_usage(GetUsageRequest { tenant: tenant.name.clone(), ..Default::default() })
    );
    let fleet = match fleet {
        Ok(fleet) => fleet.into_inner().fleet,
        Err(status) if is_outage(&status) => None,
        Err(status) => return Err(status.into()),
    };
    let usage = match usage {
        Ok(usage) => usage.into_inner().total,
        Err(status) if is_outage(&status) => None,
        Err(status) => return Err(status.into()),
    };
    Ok(TenantRow { tenant, usage, fleet })
}

impl TenantRow {
    fn state(&self) -> (&'static str, &'static str) {
        match self.tenant.state() {
            TenantState::Active | TenantState::Unspecified => ("good", "active"),
            TenantState::Suspended => ("warn", "suspended"),
            TenantState::Deleted => ("muted", "deleted"),
        }
    }

    /// A used amount with its quota.
    fn quota(&self, used: u64, quota: Option<u64>) -> String {
        match quota {
            Some(quota) => format!("{} of {}", filters::group_thousands(used), filters::group_thousands(quota)),
            None => filters::group_thousands(used),
        }
    }

    fn sessions(&self) -> String {
        self.quota(self.tenant.used_sessions, self.tenant.quotas.and_then(|quotas| quotas.sessions))
    }

    fn bytes(&self) -> String {
        self.quota(self.tenant.used_bytes, self.tenant.quotas.and_then(|quotas| quotas.stored_bytes))
    }

    /// Budgets near their limit, of the tenant and below it, and the exhausted ones.
    fn budgets(&self) -> (&'static str, String) {
        let Some(fleet) = self.fleet.as_ref().filter(|fleet| fleet.unavailable.is_empty()) else {
            return ("muted", "unknown".to_owned());
        };
        let over = fleet.budgets.iter().filter(|budget| budget.used >= budget.limit).count();
        match (fleet.budgets.len(), over) {
            (0, _) => ("", "none near its limit".to_owned()),
            (near, 0) => ("warn", format!("{near} near the limit")),
            (near, over) => ("bad", format!("{over} exhausted, {} near the limit", near - over)),
        }
    }

    fn halts(&self) -> String {
        self.fleet.as_ref().map_or_else(|| "unknown".to_owned(), |fleet| fleet.halts.len().to_string())
    }
}
