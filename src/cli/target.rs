//! Target of administration: a running server, or its database directly.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;

use callgate_client::remote::{ActorArgs, Remote};
use callgate_core::{
    domain::{ids::TenantId, tenant::DEFAULT_TENANT_NAME},
    policy::Policy,
};
use callgate_net::clock::Clock;
use callgate_postgres::find_running;
use callgate_server::{database, gate::Gate, telemetry::Metrics};
use callgate_store::{Store, StoreSettings, parse_url};

/// Target of a command: a server, with the actor, or a database.
#[derive(Debug, Args)]
pub(super) struct CommandTarget {
    #[command(flatten)]
    pub(super) remote: Remote,
    #[command(flatten)]
    pub(super) by: ActorArgs,
    /// Use this database directly, without a server
    #[arg(long, value_name = "URL", env = "CALLGATE_ADMIN_DATABASE_URL", hide_env_values = true, global = true)]
    database_url: Option<String>,
    /// Use the private database of the running server with this data directory
    #[arg(long, value_name = "DIR", conflicts_with = "database_url", global = true)]
    data_dir: Option<PathBuf>,
    /// The tenant, with a database [default: default]; over a server the credential names it
    #[arg(long, value_name = "NAME", global = true)]
    tenant: Option<String>,
}

impl CommandTarget {
    /// The tenant's name, for a direct database.
    pub(super) fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or(DEFAULT_TENANT_NAME)
    }

    /// A gate on the database and the tenant, for a direct database.
    pub(super) async fn database(&self) -> anyhow::Result<Option<(Arc<Gate>, TenantId)>> {
        let Some(url) = self.database_url().await? else {
            if let Some(tenant) = &self.tenant {
                bail!(
                    "--tenant {tenant} needs --database-url or --data-dir; over a server the credential names the \
                     tenant: omit --tenant, or use a credential of that tenant"
                );
            }
            return Ok(None);
        };
        let options = parse_url(&url).context("--database-url")?;
        let store = Store::open(StoreSettings { options, on_commit: Arc::new(|_| {}), traced: Arc::new(()) }).await;
        let store = store.context("cannot use the database")?;
        let gate = Arc::new(Gate::new(Arc::new(Policy::default()), store, Metrics::none(), Clock::System));
        gate.identities.read_credentials().await?;
        let name = self.tenant();
        let tenant = gate
            .store
            .find_tenants(&[name.to_owned()])
            .await?
            .remove(name)
            .ok_or_else(|| anyhow!("there is no tenant {name:?}"))?;
        Ok(Some((gate, tenant)))
    }

    /// The database's URL, for a direct database.
    pub(super) async fn database_url(&self) -> anyhow::Result<Option<String>> {
        let Some(dir) = &self.data_dir else { return Ok(self.database_url.clone()) };
        let running = find_running(&database::data_dir(Some(dir))?).await?;
        Ok(Some(running.connection.url()))
    }
}
