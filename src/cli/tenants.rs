//! `callgate tenants`: tenants of a deployment, with their quotas.

use anyhow::bail;
use clap::{Args, Subcommand};

use super::server_args::{ReadArgs, WriteArgs};
use callgate_client::{
    json::OutputFormat,
    remote::{Remote, at, into_response, member_name},
};
use callgate_proto::v1::{
    CreateTenantRequest, DeleteTenantRequest, ListTenantsRequest, ResumeTenantRequest, SetTenantQuotasRequest,
    SetTenantRetentionRequest, SuspendTenantRequest, Tenant, TenantQuotas, TenantRetention,
    tenant_service_client::TenantServiceClient,
};

/// Arguments of `callgate tenants`.
#[derive(Debug, Args)]
pub(super) struct TenantsArgs {
    #[command(subcommand)]
    command: TenantsCommand,
}

#[derive(Debug, Subcommand)]
enum TenantsCommand {
    /// Create a tenant
    Create {
        #[command(flatten)]
        one: TenantArgs,
        #[command(flatten)]
        quotas: Quotas,
    },
    /// List the tenants, also deleted ones
    List {
        #[command(flatten)]
        server: ReadArgs,
    },
    /// Replace all quotas of a tenant: an omitted quota is removed
    Quotas {
        #[command(flatten)]
        one: TenantArgs,
        #[command(flatten)]
        quotas: Quotas,
    },
    /// Replace a tenant's retention periods: without a period, data is kept forever
    Retention {
        #[command(flatten)]
        one: TenantArgs,
        #[command(flatten)]
        terms: Terms,
    },
    /// Suspend a tenant; its data is kept
    Suspend(Change),
    /// Resume a suspended tenant
    Resume(Change),
    /// Delete a suspended tenant for good
    Delete {
        #[command(flatten)]
        change: Change,
        /// Confirm the deletion, which cannot be undone
        #[arg(long)]
        yes: bool,
    },
}

impl TenantsCommand {
    fn output_format(&self) -> OutputFormat {
        match self {
            Self::List { server } => server.form,
            Self::Create { one, .. } | Self::Quotas { one, .. } | Self::Retention { one, .. } => one.server.form,
            Self::Suspend(change) | Self::Resume(change) | Self::Delete { change, .. } => change.one.server.form,
        }
    }
}

/// Which tenant, and who does it.
#[derive(Debug, Args)]
struct TenantArgs {
    /// The tenant's name: lowercase letters, digits and hyphens
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    server: WriteArgs,
}

#[derive(Debug, Args)]
struct Change {
    #[command(flatten)]
    one: TenantArgs,
    /// Reason, stored with the tenant
    #[arg(long, default_value = "")]
    reason: String,
}

/// Quotas of a tenant.
#[derive(Debug, Clone, Copy, Args)]
#[group(id = "quotas_of_a_tenant")]
struct Quotas {
    /// Calls per second on each replica
    #[arg(long, value_name = "CALLS")]
    calls_per_second: Option<u64>,
    /// Stored call trees
    #[arg(long, value_name = "SESSIONS")]
    sessions: Option<u64>,
    /// Stored bytes of calls and outcomes
    #[arg(long, value_name = "BYTES")]
    stored_bytes: Option<u64>,
    /// Open approval requests
    #[arg(long, value_name = "QUESTIONS")]
    approvals_open: Option<u64>,
}

/// Retention periods.
#[derive(Debug, Clone, Copy, Args)]
struct Terms {
    /// Days until the texts of calls are deleted: arguments, results, errors, notes
    #[arg(long, value_name = "DAYS")]
    texts_days: Option<u32>,
    /// Days without calls until a call tree is deleted
    #[arg(long, value_name = "DAYS")]
    calls_days: Option<u32>,
    /// Days until whole months of all tenants are dropped; for the tenant default only
    #[arg(long, value_name = "DAYS")]
    months_days: Option<u32>,
}

impl From<Quotas> for TenantQuotas {
    fn from(Quotas { calls_per_second, sessions, stored_bytes, approvals_open }: Quotas) -> Self {
        Self { calls_per_second, sessions, stored_bytes, approvals_open }
    }
}

