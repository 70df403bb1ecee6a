//! Destinations of notifications, for those who list and test them.

use std::{fmt, pin::Pin};

use super::{Insight, NoAnswer};
use callgate_core::domain::{
    audit::{Actor, AuditEvent, AuditOperation},
    ids::TenantId,
};
use callgate_store::NotificationQueue;

/// A destination of the server's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationTarget {
    /// Its name.
    pub name: String,
    /// Way to it: `webhook`, `slack` or `email`.
    pub channel: &'static str,
    /// Names of its events.
    pub events: Vec<&'static str>,
    /// Groups of its approval requests; empty is all.
    pub groups: Vec<String>,
}

/// Result of a test message: the problem, where it was not accepted; none for an unknown destination.
pub type TargetTest<'a> = Pin<Box<dyn Future<Output = Option<Result<(), String>>> + Send + 'a>>;

/// The destinations of the server's file.
pub trait NotificationTargets: fmt::Debug + Send + Sync {
    /// Those that are notified of the events of a tenant.
    fn list_targets(&self, tenant: &str) -> Vec<NotificationTarget>;

    /// Sends a test message to one of them.
    fn test_target<'a>(&'a self, tenant: &'a str, name: &'a str) -> TargetTest<'a>;
}

impl Insight {
    /// The tenant's destinations with their queues.
    ///
    /// # Errors
    /// [`NoAnswer`] when the queues cannot be read.
    pub async fn notification_targets(
        &self,
        tenant: TenantId,
    ) -> Result<Vec<(NotificationTarget, NotificationQueue)>, NoAnswer> {
        let Some(targets) = self.server.notification_targets.get() else { return Ok(Vec::new()) };
        let mut queues = self.operators.notification_queues(tenant).await?;
        let listed = targets.list_targets(&self.tenant_name(tenant)).into_iter();
        let with_queue = |target: NotificationTarget| {
            let queue = queues.remove(&target.name).unwrap_or_default();
            (target, queue)
        };
        Ok(listed.map(with_queue).collect())
    }

    /// Sends a test message to a destination of the tenant, once the audit log has it: its problem, if any; none for
    /// an unknown destination.
    ///
    /// # Errors
    /// [`NoAnswer`] when the audit log cannot be written: nothing is sent.
    pub async fn test_notification_target(
        &self,
        tenant: TenantId,
        name: &str,
        by: Actor,
    ) -> Result<Option<Result<(), String>>, NoAnswer> {
        let Some(targets) = self.server.notification_targets.get() else { return Ok(None) };
        let tenant_name = self.tenant_name(tenant);
        if targets.list_targets(&tenant_name).iter().all(|target| target.name != name) {
            return Ok(None);
        }
        let entry = AuditEvent::new(AuditOperation::NotificationTested, by, format!("destination {name}"));
        self.operators.append_audit_entry(tenant, &entry).await?;
        Ok(targets.test_target(&tenant_name, name).await)
    }

    fn tenant_name(&self, tenant: TenantId) -> String {
        let tenants = self.server.tenants();
        tenants.iter().find(|one| one.id == tenant).map(|one| one.name.clone()).unwrap_or_default()
    }
}
