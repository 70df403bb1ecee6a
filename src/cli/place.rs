//! Where an administrator works: over a running server, or on its database.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::{
    database,
    remote::{By, Remote},
};
use crate::{
    clock::Clock,
    gate::Gate,
    private_postgres::find_running,
    store::{Store, StoreSettings, parse_url},
    telemetry::Metrics,
};
use callgate_core::{domain::ids::TenantId, policy::Policy};

/// Over which server it is done and by whom, or on which database.
#[derive(Debug, Args)]
pub(super) struct Place {
    #[command(flatten)]
    pub(super) remote: Remote,
    #[command(flatten)]
    pub(super) by: By,
    /// Do it on this database, not over a server
    #[arg(long, value_name = "URL", env = "CALLGATE_ADMIN_DATABASE_URL", hide_env_values = true, global = true)]
    database_url: Option<String>,
    /// Do it on the private database of the server that runs with this data directory
    #[arg(long, value_name = "DIR", conflicts_with = "database_url", global = true)]
    data_dir: Option<PathBuf>,
    /// Whose, on a database; over a server it is the tenant of who asks
    #[arg(long, value_name = "NAME", default_value = "default", global = true)]
    tenant: String,
}

impl Place {
    /// A gate on the database, where it is to be used directly, and the tenant.
    pub(super) async fn database(&self) -> anyhow::Result<Option<(Arc<Gate>, TenantId)>> {
        let Some(url) = self.database_url().await? else { return Ok(None) };
        let options = parse_url(&url).context("--database-url")?;
        let store = Store::open(StoreSettings { options, on_commit: Arc::new(|_| {}), traced: Arc::new(()) }).await;
        let store = store.context("cannot use the database")?;
        let gate = Arc::new(Gate::new(Arc::new(Policy::default()), store, Metrics::none(), Clock::System));
        gate.read_credentials().await?;
        let tenant = gate.tenant_named(&self.tenant).await?;
        let tenant = tenant.ok_or_else(|| anyhow!("there is no tenant {:?}", self.tenant))?;
        Ok(Some((gate, tenant)))
    }

    async fn database_url(&self) -> anyhow::Result<Option<String>> {
        let Some(dir) = &self.data_dir else { return Ok(self.database_url.clone()) };
        let running = find_running(&database::data_dir(Some(dir))?).await?;
        Ok(Some(running.connection.url()))
    }
}
