//! Descriptions of the tools of MCP servers: reports of proxies, and what operators say of changed ones.

use std::collections::BTreeMap;

use super::{Insight, NoAnswer};
use callgate_core::domain::{
    audit::Actor,
    ids::TenantId,
    tool_descriptions::{DescriptionPage, DescriptionVersion, ReportedTool},
};
use callgate_store::DescriptionKey;

impl Insight {
    /// Stores what a proxy reports of a server's tools, over the agents' connections; false when the tenant has too
    /// many descriptions.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used.
    pub async fn report_tools(
        &self,
        tenant: TenantId,
        (server, by): (&str, &str),
        tools: &[ReportedTool],
    ) -> Result<bool, NoAnswer> {
        Ok(self.store.report_tools(tenant, (server, by), tools).await?)
    }

    /// Descriptions after a key, at most `max`.
    ///
    /// # Errors
    /// [`NoAnswer`] when they cannot be read.
    pub async fn tool_descriptions(
        &self,
        tenant: TenantId,
        is_only_changed: bool,
        after: Option<&DescriptionKey>,
        max: usize,
    ) -> Result<DescriptionPage, NoAnswer> {
        Ok(self.operators.tool_descriptions(tenant, is_only_changed, after, max).await?)
    }

    /// Accepts or rejects a description; none for an unknown one.
    ///
    /// # Errors
    /// [`NoAnswer`] when the database cannot be used; the result is unknown then.
    pub async fn resolve_tool_description(
        &self,
        tenant: TenantId,
        named: (&str, &str, &str),
        is_accepted: bool,
        (by, why): (&Actor, &str),
    ) -> Result<Option<DescriptionVersion>, NoAnswer> {
        Ok(self.operators.resolve_tool_description(tenant, named, is_accepted, (by, why)).await?)
    }

    /// Records the number of changed descriptions of each tenant.
    pub(super) async fn count_changed_tools(&self, tenants: &[TenantId]) -> Result<(), NoAnswer> {
        let changed: BTreeMap<TenantId, u64> = self.store.changed_tools(tenants).await?;
        self.server.metrics.changed_tools(tenants, &changed);
        Ok(())
    }
}