pub(super) async fn run(args: TenantsArgs) -> anyhow::Result<()> {
    let form = args.command.output_format();
    let changed = match args.command {
        TenantsCommand::List { server: ReadArgs { form, remote } } => return list(form, &remote).await,
        TenantsCommand::Create { one, quotas } => {
            let request = CreateTenantRequest { name: one.name, quotas: Some(quotas.into()) };
            let mut client = TenantServiceClient::new(one.server.remote.connect().await?);
            into_response(client.create_tenant(one.server.by.sign_request(request)?).await)?.tenant
        }
        TenantsCommand::Quotas { one, quotas } => {
            let request = SetTenantQuotasRequest { name: one.name, quotas: Some(quotas.into()) };
            let mut client = TenantServiceClient::new(one.server.remote.connect().await?);
            into_response(client.set_tenant_quotas(one.server.by.sign_request(request)?).await)?.tenant
        }
        TenantsCommand::Retention { one, terms: Terms { texts_days, calls_days, months_days } } => {
            let retention = Some(TenantRetention { texts_days, calls_days, months_days });
            let request = SetTenantRetentionRequest { name: one.name, retention };
            let mut client = TenantServiceClient::new(one.server.remote.connect().await?);
            into_response(client.set_tenant_retention(one.server.by.sign_request(request)?).await)?.tenant
        }
        TenantsCommand::Suspend(Change { one, reason }) => {
            let request = SuspendTenantRequest { name: one.name, reason };
            let mut client = TenantServiceClient::new(one.server.remote.connect().await?);
            into_response(client.suspend_tenant(one.server.by.sign_request(request)?).await)?.tenant
        }
        TenantsCommand::Resume(Change { one, reason }) => {
            let request = ResumeTenantRequest { name: one.name, reason };
            let mut client = TenantServiceClient::new(one.server.remote.connect().await?);
            into_response(client.resume_tenant(one.server.by.sign_request(request)?).await)?.tenant
        }
        TenantsCommand::Delete { change: Change { one, reason }, yes } => {
            if !yes {
                bail!("`tenants delete` deletes {} for good; add --yes to confirm", one.name);
            }
            let request = DeleteTenantRequest { name: one.name, reason };
            let mut client = TenantServiceClient::new(one.server.remote.connect().await?);
            into_response(client.delete_tenant(one.server.by.sign_request(request)?).await)?.tenant
        }
    };
    form.print_items(changed.as_slice(), print_tenant)
}

async fn list(form: OutputFormat, remote: &Remote) -> anyhow::Result<()> {
    let mut client = TenantServiceClient::new(remote.connect().await?);
    let mut request = ListTenantsRequest::default();
    loop {
        let page = into_response(client.list_tenants(request).await)?;
        form.print_items(&page.tenants, print_tenant)?;
        if page.next_page_token.is_empty() {
            return Ok(());
        }
        request = ListTenantsRequest { page_token: page.next_page_token, ..Default::default() };
    }
}

fn print_tenant(tenant: &Tenant) {
    let state = member_name(tenant.state().as_str_name(), "TENANT_STATE_");
    let by = if tenant.state_by.is_empty() { String::new() } else { format!(" by {}", tenant.state_by) };
    let why = if tenant.state_reason.is_empty() { String::new() } else { format!(": {}", tenant.state_reason) };
    let limits = limits(tenant) + &terms(tenant);
    outln!(
        "{:>5}  {:<24}  {state:<9}  since {}{by}{why}{limits}",
        tenant.tenant_id,
        tenant.name,
        at(tenant.state_time.as_ref())
    );
}

/// Quotas and usage in a line; empty without quotas.
fn limits(tenant: &Tenant) -> String {
    let quotas = tenant.quotas.unwrap_or_default();
    let limits = [
        quotas.calls_per_second.map(|n| format!("{n} calls per second")),
        quotas.sessions.map(|n| format!("{n} sessions ({} stored)", tenant.used_sessions)),
        quotas.stored_bytes.map(|n| format!("{n} bytes ({} stored)", tenant.used_bytes)),
        quotas.approvals_open.map(|n| format!("{n} open approval requests")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() { String::new() } else { format!("\n       at most {}", limits.join(", ")) }
}

/// Retention periods in a line; empty if unlimited.
fn terms(tenant: &Tenant) -> String {
    let retention = tenant.retention.unwrap_or_default();
    let terms = [
        retention.texts_days.map(|days| format!("texts {days} days")),
        retention.calls_days.map(|days| format!("call trees {days} days")),
        retention.months_days.map(|days| format!("months of all tenants {days} days")),
    ];
    let terms: Vec<String> = terms.into_iter().flatten().collect();
    if terms.is_empty() { String::new() } else { format!("\n       keeps {}", terms.join(", ")) }
}
